//! Time that passes only while all jobs wait for it.
//!
//! Modelled drives share one [`VirtualTime`]. A job that waits for an answer, or sleeps, moves the time on to the
//! next moment at which something happens. Several jobs, each a thread, take turns: one runs until it has to wait,
//! then the job whose answer came first; so their effect on each other is the same in each run, however many
//! processors there are.

use crate::{Completion, Drive, DriveCounts, DriveRequest, DriveRequestKind};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

thread_local! {
    /// Number of this thread's job.
    static JOB: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A clock, and the drives that go by it.
#[derive(Debug, Default)]
pub struct VirtualTime {
    state: Mutex<State>,
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
        Arc::default()
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
    pub fn run(&self, jobs: usize, job: impl Fn(usize) + Sync) {
        {
            let mut state = self.state();
            assert!(state.jobs.is_empty(), "jobs are running already");
            let now = state.now_ns;
            (state.jobs, state.turn) = (vec![WaitsFor::Until(now); jobs], 0);
            state.threads = vec![None; jobs];
        }
        let run = |number| {
            JOB.set(Some(number));
            self.await_turn(number);
            job(number);
            let mut state = self.state();
            state.jobs[number] = WaitsFor::Done;
            state.pass_turn();
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
        loop {
            {
                let mut state = self.state();
                if state.turn == number {
                    return;
                }
                state.threads[number].get_or_insert_with(std::thread::current);
            }
            std::thread::park();
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
                self.turn = next;
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
