//! Numbers of commands and of attributes.

use std::fmt;

/// Number of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandNumber(pub u16);

/// A command: its number, the first version that has it, and its name.
struct Known(u16, u32, &'static str);

/// All commands, by the words of `btrfs receive --dump`.
const COMMANDS: [Known; 25] = [
    Known(1, 1, "subvol"),
    Known(2, 1, "snapshot"),
    Known(3, 1, "mkfile"),
    Known(4, 1, "mkdir"),
    Known(5, 1, "mknod"),
    Known(6, 1, "mkfifo"),
    Known(7, 1, "mksock"),
    Known(8, 1, "symlink"),
    Known(9, 1, "rename"),
    Known(10, 1, "link"),
    Known(11, 1, "unlink"),
    Known(12, 1, "rmdir"),
    Known(13, 1, "set_xattr"),
    Known(14, 1, "remove_xattr"),
    Known(15, 1, "write"),
    Known(16, 1, "clone"),
    Known(17, 1, "truncate"),
    Known(18, 1, "chmod"),
    Known(19, 1, "chown"),
    Known(20, 1, "utimes"),
    Known(21, 1, "end"),
    Known(22, 1, "update_extent"),
    Known(23, 2, "fallocate"),
    Known(24, 2, "fileattr"),
    Known(25, 2, "encoded_write"),
];

impl CommandNumber {
    pub(crate) const SUBVOLUME: Self = Self(1);
    pub(crate) const SNAPSHOT: Self = Self(2);
    pub(crate) const MAKE_FILE: Self = Self(3);
    pub(crate) const MAKE_DIRECTORY: Self = Self(4);
    pub(crate) const MAKE_NODE: Self = Self(5);
    pub(crate) const MAKE_FIFO: Self = Self(6);
    pub(crate) const MAKE_SOCKET: Self = Self(7);
    pub(crate) const SYMLINK: Self = Self(8);
    pub(crate) const RENAME: Self = Self(9);
    pub(crate) const LINK: Self = Self(10);
    pub(crate) const UNLINK: Self = Self(11);
    pub(crate) const REMOVE_DIRECTORY: Self = Self(12);
    pub(crate) const SET_XATTR: Self = Self(13);
    pub(crate) const REMOVE_XATTR: Self = Self(14);
    pub(crate) const WRITE: Self = Self(15);
    pub(crate) const CLONE: Self = Self(16);
    pub(crate) const TRUNCATE: Self = Self(17);
    pub(crate) const CHMOD: Self = Self(18);
    pub(crate) const CHOWN: Self = Self(19);
    pub(crate) const TIMES: Self = Self(20);
    pub(crate) const END: Self = Self(21);
    pub(crate) const UPDATE_EXTENT: Self = Self(22);
    pub(crate) const ALLOCATE: Self = Self(23);
    pub(crate) const FLAGS: Self = Self(24);
    pub(crate) const ENCODED_WRITE: Self = Self(25);

    /// Returns true if streams of a version have this command.
    pub(crate) fn is_of(self, version: u32) -> bool {
        COMMANDS.iter().any(|Known(number, since, _)| *number == self.0 && *since <= version)
    }
}

impl fmt::Display for CommandNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match COMMANDS.iter().find(|Known(number, ..)| *number == self.0) {
            Some(Known(_, _, name)) => f.write_str(name),
            None => write!(f, "command {}", self.0),
        }
    }
}

/// Number of an attribute (`BTRFS_SEND_A_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttributeNumber(pub(crate) u16);

/// Names of attributes by their numbers.
const ATTRIBUTES: [&str; 32] = [
    "nothing",
    "uuid",
    "ctransid",
    "ino",
    "size",
    "mode",
    "uid",
    "gid",
    "rdev",
    "ctime",
    "mtime",
    "atime",
    "otime",
    "xattr_name",
    "xattr_data",
    "path",
    "path_to",
    "path_link",
    "file_offset",
    "data",
    "clone_uuid",
    "clone_ctransid",
    "clone_path",
    "clone_offset",
    "clone_len",
    "fallocate_mode",
    "fileattr",
    "unencoded_file_len",
    "unencoded_len",
    "unencoded_offset",
    "compression",
    "encryption",
];

impl AttributeNumber {
    pub(crate) const UUID: Self = Self(1);
    pub(crate) const TRANSID: Self = Self(2);
    pub(crate) const INODE: Self = Self(3);
    pub(crate) const SIZE: Self = Self(4);
    pub(crate) const MODE: Self = Self(5);
    pub(crate) const UID: Self = Self(6);
    pub(crate) const GID: Self = Self(7);
    pub(crate) const DEVICE: Self = Self(8);
    pub(crate) const CHANGED: Self = Self(9);
    pub(crate) const MODIFIED: Self = Self(10);
    pub(crate) const ACCESSED: Self = Self(11);
    pub(crate) const CREATED: Self = Self(12);
    pub(crate) const XATTR_NAME: Self = Self(13);
    pub(crate) const XATTR_VALUE: Self = Self(14);
    pub(crate) const PATH: Self = Self(15);
    pub(crate) const PATH_TO: Self = Self(16);
    pub(crate) const PATH_LINK: Self = Self(17);
    pub(crate) const FILE_OFFSET: Self = Self(18);
    pub(crate) const DATA: Self = Self(19);
    pub(crate) const CLONE_UUID: Self = Self(20);
    pub(crate) const CLONE_TRANSID: Self = Self(21);
    pub(crate) const CLONE_PATH: Self = Self(22);
    pub(crate) const CLONE_OFFSET: Self = Self(23);
    pub(crate) const CLONE_LENGTH: Self = Self(24);
    pub(crate) const ALLOCATE_MODE: Self = Self(25);
    pub(crate) const FLAGS: Self = Self(26);
    pub(crate) const DECODED_FILE_LENGTH: Self = Self(27);
    pub(crate) const DECODED_LENGTH: Self = Self(28);
    pub(crate) const DECODED_OFFSET: Self = Self(29);
    pub(crate) const COMPRESSION: Self = Self(30);
    pub(crate) const ENCRYPTION: Self = Self(31);

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        ATTRIBUTES.get(usize::from(self.0)).copied().unwrap_or("an unknown attribute")
    }
}
