//! Destaging: data of the write-back tier moves to bulk devices, in the order of files, so that what is read together lies
//! side by side there, and spindles are given long runs. Of a pool whose fast tier of data is split, data of small and marked files moves
//! to that.
//!
//! A chunk of the tier is closed for that long, as one that is emptied; new data goes to another one meanwhile. Of what
//! lies in it, all that the extent tree has is listed once and sorted by subvolume, file and offset; it is moved a batch at a
//! time, and each batch is a commit. A crash leaves each extent in one place or the other. What is freed meanwhile is passed
//! over. The room on bulk devices was kept when the data was accepted
//! ([`writeback_tier`](crate::space)). What belongs to one file alone the layer of files may move before, by itself: it knows what
//! can be one extent.

use super::Relocator;
use super::contents::Batch;
use super::data::RoomFor;
use super::{DATA_BYTES_MAX, EXTENTS_MAX, Moved, Observer, Relocation, Tried};
use crate::error::TreeError;
use crate::refs::DataRange;
use crate::refs::delayed::{Extent, Referrer};
use crate::refs::lookup::Recorded;
use crate::space::close::GroupStatus;
use crate::space::data::TierChoice;
use crate::store::cursor::Readahead;
use brindle_ondisk::{Generation, Key, KeyType, Logical, ObjectId, RootId};
use brindle_policy::writeback::DataPlace;
use std::ops::ControlFlow;

/// Last place of the data of a file, which is one of a subvolume.
pub type PlaceOf<'a> = &'a dyn Fn(RootId, ObjectId) -> DataPlace;

/// Times that a chunk is listed anew, if something was still there.
const PASSES_MAX: usize = 4;

/// Place of an extent among files: subvolume, inode, offset; what is shared by blocks alone comes first.
type Order = (RootId, ObjectId, u64);

/// A chunk of the write-back tier from which nothing is taken as long as this lives.
#[derive(Debug)]
pub struct Destaging<'p> {
    relocator: Relocator<'p>,
    group: GroupStatus,
}

/// An extent of the write-back tier to which one file of one subvolume refers, and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingExtent {
    /// Its place.
    pub range: DataRange,
    /// The subvolume.
    pub root: RootId,
    /// The file.
    pub objectid: ObjectId,
    /// Offset in the file of its first byte, as a reference has it: below zero, wrapped, if the file has lost that.
    pub offset: u64,
    /// Number of items that refer to it.
    pub count: u64,
}

/// An extent of a chunk of the tier.
struct Listed {
    order: Order,
    range: DataRange,
    /// Number of references, if they are of one file.
    alone: Option<u64>,
}

impl Drop for Destaging<'_> {
    fn drop(&mut self) {
        self.relocator.space.reopen_group(self.group.start);
    }
}

impl<'p> Relocator<'p> {
    /// Closes a chunk of the write-back tier, for its data to be moved to bulk devices. Commits; not to be called within a
    /// transaction. By the operation of which there is one at a time. `None` if it is no such chunk.
    ///
    /// # Errors
    /// Devices that fail.
    pub(crate) fn begin_destaging(&self, start: Logical) -> Result<Option<Destaging<'p>>, TreeError> {
        let Some(group) = self.space.block_group(start).filter(|group| group.is_write_back) else {
            return Ok(None);
        };
        self.space.close_write_back_group(start);
        let destaging = Destaging { relocator: *self, group };
        // Syncs go on beside.
        self.space.make_write_back_room(self.store);
        // What was taken before the chunk was closed gets its items, or goes back.
        self.transactions.exclusively(|_| Ok(()))?;
        self.transactions.commit()?;
        Ok(Some(destaging))
    }
}

impl Destaging<'_> {
    /// Extents of which each belongs to one file alone, in the order of files.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn waiting(&self) -> Result<Vec<WaitingExtent>, TreeError> {
        let of = |listed: Listed| {
            let (root, objectid, offset) = listed.order;
            Some(WaitingExtent { range: listed.range, root, objectid, offset, count: listed.alone? })
        };
        Ok(self.relocator.extents_by_file(&self.group)?.into_iter().filter_map(of).collect())
    }

    /// Moves all that lies in the chunk to its last place; the chunk stays. Extents of one file alone go to the `place_of` that file,
    /// all others to bulk devices.
    ///
    /// # Errors
    /// [`TreeError::NoSpace`] if not all of it has room: what was moved stays moved. Devices that fail.
    pub fn relocate(&self, place_of: PlaceOf<'_>, observer: Observer<'_>) -> Result<Relocation, TreeError> {
        let mut moved = Moved::default();
        for _ in 0..PASSES_MAX {
            let listed = self.relocator.extents_by_file(&self.group)?;
            if listed.is_empty() {
                break;
            }
            for (place, extents) in by_place(&listed, place_of) {
                if self.relocator.destage_extents(&extents, place, &mut moved, observer)?.is_break() {
                    return Ok(Relocation::Stopped(moved));
                }
            }
        }
        Ok(Relocation::Done(moved))
    }
}

