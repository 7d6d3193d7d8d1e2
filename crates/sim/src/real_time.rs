//! Modelled drives in real time.
//!
//! A [`RealDrive`] has a thread that sleeps until its model's next event and answers what is due then. The model goes from
//! event to event by its own clock, whenever it is woken: the next operation of a busy drive starts at the modelled
//! end of the last one, so a thread that is woken late delays an answer, and never the drive.

use crate::{Completion, Drive, DriveCounts, DriveRequest, DriveRequestKind};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lateness from which on an answer counts as late, in nanoseconds.
const LATE_NS: u64 = 1_000_000;

/// An answer: called once, by the drive's thread. Dropped instead if the drive ends first.
type Answer = Box<dyn FnOnce() + Send>;

/// A drive in real time. Dropped, it ends, and drops the answers to all that it was asked.
pub struct RealDrive {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Lateness of answers: the time between the modelled moment and the answer. A measurement in which more than one answer in
/// a thousand was late is to be made again on a quieter machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Answers.
    pub answers: u64,
    /// Answers that were more than 1 ms late.
    pub late: u64,
    /// Sum over all answers, in nanoseconds.
    pub total_ns: u64,
    /// The latest answer, in nanoseconds.
    pub max_ns: u64,
}

/// Work of a drive in modelled time, since it began or since its counts were last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Time that this is of, in nanoseconds.
    pub elapsed_ns: u64,
    /// Time with a request that had no answer, in nanoseconds.
    pub busy_ns: u64,
    /// Sum of the times that all requests took, in nanoseconds: divided by the time, the mean number of requests at once.
    pub queued_ns: u64,
    /// Greatest number of requests at once.
    pub most: u64,
}

struct Shared {
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    schedule: Schedule<Answer>,
    lateness: Lateness,
    /// Moment of the last reset.
    reset_ns: u64,
    /// Moment until which the thread sleeps; `None` if it does not, or without an end.
    asleep_until_ns: Option<u64>,
    is_over: bool,
}

/// A drive, and the answers that wait for it. It has no clock.
struct Schedule<A> {
    drive: Drive,
    asked: u64,
    /// Answers, each with the time at which it was asked for, in the order of that.
    waiting: BTreeMap<u64, (u64, A)>,
    /// Time since which there has always been a request without an answer.
    busy_since_ns: Option<u64>,
    load: Load,
}

impl<A> Schedule<A> {
    fn new(drive: Drive) -> Self {
        Self { drive, asked: 0, waiting: BTreeMap::new(), busy_since_ns: None, load: Load::default() }
    }

    fn submit(&mut self, kind: DriveRequestKind, answer: A, at_ns: u64) {
        self.asked += 1;
        self.waiting.insert(self.asked, (at_ns, answer));
        self.busy_since_ns.get_or_insert(at_ns);
        self.load.most = self.load.most.max(self.waiting.len() as u64);
        self.drive.submit(DriveRequest { id: self.asked, kind, at_ns });
    }

    /// Answers that are due, in the order of their modelled times.
    fn take_due(&mut self, now_ns: u64) -> Vec<(u64, A)> {
        let mut due = Vec::new();
        self.drive.advance(now_ns, &mut due);
        due.into_iter().filter_map(|completion| self.take(completion)).collect()
    }

    fn take(&mut self, Completion { at_ns, id }: Completion) -> Option<(u64, A)> {
        let (asked_ns, answer) = self.waiting.remove(&id)?;
        self.load.queued_ns += at_ns.saturating_sub(asked_ns);
        // A drive that is woken late gets requests before the answers to those before them are taken.
        let next_ns = self.waiting.first_key_value().map(|(_, (asked_ns, _))| *asked_ns);
        if next_ns.is_none_or(|next_ns| next_ns > at_ns) {
            let since_ns = std::mem::replace(&mut self.busy_since_ns, next_ns);
            self.load.busy_ns += since_ns.map_or(0, |since_ns| at_ns.saturating_sub(since_ns));
        }
        Some((at_ns, answer))
    }

