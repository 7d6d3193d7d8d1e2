//! Time that passes only while all jobs wait for it.
//!
//! Modelled drives share one [`VirtualTime`]. A job that waits for an answer, or sleeps, moves the time on to the
//! next moment at which something happens. Several jobs, each a thread, take turns: one runs until it has to wait,
//! then the job whose answer came first; so their effect on each other is the same in each run, however many
//! processors there are.
//!
//! A job that waits for a lock of another job keeps its turn, and so the other one waits for ever. Jobs that use one
//! filesystem may do so: one job is enough there. Such a run ends with a panic, after [`PATIENCE`].

use crate::{Completion, Drive, DriveCounts, DriveRequest, DriveRequestKind};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Real time for which one job may have the turn.
const PATIENCE: Duration = Duration::from_secs(300);

thread_local! {
    /// Number of this thread's job.
    static JOB: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A clock, and the drives that go by it.
#[derive(Debug)]
pub struct VirtualTime {
    state: Mutex<State>,
    patience: Duration,
}

/// Handle of the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

#[derive(Debug, Default)]
struct State {
    now_ns: u64,
    drives: Vec<Drive>,
    requests: u64,
    answered_ns: HashMap<u64, u64>,
    jobs: Vec<WaitsFor>,
    /// Threads that have begun to wait for their turn.
    threads: Vec<Option<Thread>>,
    /// Number of the job that runs.
    turn: usize,
    /// Number of turns until now.
    turns: u64,
}

/// A job that runs. Its end, also by a panic, gives the turn to another one.
struct Job<'t> {
    time: &'t VirtualTime,
    number: usize,
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        let mut state = self.time.state();
        state.jobs[self.number] = WaitsFor::Done;
        // One that panics while it waits has no turn to give.
        if state.turn == self.number {
            state.pass_turn();
        }
    }
}

/// Event that a job waits for.
#[derive(Clone, Copy, Debug)]
enum WaitsFor {
    Ticket(u64),
    Until(u64),
    Done,
}

impl VirtualTime {
    /// A clock at 0, without drives.
    pub fn new() -> Arc<Self> {
        Self::with_patience(PATIENCE)
    }

