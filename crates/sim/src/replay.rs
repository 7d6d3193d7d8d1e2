//! From a record to the devices as a crash leaves them.

use crate::{Change, Event, EventKind, Image, ImageDevice, LossMode, Random, WriteOutcome};
use brindle_device::{DeviceClass, WritableDevice};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The sector that a write is torn at, unless told otherwise, in bytes.
const SECTOR_BYTES: u64 = 512;

/// Events of all devices of a [`Recorder`](crate::Recorder), in order. A crash point is the number of events before
/// the crash.
#[derive(Clone)]
pub struct Recording {
    names: Arc<[String]>,
    classes: Arc<[DeviceClass]>,
    initial: Vec<Image>,
    events: Arc<[Event]>,
    sector_bytes: u64,
}

/// A recording played up to a crash point. It goes forward cheaply, hence many points are best visited in order; a clone
/// starts a second walk from its point.
#[derive(Clone)]
pub struct Replay {
    recording: Recording,
    point: usize,
    /// Contents that no crash takes away.
    durable: Vec<Image>,
    /// Hash of all that each device has taken, up to its durable contents.
    taken: Vec<DefaultHasher>,
    /// The writes of each device since its last flush.
    pending: Vec<Vec<Arc<Change>>>,
}

/// State after a crash.
#[derive(Debug)]
pub struct CrashState {
    /// The devices, in the order in which the recorder made them. Each state has its own, they may be written.
    pub devices: Vec<Arc<ImageDevice>>,
    /// Its losses.
    pub losses: Vec<Loss>,
    /// Hash of the writes that each device holds, in order: states of one fingerprint have the same contents, if they
    /// began with the same.
    pub fingerprint: u64,
}

/// A write that a crash took, at least in part.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The name of its device.
    pub device: String,
    /// The write.
    pub change: Arc<Change>,
    /// Its outcome; never [`WriteOutcome::Kept`].
    pub fate: WriteOutcome,
}

impl Recording {
    pub(crate) fn new(
        names: Vec<String>,
        classes: Vec<DeviceClass>,
        initial: Vec<Image>,
        events: Vec<Event>,
    ) -> Self {
        let (names, classes, events) = (names.into(), classes.into(), events.into());
        Self { names, classes, initial, events, sector_bytes: SECTOR_BYTES }
    }

    /// The same events on devices that write this much at once or not at all (512 bytes otherwise).
    #[must_use]
    pub fn with_sectors_of(self, sector_bytes: u64) -> Self {
        assert!(sector_bytes.is_power_of_two(), "{sector_bytes} bytes are no sector");
        Self { sector_bytes, ..self }
    }

    /// The events, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Every crash point: before the first event, and after each.
    pub fn crash_points(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        0..self.events.len() + 1
    }

    /// At the first crash point.
    #[must_use]
    pub fn replay(&self) -> Replay {
        Replay {
            recording: self.clone(),
            point: 0,
            durable: self.initial.clone(),
            taken: vec![DefaultHasher::new(); self.initial.len()],
            pending: vec![Vec::new(); self.initial.len()],
        }
    }

    /// State after a crash at a point. For one state; for many, use a [`Replay`].
    #[must_use]
    pub fn state_at(&self, point: usize, mode: LossMode, random: &mut Random) -> CrashState {
        let mut replay = self.replay();
        replay.advance_to(point);
        replay.state(mode, random)
    }
}

impl Replay {
    /// The crash point it stands at.
    #[must_use]
    pub fn point(&self) -> usize {
        self.point
    }

    /// Number of writes that a crash here could take.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.iter().map(Vec::len).sum()
    }

    /// Goes forward to a crash point.
    ///
    /// # Panics
    /// If it lies behind, or beyond the last.
    pub fn advance_to(&mut self, point: usize) {
        assert!(point >= self.point, "a replay goes forward only: from {} to {point}", self.point);
        let events = Arc::clone(&self.recording.events);
        for event in &events[self.point..point] {
            let durable = &mut self.durable[event.device];
            let taken = &mut self.taken[event.device];
            let pending = &mut self.pending[event.device];
            let mut keep = |change: Arc<Change>| {
                take(taken, &change, WriteOutcome::Kept);
                change.apply(durable);
            };
            match &event.kind {
                EventKind::Change(change) => pending.push(Arc::clone(change)),
                EventKind::Flush => pending.drain(..).for_each(keep),
                // Only images change their size, and their owners do it between commits: all before it counts as
                // durable, so that no pending write lies beyond the end.
                EventKind::SetSize(size_bytes) => {
                    pending.drain(..).for_each(&mut keep);
                    durable.set_size(*size_bytes);
                    size_bytes.hash(taken);
                }
            }
        }
        self.point = point;
    }

    /// State after a crash here.
    #[must_use]
    pub fn state(&self, mode: LossMode, random: &mut Random) -> CrashState {
        let Recording { names, classes, sector_bytes, .. } = &self.recording;
        let sectors = |writes: &Vec<Arc<Change>>| {
            writes.iter().map(|change| change.sectors(*sector_bytes)).collect::<Vec<_>>()
        };
        let pending: Vec<_> = self.pending.iter().map(sectors).collect();
        let fates = mode.fates(&pending, random);
        let mut state = CrashState { devices: Vec::new(), losses: Vec::new(), fingerprint: 0 };
        let mut all = DefaultHasher::new();
        for (device, fates) in fates.into_iter().enumerate() {
            let mut image = self.durable[device].clone();
            let mut taken = self.taken[device].clone();
            for (change, fate) in self.pending[device].iter().zip(fates) {
                match fate {
                    WriteOutcome::Kept => change.apply(&mut image),
                    WriteOutcome::Torn(tear) => change.apply_torn(&mut image, *sector_bytes, tear),
                    WriteOutcome::Lost => {}
                }
                take(&mut taken, change, fate);
                if fate != WriteOutcome::Kept {
                    let (device, change) = (names[device].clone(), Arc::clone(change));
                    state.losses.push(Loss { device, change, fate });
                }
            }
            state.devices.push(Arc::new(ImageDevice::new(names[device].clone(), image, classes[device])));
            taken.finish().hash(&mut all);
        }
        state.fingerprint = all.finish();
        state
    }
}

/// Adds a write to the hash of all that a device has taken; a lost one leaves no trace.
fn take(taken: &mut DefaultHasher, change: &Change, fate: WriteOutcome) {
    if fate != WriteOutcome::Lost {
        (change.digest(), fate).hash(taken);
    }
}

impl CrashState {
    /// The devices, as writable ones.
    #[must_use]
    pub fn writable(&self) -> Vec<Arc<dyn WritableDevice>> {
        self.devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect()
    }

    /// Contents of the devices.
    #[must_use]
    pub fn images(&self) -> Vec<Image> {
        self.devices.iter().map(|device| device.image()).collect()
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("events", &self.events.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("point", &self.point).finish_non_exhaustive()
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.change.is_discard() { "discard" } else { "write" };
        let (device, length, offset) = (&self.device, self.change.length(), self.change.offset());
        write!(f, "{device}: {what} of {length} bytes at {offset}: {:?}", self.fate)
    }
}
