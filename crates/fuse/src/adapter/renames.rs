//! Renames that take another file's place.
//!
//! A program that writes a file anew, gives it the name of the old one and never asks for a sync expects the old contents
//! or the new ones after a crash. What has come to us is written back before the name changes. But of a file that
//! is still open to be written, or mapped, the kernel may have pages that have not come to us yet: it is asked for
//! them first. That means to wait for requests that we have to answer, so that a thread that serves requests must not do it;
//! nor may the thread that does other long things, for one of those may wait for the directories, which the
//! kernel keeps locked until the rename is answered. The kernel hands such pages over one by one, a large file's
//! slowly; but nearly all that programs rename over others is closed before, and has nothing to ask for.

use super::Adapter;
use crate::operations::names::Rename;
use brindle_transport::{Reply, kind};
use std::sync::Arc;

/// Range of all of a file.
const ALL: std::ops::Range<u64> = 0..u64::MAX;

impl Adapter {
    /// Renames, and answers; perhaps later, once the kernel has written back what it has of the files that move.
    pub(super) fn rename_with_contents(&self, rename: Rename, reply: Reply<kind::Done>) {
        let unwritten = self.operations.names.unwritten_movers(&rename);
        if unwritten.is_empty() {
            reply.settle(self.operations.names.rename(&rename), |reply, ()| reply.done());
            return;
        }
        let operations = Arc::clone(&self.operations);
        self.renames.run(Box::new(move |own| {
            for node in unwritten {
                operations.pages.forget(own, node, &ALL);
            }
            if reply.begin() {
                reply.settle(operations.names.rename(&rename), |reply, ()| reply.done());
            }
        }));
    }
}
