//! Times of access, as far as the options of the mount want them.

use super::mode::MountMode;
use crate::errno::number;
use crate::handles::Handle;
use crate::options::MountOptions;
use brindle_fs::{AtimeMode, Filesystem, InodeId};
use std::sync::Arc;

/// Times of access on a mount.
#[derive(Debug)]
pub(super) struct AccessTimes {
    filesystem: Arc<Filesystem>,
    mode: Arc<MountMode>,
    is_on: bool,
    is_on_for_directories: bool,
    /// Each access counts, not only the first by each open file.
    counts_each: bool,
}

impl AccessTimes {
    pub(super) fn new(filesystem: Arc<Filesystem>, mode: Arc<MountMode>, options: &MountOptions) -> Self {
        let is_on = mode.is_written() && options.atime != AtimeMode::Never;
        Self {
            filesystem,
            mode,
            is_on,
            is_on_for_directories: is_on && options.directory_atime,
            counts_each: options.atime == AtimeMode::Strict,
        }
    }

    /// Notes a read of a file.
    pub(super) fn note_read(&self, handle: &Handle) {
        if self.is_on && !self.mode.is_resting() && (self.counts_each || handle.is_first_access()) {
            self.note(handle.file.id());
        }
    }

    /// Notes that a symbolic link was followed.
    pub(super) fn note_link(&self, id: InodeId) {
        if self.is_on && !self.mode.is_resting() {
            self.note(id);
        }
    }

    /// Notes a listing of a directory.
    pub(super) fn note_listing(&self, id: InodeId) {
        if self.is_on_for_directories && !self.mode.is_resting() {
            self.note(id);
        }
    }

    /// Notes a time of access. A failure does not fail the read.
    fn note(&self, id: InodeId) {
        number(self.filesystem.note_access(id)).ok();
    }
}
