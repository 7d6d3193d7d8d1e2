//! Extended attributes, access lists among them.

use super::durability::Durability;
use super::nodes::Nodes;
use super::privileges::Privileges;
use crate::errno::number;
use crate::permission::Caller;
use brindle_fs::{Filesystem, XattrMode};
use rustix::io::Errno;
use std::sync::Arc;

/// `setxattr`'s flags.
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// Names of extended attributes begin so, or are an ACL.
const XATTR_PREFIXES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"btrfs."];
const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// An extended attribute to be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Xattr<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Those of setxattr(2).
    pub(crate) flags: i32,
    /// True if an access list takes the set-group-id bit away; `None` if the kernel does not tell.
    pub(crate) drops_set_group_id: Option<bool>,
}

/// Extended attributes of the mount's inodes.
#[derive(Debug)]
pub(crate) struct Xattrs {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
    privileges: Arc<Privileges>,
    durability: Arc<Durability>,
}

impl Xattrs {
    pub(super) fn new(
        filesystem: Arc<Filesystem>,
        nodes: Arc<Nodes>,
        privileges: Arc<Privileges>,
        durability: Arc<Durability>,
    ) -> Self {
        Self { filesystem, nodes, privileges, durability }
    }

    pub(crate) fn get(&self, node: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        check_name(name)?;
        let id = self.nodes.inode(node)?;
        // The place of a subvolume in a snapshot has no attributes of any kind.
        if id.is_empty_subvolume() && !ACCESS_LISTS.contains(&name) {
            return Err(Errno::OPNOTSUPP);
        }
        number(self.filesystem.xattr(id, name))?.ok_or(Errno::NODATA)
    }

    /// The names of all extended attributes, each with a zero behind it.
    pub(crate) fn names(&self, node: u64) -> Result<Vec<u8>, Errno> {
        let xattrs = number(self.filesystem.xattrs(self.nodes.inode(node)?))?;
        let mut names = Vec::new();
        for xattr in xattrs {
            names.extend_from_slice(&xattr.name);
            names.push(0);
        }
        Ok(names)
    }

    pub(crate) fn set(&self, caller: Caller, node: u64, xattr: &Xattr<'_>) -> Result<(), Errno> {
        let Xattr { name, value, flags, drops_set_group_id } = *xattr;
        check_name(name)?;
        let mode = match flags & (XATTR_CREATE | XATTR_REPLACE) {
            0 => XattrMode::Any,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            // Both at once can't be had.
            _ => return Err(self.get(node, name).map_or_else(|error| error, |_| Errno::EXIST)),
        };
        let id = self.nodes.inode(node)?;
        number(self.filesystem.set_xattr(id, name, value, mode))?;
        // A list says what the mode says, and changing it is a kind of chmod.
        let drops = || drops_set_group_id.map_or_else(|| self.privileges.loses_set_group_id(caller, id), Ok);
        if name == ACCESS_LISTS[0] && drops()? {
            self.privileges.drop_set_group_id(node, id)?;
        }
        self.durability.settle_inode(&number(self.filesystem.attributes(id))?)
    }

    pub(crate) fn remove(&self, node: u64, name: &[u8]) -> Result<(), Errno> {
        check_name(name)?;
        let id = self.nodes.inode(node)?;
        number(self.filesystem.remove_xattr(id, name))?;
        self.durability.settle_inode(&number(self.filesystem.attributes(id))?)
    }
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    match XATTR_PREFIXES.iter().find(|prefix| name.starts_with(prefix)) {
        Some(prefix) if name.len() == prefix.len() => Err(Errno::INVAL),
        Some(_) => Ok(()),
        None if ACCESS_LISTS.contains(&name) => Ok(()),
        None => Err(Errno::OPNOTSUPP),
    }
}
