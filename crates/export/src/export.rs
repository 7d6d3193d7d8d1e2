//! Exports: a device under a name, with the abilities that clients are told.

use crate::ExportError;
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_nbd::{BlockSizes, ExportFlags, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, ReplyError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Multiples of it are fastest, in bytes.
const PREFERRED_BYTES: u32 = 4096;

/// A device that is shown under a name.
#[derive(Debug)]
pub struct Export {
    name: String,
    target: Target,
    is_host_cached: bool,
    /// Flushes and durable writes that failed.
    failures: AtomicU64,
}

/// Failures of an export that the client of a connection was told, or that were before it came.
#[derive(Debug)]
pub(crate) struct ToldFailures(AtomicU64);

#[derive(Debug)]
enum Target {
    Read(Arc<dyn Device>),
    Write(Arc<dyn WritableDevice>),
}

impl Export {
    /// A device that is read alone.
    ///
    /// # Errors
    /// [`ExportError::Name`].
    pub fn read_only(name: &str, device: Arc<dyn Device>) -> Result<Self, ExportError> {
        Self::new(name, Target::Read(device))
    }

    /// A device that is read and written.
    ///
    /// # Errors
    /// [`ExportError::Name`].
    pub fn writable(name: &str, device: Arc<dyn WritableDevice>) -> Result<Self, ExportError> {
        Self::new(name, Target::Write(device))
    }

    fn new(name: &str, target: Target) -> Result<Self, ExportError> {
        if name.len() > NAME_BYTES_MAX || name.contains('\0') {
            return Err(ExportError::Name { found: name.len() });
        }
        Ok(Self { name: name.to_owned(), target, is_host_cached: false, failures: AtomicU64::new(0) })
    }

    /// Says that the device is a file or a block device of this host: most short reads and writes are a copy of memory, and a read
    /// that is not announces its wait ([`brindle_device::before_wait`]).
    #[must_use]
    pub fn host_cached(mut self) -> Self {
        self.is_host_cached = true;
        self
    }

    /// Failures for a client that has just come.
    pub(crate) fn told_failures(&self) -> ToldFailures {
        ToldFailures(AtomicU64::new(self.failures.load(Ordering::Acquire)))
    }

    /// Judges a flush or a durable write of a client. A device tells a failure of earlier writes once; each client that was there has
    /// written some of them, maybe, and so is told by its next flush.
    pub(crate) fn judge<T>(
        &self,
        told: &ToldFailures,
        is_flush: bool,
        answer: Result<T, ReplyError>,
    ) -> Result<T, ReplyError> {
        if answer.is_err() {
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
        let failures = self.failures.load(Ordering::Acquire);
        if is_flush && told.0.fetch_max(failures, Ordering::AcqRel) < failures {
            return answer.and(Err(ReplyError::Io));
        }
        answer
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the name that a client gives means this export: its own, or none.
    pub(crate) fn is_meant_by(&self, name: &str) -> bool {
        name.is_empty() || name == self.name
    }

    pub(crate) fn is_host_cached(&self) -> bool {
        self.is_host_cached
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.device().size_bytes()
    }

    /// Takes the size that the device has by now, before a client is told; a device that can't say keeps the size that it had.
    pub(crate) fn refresh_size(&self) {
        if let Some(Err(error)) = self.writable_device().map(WritableDevice::refresh_size) {
            tracing::warn!("{error}");
        }
    }

    pub(crate) fn device(&self) -> &dyn Device {
        match &self.target {
            Target::Read(device) => &**device,
            Target::Write(device) => device.as_device(),
        }
    }

    /// The device, if it may be written.
    pub(crate) fn writable_device(&self) -> Option<&dyn WritableDevice> {
        match &self.target {
            Target::Read(_) => None,
            Target::Write(device) => Some(&**device),
        }
    }

    /// Abilities, for a client that takes structured replies or not.
    pub(crate) fn flags(&self, is_structured: bool) -> ExportFlags {
        let mut flags = ExportFlags::HAS_FLAGS
            | ExportFlags::SEND_FLUSH
            | ExportFlags::CAN_MULTI_CONN
            | ExportFlags::SEND_CACHE;
        flags.set(ExportFlags::SEND_DF, is_structured);
        flags.set(ExportFlags::ROTATIONAL, self.device().class() == DeviceClass::Rotating);
        let of_writes = ExportFlags::SEND_FUA
            | ExportFlags::SEND_TRIM
            | ExportFlags::SEND_WRITE_ZEROES
            | ExportFlags::SEND_FAST_ZERO;
        match self.target {
            Target::Read(_) => flags | ExportFlags::READ_ONLY,
            Target::Write(_) => flags | of_writes,
        }
    }

    pub(crate) fn block_sizes() -> BlockSizes {
        BlockSizes { minimum: 1, preferred: PREFERRED_BYTES, maximum: PAYLOAD_BYTES_MAX }
    }
}
