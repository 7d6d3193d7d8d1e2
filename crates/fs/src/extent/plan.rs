//! Plans that make room in a file: edits of the extents that lie in a range.

use crate::extent::file_extent::{Contents, FileExtent};

/// Edit of one extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Removes it, with its reference.
    Remove(FileExtent),
    /// Cuts off its end; its reference stays.
    Shorten(FileExtent),
    /// Cuts off its beginning: the item at `from` goes, `piece` comes. Its reference stays, for it is filed by the
    /// offset at which the extent would begin.
    Move {
        /// Offset of the item.
        from: u64,
        /// The rest.
        piece: FileExtent,
    },
    /// Cuts out its middle: the rest in front stays in place, the rest after it comes, with a reference of its own.
    Split {
        /// The rest in front.
        front: FileExtent,
        /// The rest after it.
        behind: FileExtent,
    },
}

/// Edits of the extents of a range.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DropPlan {
    /// One edit for each extent, in order.
    pub(crate) edits: Vec<Edit>,
    /// Bytes by which the inode's `nbytes` shrinks.
    pub(crate) freed_bytes: u64,
}

impl DropPlan {
    /// Makes room from `from` to `to` (of whole sectors, or to the end of everything) among `pieces`, in order. What
    /// is in an item goes as a whole, if the range touches it: the range has to cover its sectors.
    pub(crate) fn new(pieces: Vec<FileExtent>, from: u64, to: u64, sector: u64) -> Self {
        let mut plan = Self::default();
        for piece in pieces {
            let end = piece.end(sector);
            if end <= from || piece.start >= to {
                continue;
            }
            let before = piece.counted_bytes();
            let front = (piece.start < from).then(|| piece.part(piece.start, from));
            let behind = (end > to).then(|| piece.part(to, end));
            let is_inline = matches!(piece.contents, Contents::Inline(_));
            assert!(!is_inline || (front.is_none() && behind.is_none()), "what is in an item can't be cut");
            let left = [&front, &behind].into_iter().flatten().map(FileExtent::counted_bytes).sum::<u64>();
            plan.freed_bytes += before - left;
            plan.edits.push(match (front, behind) {
                (None, None) => Edit::Remove(piece),
                (Some(front), None) => Edit::Shorten(front),
                (None, Some(behind)) => Edit::Move { from: piece.start, piece: behind },
                (Some(front), Some(behind)) => Edit::Split { front, behind },
            });
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::file_extent::DiskPart;
    use brindle_ondisk::item::Compression;
    use brindle_ondisk::{Generation, Logical, to_usize};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SECTOR: u64 = 1;
    const FILE: u64 = 64;

    /// Address on disk of each byte of a file, if any; and the number of references of each extent.
    #[derive(Debug, PartialEq, Eq)]
    struct Facts {
        bytes: Vec<Option<u64>>,
        nbytes: u64,
        references: BTreeMap<(u64, u64), i64>,
    }

    /// An extent is filed by its address and by where in the file it would begin.
    fn file_of(piece: &FileExtent) -> Option<(u64, u64)> {
        piece.disk_part().map(|span| (span.disk.get(), piece.start.wrapping_sub(span.offset)))
    }

    fn facts(items: &BTreeMap<u64, FileExtent>) -> Facts {
        let mut facts = Facts { bytes: vec![None; to_usize(FILE)], nbytes: 0, references: BTreeMap::new() };
        let mut end = 0;
        for (start, piece) in items {
            assert!(*start == piece.start && *start >= end, "{piece:?} overlaps");
            end = piece.end(SECTOR);
            facts.nbytes += piece.counted_bytes();
            if let Some(span) = piece.disk_part() {
                assert!(span.offset + span.length <= span.disk_length && span.length > 0);
                *facts.references.entry(file_of(piece).expect("it is on disk")).or_default() += 1;
                for at in 0..span.length {
                    facts.bytes[to_usize(start + at)] = Some(span.disk.get() + span.offset + at);
                }
            }
        }
        facts
    }

    /// Does what a plan says, and notes references as they are added and dropped.
    fn apply(
        items: &mut BTreeMap<u64, FileExtent>,
        plan: DropPlan,
        references: &mut BTreeMap<(u64, u64), i64>,
    ) {
        for edit in plan.edits {
            match edit {
                Edit::Remove(piece) => {
                    assert_eq!(items.remove(&piece.start), Some(piece.clone()));
                    if let Some(filed) = file_of(&piece) {
                        *references.get_mut(&filed).expect("there was one") -= 1;
                    }
                }
                Edit::Shorten(front) => {
                    items.insert(front.start, front).expect("there was one");
                }
                Edit::Move { from, piece } => {
                    items.remove(&from).expect("there was one");
                    assert_eq!(items.insert(piece.start, piece), None);
                }
                Edit::Split { front, behind } => {
                    if let Some(filed) = file_of(&behind) {
                        *references.entry(filed).or_default() += 1;
                    }
                    items.insert(front.start, front).expect("there was one");
                    assert_eq!(items.insert(behind.start, behind), None);
                }
            }
        }
        references.retain(|_, count| *count != 0);
    }

    fn arbitrary_items() -> impl Strategy<Value = BTreeMap<u64, FileExtent>> {
        let one = (0..4u64, 1..9u64, 0..5u64, 0..5u64, 0..4u8);
        prop::collection::vec(one, 0..8).prop_map(|parts| {
            let mut at = 0;
            let mut items = BTreeMap::new();
            for (number, (gap, length, offset, behind, kind)) in parts.into_iter().enumerate() {
                at += gap;
                let disk = Logical::new(if kind == 0 { 0 } else { 1000 * (number as u64 + 1) });
                let offset = if kind == 0 { 0 } else { offset };
                let disk_length = if kind == 0 { 0 } else { offset + length + behind };
                let span = DiskPart { is_prealloc: kind == 1, disk, disk_length, offset, length };
                let ram_bytes = if kind == 0 { length } else { disk_length };
                let generation = Generation::new(7);
                let contents = Contents::OnDisk(span);
                if at + length > FILE {
                    break;
                }
                items.insert(
                    at,
                    FileExtent { start: at, generation, ram_bytes, compression: Compression::None, contents },
                );
                at += length;
            }
            items
        })
    }

    proptest! {
        #[test]
        fn dropped_ranges_are_gone_and_all_else_stays(
            mut items in arbitrary_items(),
            ranges in prop::collection::vec((0..FILE, 1..FILE), 1..6),
        ) {
            for (from, length) in ranges {
                let to = from + length;
                let before = facts(&items);
                let mut references = before.references.clone();
                let plan = DropPlan::new(items.values().cloned().collect(), from, to, SECTOR);
                let freed = plan.freed_bytes;
                apply(&mut items, plan, &mut references);
                let after = facts(&items);
                prop_assert_eq!(after.nbytes, before.nbytes - freed);
                prop_assert_eq!(after.references, references);
                for at in 0..FILE {
                    let expected = if (from..to).contains(&at) { None } else { before.bytes[to_usize(at)] };
                    prop_assert_eq!(after.bytes[to_usize(at)], expected, "byte {}", at);
                }
            }
        }
    }

    #[test]
    fn contents_in_an_item_go_as_a_whole() {
        let inline = FileExtent {
            start: 0,
            generation: Generation::new(7),
            ram_bytes: 100,
            compression: Compression::None,
            contents: Contents::Inline(vec![1; 100]),
        };
        let plan = DropPlan::new(vec![inline.clone()], 0, 4096, 4096);
        assert_eq!(plan, DropPlan { edits: vec![Edit::Remove(inline.clone())], freed_bytes: 100 });
        assert_eq!(DropPlan::new(vec![inline], 4096, u64::MAX, 4096), DropPlan::default());
    }
}
