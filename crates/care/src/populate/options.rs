//! What is asked for.

use brindle_fs::CompressionChoice;
use std::path::PathBuf;

/// How a directory is taken in.
#[derive(Clone, Debug, Default)]
pub struct PopulateOptions {
    /// How contents are compressed.
    pub compression: Option<CompressionChoice>,
    /// Directories that become subvolumes.
    pub subvolumes: Vec<SubvolumeRule>,
    /// Flags of files and directories.
    pub inode_flags: Vec<InodeFlagRule>,
    /// The devices are made as small as what is in use allows.
    pub shrink: bool,
    /// How much space the data takes, if that is known; else it is what the files hold, at the most.
    pub data_bytes: Option<u64>,
    /// Times that differ each time a tree is copied or read (of access, of change) are that of the contents.
    pub is_reproducible: bool,
    /// Files up to this length lie on fast devices, if the pool has some; this is stored in the pool.
    pub small_file_bytes: Option<u64>,
    /// How many threads read; as many as there are processors if it is not said. The pool is the same.
    pub threads: Option<usize>,
    /// What all UUIDs are derived from.
    pub seed: [u8; 16],
    /// Now, in seconds since 1970.
    pub time_sec: i64,
}

/// A directory that becomes a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeRule {
    /// What kind of subvolume.
    pub kind: SubvolumeKind,
    /// The path within the source.
    pub path: PathBuf,
}

/// What kind of subvolume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubvolumeKind {
    /// Nobody may change it.
    pub is_read_only: bool,
    /// It is the one that is mounted unless another is asked for.
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
