//! The thread that destages when it is time.

use super::UpkeepOwner;
use super::calls::Calls;
use crate::destage::Destaged;
use crate::error::FsError;
use crate::filesystem::Filesystem;
use brindle_policy::writeback::DestageSettings;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of looking whether it is time.
const LOOK: Duration = Duration::from_secs(1);

/// A thread that destages a filesystem when it is time. Dropped, it ends after the batch under way.
#[derive(Debug)]
pub(super) struct Destager {
    calls: Arc<Calls>,
    thread: Option<JoinHandle<()>>,
}

impl Destager {
    /// Begins. The owner is asked before each batch whether it rests.
    ///
    /// # Errors
    /// A thread that can't be made.
    pub(super) fn start(
        filesystem: Arc<Filesystem>,
        settings: DestageSettings,
        owner: Arc<dyn UpkeepOwner>,
    ) -> std::io::Result<Self> {
        let calls = Arc::new(Calls::default());
        let called = Arc::clone(&calls);
        let run = move || work(&filesystem, &settings, &called, &*owner);
        let thread = std::thread::Builder::new().name("destager".to_owned()).spawn(run)?;
        Ok(Self { calls, thread: Some(thread) })
    }
}

impl Drop for Destager {
    fn drop(&mut self) {
        self.calls.end();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn work(filesystem: &Filesystem, settings: &DestageSettings, calls: &Calls, owner: &dyn UpkeepOwner) {
    let may_go_on = || !owner.rests() && !calls.is_over();
    let mut last: Option<Instant> = None;
    while !calls.wait(LOOK) {
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
