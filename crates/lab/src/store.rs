//! Contents of a disk: a sparse file, in memory or on a filesystem. Zeros take no room.

use crate::LabError;
use rustix::fs::{FallocateFlags, FlockOperation, MemfdFlags, fallocate, flock, memfd_create};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Contents of a disk. Several threads may read and write at once.
#[derive(Debug)]
pub struct Store {
    file: File,
    size_bytes: u64,
}

impl Store {
    /// Contents in memory: all zeros.
    ///
    /// # Errors
    /// [`LabError::Store`].
    pub fn in_memory(size_bytes: u64) -> Result<Self, LabError> {
        let failed = |source| LabError::Store { place: "memory".to_owned(), source };
        let file =
            memfd_create("modelled disk", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        Self::of(File::from(file), size_bytes).map_err(failed)
    }

    /// Contents in a file, which is made if it is missing, and longer if it is too short.
    ///
    /// # Errors
    /// [`LabError::Store`].
    pub fn in_file(path: &Path, size_bytes: u64) -> Result<Self, LabError> {
        let failed = |source| LabError::Store { place: path.display().to_string(), source };
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = open().map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")));
        }
        // Two disks with the same contents would destroy them.
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Self::of(file, size_bytes).map_err(failed),
            Err(Errno::WOULDBLOCK) => {
                Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, "another disk has it")))
            }
            Err(error) => Err(failed(error.into())),
        }
    }

    fn of(file: File, size_bytes: u64) -> io::Result<Self> {
        if file.metadata()?.len() < size_bytes {
            file.set_len(size_bytes)?;
        }
        Ok(Self { file, size_bytes })
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Fills a buffer.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// Writes bytes; zeros give back their room.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if is_zero(bytes) && self.zero(offset, bytes.len() as u64).is_ok() {
            return Ok(());
        }
        self.file.write_all_at(bytes, offset)
    }

    /// Zeros a range, and gives back its room.
    ///
    /// # Errors
    /// Those of fallocate(2): EOPNOTSUPP where the filesystem has no holes.
    pub fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(&self.file, flags, offset, length) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    // The first byte that is not zero ends it, which is the first of most blocks.
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn zeros_take_no_room() {
        let store = Store::in_memory(1 << 40).expect("memory");
        store.write((1 << 40) - 4096, &[7; 4096]).expect("room");
        store.write(1 << 30, &vec![0; 1 << 20]).expect("room");
        assert_eq!(store.file.metadata().expect("open").blocks(), 8);
        store.write((1 << 40) - 4096, &[0; 4096]).expect("room");
        assert_eq!(store.file.metadata().expect("open").blocks(), 0);
        let mut bytes = [1; 8192];
        store.read((1 << 40) - 8192, &mut bytes).expect("within");
        assert_eq!(bytes, [0; 8192]);
    }

    #[test]
    fn contents_of_a_file_stay_and_belong_to_one_disk() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("contents");
        let store = Store::in_file(&path, 1 << 20).expect("room");
        store.write(4096, &[3; 512]).expect("room");
        let refused = Store::in_file(&path, 1 << 20).expect_err("one is enough").to_string();
        assert!(refused.ends_with("another disk has it") && refused.contains("contents"), "{refused}");
        drop(store);
        let store = Store::in_file(&path, 1 << 21).expect("room");
        let mut bytes = [0; 513];
        store.read(4096, &mut bytes).expect("within");
        assert_eq!((bytes[511], bytes[512], store.size_bytes()), (3, 0, 1 << 21));
        Store::in_file(directory.path(), 1 << 20).expect_err("a directory");
    }
}
