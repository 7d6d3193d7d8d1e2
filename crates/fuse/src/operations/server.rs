//! The process that serves the mount, and how it may write.

use super::mode::MountMode;
use crate::options::MountOptions;
use brindle_fs::Filesystem;
use brindle_uapi::message::{ReadOnlyReason, ServerInfo};
use std::sync::Arc;

/// Server of a mount.
#[derive(Debug)]
pub(super) struct MountServer {
    filesystem: Arc<Filesystem>,
    mode: Arc<MountMode>,
    /// Reason for being read-only, if that was not requested.
    unwritten_reason: Option<String>,
    process_ends_with_mount: bool,
}

impl MountServer {
    pub(super) fn new(filesystem: Arc<Filesystem>, mode: Arc<MountMode>, options: &MountOptions) -> Self {
        Self {
            filesystem,
            mode,
            unwritten_reason: options.read_only_reason.clone(),
            process_ends_with_mount: options.process_ends_with_mount,
        }
    }

    pub(super) fn describe(&self) -> ServerInfo {
        ServerInfo {
            fsid: self.filesystem.pool().superblock().fsid.0,
            process: if self.process_ends_with_mount { std::process::id() } else { 0 },
            is_writable: self.filesystem.is_writable().into(),
        }
    }

    /// Reason for being read-only, cut off to the room in the answer.
    pub(super) fn read_only_reason(&self) -> ReadOnlyReason {
        let since = self.filesystem.pool().read_only_reason().filter(|_| self.mode.is_written());
        let why = since.as_deref().or(self.unwritten_reason.as_deref()).unwrap_or_default();
        let mut text = [0; 1024];
        let room = text.len() - 1;
        for (byte, from) in text[..room].iter_mut().zip(why.bytes()) {
            *byte = from;
        }
        ReadOnlyReason(text)
    }
}
