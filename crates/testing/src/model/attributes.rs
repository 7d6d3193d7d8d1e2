//! Attributes of an inode, beside its contents.

use super::{Body, Errno, Model, TreePath};
use crate::manifest::Time;

/// Condition on the presence of an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrRule {
    /// The attribute may exist.
    Any,
    /// The attribute must not exist (`XATTR_CREATE`).
    Create,
    /// The attribute must exist (`XATTR_REPLACE`).
    Replace,
}

impl Model {
    /// Sets the permissions.
    pub fn set_mode(&mut self, path: &TreePath, mode: u16) -> Result<(), Errno> {
        let place = self.writable(path)?;
        if matches!(self.at(place).body, Body::Symlink(_)) {
            return Err(Errno::NotSupported);
        }
        self.at_mut(place).mode = mode;
        Ok(())
    }

    /// Sets owner and group.
    pub fn set_owner(&mut self, path: &TreePath, uid: u32, gid: u32) -> Result<(), Errno> {
        let place = self.writable(path)?;
        let inode = self.at_mut(place);
        (inode.uid, inode.gid) = (uid, gid);
        Ok(())
    }

    /// Sets the time of the last change of the contents.
    pub fn set_times(&mut self, path: &TreePath, mtime: Time) -> Result<(), Errno> {
        let place = self.writable(path)?;
        self.at_mut(place).mtime = Some(mtime);
        Ok(())
    }

    /// Sets an extended attribute.
    pub fn set_xattr(
        &mut self,
        path: &TreePath,
        name: &str,
        value: &[u8],
        rule: XattrRule,
    ) -> Result<(), Errno> {
        let place = self.writable(path)?;
        let inode = self.at_mut(place);
        if name.starts_with("user.") && !matches!(inode.body, Body::File(_) | Body::Directory(_)) {
            return Err(Errno::NotPermitted);
        }
        match (rule, inode.xattrs.contains_key(name)) {
            (XattrRule::Create, true) => return Err(Errno::Exists),
            (XattrRule::Replace, false) => return Err(Errno::NoData),
            _ => {}
        }
        inode.xattrs.insert(name.to_owned(), value.to_vec());
        Ok(())
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&mut self, path: &TreePath, name: &str) -> Result<(), Errno> {
        let place = self.writable(path)?;
        self.at_mut(place).xattrs.remove(name).map(|_| ()).ok_or(Errno::NoData)
    }
}