    fn with_patience(patience: Duration) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), patience })
    }

    /// Adds a drive; returns its number.
    pub fn add(&self, drive: Drive) -> usize {
        let mut state = self.state();
        state.drives.push(drive);
        state.drives.len() - 1
    }

    /// The time, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    /// Asks a drive for something.
    pub fn submit(&self, drive: usize, kind: DriveRequestKind) -> Ticket {
        let mut state = self.state();
        state.requests += 1;
        let (id, at_ns) = (state.requests, state.now_ns);
        state.drives[drive].submit(DriveRequest { id, kind, at_ns });
        Ticket(id)
    }

    /// Counts of a drive.
    pub fn counts(&self, drive: usize) -> DriveCounts {
        self.state().drives[drive].counts()
    }

    /// Sets the counts of a drive to 0.
    pub fn reset_counts(&self, drive: usize) {
        self.state().drives[drive].reset_counts();
    }

    /// Waits for an answer.
    pub fn wait(&self, ticket: Ticket) {
        self.pause(WaitsFor::Ticket(ticket.0));
    }

    /// Returns true if a request was answered.
    pub fn is_answered(&self, ticket: Ticket) -> bool {
        self.state().answered_ns.contains_key(&ticket.0)
    }

    /// Lets some time pass.
    pub fn sleep(&self, ns: u64) {
        let until = self.now_ns().saturating_add(ns);
        self.pause(WaitsFor::Until(until));
    }

    /// Runs `jobs` jobs side by side, each given its number, until all are done.
    ///
    /// # Panics
    /// If a job does, and if one keeps the turn for too long: it waits for a lock of another one.
    pub fn run(&self, jobs: usize, job: impl Fn(usize) + Sync) {
        {
            let mut state = self.state();
            assert!(state.jobs.is_empty(), "jobs are running already");
            let now = state.now_ns;
            (state.jobs, state.turn, state.turns) = (vec![WaitsFor::Until(now); jobs], 0, 1);
            state.threads = vec![None; jobs];
        }
        let run = |number| {
            JOB.set(Some(number));
            let _job = Job { time: self, number };
            self.await_turn(number);
            job(number);
        };
        std::thread::scope(|scope| {
            for number in 0..jobs {
                scope.spawn(move || run(number));
            }
        });
        self.state().jobs.clear();
    }

    fn pause(&self, waiting: WaitsFor) {
        let mut state = self.state();
        let Some(number) = JOB.get() else {
            while state.ready_ns(waiting).is_none() {
                state.step(waiting.until());
            }
            return;
        };
        if state.ready_ns(waiting).is_some() {
            return;
        }
        state.jobs[number] = waiting;
        state.pass_turn();
        drop(state);
        self.await_turn(number);
    }

    fn await_turn(&self, number: usize) {
        let mut seen = (0, Instant::now());
        loop {
            {
                let mut state = self.state();
                if state.turn == number {
                    return;
                }
                if state.turns != seen.0 {
                    seen = (state.turns, Instant::now());
                }
                state.threads[number].get_or_insert_with(std::thread::current);
                let turn = state.turn;
                drop(state);
                let is_lost = seen.1.elapsed() >= self.patience;
                assert!(
                    !is_lost,
                    "job {turn} keeps its turn from job {number}: does it wait for a lock of it?"
                );
            }
            std::thread::park_timeout(self.patience);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitsFor {
    /// When a sleeper wakes.
    fn until(self) -> Option<u64> {
        if let Self::Until(until) = self { Some(until) } else { None }
    }
}

impl State {
    /// Gives the turn to the job that can go on first, letting time pass if there is none.
    fn pass_turn(&mut self) {
        loop {
            let ready = |(number, waiting): (usize, &WaitsFor)| Some((self.ready_ns(*waiting)?, number));
            if let Some((_, next)) = self.jobs.iter().enumerate().filter_map(ready).min() {
                (self.turn, self.turns) = (next, self.turns + 1);
                self.threads[next].iter().for_each(Thread::unpark);
                return;
            }
            let awake = self.jobs.iter().filter_map(|waiting| waiting.until()).min();
            if self.jobs.iter().all(|waiting| matches!(waiting, WaitsFor::Done)) {
                return;
            }
            self.step(awake);
        }
    }

    /// Time from which on there is no need to wait.
    fn ready_ns(&self, waiting: WaitsFor) -> Option<u64> {
        match waiting {
            WaitsFor::Ticket(id) => self.answered_ns.get(&id).copied(),
            WaitsFor::Until(until) => (until <= self.now_ns).then_some(until),
            WaitsFor::Done => None,
        }
    }

    /// Moves on to the next moment at which something happens, at the latest to `limit`.
    fn step(&mut self, limit: Option<u64>) {
        let events = self.drives.iter().filter_map(Drive::next_event_ns);
        let next = events.chain(limit).min().expect("a job waits, so an event is due");
        self.now_ns = self.now_ns.max(next);
        let mut answered: Vec<Completion> = Vec::new();
        for drive in &mut self.drives {
            drive.advance(self.now_ns, &mut answered);
        }
        self.answered_ns.extend(answered.iter().map(|completion| (completion.id, completion.at_ns)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_share_a_drive_and_the_time() {
        let once = || {
            let time = VirtualTime::new();
            let disk = time.add(Drive::hard_disk());
            let order = Mutex::new(Vec::new());
            time.run(8, |job| {
                for step in 0..20u64 {
                    let offset = (job as u64 * 7 + step * 13) % 100 * 1_000_000_000;
                    time.wait(time.submit(disk, DriveRequestKind::Read(offset, 4096)));
                    order.lock().expect("no panic").push((time.now_ns(), job));
                }
                time.sleep(1_000_000);
            });
            (time.now_ns(), order.into_inner().expect("no panic"))
        };
        let (took, order) = once();
        assert_eq!(order.len(), 160);
        assert!(order.is_sorted_by_key(|(at, _)| *at), "time goes forward for all");
        assert!((500_000_000..2_000_000_000).contains(&took), "{took}");
        for _ in 0..5 {
            assert_eq!(once(), (took, order.clone()));
        }
    }

    #[test]
    fn panic_of_a_job_gives_the_turn_to_the_others() {
        let time = VirtualTime::new();
        let (ssd, done) = (time.add(Drive::sata_ssd()), Mutex::new(0));
        let run = || {
            time.run(4, |job| {
                time.wait(time.submit(ssd, DriveRequestKind::Read(0, 4096)));
                assert_ne!(job, 2, "as the test wants");
                time.sleep(1000);
                *done.lock().expect("no panic") += 1;
            });
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err("one panicked");
        assert_eq!(done.into_inner().expect("no panic"), 3);
    }

    #[test]
    fn job_that_waits_for_a_lock_of_another_one_ends_the_run() {
        let time = VirtualTime::with_patience(Duration::from_millis(20));
        let (ssd, lock) = (time.add(Drive::sata_ssd()), Mutex::new(()));
        let run = || {
            time.run(2, |_| {
                let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
                time.wait(time.submit(ssd, DriveRequestKind::Read(0, 4096)));
            });
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err("nothing else ends it");
    }

    #[test]
    fn thread_without_a_job_waits_alone() {
        let time = VirtualTime::new();
        let ssd = time.add(Drive::sata_ssd());
        let tickets = [0, 1 << 20].map(|at| time.submit(ssd, DriveRequestKind::Read(at, 4096)));
        time.wait(tickets[1]);
        time.wait(tickets[0]);
        assert_eq!(time.now_ns(), 167_728, "two reads of one channel and one link");
        time.sleep(1000);
        assert_eq!(time.now_ns(), 168_728);
    }
}
