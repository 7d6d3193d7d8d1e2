//! Threads that do what takes long, one thing after the other, so that requests need not wait for it.

use std::fmt;
use std::sync::mpsc::{SyncSender, sync_channel};

/// How many things may wait. A request that finds no room is refused.
const WAITING_MAX: usize = 256;

/// Something to be done.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Such a thread; it ends when this is dropped and all is done.
pub(crate) struct ControlThread {
    jobs: SyncSender<Job>,
}

impl ControlThread {
    pub(crate) fn start(name: &str) -> std::io::Result<Self> {
        let (jobs, waiting) = sync_channel::<Job>(WAITING_MAX);
        let run = move || waiting.into_iter().for_each(|job| job());
        std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { jobs })
    }

    /// Does it later. What finds no room is dropped, and the answer false; a reply that is dropped says that the request
    /// has failed.
    pub(crate) fn run(&self, job: Job) -> bool {
        let is_taken = self.jobs.try_send(job).is_ok();
        if !is_taken {
            tracing::warn!("too many requests that take long: one is refused");
        }
        is_taken
    }
}

impl fmt::Debug for ControlThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlThread").finish_non_exhaustive()
    }
}
