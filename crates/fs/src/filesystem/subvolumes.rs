use crate::error::FsError;
use crate::filesystem::Filesystem;
use brindle_ondisk::RootId;

impl Filesystem {
    /// The path of a subvolume from the top level, whose own is empty; `None` for one that has lost its place.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn path_of_subvolume(&self, id: RootId) -> Result<Option<Vec<u8>>, FsError> {
        self.directories.path_of_subvolume(id)
    }
}
