//! State that is locked with the names of an inode.

use crate::acl::Acl;
use std::sync::Arc;

/// State that is locked with the names of an inode.
#[derive(Debug, Default)]
pub(crate) struct NameState {
    /// The index of a directory's next entry, once it has been looked up.
    pub(crate) next_index: Option<u64>,
    /// Number of openers; the inode stays while there are any, also without a name.
    pub(crate) opens: u32,
    /// True if it has no name (any more), and goes with its last opener.
    pub(crate) is_unnamed: bool,
    /// True if it was made without a name, and may get one.
    pub(crate) is_linkable: bool,
    /// True while a thread is removing it.
    pub(crate) is_going: bool,
    /// Inherited properties of new entries of a directory, once they have been looked up.
    pub(crate) inherited: Option<Arc<Inherited>>,
}

/// Extended attributes of a directory that decide about new entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inherited {
    pub(crate) default_acl: Option<Acl>,
    pub(crate) compression: Option<Vec<u8>>,
    /// The tier that its files are to have.
    pub(crate) tier: Option<Vec<u8>>,
    /// Length up to which they count as small.
    pub(crate) small_files: Option<Vec<u8>>,
}
