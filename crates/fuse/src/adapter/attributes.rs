//! Attributes, and how long the kernel may keep them.
//!
//! The kernel keeps pages that programs have written for a while before it hands them over. Until it does, we can't know
//! that a file takes space. Nearly always that does not matter; but a file without a single block passes for one hole with
//! some programs that make backups (`tar --sparse`). So before a file that is open to be written is said to have no blocks, the
//! kernel is asked for its pages: by a thread that serves no requests, for the kernel hands them over as requests.

use super::Adapter;
use crate::attributes::Stat;
use crate::convert::{attributes_of, new_time, time_of, timestamp};
use crate::permission::Caller;
use crate::recent_writes::UNSETTLED_TTL;
use brindle_fs::{AttributeChange, FileType};
use brindle_transport as transport;
use brindle_transport::{Entry, Extended, Reply, kind};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Time for which the kernel may keep answers: it makes every change itself, or is told of it.
pub(super) const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The pages that the kernel is asked for first, and next if a file still has no blocks.
const PAGES: [std::ops::Range<u64>; 2] = [0..1 << 20, 0..u64::MAX];

impl Adapter {
    /// Time for which the kernel may keep the attributes in the next answer.
    pub(super) fn ttl(&self, stat: &Stat) -> Duration {
        if self.operations.nodes.is_incoming(stat.node) {
            return Duration::ZERO;
        }
        match stat.kind {
            FileType::Regular if self.operations.refusals.has(stat.node) => Duration::ZERO,
            FileType::Regular if self.operations.pages.tells_unsettled(stat) => UNSETTLED_TTL,
            _ => TTL,
        }
    }

    /// A name and its inode, as the kernel may keep them.
    pub(super) fn entry(&self, stat: &Stat) -> Entry {
        let attributes_ttl = if stat.node == 0 { TTL } else { self.ttl(stat) };
        let name_ttl = if self.operations.nodes.is_incoming(stat.node) { Duration::ZERO } else { TTL };
        let attributes = attributes_of(stat);
        Entry { node: stat.node, generation: stat.generation, name_ttl, attributes_ttl, attributes }
    }

    pub(super) fn reply_entry(&self, made: Result<Stat, Errno>, reply: Reply<kind::Entry>) {
        reply.settle(made, |reply, stat| reply.entry(&self.entry(&stat)));
    }

    fn reply_attributes(&self, stat: &Stat, reply: Reply<kind::Attributes>) {
        reply.attributes(self.ttl(stat), &attributes_of(stat));
    }

    /// Answers a request for attributes. The kernel names a handle before write(2), and not for stat(2).
    pub(super) fn attributes(&self, node: u64, handle: Option<u64>, reply: Reply<kind::Attributes>) {
        if let Some(handle) = handle.filter(|_| self.operations.refusals.has(node)) {
            if let Some(error) = self.operations.refusals.error_for(node, handle) {
                return reply.error(error);
            }
        }
        match self.operations.nodes.stat(node) {
            Ok(stat) if handle.is_none() && self.may_lack_pages(&stat) => {
                self.gather_pages_first(stat, move |ttl, stat| reply.attributes(ttl, &attributes_of(stat)));
            }
            stat => reply.settle(stat, |reply, stat| self.reply_attributes(&stat, reply)),
        }
    }

    /// Answers a request for attributes with the time of birth.
    pub(super) fn extended_attributes(&self, node: u64, reply: Reply<kind::Extended>) {
        let extended =
            |stat: &Stat| Extended { attributes: attributes_of(stat), born: Some(time_of(stat.created)) };
        match self.operations.nodes.stat(node) {
            Ok(stat) if self.may_lack_pages(&stat) => {
                self.gather_pages_first(stat, move |ttl, stat| reply.extended(ttl, &extended(stat)));
            }
            stat => reply.settle(stat, |reply, stat| reply.extended(self.ttl(&stat), &extended(&stat))),
        }
    }

    pub(super) fn set_attributes(
        &self,
        caller: Caller,
        node: u64,
        change: &transport::AttributeChange,
        reply: Reply<kind::Attributes>,
    ) {
        let transport::AttributeChange { mode, uid, gid, size, accessed, modified, changed, handle } =
            *change;
        // chown(2) to the present owner, by -1 for both, comes as the time of the change alone, and nothing else does.
        let is_plain = size.is_none() && accessed.is_none() && modified.is_none();
        let is_owner_kept = is_plain && changed.is_some() && handle.is_none();
        let changes_owner = (uid.is_some() || gid.is_some() || is_owner_kept) && mode.is_none();
        let change = AttributeChange {
            mode,
            uid,
            gid,
            size,
            accessed: accessed.map(new_time),
            modified: modified.map(new_time),
            changed: changed.map(timestamp),
            created: None,
            drop_privileges: changes_owner,
            drop_set_group_id: false,
            by_writer: false,
        };
        // A new size is in memory before it is in a tree.
        if change.size.is_some() && !reply.begin() {
            return;
        }
        let set = self.operations.attributes.set(caller, node, handle.is_some(), &change);
        reply.settle(set, |reply, stat| self.reply_attributes(&stat, reply));
    }

    /// Returns true if a file is said to have no blocks, and the kernel may have pages of it that it has not handed over.
    fn may_lack_pages(&self, stat: &Stat) -> bool {
        stat.kind == FileType::Regular
            && stat.blocks == 0
            && self.operations.files.has_writer(stat.node).unwrap_or(false)
    }

    fn gather_pages_first(&self, before: Stat, answer: impl FnOnce(Duration, &Stat) + Send + 'static) {
        let operations = Arc::clone(&self.operations);
        self.stale_pages.run(Box::new(move |own| {
            let mut stat = before;
            for range in &PAGES {
                operations.pages.forget(own, before.node, range);
                stat = operations.nodes.stat(before.node).unwrap_or(before);
                if stat.blocks > 0 {
                    break;
                }
            }
            operations.pages.tells_unsettled(&stat);
            answer(UNSETTLED_TTL, &stat);
        }));
    }
}
