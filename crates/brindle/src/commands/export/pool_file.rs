//! A file of a pool, read as a device.

use crate::commands::path::PathOption;
use anyhow::{Context, Result, bail};
use brindle_device::{Device, DeviceError};
use brindle_fs::{FileType, Filesystem, OpenFile};
use std::fmt;

/// A file of a pool that is only read.
pub(super) struct PoolFile {
    filesystem: Filesystem,
    file: OpenFile,
    name: String,
    size_bytes: u64,
}

impl PoolFile {
    /// Opens a file.
    pub(super) fn open(filesystem: Filesystem, path: &PathOption) -> Result<Self> {
        let inode = path.resolve(&filesystem)?;
        let name = path.display().to_string();
        let attributes = filesystem.attributes(inode)?;
        if attributes.kind != FileType::Regular {
            bail!("{name}: is not a regular file");
        }
        let file = filesystem.open_file(inode).with_context(|| name.clone())?;
        Ok(Self { filesystem, file, name, size_bytes: attributes.size })
    }
}

impl fmt::Debug for PoolFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolFile").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Device for PoolFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let (length, mut filled) = (buffer.len(), 0);
        while filled < length {
            let at = offset + filled as u64;
            let read = self.filesystem.read(&self.file, at, &mut buffer[filled..]);
            let source = match read {
                Ok(0) => std::io::ErrorKind::UnexpectedEof.into(),
                Ok(length) => {
                    filled += length;
                    continue;
                }
                Err(error) => std::io::Error::other(error),
            };
            return Err(DeviceError::Read { device: self.name.clone(), offset, length, source });
        }
        Ok(())
    }
}
