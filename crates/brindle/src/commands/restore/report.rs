//! Progress of a restore, and its report.

use crate::commands::stop::Stop;
use crate::damage;
use crate::format::UnitMode;
use crate::output;
use brindle_care::extract::{ExtractObserver, Extracted, Failure, Note};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of failures that a JSON report lists; all are counted.
const LISTED_FAILURES: usize = 1000;

/// Progress, notes and failures, by any thread.
pub(super) struct Report {
    stop: Stop,
    /// Nothing is written.
    is_dry: bool,
    failures: AtomicU64,
    listed: Mutex<Vec<(String, String)>>,
    /// Paths of which something could not be read.
    damaged: Mutex<BTreeSet<Vec<u8>>>,
    notes: Mutex<BTreeSet<String>>,
    progress: ProgressBar,
}

impl ExtractObserver for Report {
    fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    fn entered(&self, path: &[u8]) {
        if !self.progress.is_hidden() {
            self.progress.set_message(String::from_utf8_lossy(path).into_owned());
        }
    }

    fn wrote(&self, bytes: u64) {
        self.progress.inc(bytes);
    }

    fn noted(&self, note: &Note) {
        self.note(&note.to_string());
    }

    fn failed(&self, path: &[u8], failure: &Failure) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if let Failure::Filesystem(error) | Failure::Unreadable { first: error, .. } = failure {
            damage::note(error);
            self.damaged.lock().expect("no thread panics with it").insert(path.to_vec());
        }
        if matches!(failure, Failure::LostChunks { .. }) {
            self.damaged.lock().expect("no thread panics with it").insert(path.to_vec());
        }
        let (path, error) = (String::from_utf8_lossy(path).into_owned(), in_words(failure));
        self.progress.suspend(|| output::complain_line(&format!("{path}: {error}")));
        let mut listed = self.listed.lock().expect("no thread panics with it");
        if listed.len() < LISTED_FAILURES {
            listed.push((path, error));
        }
    }
}

/// A failure, with the options that mend it.
fn in_words(failure: &Failure) -> String {
    match failure {
        Failure::Make(Errno::EXIST) => {
            "a file of this name exists, and stays: --overwrite replaces it, --resume goes on with an earlier copy"
                .to_owned()
        }
        _ => failure.to_string(),
    }
}

impl Report {
    /// An empty report; `visible` if progress may be shown (it is on a terminal alone).
    pub(super) fn new(visible: bool, is_dry: bool, stop: Stop) -> Self {
        let progress = if visible && std::io::stderr().is_terminal() {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8))
        } else {
            ProgressBar::hidden()
        };
        let style =
            ProgressStyle::with_template("{spinner} {binary_bytes} {binary_bytes_per_sec} {wide_msg}");
        progress.set_style(style.expect("the template is right"));
        Self {
            stop,
            is_dry,
            failures: AtomicU64::new(0),
            listed: Mutex::new(Vec::new()),
            damaged: Mutex::new(BTreeSet::new()),
            notes: Mutex::new(BTreeSet::new()),
            progress,
        }
    }

    /// The signal that stops the work.
    pub(super) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Logs a note once, however often it is given.
    pub(super) fn note(&self, text: &str) {
        let mut notes = self.notes.lock().expect("no thread panics with it");
        if notes.insert(text.to_owned()) {
            self.progress.suspend(|| tracing::warn!("{text}"));
        }
    }

    /// Paths of which something could not be read.
    pub(super) fn damaged(&self) -> BTreeSet<Vec<u8>> {
        self.damaged.lock().expect("no thread panics with it").clone()
    }

    /// Number of failures.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Takes the progress bar away.
    pub(super) fn finish(&self) {
        self.progress.finish_and_clear();
    }

    /// The report in a line.
    pub(super) fn summary(&self, restored: &Extracted, elapsed: Duration) -> String {
        let size = UnitMode::DEFAULT.format(restored.bytes);
        let mut text = format!(
            "{} {} files ({size}), {} directories, {} symbolic links, {} special files, {} hard links \
             in {:.1} s",
            if self.is_dry { "would restore" } else { "restored" },
            restored.files,
            restored.directories,
            restored.symlinks,
            restored.specials,
            restored.links,
            elapsed.as_secs_f64()
        );
        if restored.kept_files > 0 {
            let size = UnitMode::DEFAULT.format(restored.kept_bytes);
            text.push_str(&format!("; {} files ({size}) were whole already", restored.kept_files));
        }
        if self.failures() > 0 {
            text.push_str(&format!("; {} failures", self.failures()));
        }
        text
    }

    /// The report as JSON.
    pub(super) fn json(&self, restored: &Extracted, elapsed: Duration) -> Value {
        let listed = self.listed.lock().expect("no thread panics with it");
        let listed = listed.iter().map(|(path, error)| json!({ "path": path, "error": error }));
        json!({
            "files": restored.files,
            "directories": restored.directories,
            "symlinks": restored.symlinks,
            "specials": restored.specials,
            "hard_links": restored.links,
            "bytes": restored.bytes,
            "kept_files": restored.kept_files,
            "kept_bytes": restored.kept_bytes,
            "dry_run": self.is_dry,
            "seconds": elapsed.as_secs_f64(),
            "failures": self.failures(),
            "failed": listed.collect::<Vec<_>>(),
            "notes": *self.notes.lock().expect("no thread panics with it"),
        })
    }
}