    /// The load until now, with the requests that have no answer yet.
    fn load(&self, now_ns: u64) -> Load {
        let since = |begin_ns: u64| now_ns.saturating_sub(begin_ns);
        let waiting: u64 = self.waiting.values().map(|(asked_ns, _)| since(*asked_ns)).sum();
        Load {
            busy_ns: self.load.busy_ns + self.busy_since_ns.map_or(0, since),
            queued_ns: self.load.queued_ns + waiting,
            ..self.load
        }
    }

    /// Begins to count anew. Requests that have no answer yet count from now on.
    fn reset_load(&mut self, now_ns: u64) {
        self.load = Load { most: self.waiting.len() as u64, ..Load::default() };
        self.busy_since_ns = self.busy_since_ns.map(|_| now_ns);
        self.waiting.values_mut().for_each(|(asked_ns, _)| *asked_ns = now_ns);
    }
}

impl RealDrive {
    /// Starts a drive; its time begins now.
    ///
    /// # Errors
    /// A thread that can't be made.
    pub fn start(drive: Drive) -> io::Result<Self> {
        let state = State {
            schedule: Schedule::new(drive),
            lateness: Lateness::default(),
            reset_ns: 0,
            asleep_until_ns: None,
            is_over: false,
        };
        let shared =
            Arc::new(Shared { began: Instant::now(), state: Mutex::new(state), changed: Condvar::new() });
        let ours = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("drive".to_owned()).spawn(move || ours.work())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Asks the drive for something. It calls `answer` when it has done it.
    pub fn submit(&self, kind: DriveRequestKind, answer: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state();
        if state.is_over {
            return;
        }
        let now_ns = self.shared.now_ns();
        state.schedule.submit(kind, Box::new(answer), now_ns);
        let next = state.schedule.drive.next_event_ns();
        if next < state.asleep_until_ns || state.asleep_until_ns.is_none() {
            self.shared.changed.notify_one();
        }
    }

    /// Counts since the drive began, or since they were last reset.
    pub fn counts(&self) -> DriveCounts {
        self.shared.state().schedule.drive.counts()
    }

    /// Lateness of the answers since then.
    pub fn lateness(&self) -> Lateness {
        self.shared.state().lateness
    }

    /// Load since then.
    pub fn load(&self) -> Load {
        let state = self.shared.state();
        let now_ns = self.shared.now_ns();
        Load { elapsed_ns: now_ns.saturating_sub(state.reset_ns), ..state.schedule.load(now_ns) }
    }

    /// Sets all counts to 0.
    pub fn reset_counts(&self) {
        let mut state = self.shared.state();
        let now_ns = self.shared.now_ns();
        state.schedule.drive.reset_counts();
        state.schedule.reset_load(now_ns);
        state.lateness = Lateness::default();
        state.reset_ns = now_ns;
    }

    /// Number of requests without an answer.
    pub fn in_flight(&self) -> usize {
        self.shared.state().schedule.waiting.len()
    }

    /// Returns true if the platters stand still.
    pub fn is_asleep(&self) -> bool {
        self.shared.state().schedule.drive.is_asleep(self.shared.now_ns())
    }
}

impl Drop for RealDrive {
    fn drop(&mut self) {
        self.shared.end();
        // The last handle may be one that an answer holds.
        let others = |thread: &mut JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take_if(others) {
            // A panic of the thread was reported by it.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for RealDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealDrive").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl Lateness {
    fn count(&mut self, late_ns: u64) {
        self.answers += 1;
        self.late += u64::from(late_ns > LATE_NS);
        self.total_ns += late_ns;
        self.max_ns = self.max_ns.max(late_ns);
    }
}

/// Ends a drive when its thread does, also by a panic: no request waits for a thread that is gone.
struct EndOfThread<'s>(&'s Shared);

impl Drop for EndOfThread<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Shared {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).expect("less than 500 years")
    }

