use crate::attributes::{Attributes, InodeId};
use crate::error::FsError;
use crate::filesystem::Filesystem;
use crate::inode_flags::FileFlags;
use crate::items::xattr::Xattr;

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
}
