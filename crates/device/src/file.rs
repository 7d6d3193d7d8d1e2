//! An image file or a block device, through the host's page cache.

use crate::class::prefetch_bytes;
use crate::{Device, DeviceClass, DeviceError};
use rustix::fs::{Advice, FileType, SeekFrom, fadvise, fstat, seek};
use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An image file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    name: String,
    file: File,
    size_bytes: u64,
    class: DeviceClass,
    /// How much one hint fetches; the kernel cuts longer ones short.
    prefetch_bytes: u64,
}

impl FileDevice {
    /// Opens `path` for reading.
    pub fn open(path: &Path) -> Result<Self, DeviceError> {
        let name = path.display().to_string();
        let failed = |source| DeviceError::Open { device: name.clone(), source };
        // A fifo would block in open(2), so look before opening.
        let found = std::fs::metadata(path).map_err(failed)?;
        if !is_supported(FileType::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&found))) {
            return Err(DeviceError::NotADevice { device: name });
        }
        let file = File::open(path).map_err(failed)?;
        let stat = fstat(&file).map_err(|errno| failed(errno.into()))?;
        let is_block_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
        // A block device's stat says 0, its end says its size.
        let size_bytes = seek(&file, SeekFrom::End(0)).map_err(|errno| failed(errno.into()))?;
        // The pool's own readahead knows what comes next; the host's would fetch what does not.
        let _ = fadvise(&file, 0, None, Advice::Random);
        let class = DeviceClass::of(&stat, is_block_device);
        let prefetch_bytes = prefetch_bytes(&stat, is_block_device);
        Ok(Self { name, file, size_bytes, class, prefetch_bytes })
    }
}

fn is_supported(kind: FileType) -> bool {
    matches!(kind, FileType::RegularFile | FileType::BlockDevice)
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let length = buffer.len();
        if !fits(offset, length, self.size_bytes) {
            let size_bytes = self.size_bytes;
            return Err(DeviceError::BeyondEnd { device: self.name.clone(), offset, length, size_bytes });
        }
        let failed = |source| DeviceError::Read { device: self.name.clone(), offset, length, source };
        self.file.read_exact_at(buffer, offset).map_err(failed)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.size_bytes);
        let mut at = offset;
        while at < end {
            let piece = self.prefetch_bytes.min(end - at);
            if fadvise(&self.file, at, NonZeroU64::new(piece), Advice::WillNeed).is_err() {
                return;
            }
            at += piece;
        }
    }

    fn class(&self) -> DeviceClass {
        self.class
    }
}

/// Whether `length` bytes at `offset` lie within `size_bytes`.
pub(crate) fn fits(offset: u64, length: usize, size_bytes: u64) -> bool {
    offset.checked_add(length as u64).is_some_and(|end| end <= size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn reads_where_it_is_told_and_refuses_beyond_the_end() {
        let mut image = tempfile::NamedTempFile::new().expect("temporary file");
        image.write_all(b"0123456789").expect("write");
        let device = FileDevice::open(image.path()).expect("open");
        let mut buffer = [0; 4];
        device.read_at(3, &mut buffer).expect("read");
        assert_eq!(&buffer, b"3456");
        assert!(matches!(device.read_at(7, &mut buffer), Err(DeviceError::BeyondEnd { .. })));
        assert!(matches!(device.read_at(u64::MAX, &mut buffer), Err(DeviceError::BeyondEnd { .. })));
    }

    #[test]
    fn a_directory_is_no_device() {
        let directory = tempfile::tempdir().expect("temporary directory");
        assert!(matches!(FileDevice::open(directory.path()), Err(DeviceError::NotADevice { .. })));
    }
}
