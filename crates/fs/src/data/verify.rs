//! Comparison of everything that is counted of files in memory with recounts.

use super::state::Memory;
use crate::filesystem::Filesystem;
use brindle_ondisk::to_u64;

impl Filesystem {
    /// Panics unless counts of dirty contents and of space agree with recounts: a costly check, for tests. No other
    /// thread uses the filesystem meanwhile. Of a pool whose writing has ended, nothing is asked.
    pub fn verify(&self) {
        if !self.core.is_writable() {
            return;
        }
        self.core.pool().verify();
        let (mut dirty, mut promised) = (0, 0);
        for inode in self.data.dirty_files() {
            let memory = inode.data.memory();
            memory.verify();
            dirty += memory.dirty.bytes() + memory.writing_bytes();
            promised += memory.promised;
        }
        assert_eq!(self.data.dirty_bytes(), dirty, "kept and recounted bytes of dirty contents");
        if let Ok(space) = self.core.pool().space_summary() {
            assert_eq!(
                space.promised_data_bytes, promised,
                "data space promised to files, and that of all files"
            );
        }
    }
}

impl Memory {
    /// Panics unless the state of a file agrees with itself between operations.
    fn verify(&self) {
        assert!(!self.is_changing, "its items change, and no writeback is under way");
        assert_eq!(self.is_dirty(), self.queued.is_some(), "a file waits to be written back if it is dirty");
        assert!(self.promised >= self.dirty.bytes(), "space is promised for all that is dirty");
        assert!(self.dirty.is_empty() || self.is_loaded, "a dirty file has a size");
    }

    /// Bytes that are being written back.
    fn writing_bytes(&self) -> u64 {
        self.writing.iter().map(|piece| to_u64(piece.bytes.len())).sum()
    }
}
