//! What a writable mount does by itself: commits from time to time, and the work that nobody waits for.

use crate::operations::Operations;
use brindle_fs::{Filesystem, FsError, Remaining};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked whether there is work, when there was none.
const IDLE: Duration = Duration::from_secs(5);
/// A pause between two pieces of work, so that those who wait for something come first.
const PAUSE: Duration = Duration::from_millis(1);

/// The thread that does it. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Upkeep {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    is_asked: Mutex<bool>,
    changed: Condvar,
}

/// The next that is due.
struct Schedule {
    interval: Duration,
    next_commit: Instant,
}

impl Upkeep {
    /// Begins.
    pub(crate) fn start(
        operations: Arc<Operations>,
        filesystem: Arc<Filesystem>,
        interval: Duration,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(Stop::default());
        let stopped = Arc::clone(&stop);
        let run = move || work(&operations, &filesystem, &stopped, interval);
        let thread = std::thread::Builder::new().name("upkeep".to_owned()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        *self.stop.is_asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Stop {
    /// Waits; true if it is time to end.
    fn wait(&self, time: Duration) -> bool {
        let is_asked = self.is_asked.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self.changed.wait_timeout_while(is_asked, time, |is_asked| !*is_asked);
        *wait.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn work(operations: &Operations, filesystem: &Filesystem, stop: &Stop, interval: Duration) {
    let mut schedule = Schedule { interval, next_commit: Instant::now() + interval };
    let mut pause = PAUSE;
    while !stop.wait(pause.min(schedule.next_commit.saturating_duration_since(Instant::now()))) {
        match step(operations, filesystem, &mut schedule) {
            Ok(Remaining::More) => pause = PAUSE,
            Ok(Remaining::Nothing) => pause = IDLE,
            Err(error) if filesystem.is_writable() => {
                // One file, or no space: the next time may do better.
                tracing::error!("{error}");
                pause = IDLE;
            }
            // The reason has been logged where it arose.
            Err(_) => return,
        }
    }
}

fn step(
    operations: &Operations,
    filesystem: &Filesystem,
    schedule: &mut Schedule,
) -> Result<Remaining, FsError> {
    if Instant::now() >= schedule.next_commit {
        schedule.next_commit = Instant::now() + schedule.interval;
        operations.sync_all()?;
    }
    filesystem.background_step()
}
