//! Reads by a few threads. A thread begins when there is a read for it and ends with the engine; a read that none of
//! them has begun is made by its waiter.

use super::Read;
use crate::{PendingRead, ReadAnswer, ReadUnderWay};
use brindle_sync::{Condvar, Mutex, Rank};
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of threads: as many reads as devices like to have at once, less those that waiters make.
const THREADS_MAX: usize = 16;

/// Threads that read, and what they have to do.
#[derive(Debug)]
pub(super) struct Threads {
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<QueueState>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<Arc<Job>>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

/// A read, from its submission to its answer.
#[derive(Debug)]
struct Job {
    state: Mutex<JobState>,
    answered: Condvar,
}

#[derive(Debug)]
enum JobState {
    Submitted(Box<Read>),
    Begun,
    Answered(Option<ReadAnswer>),
}

impl Default for Threads {
    fn default() -> Self {
        let state = Mutex::new(Rank::DeviceQueue, QueueState::default());
        Self { queue: Arc::new(Queue { state, filled: Condvar::new() }) }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.queue.state.lock_after_panic().is_over = true;
        self.queue.filled.notify_all();
    }
}

impl Threads {
    /// Submits reads.
    pub(super) fn submit(&self, reads: Vec<Read>) -> Vec<PendingRead> {
        let new = |read| {
            let state = Mutex::new(Rank::DeviceRequest, JobState::Submitted(Box::new(read)));
            Arc::new(Job { state, answered: Condvar::new() })
        };
        let jobs: Vec<Arc<Job>> = reads.into_iter().map(new).collect();
        let mut state = self.queue.state.lock();
        state.waiting.extend(jobs.iter().map(Arc::clone));
        let wanted = state.waiting.len().saturating_sub(state.idle).min(THREADS_MAX - state.threads);
        state.threads += wanted;
        drop(state);
        for _ in 0..wanted {
            let queue = Arc::clone(&self.queue);
            let spawned =
                std::thread::Builder::new().name("device reads".to_owned()).spawn(move || queue.serve());
            if spawned.is_err() {
                // Waiters make the reads then.
                self.queue.state.lock().threads -= 1;
            }
        }
        match jobs.len() {
            1 => self.queue.filled.notify_one(),
            _ => self.queue.filled.notify_all(),
        }
        jobs.into_iter().map(PendingRead::under_way).collect()
    }
}

impl Queue {
    fn serve(&self) {
        let mut state = self.state.lock();
        while !state.is_over {
            match state.waiting.pop_front() {
                Some(job) => {
                    drop(state);
                    job.make();
                    state = self.state.lock();
                }
                None => {
                    state.idle += 1;
                    state = self.filled.wait(state);
                    state.idle -= 1;
                }
            }
        }
    }
}

impl Job {
    /// Makes the read unless another thread has begun it.
    fn make(&self) {
        let read = {
            let mut state = self.state.lock();
            match std::mem::replace(&mut *state, JobState::Begun) {
                JobState::Submitted(read) => read,
                other => return *state = other,
            }
        };
        let answer = read.make(0);
        *self.state.lock() = JobState::Answered(Some(answer));
        self.answered.notify_all();
    }
}

impl ReadUnderWay for Arc<Job> {
    fn is_answered(&self) -> bool {
        matches!(*self.state.lock(), JobState::Answered(_))
    }

    fn wait(&self) {
        self.make();
        let mut state = self.state.lock();
        while !matches!(*state, JobState::Answered(_)) {
            state = self.answered.wait(state);
        }
    }

    fn take(&self) -> ReadAnswer {
        let JobState::Answered(answer) = &mut *self.state.lock() else { panic!("an answer is waited for") };
        answer.take().expect("an answer is taken once")
    }
}
