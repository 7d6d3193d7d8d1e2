//! Requests that find, make, move and remove names.

use super::Adapter;
use crate::attributes::Stat;
use crate::convert::{DIRECTORY, REGULAR, SYMLINK, device_on_disk, new_inode, open_answers};
use crate::operations::names::{Place, Rename};
use crate::permission::Caller;
use brindle_fs::{FileType, NewInode, read_for};
use brindle_transport::{Entry, NameOperation, Opened, Reply, kind};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::time::Duration;

impl Adapter {
    /// Answers a request about a name in the directory `node`.
    pub(super) fn serve_name(&self, caller: Caller, node: u64, operation: NameOperation<'_>) {
        let operations = &self.operations;
        match operation {
            NameOperation::Lookup { name, reply } => {
                read_for(caller.pid);
                let found = self.lookup(node, name);
                let node = found.map_or(0, |entry| entry.node);
                if !reply.deliver(found, |reply, entry| reply.entry(&entry)) {
                    operations.nodes.forget_unanswered(node);
                }
            }
            NameOperation::MakeNode { name, new, reply } => {
                let rdev = device_on_disk(new.rdev);
                self.make(node, name, &NewInode { rdev, ..new_inode(caller, new.mode, new.umask) }, reply);
            }
            NameOperation::MakeDirectory { name, new, reply } => {
                self.make(node, name, &new_inode(caller, DIRECTORY | new.mode, new.umask), reply);
            }
            NameOperation::Symlink { name, target, reply } => {
                let new = NewInode { target: Some(target), ..new_inode(caller, SYMLINK, 0) };
                self.make(node, name, &new, reply);
            }
            NameOperation::Link { target, name, reply } => {
                self.reply_entry(operations.names.link(target, node, name), reply);
            }
            NameOperation::Create { name, new, flags, reply } => {
                let new = new_inode(caller, REGULAR | new.mode, new.umask);
                let created = operations.names.create_open(node, name, &new, flags.into());
                reply.settle(created, |reply, created| {
                    let (entry, opened) = self.created(created, flags);
                    reply.created(&entry, &opened);
                });
            }
            NameOperation::CreateUnnamed { new, flags, reply } => {
                let new = new_inode(caller, REGULAR | new.mode, new.umask);
                let created = operations.names.create_unnamed(node, &new, flags.into());
                reply.settle(created, |reply, created| {
                    let (entry, opened) = self.created(created, flags);
                    reply.created(&entry, &opened);
                });
            }
            NameOperation::Unlink { name, reply } => {
                reply.settle(operations.names.unlink(node, name), |reply, ()| reply.done());
            }
            NameOperation::RemoveDirectory { name, reply } => {
                reply.settle(operations.names.remove_directory(node, name), |reply, ()| reply.done());
            }
            NameOperation::Rename { name, new_parent, new_name, flags, reply } => {
                let place = |parent, name: &[u8]| Place { parent, name: name.to_vec() };
                let (from, to) = (place(node, name), place(new_parent, new_name));
                self.rename_with_contents(Rename { caller, from, to, flags }, reply);
            }
        }
    }

    fn lookup(&self, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        let found = self.operations.names.lookup(parent, name)?;
        // The number 0 says that there is nothing, and that this may be remembered.
        let entry = self.entry(&found.unwrap_or(Stat::of_entry(0, FileType::Regular)));
        let name_ttl =
            if self.operations.nodes.is_incoming(parent) { Duration::ZERO } else { entry.name_ttl };
        Ok(Entry { name_ttl, ..entry })
    }

    fn make(&self, parent: u64, name: &[u8], new: &NewInode<'_>, reply: Reply<kind::Entry>) {
        self.reply_entry(self.operations.names.create(parent, name, new), reply);
    }

    fn created(&self, (stat, handle): (Stat, u64), flags: OFlags) -> (Entry, Opened) {
        let is_past_cache = self.operations.files.is_past_cache(handle);
        (self.entry(&stat), Opened { handle, answers: open_answers(flags, is_past_cache) })
    }
}
