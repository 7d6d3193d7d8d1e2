//! One state that a crash left: examined, mounted, compared, used on.

use super::Subject;
use super::history::History;
use crate::model::Model;
use crate::operations::{Generator, Mix, Operation, Target, apply_both, compare};
use brindle_device::{Device, WritableDevice};
use brindle_sim::{CrashState, LossMode, Random, Recorder};
use std::sync::Arc;

/// Number of states of which one is crashed again while it is mounted.
const SECOND_CRASH: u64 = 6;

/// Number of states of which one is used on.
const AFTERMATH: u64 = 12;

/// Number of operations of such further use.
const AFTERMATH_OPERATIONS: usize = 12;

/// Examines a state. What is done to it beyond that follows from `random`.
pub(super) fn examine<S: Subject>(
    subject: &S,
    history: &History,
    point: usize,
    mut state: CrashState,
    mix: &Mix,
    random: &mut Random,
) -> Result<(), String> {
    if random.chance(1, SECOND_CRASH) {
        check(subject, &state)?;
        state =
            crash_again(subject, &state, random).map_err(|what| format!("while it is mounted: {what}"))?;
    }
    check(subject, &state)?;
    let devices = state.writable();
    let mut target = subject.open(&devices).map_err(|what| format!("does not open: {what}"))?;
    let found = target.manifest().map_err(|what| format!("can't be read: {what}"))?;
    let model = history.judge(point, subject.guarantees(), &found)?;
    match model {
        Some(model) if random.chance(1, AFTERMATH) => {
            use_on(subject, target, &devices, model.clone(), mix, random)
                .map_err(|what| format!("used on: {what}"))
        }
        _ => Ok(()),
    }
}

/// Has another implementation look at a copy of a state; false if it has no say. Nothing of the state changes.
pub(super) fn referee<S: Subject>(
    subject: &S,
    history: &History,
    point: usize,
    state: &CrashState,
) -> Result<bool, String> {
    let failed = |what: String| format!("the referee: {what}");
    let Some(found) = subject.referee(&state.writable()).map_err(failed)? else { return Ok(false) };
    history.judge(point, subject.guarantees(), &found).map_err(failed)?;
    Ok(true)
}

fn check<S: Subject>(subject: &S, state: &CrashState) -> Result<(), String> {
    subject.check(&state.writable()).map_err(|what| format!("check: {what}"))
}

/// Opens and closes the pool, and crashes somewhere on the way.
fn crash_again<S: Subject>(
    subject: &S,
    state: &CrashState,
    random: &mut Random,
) -> Result<CrashState, String> {
    let recorder = Recorder::new();
    let record = |device: &Arc<brindle_sim::ImageDevice>| {
        recorder.device(device.name(), device.image(), device.class()) as Arc<dyn WritableDevice>
    };
    let devices: Vec<_> = state.devices.iter().map(record).collect();
    let target = subject.open(&devices).map_err(|what| format!("does not open: {what}"))?;
    subject.close(target).map_err(|what| format!("does not close: {what}"))?;
    let recording = recorder.recording();
    let point = random.index(recording.crash_points().len());
    let mode = *random.pick(&LossMode::ALL);
    Ok(recording.state_at(point, mode, random))
}

/// Does a few more operations, and sees that they last.
fn use_on<S: Subject>(
    subject: &S,
    mut target: S::Target,
    devices: &[Arc<dyn WritableDevice>],
    mut model: Model,
    mix: &Mix,
    random: &mut Random,
) -> Result<(), String> {
    let mut generator = Generator::new(random.number(), Mix { remount: 0, ..mix.clone() });
    for _ in 0..AFTERMATH_OPERATIONS {
        let operation = generator.next(&model);
        let _ = apply_both(&mut model, &mut target, &operation)?;
    }
    let _ = apply_both(&mut model, &mut target, &Operation::Sync)?;
    compare(&model, &mut target)?;
    subject.close(target)?;
    subject.check(devices)?;
    compare(&model, &mut subject.open(devices)?)
}
