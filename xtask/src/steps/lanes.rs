//! Steps in lanes: those of a lane run one after another, and lanes side by side. What a step prints is kept until it ends, so that
//! the lines of two never mix. A step that fails does not keep the others from running: one run tells of all that fail.

use super::{Limits, Steps, child, clock, words};
use anyhow::{Context, Result, anyhow, bail};
use std::io::{Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Steps that run one after another, each with its name.
pub(crate) type Lane = Vec<(String, Command)>;

/// A step that has the words of its command as its name.
pub(crate) fn named(command: Command) -> (String, Command) {
    (words(&command), command)
}

/// Circumstances that all lanes have in common.
struct Road<'a> {
    limits: Limits,
    started: Instant,
    interrupts: [&'a UnixStream; 2],
    /// The end that stops all lanes once something is written to it.
    stop: Mutex<UnixStream>,
    shared: Mutex<Shared<'a>>,
}

/// Outcomes, and the report that tells them.
struct Shared<'a> {
    done: &'a mut Vec<(String, Duration)>,
    report: &'a mut (dyn Write + Send),
    /// Steps that failed, each with its status.
    failed: Vec<String>,
    /// The error that ended all lanes: of a step that was overdue or interrupted, or could not be run at all.
    end: Option<anyhow::Error>,
}

impl Steps {
    /// Runs lanes side by side, and fails if any step does.
    pub(crate) fn side_by_side(&mut self, lanes: Vec<Lane>) -> Result<()> {
        self.lanes(lanes, &mut std::io::stderr())
    }

    pub(super) fn lanes(&mut self, lanes: Vec<Lane>, report: &mut (dyn Write + Send)) -> Result<()> {
        let (stop, stopped) = UnixStream::pair()?;
        let road = Road {
            limits: self.limits,
            started: self.started,
            interrupts: [&self.interrupt, &stopped],
            stop: Mutex::new(stop),
            shared: Mutex::new(Shared { done: &mut self.done, report, failed: Vec::new(), end: None }),
        };
        thread::scope(|threads| {
            let road = &road;
            for (number, lane) in lanes.into_iter().enumerate() {
                let folder = self.folder.path().join(number.to_string());
                threads.spawn(move || road.travel(&folder, lane));
            }
        });
        let shared = road.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (shared.end, shared.failed.join("; ")) {
            (None, failed) if failed.is_empty() => Ok(()),
            (None, failed) => Err(anyhow!(failed)),
            (Some(end), failed) if failed.is_empty() => Err(end),
            (Some(end), failed) => Err(end.context(failed)),
        }
    }
}

impl Road<'_> {
    /// Runs a lane to its end, or until all are ended.
    fn travel(&self, folder: &Path, lane: Lane) {
        if let Err(error) = self.steps(folder, lane) {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            // The others are ended by it, and fail for that reason.
            shared.end.get_or_insert(error);
            let _ = self.stop.lock().unwrap_or_else(PoisonError::into_inner).write_all(b"x");
        }
    }

    fn steps(&self, folder: &Path, lane: Lane) -> Result<()> {
        // One of an earlier chore of lanes may be there.
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for (name, mut command) in lane {
            let limit = self.limits.left(self.started, &name)?;
            let begun = Instant::now();
            let mut output = tempfile::tempfile()?;
            command.env("TMPDIR", folder).stdout(output.try_clone()?).stderr(output.try_clone()?);
            let step = child::Step { folder, limit, interrupts: &self.interrupts };
            let mut threads = Vec::new();
            let ended = step.run(&mut command, &mut threads);
            output.rewind()?;
            let mut text = Vec::new();
            output.read_to_end(&mut text)?;
            text.extend(threads);
            self.tell(&name, begun, &text)?;
            let status = ended.with_context(|| format!("step {name}"))?;
            if !status.success() {
                let mut shared = self.shared.lock().map_err(|_| anyhow!("another lane has panicked"))?;
                shared.failed.push(format!("{name} failed: {status}"));
            }
        }
        Ok(())
    }

    /// Reports a step that has ended, unless all are being stopped.
    fn tell(&self, name: &str, begun: Instant, text: &[u8]) -> Result<()> {
        let mut shared = self.shared.lock().map_err(|_| anyhow!("another lane has panicked"))?;
        if shared.end.is_some() {
            bail!("another lane has ended all");
        }
        shared.done.push((name.to_owned(), begun.elapsed()));
        let begun = clock(begun.duration_since(self.started));
        writeln!(shared.report, "+ {begun} {name}").and_then(|()| shared.report.write_all(text))?;
        Ok(())
    }
}
