//! Changes of inodes: attributes, flags, privileges, extended attributes.

use crate::core::Core;
use crate::data::FileData;
use crate::hold::Holds;
use crate::items::InodeItems;
use std::sync::Arc;

pub(crate) mod attributes;
pub(crate) mod flags;
pub(crate) mod privileges;
pub(crate) mod xattr;

/// Changes what inode items, and the items beside them, tell of an inode.
#[derive(Debug)]
pub(crate) struct InodeChanges {
    core: Arc<Core>,
    items: Arc<InodeItems>,
    data: Arc<FileData>,
    holds: Arc<Holds>,
}

impl InodeChanges {
    pub(crate) fn new(
        core: Arc<Core>,
        items: Arc<InodeItems>,
        data: Arc<FileData>,
        holds: Arc<Holds>,
    ) -> Self {
        Self { core, items, data, holds }
    }
}
