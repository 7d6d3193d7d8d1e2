//! Attributes, links, extended attributes and ioctls.

use super::Adapter;
use crate::operations::verbs::{Ioctl, changes, is_slow};
use crate::operations::xattrs::Xattr;
use crate::permission::Caller;
use brindle_fs::while_wanted;
use brindle_transport::{InodeOperation, Reply, kind};
use rustix::io::Errno;
use std::sync::Arc;

/// `access`'s bit for writing.
const W_OK: u32 = 2;

impl Adapter {
    pub(super) fn serve_inode(&self, caller: Caller, node: u64, operation: InodeOperation<'_>) {
        let operations = &self.operations;
        match operation {
            InodeOperation::GetAttributes { handle, reply } => self.attributes(node, handle, reply),
            InodeOperation::GetExtendedAttributes { reply } => self.extended_attributes(node, reply),
            InodeOperation::SetAttributes { change, reply } => {
                self.set_attributes(caller, node, &change, reply);
            }
            InodeOperation::ReadLink { reply } => {
                reply.settle(operations.attributes.read_link(node), |reply, target| reply.data(&target));
            }
            InodeOperation::GetXattr { name, reply } => {
                reply.settle(operations.xattrs.get(node, name), |reply, value| reply.value(&value));
            }
            InodeOperation::ListXattr { reply } => {
                reply.settle(operations.xattrs.names(node), |reply, names| reply.value(&names));
            }
            InodeOperation::SetXattr { name, value, flags, drops_set_group_id, reply } => {
                let xattr = Xattr { name, value, flags: flags as i32, drops_set_group_id };
                let set = operations.xattrs.set(caller, node, &xattr);
                reply.settle(set, |reply, ()| reply.done());
            }
            InodeOperation::RemoveXattr { name, reply } => {
                reply.settle(operations.xattrs.remove(node, name), |reply, ()| reply.done());
            }
            InodeOperation::Access { mask, reply } => {
                let is_refused = mask & W_OK != 0 && !operations.mode.is_written();
                let allowed = if is_refused { Err(Errno::ROFS) } else { Ok(()) };
                reply.settle(allowed, |reply, ()| reply.done());
            }
            InodeOperation::Ioctl { command, input, reply } => {
                self.ioctl(Ioctl { caller, node, command, input: input.to_vec() }, reply);
            }
        }
    }

    fn ioctl(&self, ioctl: Ioctl, reply: Reply<kind::Ioctl>) {
        let answer = |reply: Reply<kind::Ioctl>, result: Vec<u8>| reply.result(&result);
        if !is_slow(ioctl.command) {
            if changes(ioctl.command) && !reply.begin() {
                return;
            }
            reply.settle(self.operations.ioctls.answer(None, &ioctl), answer);
            return;
        }
        let operations = Arc::clone(&self.operations);
        self.control.run(Box::new(move |own| {
            let waiter = reply.waiter();
            // Its caller may have gone while it waited for others.
            if !waiter.is_there() || changes(ioctl.command) && !reply.begin() {
                return;
            }
            let done =
                while_wanted(move || waiter.is_there(), || operations.ioctls.answer(Some(own), &ioctl));
            reply.settle(done, answer);
        }));
    }
}
