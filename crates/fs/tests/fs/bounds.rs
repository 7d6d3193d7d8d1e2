//! Bounds of time and memory for what must not go on forever.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Generous, for a machine that has a lot else to do.
const TIME: Duration = Duration::from_secs(120);
/// Address space of the process: ample for every test at once, and far below what a damaged length may say.
const MEMORY_BYTES: u64 = 6 << 30;

/// Runs a test in a thread of its own; fails if it takes too long, or more memory than there may be.
pub(crate) fn within<T: Send + 'static>(name: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let limit = getrlimit(Resource::As);
    if limit.current.is_none_or(|current| current > MEMORY_BYTES) {
        setrlimit(Resource::As, Rlimit { current: Some(MEMORY_BYTES), ..limit })
            .expect("a limit may be lowered");
    }
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        // The receiver is gone if it has taken too long.
        let _ = sender.send(act());
    });
    match receiver.recv_timeout(TIME) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("{name}: not done after {TIME:?}"),
        Err(RecvTimeoutError::Disconnected) => resume_unwind(thread.join().expect_err("it has panicked")),
    }
}
