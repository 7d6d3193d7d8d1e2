//! Many crashes of one subject.

use super::Subject;
use super::history::{History, Kinds, Script, record};
use super::state::{examine, referee};
use super::tally::Line;
use crate::operations::Mix;
use brindle_sim::{CrashState, LossMode, Random, Replay};
use std::collections::HashSet;
use std::fmt::Write;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Runs of random operations, each crashed at many points. The environment changes the defaults of a test:
/// `BRINDLE_CRASH_SEED`, `BRINDLE_CRASH_ROUNDS` (the number of seeds from that one on), `BRINDLE_CRASH_OPERATIONS`,
/// `BRINDLE_CRASH_STATES` (a round), and `BRINDLE_CRASH_STATE` (`POINT:NUMBER`, only this one). `BRINDLE_CRASH_PASS` raises
/// all seeds, so that each pass has histories of its own; of `BRINDLE_CRASH_KERNEL` states one goes to the subject's referee.
#[derive(Clone, Debug)]
pub struct CrashTest {
    /// Seed of everything random.
    pub seed: u64,
    /// Number of runs of operations; each has the seed after the one before.
    pub rounds: u64,
    /// Number of operations in each.
    pub operations: usize,
    /// Approximate number of crash states in each.
    pub states: usize,
    /// Kinds of the operations.
    pub mix: Mix,
    /// Bytes that a device writes at once or not at all.
    pub sector_bytes: u64,
    /// Number of states that are examined at once.
    pub threads: usize,
    /// Command that starts this test again, without the environment.
    pub command: String,
    only: Option<(usize, u64)>,
    /// Number of states of which one goes to the referee.
    pub referee_every: Option<u64>,
}

/// Distance of the seeds of two passes.
const SEEDS_OF_PASS: u64 = 1_000_000;

/// Amounts that a test went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs of operations.
    pub rounds: u64,
    /// Crash points that there were.
    pub points: usize,
    /// States that were examined.
    pub states: usize,
    /// Different contents of the devices among them, round by round.
    pub distinct: usize,
    /// States that the referee has seen.
    pub refereed: usize,
    /// Operations by kind, and the counts of the target.
    pub kinds: Kinds,
}

impl Summary {
    /// Count of a kind of operation, or of the target's own counts.
    #[must_use]
    pub fn count(&self, kind: &str) -> u64 {
        self.kinds.get(kind).copied().unwrap_or(0)
    }

    fn add(&mut self, more: Self) {
        self.rounds += more.rounds;
        self.points += more.points;
        self.states += more.states;
        self.distinct += more.distinct;
        self.refereed += more.refereed;
        more.kinds.into_iter().for_each(|(kind, count)| *self.kinds.entry(kind).or_default() += count);
    }
}

/// A state that is not as it should be.
struct Failure {
    point: usize,
    number: u64,
    text: String,
}

impl CrashTest {
    /// A test that `command` starts, with small trees and a few hundred states; see the environment.
    #[must_use]
    pub fn new(command: &str, seed: u64) -> Self {
        let given = variable("SEED");
        Self {
            seed: given.unwrap_or_else(|| seed + variable::<u64>("PASS").unwrap_or(0) * SEEDS_OF_PASS),
            rounds: variable("ROUNDS").unwrap_or(1),
            operations: variable("OPERATIONS").unwrap_or(60),
            states: variable("STATES").unwrap_or(400),
            mix: Mix::crash(),
            sector_bytes: 512,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            command: command.to_owned(),
            only: std::env::var("BRINDLE_CRASH_STATE").ok().as_deref().and_then(parse_state),
            referee_every: variable("KERNEL"),
        }
    }

    /// Test of `rounds` runs, each of `operations` operations and examined in `states` states, unless the environment
    /// says otherwise.
    #[must_use]
    pub fn of(self, rounds: u64, operations: usize, states: usize) -> Self {
        // A given seed replays one failure.
        let rounds = if variable::<u64>("SEED").is_some() { 1 } else { rounds };
        Self {
            rounds: variable("ROUNDS").unwrap_or(rounds),
            operations: variable("OPERATIONS").unwrap_or(operations),
            states: variable("STATES").unwrap_or(states),
            ..self
        }
    }

    /// Operations of these kinds.
    #[must_use]
    pub fn mixed(self, mix: Mix) -> Self {
        Self { mix, ..self }
    }

