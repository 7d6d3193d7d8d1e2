//! Threads that do what takes long, one thing after the other, so that requests need not wait for it.
//!
//! How much waits for them has no bound of its own: behind each request is a process that waits for the answer, and what
//! has none is asked for once. To have requests wait for room would be wrong, for those that the thread waits for could be
//! behind them.

use std::fmt;
use std::sync::mpsc::{Sender, channel};

/// Proof that the calling thread serves no requests, and so may wait for the kernel, which may wait for answers. Only jobs of a
/// [`ControlThread`] have one.
#[derive(Debug)]
pub(crate) struct OwnThread(());

/// Something to be done.
pub(crate) type Job = Box<dyn FnOnce(&OwnThread) + Send>;

/// Such a thread; it ends when this is dropped and all is done.
pub(crate) struct ControlThread {
    jobs: Sender<Job>,
}

impl ControlThread {
    pub(crate) fn start(name: &str) -> std::io::Result<Self> {
        let (jobs, waiting) = channel::<Job>();
        let run = move || waiting.into_iter().for_each(|job| job(&OwnThread(())));
        std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { jobs })
    }

    /// Does it later. A panic of a job before would have ended the thread; a reply that is dropped says that the request has
    /// failed.
    pub(crate) fn run(&self, job: Job) {
        if self.jobs.send(job).is_err() {
            tracing::error!("the thread for long requests is gone");
        }
    }
}

impl fmt::Debug for ControlThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlThread").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_refused_however_much_waits() {
        const JOBS: usize = 10_000;
        let thread = ControlThread::start("test").expect("a thread");
        let ((open, gate), (done, count)) = (channel::<()>(), channel());
        thread.run(Box::new(move |_| gate.recv().expect("it is opened")));
        for number in 0..JOBS {
            let done = done.clone();
            thread.run(Box::new(move |_| done.send(number).expect("it is counted")));
        }
        open.send(()).expect("the thread waits");
        drop((thread, done));
        assert!(count.into_iter().eq(0..JOBS), "all is done, in order, also when nothing more comes");
    }
}
