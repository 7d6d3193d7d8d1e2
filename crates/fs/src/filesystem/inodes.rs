use crate::attributes::{Attributes, InodeId};
use crate::error::FsError;
use crate::filesystem::Filesystem;
use crate::inode_flags::FileFlags;
use crate::inode_hold::InodeHold;
use crate::items::xattr::Xattr;
use crate::open_file::OpenFile;

impl Filesystem {
    /// Attributes of an inode.
    pub fn attributes(&self, id: InodeId) -> Result<Attributes, FsError> {
        self.items.attributes(id)
    }

    /// Attributes of several inodes, in the order asked for. Faster than one by one where their numbers lie together.
    pub fn attributes_of(&self, ids: &[InodeId]) -> Vec<Result<Attributes, FsError>> {
        self.items.attributes_of(ids)
    }

    /// The flags of an inode (`FS_IOC_GETFLAGS`).
    pub fn flags(&self, id: InodeId) -> Result<FileFlags, FsError> {
        self.items.flags(id)
    }

    /// The value of an extended attribute, if there is one.
    pub fn xattr(&self, id: InodeId, name: &[u8]) -> Result<Option<Vec<u8>>, FsError> {
        self.items.xattr(id, name)
    }

    /// Every extended attribute, in the order of the hashes of their names.
    pub fn xattrs(&self, id: InodeId) -> Result<Vec<Xattr>, FsError> {
        self.items.xattrs(id)
    }

    /// Keeps an inode that has a name, or is kept already.
    pub fn acquire(&self, id: InodeId) -> Result<InodeHold, FsError> {
        self.holds.acquire(id)
    }

    /// Ends a use; the last one removes an inode that has no name. Contents that replace all earlier ones are written
    /// back.
    pub fn release(&self, hold: InodeHold) -> Result<(), FsError> {
        self.holds.release(hold)
    }

    /// Opens a regular file, or a symbolic link to read its target.
    pub fn open_file(&self, id: InodeId) -> Result<OpenFile, FsError> {
        self.holds.open_file(id)
    }

    /// Opens a file whose attributes the caller has just read; [`FsError::NoInode`] if it has lost its last name since.
    pub fn open_known(&self, attributes: &Attributes) -> Result<OpenFile, FsError> {
        self.holds.open_known(attributes)
    }

    /// Closes a file: removes an inode that has lost its last name if this was its last opening, and writes contents back
    /// that replace all earlier ones.
    pub fn close_file(&self, file: OpenFile) -> Result<(), FsError> {
        self.holds.close_file(file)
    }
}
