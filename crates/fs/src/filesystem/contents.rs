use crate::error::FsError;
use crate::filesystem::Filesystem;
use crate::open_file::OpenFile;
use crate::read::seek::Whence;

impl Filesystem {
    /// Reads from `offset` on, as much as there is and `buffer` holds. Returns how much; 0 at the end.
    pub fn read(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        self.reader.read(file, offset, buffer)
    }

    /// The first offset from `offset` on that is what is looked for; `None` where there is no such (`ENXIO`).
    /// Preallocated space counts as a hole, as it does for the kernel.
    pub fn seek(&self, file: &OpenFile, offset: u64, whence: Whence) -> Result<Option<u64>, FsError> {
        self.reader.seek(file, offset, whence)
    }
}
