//! The stream that is written, and its observer.

use crate::job::Control;
use crate::send::error::SendError;
use crate::send::{SendEvent, SendObserver};
use brindle_stream::{Command, StreamWriter};
use std::io::Write;

/// A stream under way.
pub(super) struct Output<'o> {
    writer: StreamWriter<&'o mut dyn Write>,
    observer: SendObserver<'o>,
}

impl<'o> Output<'o> {
    pub(super) fn begin(
        target: &'o mut dyn Write,
        version: u32,
        observer: SendObserver<'o>,
    ) -> Result<Self, SendError> {
        Ok(Self { writer: StreamWriter::new(target, version)?, observer })
    }

    pub(super) fn version(&self) -> u32 {
        self.writer.version()
    }

    pub(super) fn write(&mut self, command: &Command<'_>) -> Result<(), SendError> {
        self.writer.write(command)?;
        self.tell(&SendEvent::Command { command, bytes: self.writer.offset() })
    }

    /// Has the target flush what it holds back.
    pub(super) fn flush(&mut self) -> Result<(), SendError> {
        Ok(self.writer.flush()?)
    }

    pub(super) fn tell(&mut self, event: &SendEvent<'_>) -> Result<(), SendError> {
        match (self.observer)(event) {
            Control::Continue => Ok(()),
            Control::Pause | Control::Cancel => Err(SendError::Cancelled),
        }
    }
}
