//! The thread that does the upkeep of a cache.

use crate::Cache;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two looks at a cache that has nothing to do.
const PAUSE: Duration = Duration::from_millis(200);
/// Time to the next attempt after a failure.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Thread that cleans a cache. Dropped, it ends after the round that is under way.
#[derive(Debug)]
pub struct CacheKeeper {
    thread: Option<JoinHandle<()>>,
    end: Option<Sender<()>>,
}

impl CacheKeeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host's, if it can't be made.
    pub fn start(cache: &Arc<Cache>) -> io::Result<Self> {
        let (end, ends) = mpsc::channel();
        let cache = Arc::clone(cache);
        let work = move || {
            let mut pause = Duration::ZERO;
            while ends.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = match cache.upkeep() {
                    Ok(true) => Duration::ZERO,
                    Ok(false) => PAUSE,
                    Err(error) => {
                        tracing::warn!("cleaning: {error}");
                        PAUSE_AFTER_FAILURE
                    }
                };
            }
        };
        let thread = std::thread::Builder::new().name("cleaner".to_owned()).spawn(work)?;
        Ok(Self { thread: Some(thread), end: Some(end) })
    }
}

impl Drop for CacheKeeper {
    fn drop(&mut self) {
        drop(self.end.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that cleans a cache has panicked");
        }
    }
}