    /// One state of each run alone.
    #[must_use]
    pub fn only(self, point: usize, number: u64) -> Self {
        Self { only: Some((point, number)), ..self }
    }

    /// Does it.
    ///
    /// # Panics
    /// If a state is not as it should be; the message says what is wrong, what the crash took, and the command that
    /// examines the same state again.
    pub fn run<S: Subject>(&self, subject: &S) -> Summary {
        match self.outcome(subject) {
            Ok(summary) => summary,
            Err(message) => panic!("{message}"),
        }
    }

    /// Runs like [`run`](Self::run), with the message as a value.
    pub fn outcome<S: Subject>(&self, subject: &S) -> Result<Summary, String> {
        let mut summary = Summary::default();
        for seed in self.seed..self.seed + self.rounds {
            summary.add(self.round(subject, seed)?);
        }
        Ok(summary)
    }

    fn round<S: Subject>(&self, subject: &S, seed: u64) -> Result<Summary, String> {
        let (operations, mix) = (self.operations, self.mix.clone());
        let script = Script { seed, operations, mix, sector_bytes: self.sector_bytes, fault: None };
        let history = catch_unwind(AssertUnwindSafe(|| record(subject, &script)))
            .unwrap_or_else(|_| Err("a panic while it was recorded".to_owned()));
        let history = history.map_err(|what| format!("{what}\n{}", self.again(seed, None)))?;
        let points = history.recording.crash_points().len();
        let uncertain = uncertain_points(&history);
        let seen = Mutex::new(Seen::default());
        let explorer = Explorer { test: self, subject, history: &history, seed, uncertain, seen };
        match explorer.explore() {
            Ok(()) => {
                let Seen { states, refereed, fingerprints } =
                    explorer.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
                let (pool, kinds) = (&subject.pool(), history.kinds());
                Line { pool, states, refereed, kinds: &kinds, fingerprints: &fingerprints }.append();
                Ok(Summary { rounds: 1, points, states, distinct: fingerprints.len(), refereed, kinds })
            }
            Err(Failure { point, number, text }) => {
                let mut text = format!("after a crash at point {point} of {points}: {text}\n");
                history.describe(point, &mut text);
                Err(format!("{text}{}", self.again(seed, Some((point, number)))))
            }
        }
    }

    /// The command that shows it again.
    fn again(&self, seed: u64, state: Option<(usize, u64)>) -> String {
        let state = state
            .map_or_else(String::new, |(point, number)| format!("BRINDLE_CRASH_STATE={point}:{number} "));
        let (operations, states) = (self.operations, self.states);
        // A single state goes to the referee, if any did.
        let kernel = self.referee_every.map_or("", |_| "BRINDLE_CRASH_KERNEL=1 ");
        format!(
            "again by: BRINDLE_CRASH_SEED={seed} BRINDLE_CRASH_OPERATIONS={operations} \
             BRINDLE_CRASH_STATES={states} {kernel}{state}{}",
            self.command
        )
    }
}

/// A variable of the environment, if it is there and makes sense.
fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(format!("BRINDLE_CRASH_{name}")).ok()?.parse().ok()
}

fn parse_state(text: &str) -> Option<(usize, u64)> {
    let (point, number) = text.split_once(':')?;
    Some((point.parse().ok()?, number.parse().ok()?))
}

/// The crash points of one run, taken by several threads.
struct Explorer<'a, S> {
    test: &'a CrashTest,
    subject: &'a S,
    history: &'a History,
    seed: u64,
    /// Number of points at which a crash can take anything.
    uncertain: u64,
    seen: Mutex<Seen>,
}

/// States that were examined.
#[derive(Default)]
struct Seen {
    states: usize,
    refereed: usize,
    fingerprints: HashSet<u64>,
}

fn uncertain_points(history: &History) -> u64 {
    let mut replay = history.recording.replay();
    let is_uncertain = |point: &usize| {
        replay.advance_to(*point);
        replay.pending() > 0
    };
    history.recording.crash_points().filter(is_uncertain).count() as u64
}

