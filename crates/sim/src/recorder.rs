//! Devices that write down, in one order, everything that is done to all of them.
//!
//! A write is in the record as soon as it is on the device, and counts as done for every flush after it, also for
//! one by another thread that began before the write returned: of two such calls at once, only the order in which
//! the device took them can be seen.

use crate::{Change, Image, ImageDevice, Recording};
use brindle_device::{Device, DeviceClass, DeviceError, WritableDevice};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The record of several devices; a clone is another handle of the same.
#[derive(Clone, Default)]
pub struct Recorder {
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    names: Vec<String>,
    classes: Vec<DeviceClass>,
    initial: Vec<Image>,
    events: Vec<Event>,
}

/// One thing that was done to a device.
#[derive(Clone, Debug)]
pub struct Event {
    /// Number of the device, in the order in which the recorder made them.
    pub device: usize,
    /// The operation.
    pub kind: EventKind,
}

/// Operation on a device.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// A write or a discard.
    Change(Arc<Change>),
    /// A flush.
    Flush,
    /// A new size in bytes; durable at once.
    SetSize(u64),
}

/// A device of a [`Recorder`], in memory.
pub struct CrashDevice {
    number: usize,
    recorder: Recorder,
    contents: ImageDevice,
}

impl Recorder {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A further device, with these contents, which no crash takes away.
    pub fn device(&self, name: &str, image: Image, class: DeviceClass) -> Arc<CrashDevice> {
        let mut log = self.log();
        let number = log.initial.len();
        log.names.push(name.to_owned());
        log.classes.push(class);
        log.initial.push(image.clone());
        let contents = ImageDevice::new(name, image, class);
        Arc::new(CrashDevice { number, recorder: self.clone(), contents })
    }

    /// Number of events: the present crash point.
    #[must_use]
    pub fn position(&self) -> usize {
        self.log().events.len()
    }

    /// Events until now.
    #[must_use]
    pub fn recording(&self) -> Recording {
        let log = self.log();
        Recording::new(log.names.clone(), log.classes.clone(), log.initial.clone(), log.events.clone())
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CrashDevice {
    /// Contents that a reader sees now, flushed or not.
    #[must_use]
    pub fn image(&self) -> Image {
        self.contents.image()
    }

    /// Records an event, and does `effect` before another event can follow.
    fn record(&self, kind: EventKind, effect: impl FnOnce(&mut Image)) {
        let mut log = self.recorder.log();
        log.events.push(Event { device: self.number, kind });
        effect(&mut self.contents.write());
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("events", &self.position()).finish_non_exhaustive()
    }
}

impl fmt::Debug for CrashDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashDevice").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Device for CrashDevice {
    fn name(&self) -> &str {
        self.contents.name()
    }

    fn size_bytes(&self) -> u64 {
        self.contents.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.contents.read_at(offset, buffer)
    }

    fn class(&self) -> DeviceClass {
        self.contents.class()
    }
}

impl WritableDevice for CrashDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.contents.check_range(offset, bytes.len())?;
        if !bytes.is_empty() {
            let change = Arc::new(Change::write(offset, bytes));
            self.record(EventKind::Change(Arc::clone(&change)), |image| change.apply(image));
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.record(EventKind::Flush, |_| {});
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let end = offset.saturating_add(length).min(self.size_bytes());
        if offset < end {
            let change = Arc::new(Change::zeros(offset, end - offset));
            self.record(EventKind::Change(Arc::clone(&change)), |image| change.apply(image));
        }
        Ok(true)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.record(EventKind::SetSize(size_bytes), |image| image.set_size(size_bytes));
        Ok(())
    }
}
