//! Comparison of everything that is counted of files in memory with recounts.

use crate::data::FileData;

impl FileData {
    pub(crate) fn verify(&self) {
        if !self.core.is_writable() {
            return;
        }
        self.core.pool().verify();
        let (mut dirty, mut promised) = (0, 0);
        for inode in self.context.dirty_files() {
            let memory = inode.data.memory();
            memory.verify();
            dirty += memory.dirty.bytes() + memory.writing_bytes();
            promised += memory.promised;
        }
        assert_eq!(self.context.dirty_bytes(), dirty, "kept and recounted bytes of dirty contents");
        if let Ok(space) = self.core.pool().space_summary() {
            assert_eq!(
                space.promised_data_bytes, promised,
                "data space promised to files, and that of all files"
            );
        }
    }
}