    fn work(&self) {
        // Fails nowhere, and costs 50 us of precision if it did.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let _end = EndOfThread(self);
        let mut state = self.state();
        while !state.is_over {
            let due = state.schedule.take_due(self.now_ns());
            if due.is_empty() {
                state = self.sleep(state);
                continue;
            }
            // An answer may take a while, and may ask for more.
            drop(state);
            let mut lateness = Vec::with_capacity(due.len());
            for (at_ns, answer) in due {
                answer();
                lateness.push(self.now_ns().saturating_sub(at_ns));
            }
            state = self.state();
            lateness.into_iter().for_each(|late_ns| state.lateness.count(late_ns));
        }
    }

    /// Sleeps until the next event, or until something is asked.
    fn sleep<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        state.asleep_until_ns = state.schedule.drive.next_event_ns();
        let mut state = match state.asleep_until_ns {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until_ns) => {
                let pause = Duration::from_nanos(until_ns.saturating_sub(self.now_ns()));
                self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.asleep_until_ns = None;
        state
    }

    fn end(&self) {
        let waiting = {
            let mut state = self.state();
            state.is_over = true;
            std::mem::take(&mut state.schedule.waiting)
        };
        self.changed.notify_all();
        // Without the lock: a request that is refused may be made again.
        drop(waiting);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HardDisk, HardDiskParameters, Random};
    use std::sync::mpsc;

