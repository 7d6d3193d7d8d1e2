//! Attributes, and how long the kernel may keep them.
//!
//! The kernel keeps pages that programs have written for a while before it hands them over. Until it does, we can't know
//! that a file takes space. Nearly always that does not matter; but a file without a single block passes for one hole with
//! some programs that make backups (`tar --sparse`). So before a file that is open to be written is said to have no blocks, the
//! kernel is asked for its pages: by a thread that serves no requests, for the kernel hands them over as requests.

use super::Adapter;
use super::turns::Pace;
use crate::attributes::Stat;
use crate::convert::{errno, file_attr};
use crate::recent_writes::UNSETTLED_TTL;
use brindle_fs::FileType;
use fuser::{FileHandle, Generation, INodeNo, ReplyAttr, ReplyEntry};
use std::sync::Arc;
use std::time::Duration;

/// Time for which the kernel may keep answers: it makes every change itself, or is told of it.
pub(super) const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Numbers are never used twice, so that a number alone says which inode is meant.
pub(super) const GENERATION: Generation = Generation(0);

/// The pages that the kernel is asked for first, and next if a file still has no blocks.
const PAGES: [std::ops::Range<u64>; 2] = [0..1 << 20, 0..u64::MAX];

impl Adapter {
    /// Time for which the kernel may keep the attributes in the next answer.
    pub(super) fn ttl(&self, stat: &Stat) -> Duration {
        match stat.kind {
            FileType::Regular if self.operations.has_refusal(stat.ino) => Duration::ZERO,
            FileType::Regular if self.operations.tells_unsettled(stat) => UNSETTLED_TTL,
            _ => TTL,
        }
    }

    pub(super) fn reply_entry(&self, made: Result<Stat, rustix::io::Errno>, reply: ReplyEntry) {
        match made {
            Ok(stat) => reply.entry_with_ttls(&self.ttl(&stat), &TTL, &file_attr(&stat), GENERATION),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn reply_attributes(&self, stat: &Stat, reply: ReplyAttr) {
        reply.attr(&self.ttl(stat), &file_attr(stat));
    }

    /// Answers a request for attributes. The kernel names a handle before write(2), and not for stat(2).
    pub(super) fn attributes(&self, node: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let is_refused = self.operations.has_refusal(node.0);
        let _turn = self.turns.begin(if is_refused { Pace::Slow } else { Pace::Quick });
        if let Some(handle) = handle.filter(|_| is_refused)
            && let Some(error) = self.operations.refusal_for(node.0, handle.0)
        {
            return reply.error(errno(error));
        }
        match self.operations.stat(node.0) {
            Ok(stat) if handle.is_none() && self.may_lack_pages(&stat) => {
                self.gather_pages_first(stat, reply);
            }
            Ok(stat) => self.reply_attributes(&stat, reply),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// Returns true if a file is said to have no blocks, and the kernel may have pages of it that it has not handed over.
    fn may_lack_pages(&self, stat: &Stat) -> bool {
        stat.kind == FileType::Regular
            && stat.blocks == 0
            && self.operations.has_writer(stat.ino).unwrap_or(false)
    }

    fn gather_pages_first(&self, before: Stat, reply: ReplyAttr) {
        let operations = Arc::clone(&self.operations);
        self.stale_pages.run(Box::new(move || {
            let mut stat = before;
            for range in &PAGES {
                operations.forget_contents(before.ino, range);
                stat = operations.stat(before.ino).unwrap_or(before);
                if stat.blocks > 0 {
                    break;
                }
            }
            operations.tells_unsettled(&stat);
            reply.attr(&UNSETTLED_TTL, &file_attr(&stat));
        }));
    }
}
