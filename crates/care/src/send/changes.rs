//! The inodes that a sender has to look at, in the order of their numbers.

use crate::send::error::SendError;
use crate::send::view::{View, parse};
use brindle_interval::IntervalSet;
use brindle_ondisk::{KeyType, ObjectId};
use brindle_tree::{Committed, Cursor, Difference, DifferenceCounts, Differing, ItemPlace};
use std::collections::BTreeSet;

/// An inode, and the parts of it in which the trees differ.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) number: ObjectId,
    /// True if extended attributes differ.
    pub(super) has_xattrs: bool,
    /// Ranges of the file with other extents.
    pub(super) ranges: IntervalSet<u64>,
}

/// All inodes of a subvolume, or those in which it differs from its parent.
pub(super) enum Changes<'s> {
    All { view: &'s View<'s>, cursor: Cursor<'s>, next: ObjectId },
    Differing(Box<DifferingInodes<'s>>),
}

/// The inodes in which two subvolumes differ.
pub(super) struct DifferingInodes<'s> {
    difference: Difference<'s>,
    sector: u64,
    /// First item of the next inode.
    ahead: Option<Differing>,
    /// Inodes without a difference that have to be looked at.
    also: BTreeSet<ObjectId>,
}

impl<'s> Changes<'s> {
    pub(super) fn of(
        committed: &'s Committed<'_>,
        new: &'s View<'s>,
        old: Option<&View<'_>>,
    ) -> Result<Self, SendError> {
        let Some(old) = old else {
            return Ok(Self::All { view: new, cursor: new.scan(), next: ObjectId::FIRST_FREE });
        };
        let also = moved_without_trace(committed, new, old)?;
        let mut difference = committed.difference(&old.tree, &new.tree);
        let ahead = difference.next()?;
        let sector = new.sector();
        Ok(Self::Differing(Box::new(DifferingInodes { difference, sector, ahead, also })))
    }

    /// Number of blocks that the comparison has read and passed over.
    pub(super) fn counts(&self) -> DifferenceCounts {
        match self {
            Self::All { .. } => DifferenceCounts::default(),
            Self::Differing(inodes) => inodes.difference.counts(),
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<Change>, SendError> {
        match self {
            Self::All { view, cursor, next } => {
                let Some(number) = view.next_number(cursor, *next)? else { return Ok(None) };
                *next = ObjectId::new(number.get() + 1);
                Ok(Some(Change { number, has_xattrs: true, ranges: IntervalSet::default() }))
            }
            Self::Differing(inodes) => inodes.next(),
        }
    }
}

impl DifferingInodes<'_> {
    fn next(&mut self) -> Result<Option<Change>, SendError> {
        let differing = self.ahead.as_ref().map(|item| item.key.objectid);
        let differing = differing.filter(|number| *number <= ObjectId::LAST_FREE);
        let Some(number) = differing.into_iter().chain(self.also.first().copied()).min() else {
            return Ok(None);
        };
        self.also.remove(&number);
        let mut change = Change { number, has_xattrs: false, ranges: IntervalSet::default() };
        while let Some(item) = self.ahead.take() {
            if item.key.objectid != number {
                self.ahead = Some(item);
                break;
            }
            change.add(&item, self.sector)?;
            self.ahead = self.difference.next()?;
        }
        Ok(Some(change))
    }
}

impl Change {
    fn add(&mut self, item: &Differing, sector: u64) -> Result<(), SendError> {
        match item.key.item_type {
            KeyType::XATTR_ITEM => self.has_xattrs = true,
            KeyType::EXTENT_DATA => {
                for place in [&item.old, &item.new].into_iter().flatten() {
                    // An item that is no extent is refused where its contents are looked at.
                    if let Ok(piece) = parse(&item.key, place.data(), sector) {
                        self.ranges.insert(piece.start..piece.end);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Inodes in a directory whose number another one has by now: their names can be the same to the byte, and lie elsewhere.
fn moved_without_trace(
    committed: &Committed<'_>,
    new: &View<'_>,
    old: &View<'_>,
) -> Result<BTreeSet<ObjectId>, SendError> {
    let mut found = BTreeSet::new();
    let mut difference = committed.difference(&old.tree, &new.tree);
    let is_there = |place: &Option<ItemPlace>| place.is_some();
    while let Some(item) = difference.next()? {
        let is_both = is_there(&item.old) && is_there(&item.new);
        if item.key.item_type != KeyType::INODE_ITEM || !is_both {
            continue;
        }
        let number = item.key.objectid;
        if let (Some(before), Some(after)) = (old.inode(number)?, new.inode(number)?) {
            if before.kind == brindle_ondisk::item::FileType::Directory
                && before.item.generation != after.item.generation
                && number != ObjectId::FIRST_FREE
            {
                found.extend(old.children(number)?);
            }
        }
    }
    Ok(found)
}
