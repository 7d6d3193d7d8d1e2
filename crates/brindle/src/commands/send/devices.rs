//! Subvolumes of devices, sent by this process.

use super::{Failure, SendCommand, WRITE_BYTES, progress_bar, tell_begin};
use crate::commands::stop::Stop;
use anyhow::{Context, Result, bail};
use brindle_care::job::Control;
use brindle_care::send::{SendError, SendEvent, SendOptions, send};
use brindle_fs::{Filesystem, InodeId, RootId};
use brindle_stream::{StreamError, StreamProblem};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Subvolumes that are to be sent.
pub(super) struct Sending {
    filesystem: Filesystem,
    options: SendOptions,
}

impl Sending {
    /// Opens the pool, and finds the subvolumes.
    pub(super) fn begin(command: &SendCommand, version: u32, devices: &[PathBuf]) -> Result<Self> {
        let filesystem = command.pool.open(devices)?;
        let find = |path: &OsString| find(&filesystem, path);
        let options = SendOptions {
            subvolumes: command.path.iter().map(find).collect::<Result<_>>()?,
            parent: command.parent.as_ref().map(find).transpose()?,
            sources: command.clone_source.iter().map(find).collect::<Result<_>>()?,
            version,
            compressed: command.compressed_data,
            no_data: command.no_data,
            one_stream: command.one_stream,
        };
        Ok(Self { filesystem, options })
    }

    pub(super) fn write(self, target: &File, stop: &Stop, quiet: bool) -> Result<(), Failure> {
        let progress = progress_bar(quiet);
        let mut target = BufWriter::with_capacity(WRITE_BYTES, target);
        let sent = send(&self.filesystem, &self.options, &mut target, &mut |event| {
            match event {
                SendEvent::Begun { subvolume, parent } => {
                    if !quiet {
                        let parent = parent.map(|parent| parent.path.as_slice());
                        tell_begin(&progress, &subvolume.path, parent);
                    }
                }
                SendEvent::Command { command, bytes } => {
                    tracing::debug!("{command}");
                    progress.set_position(*bytes);
                    if let Some(path) = command.path().filter(|_| !progress.is_hidden()) {
                        progress.set_message(String::from_utf8_lossy(path).into_owned());
                    }
                }
                SendEvent::Sent(sent) => {
                    let (inodes, read, shared) = (sent.inodes, sent.compared.read, sent.compared.shared);
                    tracing::info!(
                        "{inodes} inodes; compared: {read} blocks read, {shared} shared ones passed over"
                    );
                }
            }
            if stop.is_set() { Control::Cancel } else { Control::Continue }
        });
        progress.finish_and_clear();
        // What is left after a failure is not worth a further one.
        drop(target.into_parts());
        sent.map(|_| ()).map_err(Failure::from)
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Cancelled => Self::Stopped,
            SendError::Stream(StreamError { problem: StreamProblem::Io(cause), .. })
                if cause.kind() == ErrorKind::BrokenPipe =>
            {
                Self::NoReader
            }
            error => Self::Other(error.into()),
        }
    }
}

/// The subvolume whose root a path leads to.
fn find(filesystem: &Filesystem, path: &OsStr) -> Result<RootId> {
    let name = || path.to_string_lossy().into_owned();
    let id = filesystem.resolve(filesystem.root(), path.as_bytes()).with_context(name)?;
    if id != InodeId::root_of(id.tree) {
        bail!("{}: not a subvolume", name());
    }
    Ok(id.tree)
}
