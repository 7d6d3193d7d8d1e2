//! Parallel work on a list of independent jobs, on all cores.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Runs jobs 0 to `jobs`, each on one of `threads` threads, about in order. Every thread has a state of its
/// own, made by `start`; all of them are handed back.
pub(crate) fn parallel<S: Send>(
    threads: usize,
    jobs: usize,
    start: impl Fn() -> S + Sync,
    run: impl Fn(&mut S, usize) + Sync,
) -> Vec<S> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut state = start();
        loop {
            let job = next.fetch_add(1, Relaxed);
            if job >= jobs {
                return state;
            }
            run(&mut state, job);
        }
    };
    if threads <= 1 || jobs <= 1 {
        return vec![work()];
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, S>| match worker.join() {
            Ok(state) => state,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        workers.into_iter().map(join).collect()
    })
}
