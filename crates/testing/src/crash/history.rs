//! History of operations, and their places in the record of the devices.

use super::{CrashGuarantees, Subject};
use crate::model::{Errno, Expectation, Model};
use crate::operations::{Generator, Mix, Operation, Target, apply_both, compare};
use brindle_device::WritableDevice;
use brindle_sim::{CrashDevice, Fault, FaultyDevice, Recorder, Recording};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Operations of a history by kind.
pub(super) type Kinds = BTreeMap<&'static str, u64>;

/// A run of operations on devices that wrote everything down.
pub(super) struct History {
    pub(super) recording: Recording,
    /// The first is the mount of the new pool.
    pub(super) steps: Vec<RecordedOperation>,
    /// Error of the fault, if it caused any.
    pub(super) failure: Option<String>,
    /// Number of reads of each device.
    pub(super) reads: Vec<u64>,
    /// Number of calls that failed by the script, or got wrong bytes.
    pub(super) faults: u64,
    /// Counts of the target itself.
    pub(super) counts: Kinds,
}

/// One operation.
pub(super) struct RecordedOperation {
    pub(super) operation: Operation,
    /// The crash point when it was called.
    pub(super) start: usize,
    /// The crash point when it returned; `None` if it failed for a fault, and may still be half done.
    pub(super) end: Option<usize>,
    /// True if it was refused, as it had to be.
    pub(super) is_refused: bool,
    /// After it.
    pub(super) model: Model,
    expectation: OnceLock<Expectation>,
}

/// Script of a recording.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) seed: u64,
    pub(super) operations: usize,
    pub(super) mix: Mix,
    pub(super) sector_bytes: u64,
    /// On which device, and which.
    pub(super) fault: Option<(usize, Fault)>,
}

impl RecordedOperation {
    pub(super) fn new(operation: Operation, start: usize, end: Option<usize>, model: Model) -> Self {
        Self { operation, start, end, is_refused: false, model, expectation: OnceLock::new() }
    }

    /// Expected tree after it.
    pub(super) fn expectation(&self) -> &Expectation {
        self.expectation.get_or_init(|| self.model.expectation())
    }

    /// Returns true if it had returned at a crash point.
    pub(super) fn is_done(&self, point: usize) -> bool {
        self.end.is_some_and(|end| end <= point)
    }

    /// Returns true if it made everything before it durable, if it returned.
    pub(super) fn is_commit(&self, guarantees: CrashGuarantees) -> bool {
        match self.operation {
            _ if self.is_refused => false,
            Operation::Sync | Operation::Remount => true,
            Operation::SyncFile { .. } => guarantees.fsync_commits,
            Operation::Snapshot { .. } => guarantees.snapshot_commits,
            _ => false,
        }
    }

    /// Returns true if it had been called at a crash point.
    pub(super) fn is_begun(&self, point: usize) -> bool {
        self.start <= point
    }
}

/// The devices of a subject while it is recorded, and what is open on them.
struct Stage<'s, S: Subject> {
    subject: &'s S,
    recorder: Recorder,
    devices: Vec<Arc<dyn WritableDevice>>,
    faulty: Vec<Arc<FaultyDevice>>,
    /// `None` only after a remount failed.
    target: Option<S::Target>,
    /// Counts of targets that were closed.
    counts: Kinds,
}

/// Does the operations of a script.
pub(super) fn record<S: Subject>(subject: &S, script: &Script) -> Result<History, String> {
    let mut stage = Stage::set(subject, script)?;
    let mut generator = Generator::new(script.seed, script.mix.clone());
    let mut model = Model::new();
    let mut steps = vec![RecordedOperation::new(Operation::Remount, 0, Some(0), model.clone())];
    let mut failure = None;
    for number in 0..script.operations {
        // The last one makes all durable, and the end of a run of operations that were not is of no use.
        let is_last = number + 1 == script.operations;
        let operation = if is_last { Operation::Sync } else { generator.next(&model) };
        let start = stage.recorder.position();
        let result = stage.apply(&mut model, &operation);
        let met_fault = stage.faulty.iter().any(|device| device.counts().faults > 0);
        match result {
            Err(what) if met_fault => {
                // As it was to be: the model may be behind, if the target's answer was not what it should have been.
                let mut after = steps.last().map_or_else(Model::new, |step| step.model.clone());
                let _ = after.apply(&operation);
                steps.push(RecordedOperation::new(operation, start, None, after));
                failure = Some(what);
                break;
            }
            Err(what) => return Err(format!("before any crash, at operation {number}: {what}")),
            Ok(answer) => {
                let end = stage.recorder.position();
                let step = RecordedOperation::new(operation, start, Some(end), model.clone());
                steps.push(RecordedOperation { is_refused: answer.is_err(), ..step });
            }
        }
    }
    if let (None, Some(target)) = (&failure, &mut stage.target) {
        // What can't be read for a fault is not wrong; what is read is.
        let may_fail = script.fault.as_ref().is_some_and(|(_, fault)| fault.is_of_reading());
        match target.manifest() {
            Err(what) if may_fail => failure = Some(what),
            Ok(found) if may_fail => {
                let difference = model.expectation().difference(&found);
                difference.map_or(Ok(()), |what| Err(format!("before any crash: {what}")))?;
            }
            _ => compare(&model, target).map_err(|what| format!("before any crash: {what}"))?,
        }
    }
    // Some filesystems can't be told to stop without a word; what they do when dropped comes after the record.
    let recording = stage.recorder.recording().with_sectors_of(script.sector_bytes);
    let counts = || stage.faulty.iter().map(|device| device.counts());
    let (reads, faults) = (counts().map(|it| it.reads).collect(), counts().map(|it| it.faults).sum());
    let mut counts = stage.counts;
    stage.target.iter().for_each(|target| add(&mut counts, target.counts()));
    Ok(History { recording, steps, failure, reads, faults, counts })
}

fn add(counts: &mut Kinds, more: Vec<(&'static str, u64)>) {
    more.into_iter().for_each(|(kind, count)| *counts.entry(kind).or_default() += count);
}

impl<'s, S: Subject> Stage<'s, S> {
    fn set(subject: &'s S, script: &Script) -> Result<Self, String> {
        let recorder = Recorder::new();
        let new = |device: super::NewDevice| recorder.device(&device.name, device.image, device.class);
        let recorded: Vec<Arc<CrashDevice>> = subject.make().into_iter().map(new).collect();
        let faulty: Vec<_> = recorded.into_iter().map(|device| Arc::new(FaultyDevice::new(device))).collect();
        let devices: Vec<_> =
            faulty.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
        let target = subject.open(&devices).map_err(|what| format!("a new pool does not open: {what}"))?;
        if let Some((device, fault)) = &script.fault {
            faulty[device % faulty.len()].inject(fault.clone());
        }
        Ok(Self { subject, recorder, devices, faulty, target: Some(target), counts: Kinds::new() })
    }

    fn apply(&mut self, model: &mut Model, operation: &Operation) -> Result<Result<(), Errno>, String> {
        if *operation == Operation::Remount {
            let target = self.target.take().ok_or("an earlier remount failed")?;
            add(&mut self.counts, target.counts());
            self.subject.close(target).map_err(|what| format!("does not close: {what}"))?;
            self.target =
                Some(self.subject.open(&self.devices).map_err(|what| format!("does not open: {what}"))?);
            return Ok(Ok(()));
        }
        let target = self.target.as_mut().ok_or("an earlier remount failed")?;
        apply_both(model, target, operation)
    }
}
