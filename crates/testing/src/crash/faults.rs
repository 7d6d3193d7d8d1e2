//! Devices that fail in the course of a run.

use super::Subject;
use super::history::{Script, record};
use super::state::examine;
use super::test::describe_losses;
use crate::operations::Mix;
use brindle_sim::{EventKind, Fault, LossMode, Random};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs of random operations, in each of which a device begins to fail at a random moment. The filesystem may answer
/// with errors from then on; it must not panic, and what is on the devices, seen without the fault, must be what a
/// crash may leave. The environment's `BRINDLE_FAULT_SEED` asks for one run alone.
#[derive(Clone, Debug)]
pub struct FaultTest {
    /// Seed of everything random.
    pub seed: u64,
    /// Number of runs; each has the seed after the one before.
    pub rounds: u64,
    /// Number of operations in each, unless they end early.
    pub operations: usize,
    /// Kinds of the operations.
    pub mix: Mix,
    /// Command that starts this test again, without the environment.
    pub command: String,
    /// Kind of fault.
    pub kind: FaultKind,
    /// True to examine the devices also without the one that failed.
    pub also_without: bool,
}

/// Kind of fault of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// When they are written or flushed.
    Writing,
    /// When they are read, or with wrong bytes.
    Reading,
    /// Likewise, and what lies elsewhere must do: no operation may fail.
    ReadingTolerated,
}

impl FaultTest {
    /// Test of `rounds` runs.
    #[must_use]
    pub fn new(command: &str, seed: u64, rounds: u64) -> Self {
        let given = std::env::var("BRINDLE_FAULT_SEED").ok().and_then(|seed| seed.parse().ok());
        let rounds = if given.is_some() { 1 } else { rounds };
        let (seed, mix, command) = (given.unwrap_or(seed), Mix::crash(), command.to_owned());
        Self { seed, rounds, operations: 60, mix, command, kind: FaultKind::Writing, also_without: false }
    }

    /// Does it; says how many runs met their fault.
    ///
    /// # Panics
    /// If one is not as it should be; the message ends with the command that does it again.
    pub fn run<S: Subject>(&self, subject: &S) -> u64 {
        match self.outcome(subject) {
            Ok(met) => met,
            Err(message) => panic!("{message}"),
        }
    }

    /// Runs like [`run`](Self::run), with the message as a value.
    pub fn outcome<S: Subject>(&self, subject: &S) -> Result<u64, String> {
        let mut met = 0;
        for seed in self.seed..self.seed + self.rounds {
            let round = catch_unwind(AssertUnwindSafe(|| self.round(subject, seed)));
            let result = round.unwrap_or_else(|_| Err("a panic, see above".to_owned()));
            let again = || format!("again by: BRINDLE_FAULT_SEED={seed} {}", self.command);
            met += u64::from(result.map_err(|what| format!("{what}\n{}", again()))?);
        }
        Ok(met)
    }

    /// Returns true if the fault was met.
    fn round<S: Subject>(&self, subject: &S, seed: u64) -> Result<bool, String> {
        let mut random = Random::new(seed).fork(1);
        let (operations, mix) = (self.operations, self.mix.clone());
        let mut script = Script { seed, operations, mix, sector_bytes: 512, fault: None };
        let healthy = record(subject, &script)?;
        let devices = subject.make().len();
        let device = random.index(devices);
        let of_device = |wanted: fn(&EventKind) -> bool| {
            let events = healthy.recording.events().iter();
            events.filter(|event| event.device == device && wanted(&event.kind)).count() as u64
        };
        let fault = if self.kind == FaultKind::Writing {
            let writes = of_device(|kind| matches!(kind, EventKind::Change(_)));
            let flushes = of_device(|kind| matches!(kind, EventKind::Flush));
            Fault::any(&mut random, writes, flushes)
        } else {
            Fault::any_of_reading(
                &mut random,
                healthy.reads[device],
                subject.make()[device].image.size_bytes(),
            )
        };
        script.fault = Some((device, fault.clone()));
        let failed = |what: String| format!("with {fault:?} on device {device}: {what}");
        let history = record(subject, &script).map_err(failed)?;
        if let (FaultKind::ReadingTolerated, Some(failure)) = (self.kind, &history.failure) {
            return Err(failed(failure.clone()));
        }
        let mut replay = history.recording.replay();
        let end = history.recording.events().len();
        replay.advance_to(end);
        for mode in [LossMode::Nothing, LossMode::Everything, LossMode::Scattered, LossMode::OneDevice] {
            for is_without in [false, true].into_iter().take(1 + usize::from(self.also_without)) {
                let mut state = replay.state(mode, &mut random);
                let losses = describe_losses(&state);
                if is_without {
                    state.devices.remove(device);
                }
                let with = if is_without { "without it" } else { "with it" };
                examine(subject, &history, end, state, &self.mix, &mut random).map_err(|what| {
                    let mut text = failed(format!("{with}: {what}\n{mode:?} took {losses}\n"));
                    history.describe(end, &mut text);
                    text
                })?;
            }
        }
        Ok(history.faults > 0)
    }
}
