//! Errors of trees, transactions and space.

use crate::quota_error::QuotaError;
use brindle_ondisk::{CorruptNode, Defect, DevId, Generation, Key, Logical, RootId};
use brindle_volume::{ReadError, ReplaceError, VolumeError, WriteError};
use std::sync::Arc;
use thiserror::Error;

/// Reason why a pool could not be opened, a tree read or changed, or a transaction committed.
#[derive(Debug, Error)]
pub enum TreeError {
    /// The pool can't be opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// No copy of a block could be had.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A key of a child reaches into the range of the next one.
    #[error("corrupt tree block at logical {at}: its last key {last} reaches its parent's next key {bound}")]
    KeyBeyondBound {
        /// The child.
        at: Logical,
        /// Its last key.
        last: Key,
        /// The least key that it must not have.
        bound: Key,
    },
    /// A block of one tree hangs in another.
    #[error("corrupt tree block at logical {at}: belongs to {} instead of {}", tree_name(*.owner), tree_name(*.tree))]
    WrongTree {
        /// The block.
        at: Logical,
        /// The tree that is read.
        tree: RootId,
        /// The tree that the block says it is of.
        owner: RootId,
    },
    /// An item is not what its tree needs there.
    #[error("corrupt item {key} of {}: {defect}", tree_name(*.tree))]
    Item {
        /// The tree.
        tree: RootId,
        /// The item's key.
        key: Key,
        /// The defect.
        defect: Defect,
    },
    /// An item that is to be added is there already.
    #[error("{} has an item {key} already", tree_name(*.tree))]
    Exists {
        /// The tree.
        tree: RootId,
        /// The item's key.
        key: Key,
    },
    /// An item that is to be added fits into no leaf.
    #[error("item {key} of {} is too large: {size} bytes, a leaf takes {size_max}", tree_name(*.tree))]
    TooLarge {
        /// The tree.
        tree: RootId,
        /// The item's key.
        key: Key,
        /// Its size, in bytes.
        size: usize,
        /// The most that it can be.
        size_max: usize,
    },
    /// The accounting of space in the trees is inconsistent.
    #[error("corrupt accounting of space: extent at logical {start}, {length} bytes: {problem}")]
    Space {
        /// Start address.
        start: Logical,
        /// Its length in bytes.
        length: u64,
        /// The problem.
        problem: &'static str,
    },
    /// Quota groups can't be changed, or let nothing more in.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// No space is left.
    #[error("no space left: {0}")]
    NoSpace(String),
    /// The pool was opened to be read only, or has become so.
    #[error("the pool is read-only: {0}")]
    ReadOnly(Arc<str>),
    /// The pool can't be written until an operation that was begun has ended.
    #[error("the pool can't be written: {0}")]
    UnderWay(&'static str),
    /// The kernel was interrupted while it replaced a device.
    #[error(
        "the pool can't be written: the kernel was interrupted while it replaced devid {devid} by {}; mount it with the kernel and \
         all devices, the target too, which goes on with that, or end it by `brindle device replace cancel`",
        target.as_deref().unwrap_or("a target that is not there")
    )]
    ReplacementInterrupted {
        /// The device that is to be replaced.
        devid: DevId,
        /// The target, if it was given.
        target: Option<String>,
    },
    /// A block that was to be written is not what it should be: a mistake of brindle's, and nothing was written.
    #[error("refused to write a tree block: {0}")]
    Refused(CorruptNode),
    /// The books of a transaction could not be closed: a mistake of brindle's, and nothing was written.
    #[error("the transaction does not settle")]
    Unsettled,
    /// A device failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A device could not take the place of another.
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    /// There is no such device that can be written.
    #[error("there is no writable device {0} in the pool")]
    NoDevice(DevId),
    /// An operation of which one at a time is allowed is under way.
    #[error("another operation is under way on this pool, a {running}: wait for its end, or end it")]
    Busy {
        /// Name of the running operation.
        running: &'static str,
    },
    /// The trees of the last commit can't be entered.
    #[error("{source}; {}", advice(*.readable))]
    NoRoots {
        /// The problem of the last commit.
        source: Box<TreeError>,
        /// The newest commit that backup roots lead to, if one does.
        readable: Option<Generation>,
    },
    /// A tree that should be there is not.
    #[error("there is no {}", tree_name(*.0))]
    NoTree(RootId),
}

impl TreeError {
    /// An item that is not what its tree needs there.
    pub fn item(tree: RootId, key: Key, defect: Defect) -> Self {
        Self::Item { tree, key, defect }
    }

    /// Returns true if blocks of a tree are damaged in every copy; false if no more is known than that older roots can be read.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Read(error) => error.is_damage(),
            Self::KeyBeyondBound { .. } | Self::WrongTree { .. } | Self::Item { .. } => true,
            _ => false,
        }
    }

    /// Returns true if every copy of a block lies on a device that is missing.
    pub fn lacks_devices(&self) -> bool {
        match self {
            Self::Read(error) => error.lacks_devices(),
            Self::NoRoots { source, .. } => source.lacks_devices(),
            _ => false,
        }
    }
}

/// Name of a tree in messages.
pub fn tree_name(tree: RootId) -> String {
    match tree.well_known_name() {
        Some(name) => name.to_owned(),
        None => format!("tree {tree}"),
    }
}

/// Advice where the last commit can't be entered by.
fn advice(readable: Option<Generation>) -> String {
    match readable {
        Some(generation) => {
            format!("the backup roots of generation {generation} can be read: -o ro,rescue=usebackuproot")
        }
        None => "no backup root can be read either".to_owned(),
    }
}
