//! Report of restored files and failures.

use crate::format::UnitMode;
use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of failures that a JSON report lists; all are counted.
const LISTED_FAILURES: usize = 1000;

/// Counts, notes and failures, by any thread.
pub(super) struct Report {
    pub(super) files: AtomicU64,
    pub(super) directories: AtomicU64,
    pub(super) links: AtomicU64,
    pub(super) symlinks: AtomicU64,
    pub(super) specials: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    listed: Mutex<Vec<(String, String)>>,
    notes: Mutex<BTreeSet<String>>,
    progress: ProgressBar,
}

/// Counts one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Report {
    /// An empty report; `visible` if progress may be shown (it is on a terminal alone).
    pub(super) fn new(visible: bool) -> Self {
        let progress = if visible && std::io::stderr().is_terminal() {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8))
        } else {
            ProgressBar::hidden()
        };
        let style =
            ProgressStyle::with_template("{spinner} {binary_bytes} {binary_bytes_per_sec} {wide_msg}");
        progress.set_style(style.expect("the template is right"));
        Self {
            files: AtomicU64::new(0),
            directories: AtomicU64::new(0),
            links: AtomicU64::new(0),
            symlinks: AtomicU64::new(0),
            specials: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            listed: Mutex::new(Vec::new()),
            notes: Mutex::new(BTreeSet::new()),
            progress,
        }
    }

    /// Counts bytes that were written.
    pub(super) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.progress.inc(bytes);
    }

    /// Shows which directory is at work.
    pub(super) fn at(&self, path: &[u8]) {
        if !self.progress.is_hidden() {
            self.progress.set_message(String::from_utf8_lossy(path).into_owned());
        }
    }

    /// Says something once, however often it happens.
    pub(super) fn note(&self, text: &str) {
        let mut notes = self.notes.lock().expect("no thread panics with it");
        if notes.insert(text.to_owned()) {
            self.progress.suspend(|| tracing::warn!("{text}"));
        }
    }

    /// Notes that something could not be restored.
    pub(super) fn fail(&self, path: &[u8], error: &dyn std::fmt::Display) {
        let (path, error) = (String::from_utf8_lossy(path).into_owned(), error.to_string());
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.progress.suspend(|| output::complain_line(&format!("{path}: {error}")));
        let mut listed = self.listed.lock().expect("no thread panics with it");
        if listed.len() < LISTED_FAILURES {
            listed.push((path, error));
        }
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
    pub(super) fn summary(&self, elapsed: Duration) -> String {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let size = UnitMode::DEFAULT.format(get(&self.bytes));
        let mut text = format!(
            "restored {} files ({size}), {} directories, {} symbolic links, {} special files, {} hard links \
             in {:.1} s",
            get(&self.files),
            get(&self.directories),
            get(&self.symlinks),
            get(&self.specials),
            get(&self.links),
            elapsed.as_secs_f64()
        );
        if self.failures() > 0 {
            text.push_str(&format!("; {} failures", self.failures()));
        }
        text
    }

    /// The report as JSON.
    pub(super) fn json(&self, elapsed: Duration) -> Value {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let listed = self.listed.lock().expect("no thread panics with it");
        let listed = listed.iter().map(|(path, error)| json!({ "path": path, "error": error }));
        json!({
            "files": get(&self.files),
            "directories": get(&self.directories),
            "symlinks": get(&self.symlinks),
            "specials": get(&self.specials),
            "hard_links": get(&self.links),
            "bytes": get(&self.bytes),
            "seconds": elapsed.as_secs_f64(),
            "failures": self.failures(),
            "failed": listed.collect::<Vec<_>>(),
            "notes": *self.notes.lock().expect("no thread panics with it"),
        })
    }
}