    /// Longest wait for an answer: a test that needs it has failed.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn read(random: &mut Random) -> DriveRequestKind {
        DriveRequestKind::Read(random.below(1 << 28) * 4096, 4096)
    }

    #[test]
    fn late_wake_ups_do_not_add_up() {
        let times = |late_ns: u64| {
            let (mut schedule, mut random) = (Schedule::new(Drive::hard_disk()), Random::new(1));
            for number in 0..200 {
                schedule.submit(read(&mut random), number, 0);
            }
            let mut answered = Vec::new();
            while answered.len() < 200 {
                let next = schedule.drive.next_event_ns().expect("it is at work");
                answered.extend(schedule.take_due(next + late_ns));
            }
            answered
        };
        let on_time = times(0);
        assert_eq!(times(700_000), on_time);
        assert_eq!(times(100_000_000), on_time);
    }

    #[test]
    fn answers_come_after_their_time_and_are_counted() {
        for drive in [Drive::sata_ssd(), Drive::nvme(), Drive::hard_disk()] {
            let mut model = Schedule::new(drive.clone());
            let drive = RealDrive::start(drive).expect("a thread");
            let (sender, answers) = mpsc::channel();
            let mut random = Random::new(5);
            for number in 0..20 {
                let (kind, sender) = (read(&mut random), sender.clone());
                model.submit(kind, (), 0);
                drive.submit(kind, move || sender.send(number).expect("the test waits"));
            }
            for _ in 0..20 {
                answers.recv_timeout(PATIENCE).expect("an answer");
            }
            // Asked for at one moment, nothing takes longer than when it is asked for one by one.
            let mut least_ns = 0;
            while let Some(next) = model.drive.next_event_ns() {
                least_ns = next;
                model.take_due(next);
            }
            assert!(drive.shared.now_ns() > least_ns / 2, "faster than the model: {least_ns}");
            assert_eq!((drive.counts().reads, drive.in_flight()), (20, 0));
            drive.reset_counts();
            assert_eq!((drive.counts(), drive.is_asleep()), (DriveCounts::default(), false));
        }
    }

    #[test]
    fn load_is_that_of_the_modelled_times_however_late_they_are_taken() {
        let (apart_ns, at) = (1_000_000_000, |number: u64| DriveRequestKind::Read(number << 30, 4096));
        let loads = |late_ns: u64| {
            let mut schedule = Schedule::new(Drive::hard_disk());
            // Two at once, and after a pause a third one, which may come before the answers are taken.
            let mut ends = Vec::new();
            for (number, at_ns) in [(1, 0), (2, 0), (3, apart_ns)] {
                while let Some(next) = schedule.drive.next_event_ns().filter(|next| next + late_ns < at_ns) {
                    ends.extend(schedule.take_due(next + late_ns).into_iter().map(|(end_ns, ())| end_ns));
                }
                schedule.submit(at(number), (), at_ns);
            }
            while ends.len() < 3 {
                let next = schedule.drive.next_event_ns().expect("it is at work");
                ends.extend(schedule.take_due(next + late_ns).into_iter().map(|(end_ns, ())| end_ns));
            }
            let expected = Load {
                elapsed_ns: 0,
                busy_ns: ends[1] + ends[2] - apart_ns,
                queued_ns: ends[0] + ends[1] + ends[2] - apart_ns,
                most: if late_ns > apart_ns { 3 } else { 2 },
            };
            assert_eq!(schedule.load(ends[2]), expected, "{late_ns}");
            schedule.submit(at(4), (), 5 * apart_ns);
            schedule.reset_load(6 * apart_ns);
            let waiting = Load { busy_ns: 7, queued_ns: 7, most: 1, ..Load::default() };
            assert_eq!(schedule.load(6 * apart_ns + 7), waiting);
            ends
        };
        assert_eq!(loads(0), loads(2 * apart_ns));
    }

    #[test]
    fn lateness_is_summed_up() {
        let mut lateness = Lateness::default();
        [10, 1_000_000, 1_000_001].into_iter().for_each(|late_ns| lateness.count(late_ns));
        assert_eq!(lateness, Lateness { answers: 3, late: 1, total_ns: 2_000_011, max_ns: 1_000_001 });
    }

    #[test]
    fn drive_that_ends_drops_its_answers() {
        // It takes an hour to wake up.
        let parameters = HardDiskParameters {
            spin_down_ns: Some(0),
            spin_up_ns: 3_600_000_000_000,
            ..HardDiskParameters::default()
        };
        let drive = RealDrive::start(Drive::HardDisk(Box::new(HardDisk::new(parameters)))).expect("a thread");
        let (sender, answers) = mpsc::channel();
        assert!(drive.is_asleep());
        drive.submit(DriveRequestKind::Read(1 << 30, 4096), move || sender.send(()).expect("the test waits"));
        assert_eq!(drive.in_flight(), 1);
        drop(drive);
        assert_eq!(answers.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
    }

    /// A hard disk that sleeps and wakes all the time.
    fn restless() -> Drive {
        let parameters = HardDiskParameters {
            seek_ns: [10_000, 20_000, 40_000],
            revolutions_per_minute: 600_000,
            write_cache_bytes: 1 << 20,
            write_idle_ns: 100_000,
            spin_down_ns: Some(200_000),
            spin_up_ns: 300_000,
            ..HardDiskParameters::default()
        };
        Drive::HardDisk(Box::new(HardDisk::new(parameters)))
    }

    #[test]
    fn all_requests_of_many_threads_are_answered() {
        for round in 0..4 {
            let drive = RealDrive::start(restless()).expect("a thread");
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let drive = &drive;
                    scope.spawn(move || {
                        let mut random = Random::new(round).fork(thread);
                        for _ in 0..50 {
                            let (sender, answers) = mpsc::channel();
                            let asked = 1 + random.below(6);
                            for _ in 0..asked {
                                let (offset, length) = (random.below(1 << 12) * 4096, random.below(9) * 4096);
                                let kind = match random.below(4) {
                                    0 => DriveRequestKind::Write(offset, length),
                                    1 => DriveRequestKind::Flush,
                                    _ => DriveRequestKind::Read(offset, length),
                                };
                                let sender = sender.clone();
                                drive.submit(kind, move || sender.send(()).expect("the test waits"));
                            }
                            for _ in 0..asked {
                                answers.recv_timeout(PATIENCE).expect("an answer");
                            }
                        }
                    });
                }
            });
            assert_eq!(drive.in_flight(), 0);
        }
    }

    #[test]
    fn panic_of_an_answer_ends_the_drive_and_leaves_no_request() {
        let drive = RealDrive::start(Drive::hard_disk()).expect("a thread");
        let (sender, answers) = mpsc::channel::<()>();
        drive.submit(DriveRequestKind::Flush, || panic!("as the test wants"));
        drive.submit(DriveRequestKind::Read(1 << 40, 4096), move || drop(sender));
        assert_eq!(answers.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
        drive.submit(DriveRequestKind::Flush, || panic!("never called"));
    }
}
