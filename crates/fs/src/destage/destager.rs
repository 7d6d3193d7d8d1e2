//! The thread that destages when it is time.

use super::Destaged;
use crate::{Filesystem, FsError};
use brindle_policy::writeback::DestageSettings;
use brindle_sync::{Condvar, Mutex, Rank};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of looking whether it is time.
const LOOK: Duration = Duration::from_secs(1);

/// A thread that destages a filesystem when it is time. Dropped, it ends after the batch under way.
#[derive(Debug)]
pub struct Destager {
    end: Arc<End>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct End {
    is_near: Mutex<bool>,
    changed: Condvar,
}

impl Destager {
    /// Begins. `may_work` is asked before each batch.
    ///
    /// # Errors
    /// A thread that can't be made.
    pub fn start(
        filesystem: Arc<Filesystem>,
        settings: DestageSettings,
        may_work: Box<dyn Fn() -> bool + Send>,
    ) -> std::io::Result<Self> {
        let end = Arc::new(End { is_near: Mutex::new(Rank::DestagerEnd, false), changed: Condvar::new() });
        let told = Arc::clone(&end);
        let run = move || work(&filesystem, &settings, &told, &*may_work);
        let thread = std::thread::Builder::new().name("destager".to_owned()).spawn(run)?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for Destager {
    fn drop(&mut self) {
        *self.end.is_near.lock() = true;
        self.end.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl End {
    fn is_near(&self) -> bool {
        *self.is_near.lock()
    }

    /// Waits; true if it is time to end.
    fn wait(&self, time: Duration) -> bool {
        let is_near = self.is_near.lock();
        *is_near || *self.changed.wait_timeout(is_near, time).0
    }
}

fn work(filesystem: &Filesystem, settings: &DestageSettings, end: &End, may_work: &dyn Fn() -> bool) {
    let may_go_on = || may_work() && !end.is_near();
    let mut last: Option<Instant> = None;
    while !end.wait(LOOK) {
        if !may_go_on() {
            continue;
        }
        match step(filesystem, settings, &mut last, &may_go_on) {
            Ok(()) => {}
            Err(error) if filesystem.is_writable() => {
                // No space, or a device: the next time may do better.
                tracing::error!("destaging: {error}");
                last = Some(Instant::now());
            }
            // The reason has been logged where it arose.
            Err(_) => return,
        }
    }
}

/// Destages if it is time.
fn step(
    filesystem: &Filesystem,
    settings: &DestageSettings,
    last: &mut Option<Instant>,
    may_go_on: &dyn Fn() -> bool,
) -> Result<(), FsError> {
    let since_last = last.map_or(Duration::MAX, |last| last.elapsed());
    let Some(reason) = filesystem.reason_to_destage(settings, since_last)? else { return Ok(()) };
    tracing::debug!("destaging: {reason}");
    if let Destaged::All(_) = filesystem.destage(may_go_on)? {
        *last = Some(Instant::now());
    }
    Ok(())
}