/// Extents by the places that they go to, in their order.
fn by_place(listed: &[Listed], place_of: PlaceOf<'_>) -> Vec<(DataPlace, Vec<DataRange>)> {
    let mut places: Vec<(DataPlace, Vec<DataRange>)> = Vec::new();
    let is_of_one_file = |one: &Listed, next: &Listed| {
        (one.order.0, one.order.1) == (next.order.0, next.order.1)
            && one.alone.is_some() == next.alone.is_some()
    };
    for of_file in listed.chunk_by(is_of_one_file) {
        let (root, objectid, _) = of_file[0].order;
        let place = of_file[0].alone.map_or(DataPlace::Bulk, |_| place_of(root, objectid));
        let extents = of_file.iter().map(|listed| listed.range);
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, known)) => known.extend(extents),
            None => places.push((place, extents.collect())),
        }
    }
    places
}

impl Relocator<'_> {
    fn destage_extents(
        &self,
        extents: &[DataRange],
        place: DataPlace,
        moved: &mut Moved,
        observer: Observer<'_>,
    ) -> Result<ControlFlow<()>, TreeError> {
        let (mut rest, mut count_max) = (extents, EXTENTS_MAX);
        while !rest.is_empty() {
            let data = next_batch(rest, count_max);
            let batch = Batch { data: data.to_vec(), ..Batch::default() };
            let place = TierChoice::Preferred(place);
            if self.try_batch(&batch, place, RoomFor::Destaged, &mut count_max, moved)? == Tried::TooMuch {
                continue;
            }
            self.transactions.commit()?;
            if observer(moved).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            rest = &rest[data.len()..];
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Extents that the extent tree has of a group, in the order of the files that refer to them.
    fn extents_by_file(&self, group: &GroupStatus) -> Result<Vec<Listed>, TreeError> {
        let tree = self.store.tree(RootId::EXTENT_TREE)?;
        let references = self.transactions.editor(Generation::new(0)).references();
        let mut found: Vec<DataRange> = Vec::new();
        let end = group.start + group.length;
        let mut cursor = self.store.cursor(&tree, Readahead::Forward);
        cursor.seek(&Key::first_of(ObjectId::new(group.start.get()), KeyType(0)))?;
        while let Some(key) = cursor.key().filter(|key| key.objectid.get() < end.get()) {
            if key.item_type == KeyType::EXTENT_ITEM {
                found.push(DataRange { start: Logical::new(key.objectid.get()), length: key.offset() });
            }
            cursor.next()?;
        }
        drop(cursor);
        let mut ordered: Vec<Listed> = Vec::with_capacity(found.len());
        for range in found {
            // An extent that is freed meanwhile is passed over later.
            if let Some(known) = references.recorded(&tree, &Extent::data(range))? {
                let alone = self.references_of_one_file(&known);
                ordered.push(Listed { order: order_of(&known), range, alone });
            }
        }
        ordered.sort_unstable_by_key(|listed| (listed.order, listed.range.start));
        Ok(ordered)
    }

    /// Number of references to an extent, if all are of one file, and no snapshot has them.
    fn references_of_one_file(&self, known: &Recorded) -> Option<u64> {
        match known.referrers.as_slice() {
            [(Referrer::Data { root, .. }, count)] => {
                let tree = self.store.tree(*root).ok()?;
                let is_alone = known.generation > tree.read().last_snapshot;
                u64::try_from(*count).ok().filter(|_| is_alone)
            }
            _ => None,
        }
    }
}

/// The first of some extents, as many as are moved at once: bounded in number and bytes.
fn next_batch(extents: &[DataRange], count_max: usize) -> &[DataRange] {
    let mut bytes = 0;
    let count = extents.iter().take(count_max.max(1)).take_while(|range| {
        let fits = bytes == 0 || bytes + range.length <= DATA_BYTES_MAX;
        bytes += range.length;
        fits
    });
    &extents[..count.count()]
}

/// Place of an extent among files: that of the first file that refers to it.
fn order_of(known: &Recorded) -> Order {
    let of = |referrer: &Referrer| match referrer {
        Referrer::Data { root, objectid, offset } => Some((*root, *objectid, *offset)),
        _ => None,
    };
    let first = known.referrers.iter().filter_map(|(referrer, _)| of(referrer)).min();
    first.unwrap_or((RootId::new(0), ObjectId::new(0), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(lengths: &[u64]) -> Vec<DataRange> {
        let mut at = 0;
        let mut extent = |length: &u64| {
            at += length;
            DataRange { start: Logical::new(at - length), length: *length }
        };
        lengths.iter().map(&mut extent).collect()
    }

    #[test]
    fn a_batch_is_bounded_and_never_empty() {
        const MIB: u64 = 1 << 20;
        let lengths = [20 * MIB, 10 * MIB, 4 * MIB, 128 * MIB, 1];
        let extents = extents(&lengths);
        assert_eq!(next_batch(&extents, 100).len(), 2);
        assert_eq!(next_batch(&extents[2..], 100).len(), 1);
        assert_eq!(next_batch(&extents[3..], 100).len(), 1, "one that is longer than a batch goes alone");
        assert_eq!(next_batch(&extents, 1).len(), 1);
        assert_eq!(next_batch(&extents, 0).len(), 1);
    }
}
