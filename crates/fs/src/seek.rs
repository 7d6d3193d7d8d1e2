//! Where in a file there is data, and where there is none.

use crate::{Filesystem, FsError, OpenFile};

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The first byte of data (`SEEK_DATA`).
    Data,
    /// The first byte of a hole (`SEEK_HOLE`); the end of the file is one.
    Hole,
}

impl Filesystem {
    /// The first offset from `offset` on that is what is looked for; `None` where there is no such (`ENXIO`).
    /// Preallocated space counts as a hole, as it does for the kernel.
    pub fn seek(&self, file: &OpenFile, offset: u64, whence: Whence) -> Result<Option<u64>, FsError> {
        if offset >= file.size() {
            return Ok(None);
        }
        let mut at = offset;
        while at < file.size() {
            let window = self.extent_window(file.id(), at)?;
            for extent in window.from(at) {
                let is_hole_before = extent.start > at;
                match whence {
                    Whence::Hole if is_hole_before => return Ok(Some(at)),
                    Whence::Data if extent.start < file.size() => return Ok(Some(at.max(extent.start))),
                    _ => at = extent.end(),
                }
            }
            if whence == Whence::Hole && at < window.end() {
                break;
            }
            at = window.end();
        }
        Ok((whence == Whence::Hole).then_some(at.min(file.size())))
    }
}
