//! Long jobs on the mounted pool: a thread does the work, requests begin it, stop it, and query its progress.

use brindle_care::job::{Control, Ended, Observer, Pace, Progress};
use brindle_uapi::message::{
    WORK_ENDED_CANCELLED, WORK_ENDED_DONE, WORK_ENDED_FAILED, WORK_ENDED_PAUSED, WorkReport, field,
};
use rustix::io::Errno;
use std::fmt::Display;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Work of one kind, one at a time, each about some `S`. To be [ended](Self::end) with the mount.
#[derive(Debug)]
pub(super) struct LongWork<S> {
    name: &'static str,
    /// Request to a running job when the mount ends.
    last_control: Control,
    shared: Arc<Shared<S>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared<S> {
    state: Mutex<State<S>>,
    /// Signalled when the request changes.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State<S> {
    is_running: bool,
    subject: S,
    control: Control,
    progress: Progress,
    ended: u64,
    error: String,
}

impl<S: Default + Copy + Send + 'static> LongWork<S> {
    pub(super) fn new(name: &'static str, last_control: Control) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        Self { name, last_control, shared, thread: Mutex::default() }
    }

    /// Begins one, which says in the end what it was about.
    pub(super) fn start<E: Display>(
        &self,
        subject: S,
        pace: Option<Pace>,
        work: impl FnOnce(Observer<'_>) -> Result<(Ended, S), E> + Send + 'static,
    ) -> Result<(), Errno> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = self.shared.lock();
            if state.is_running {
                return Err(Errno::INPROGRESS);
            }
            *state = State { is_running: true, subject, ..State::default() };
        }
        let (shared, name) = (Arc::clone(&self.shared), self.name);
        let run = move || {
            let begun = Instant::now();
            let done = work(&mut |progress: &Progress| shared.step(progress, pace, begun));
            if let Err(error) = &done {
                tracing::error!("{name}: {error}");
            }
            shared.lock().end(done);
        };
        match std::thread::Builder::new().name(self.name.to_owned()).spawn(run) {
            Ok(spawned) => {
                // The one before has ended: it would be running else.
                *thread = Some(spawned);
                Ok(())
            }
            Err(_) => {
                self.shared.lock().is_running = false;
                Err(Errno::AGAIN)
            }
        }
    }

    /// Wants something else of the one that runs; false if none does.
    pub(super) fn stop(&self, control: Control) -> bool {
        let mut state = self.shared.lock();
        if state.is_running {
            state.control = control;
            self.shared.changed.notify_all();
        }
        state.is_running
    }

    /// Stops one that runs, as is due when the mount ends, and waits for it.
    pub(super) fn end(&self) {
        self.stop(self.last_control);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join().ok();
        }
    }

    /// Returns true if a job runs, the subject of it or of the last one, and its progress.
    pub(super) fn report(&self) -> (bool, S, WorkReport) {
        let state = self.shared.lock();
        let Progress { expected, done, left, expected_bytes, moved_bytes } = state.progress;
        let text = state.error.as_bytes();
        const ROOM: usize = 511;
        let error = field(&text[..text.len().min(ROOM)]).unwrap_or([0; 512]);
        let report =
            WorkReport { ended: state.ended, expected, done, left, expected_bytes, moved_bytes, error };
        (state.is_running, state.subject, report)
    }
}

impl<S> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how far it is, waits as long as the pace wants it, and says what is wanted.
    fn step(&self, progress: &Progress, pace: Option<Pace>, begun: Instant) -> Control {
        let mut state = self.lock();
        state.progress = *progress;
        let owed = pace.map(|pace| pace.owed(progress.moved_bytes, begun.elapsed())).unwrap_or_default();
        let goes_on = |state: &mut State<S>| state.control == Control::Continue;
        let waited = self.changed.wait_timeout_while(state, owed, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).0.control
    }
}

impl<S> State<S> {
    fn end<E: Display>(&mut self, done: Result<(Ended, S), E>) {
        self.is_running = false;
        self.ended = match done {
            Ok((Ended { progress, control }, subject)) => {
                (self.progress, self.subject) = (progress, subject);
                match control {
                    Control::Continue => WORK_ENDED_DONE,
                    Control::Pause => WORK_ENDED_PAUSED,
                    Control::Cancel => WORK_ENDED_CANCELLED,
                }
            }
            Err(error) => {
                self.error = error.to_string();
                WORK_ENDED_FAILED
            }
        };
    }
}
