//! Disks that can be shown as a file of a mount.

use crate::Answer;
use brindle_device::{Buffer, Device, DeviceClass, DeviceError, WritableDevice};
use rustix::io::Errno;
use std::fmt::{self, Debug};
use std::path::Path;
use std::sync::Arc;

/// A disk that is shown: its requests are answered now or later, by any thread.
pub trait ShownDisk: Send + Sync + Debug + 'static {
    /// Its size in bytes.
    fn size_bytes(&self) -> u64;

    /// Returns true for a disk that takes no discards, and whose loop device is to be rotational.
    fn is_rotating(&self) -> bool;

    /// Returns true if requests return before they are answered.
    fn answers_later(&self) -> bool;

    /// Reads; beyond the end there is nothing.
    fn read(&self, offset: u64, length: usize, answer: impl FnOnce(Answer<&[u8]>) + Send + 'static);

    /// Writes; a durable write is answered when it is flushed too.
    fn write(
        &self,
        offset: u64,
        bytes: &[u8],
        is_durable: bool,
        answer: impl FnOnce(Answer<()>) + Send + 'static,
    );

    /// Makes durable what was written.
    fn flush(&self, answer: impl FnOnce(Answer<()>) + Send + 'static);

    /// Forgets a range, which reads as zeros from then on.
    fn discard(&self, offset: u64, length: u64, answer: impl FnOnce(Answer<()>) + Send + 'static);

    /// Its state, as the status file shows it.
    fn status_text(&self, loop_device: Option<&Path>) -> String;

    /// Times and places of its requests, as the activity file shows them; empty for a disk that does not note them.
    fn activity_text(&self) -> String {
        String::new()
    }

    /// Carries out a line that was written to the control file.
    fn command(&self, line: &[u8]) -> Answer<()>;
}

/// State of a device as text.
type StatusText = Box<dyn Fn(Option<&Path>) -> String + Send + Sync>;
/// Carries out a command.
type CommandOf = Box<dyn Fn(&[u8]) -> Answer<()> + Send + Sync>;

/// Any device, to be shown. The thread that brings a request waits for the device.
pub struct ShownDevice {
    target: ShownTarget,
    status: StatusText,
    command: CommandOf,
}

#[derive(Debug)]
enum ShownTarget {
    Read(Arc<dyn Device>),
    Write(Arc<dyn WritableDevice>),
}

impl ShownDevice {
    /// A device with its state, and its commands.
    pub fn new(
        device: Arc<dyn WritableDevice>,
        status: impl Fn(Option<&Path>) -> String + Send + Sync + 'static,
        command: impl Fn(&[u8]) -> Answer<()> + Send + Sync + 'static,
    ) -> Self {
        Self { target: ShownTarget::Write(device), status: Box::new(status), command: Box::new(command) }
    }

    /// A device that is read alone, with its state.
    pub fn read_only(
        device: Arc<dyn Device>,
        status: impl Fn(Option<&Path>) -> String + Send + Sync + 'static,
    ) -> Self {
        let command = Box::new(|_: &[u8]| Err(Errno::ROFS));
        Self { target: ShownTarget::Read(device), status: Box::new(status), command }
    }

    fn device(&self) -> &dyn Device {
        match &self.target {
            ShownTarget::Read(device) => &**device,
            ShownTarget::Write(device) => device.as_device(),
        }
    }

    fn writable(&self) -> Answer<&dyn WritableDevice> {
        match &self.target {
            ShownTarget::Read(_) => Err(Errno::ROFS),
            ShownTarget::Write(device) => Ok(&**device),
        }
    }
}

impl Debug for ShownDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShownDevice").field("target", &self.target).finish_non_exhaustive()
    }
}

/// The error for a program; the log tells the reason.
fn failed(error: &DeviceError) -> Errno {
    tracing::error!("{error}");
    match error {
        DeviceError::BeyondEnd { .. } => Errno::NOSPC,
        _ => Errno::IO,
    }
}

impl ShownDisk for ShownDevice {
    fn size_bytes(&self) -> u64 {
        self.device().size_bytes()
    }

    fn is_rotating(&self) -> bool {
        self.device().class() == DeviceClass::Rotating
    }

    fn answers_later(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, length: usize, answer: impl FnOnce(Answer<&[u8]>) + Send + 'static) {
        let left = usize::try_from(self.size_bytes().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut buffer = Buffer::new(length.min(left));
        match self.device().read_at(offset, &mut buffer) {
            Ok(()) => answer(Ok(&buffer)),
            Err(error) => answer(Err(failed(&error))),
        }
    }

    fn write(
        &self,
        offset: u64,
        bytes: &[u8],
        is_durable: bool,
        answer: impl FnOnce(Answer<()>) + Send + 'static,
    ) {
        let write = |device: &dyn WritableDevice| {
            let written = device.write_at(offset, bytes);
            let written = if is_durable { written.and_then(|()| device.flush()) } else { written };
            written.map_err(|error| failed(&error))
        };
        answer(self.writable().and_then(write));
    }

    fn flush(&self, answer: impl FnOnce(Answer<()>) + Send + 'static) {
        // Contents that are only read are durable.
        let flush = |device: &dyn WritableDevice| device.flush().map_err(|error| failed(&error));
        answer(self.writable().map_or(Ok(()), flush));
    }

    fn discard(&self, offset: u64, length: u64, answer: impl FnOnce(Answer<()>) + Send + 'static) {
        answer(self.writable().and_then(|device| match device.discard(offset, length) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Errno::OPNOTSUPP),
            Err(error) => Err(failed(&error)),
        }));
    }

    fn status_text(&self, loop_device: Option<&Path>) -> String {
        (self.status)(loop_device)
    }

    fn command(&self, line: &[u8]) -> Answer<()> {
        (self.command)(line)
    }
}