impl<S: Subject> Explorer<'_, S> {
    /// Examines all states; fails with the first failure by point.
    fn explore(&self) -> Result<(), Failure> {
        let threads = self.test.threads.max(1);
        // No thread stops before this point, so that the first failure is the same whichever thread is faster.
        let first_failed = AtomicUsize::new(usize::MAX);
        let failures = std::thread::scope(|scope| {
            let walk = |thread| {
                let first_failed = &first_failed;
                scope.spawn(move || self.walk(thread, threads, first_failed))
            };
            let threads: Vec<_> = (0..threads).map(walk).collect();
            let results = threads.into_iter().map(|thread| thread.join().expect("a walk catches panics"));
            results.filter_map(Result::err).collect::<Vec<Failure>>()
        });
        let first = failures.into_iter().min_by_key(|failure| (failure.point, failure.number));
        first.map_or(Ok(()), Err)
    }

    /// Examines every n-th point, from this thread's own on.
    fn walk(&self, thread: usize, threads: usize, first_failed: &AtomicUsize) -> Result<(), Failure> {
        let mut replay = self.history.recording.replay();
        for point in self.history.recording.crash_points().skip(thread).step_by(threads) {
            if self.test.only.is_some_and(|(only, _)| only != point) {
                continue;
            }
            replay.advance_to(point);
            for number in self.numbers(&replay) {
                if first_failed.load(Relaxed) < point {
                    return Ok(());
                }
                if let Err(text) = self.state(&replay, number) {
                    first_failed.fetch_min(point, Relaxed);
                    return Err(Failure { point, number, text });
                }
            }
        }
        Ok(())
    }

    /// The numbers of the states at the point where a replay stands.
    fn numbers(&self, replay: &Replay) -> Range<u64> {
        if let Some((_, number)) = self.test.only {
            return number..number + 1;
        }
        let states = self.test.states as u64;
        // What doesn't go evenly goes to points by the seed.
        let random = &mut Random::new(self.seed).fork(replay.point() as u64);
        if replay.pending() == 0 {
            // All crashes leave the same here, and it is left at the next point too.
            let points = self.history.recording.crash_points().len() as u64;
            return 0..u64::from(random.chance(states, points));
        }
        0..states / self.uncertain + u64::from(random.chance(states % self.uncertain, self.uncertain))
    }

    fn state(&self, replay: &Replay, number: u64) -> Result<(), String> {
        let point = replay.point();
        let mut random = Random::new(self.seed).fork(point as u64).fork(number + 1);
        // So that all modes come, also where each point has one state.
        let first = Random::new(self.seed).fork(point as u64).below(8);
        let mode = LossMode::ALL[usize::try_from((first + number) % 8).expect("less than 8")];
        let state = replay.state(mode, &mut random);
        self.see(|seen| {
            seen.states += 1;
            seen.fingerprints.insert(state.fingerprint);
        });
        let losses = describe_losses(&state);
        let mut of_referee = Random::new(self.seed).fork(point as u64).fork(number + 1).fork(REFEREE);
        let is_refereed = self.test.referee_every.is_some_and(|every| of_referee.chance(1, every));
        let examined = catch_unwind(AssertUnwindSafe(|| {
            if is_refereed && referee(self.subject, self.history, point, &state)? {
                self.see(|seen| seen.refereed += 1);
            }
            examine(self.subject, self.history, point, state, &self.test.mix, &mut random)
        }));
        let result = examined.unwrap_or_else(|_| Err("a panic, see above".to_owned()));
        result.map_err(|what| format!("{what}\nthe crash ({mode:?}) took {losses}"))
    }

    fn see(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Label of the random numbers that choose the states for the referee.
const REFEREE: u64 = 0x7265_6665;

/// Number of losses that a message names.
const LOSSES_SHOWN: usize = 12;

pub(super) fn describe_losses(state: &CrashState) -> String {
    let mut text = format!("{} writes, in part or whole", state.losses.len());
    for loss in state.losses.iter().take(LOSSES_SHOWN) {
        let _ = write!(text, "\n    {loss}");
    }
    text
}

/// Number of operations that a message names, before the crash point.
const STEPS_SHOWN: usize = 8;

impl History {
    /// The last operations before a crash point, and the one after it.
    pub(super) fn describe(&self, point: usize, text: &mut String) {
        let begun = self.steps.iter().take_while(|step| step.is_begun(point)).count();
        let _ = writeln!(text, "the last operations (first and last crash point of each):");
        let first = begun.saturating_sub(STEPS_SHOWN);
        for (number, step) in self.steps.iter().enumerate().take(begun).skip(first) {
            let end = step.end.map_or_else(|| "failed".to_owned(), |end| end.to_string());
            let _ = writeln!(text, "    {number}: {}..{end} {:?}", step.start, step.operation);
        }
    }
}
