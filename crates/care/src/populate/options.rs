//! Options of taking in a directory.

use brindle_fs::CompressionChoice;
use std::path::PathBuf;

/// Options of taking in a directory.
#[derive(Clone, Debug, Default)]
pub struct PopulateOptions {
    /// Compression of contents.
    pub compression: Option<CompressionChoice>,
    /// Directories that become subvolumes.
    pub subvolumes: Vec<SubvolumeRule>,
    /// Flags of files and directories.
    pub inode_flags: Vec<InodeFlagRule>,
    /// The devices are made as small as what is in use allows.
    pub shrink: bool,
    /// Space that the data takes, if that is known; else the sizes of the files are its upper bound.
    pub data_bytes: Option<u64>,
    /// Times that differ each time a tree is copied or read (of access, of change) are that of the contents.
    pub is_reproducible: bool,
    /// Files up to this length lie on fast devices, if the pool has some; this is stored in the pool.
    pub small_file_bytes: Option<u64>,
    /// Number of reading threads; the number of processors if `None`. The pool is the same.
    pub threads: Option<usize>,
    /// Seed of all UUIDs.
    pub seed: [u8; 16],
    /// Now, in seconds since 1970.
    pub time_sec: i64,
}

/// A directory that becomes a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeRule {
    /// Kind of the subvolume.
    pub kind: SubvolumeKind,
    /// The path within the source.
    pub path: PathBuf,
}

/// Kind of a subvolume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubvolumeKind {
    /// Makes it read-only.
    pub is_read_only: bool,
    /// Makes it the subvolume that is mounted unless another is named.
    pub is_default: bool,
}

/// Flags of a file, or of a directory and all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeFlagRule {
    /// Overwritten in place, and so without checksums.
    pub nodatacow: bool,
    /// Without checksums.
    pub nodatasum: bool,
    /// The path within the source.
    pub path: PathBuf,
}
