//! A few threads that make requests which wait for several devices in turn. A thread begins when there is a request for it, and
//! ends with the device.

use brindle_device::{ReadAnswer, ReadUnderWay};
use brindle_sync::{Condvar, Mutex, Rank};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Number of threads: as many requests as disks like to have at once.
const THREADS_MAX: usize = 16;

type Job = Box<dyn FnOnce() + Send>;

/// Threads, and what they have to do.
#[derive(Debug)]
pub(crate) struct Workers {
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<QueueState>,
    filled: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    idle: usize,
    is_over: bool,
}

impl fmt::Debug for QueueState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueState").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

/// The answer of a request, when it has one.
#[derive(Debug)]
pub(crate) struct Answer<T>(Arc<Pending<T>>);

#[derive(Debug)]
struct Pending<T> {
    answer: Mutex<AnswerState<T>>,
    answered: Condvar,
}

#[derive(Debug)]
enum AnswerState<T> {
    UnderWay,
    There(T),
    Taken,
}

impl Default for Workers {
    fn default() -> Self {
        let state = Mutex::new(Rank::DeviceQueue, QueueState::default());
        Self { queue: Arc::new(Queue { state, filled: Condvar::new() }) }
    }
}

impl Workers {
    /// Has a request made. Where the host has no further thread, the caller makes it.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        request: impl FnOnce() -> T + Send + 'static,
    ) -> Answer<T> {
        let answer = Mutex::new(Rank::DeviceRequest, AnswerState::UnderWay);
        let pending = Arc::new(Pending { answer, answered: Condvar::new() });
        let own = Arc::clone(&pending);
        let job: Job = Box::new(move || {
            let answer = request();
            *own.answer.lock() = AnswerState::There(answer);
            own.answered.notify_all();
        });
        let left = {
            let mut state = self.queue.state.lock();
            state.waiting.push_back(job);
            if state.waiting.len() > state.idle && state.threads.len() < THREADS_MAX {
                let queue = Arc::clone(&self.queue);
                let spawned =
                    std::thread::Builder::new().name("cache".to_owned()).spawn(move || queue.serve());
                state.threads.extend(spawned.ok());
            }
            if state.threads.is_empty() { state.waiting.pop_back() } else { None }
        };
        self.queue.filled.notify_one();
        if let Some(job) = left {
            job();
        }
        Answer(pending)
    }

    /// Ends the threads, after all requests are made.
    pub(crate) fn end(&self) {
        let threads = {
            let mut state = self.queue.state.lock_after_panic();
            state.is_over = true;
            std::mem::take(&mut state.threads)
        };
        self.queue.filled.notify_all();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of a cache has panicked");
            }
        }
    }
}

impl Queue {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            match state.waiting.pop_front() {
                Some(job) => {
                    drop(state);
                    job();
                    state = self.state.lock();
                }
                None if state.is_over => return,
                None => {
                    state.idle += 1;
                    state = self.filled.wait(state);
                    state.idle -= 1;
                }
            }
        }
    }
}

impl<T> Answer<T> {
    /// Waits for the answer, and takes it.
    pub(crate) fn wait(self) -> T {
        self.0.wait();
        self.0.take()
    }
}

impl<T> Pending<T> {
    fn is_there(&self) -> bool {
        !matches!(*self.answer.lock(), AnswerState::UnderWay)
    }

    fn wait(&self) {
        let mut answer = self.answer.lock();
        while matches!(*answer, AnswerState::UnderWay) {
            answer = self.answered.wait(answer);
        }
    }

    fn take(&self) -> T {
        let AnswerState::There(answer) = std::mem::replace(&mut *self.answer.lock(), AnswerState::Taken)
        else {
            panic!("an answer is waited for, and taken once")
        };
        answer
    }
}

impl ReadUnderWay for Answer<ReadAnswer> {
    fn is_answered(&self) -> bool {
        self.0.is_there()
    }

    fn wait(&self) {
        self.0.wait();
    }

    fn take(&self) -> ReadAnswer {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_side_by_side_and_all_before_the_end() {
        let workers = Workers::default();
        let (sender, receiver) = std::sync::mpsc::channel();
        // The first one waits for the second one.
        let first = workers.submit(move || receiver.recv().expect("the second one sends"));
        let second = workers.submit(move || sender.send(7).expect("the first one is there"));
        second.wait();
        assert_eq!(first.wait(), 7);
        let many: Vec<_> = (0..100).map(|number| workers.submit(move || number * 2)).collect();
        workers.end();
        let answers: Vec<i32> = many.into_iter().map(Answer::wait).collect();
        assert_eq!(answers, (0..100).map(|number| number * 2).collect::<Vec<i32>>());
    }
}
