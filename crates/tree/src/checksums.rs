//! The checksum tree: checksums of consecutive sectors, packed into items that are as long as the kernel has them.

use crate::editor::{Editor, Verdict};
use crate::error::TreeError;
use crate::refs::DataRange;
use crate::store::cursor::Readahead;
use crate::tree::Tree;
use brindle_ondisk::{
    ItemHeader, Key, KeyType, Logical, NodeHeader, ObjectId, RootId, TreeContext, to_u64, to_usize,
};
use std::sync::Arc;

/// Pool properties that decide how checksums are packed.
#[derive(Clone, Copy, Debug)]
struct Packing {
    /// The data that one checksum is of, in bytes.
    sectorsize: u64,
    /// The size of a checksum.
    size: usize,
    /// The most checksums that an item holds.
    most: usize,
}

/// An item of checksums.
#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    start: Logical,
    sums: &'a [u8],
}

/// Rest of an item when a range is removed.
#[derive(Debug, PartialEq, Eq)]
struct Rest {
    /// Bytes that stay in the item.
    before: usize,
    /// Start of the bytes that go to an item of their own, after the range.
    behind: usize,
}

impl Packing {
    fn new(context: &TreeContext) -> Self {
        Self::of(context.nodesize, context.sectorsize, context.checksum_type.size())
    }

    fn of(nodesize: u32, sectorsize: u32, size: usize) -> Self {
        // `MAX_CSUM_ITEMS`: a leaf less two slots, and one less than fit; no more than a page has bytes.
        const PAGE: usize = 4096;
        let leaf = to_usize(nodesize.into()) - size_of::<NodeHeader>() - 2 * size_of::<ItemHeader>();
        Self { sectorsize: sectorsize.into(), size, most: (leaf / size - 1).min(PAGE) }
    }

    /// Bytes of data covered by `sums` bytes of checksums.
    fn covered(&self, sums: usize) -> u64 {
        to_u64(sums / self.size) * self.sectorsize
    }

    /// Bytes of checksums of `length` bytes of data.
    fn bytes(&self, length: u64) -> usize {
        to_usize(length / self.sectorsize) * self.size
    }

    /// Appends to an item what follows it directly and still fits; how many bytes those were.
    fn append(&self, start: Logical, item: &mut Vec<u8>, at: Logical, sums: &[u8]) -> usize {
        if item.is_empty() || start.checked_add(self.covered(item.len())) != Some(at) {
            return 0;
        }
        let room = (self.most * self.size).saturating_sub(item.len());
        let taken = room.min(sums.len());
        item.extend_from_slice(&sums[..taken]);
        taken
    }

    /// The items for checksums from `start` on.
    fn split<'a>(self, start: Logical, sums: &'a [u8]) -> impl Iterator<Item = (Key, &'a [u8])> + use<'a> {
        let (length, step) = (self.most * self.size, self.covered(self.most * self.size));
        sums.chunks(length).zip(0u64..).map(move |(piece, number)| (key(start + number * step), piece))
    }

    fn end(&self, run: Run<'_>) -> u64 {
        run.start.get().saturating_add(self.covered(run.sums.len()))
    }

    /// Rest of an item outside of a range that it overlaps.
    fn without(&self, run: Run<'_>, range: &DataRange) -> Rest {
        let (start, end) = (range.start.get(), range.start.get() + range.length);
        let bytes = |to: u64| self.bytes(to.saturating_sub(run.start.get())).min(run.sums.len());
        Rest { before: bytes(start), behind: bytes(end) }
    }
}

/// The items of a checksum tree for checksums from `start` on.
pub(crate) fn checksum_items<'a>(
    context: &TreeContext,
    start: Logical,
    sums: &'a [u8],
) -> impl Iterator<Item = (Key, &'a [u8])> {
    Packing::new(context).split(start, sums)
}

fn key(at: Logical) -> Key {
    Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at.get())
}

/// The checksum tree of the running transaction.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumTree<'p> {
    editor: Editor<'p>,
}

impl<'p> ChecksumTree<'p> {
    /// The checksum tree, to be changed by an editor.
    pub fn of(editor: &Editor<'p>) -> Self {
        Self { editor: *editor }
    }

    /// Adds checksums of consecutive sectors, one after the other. What was there of these sectors goes.
    ///
    /// # Errors
    /// A checksum tree that can't be read, or has an item that is none of checksums.
    pub fn insert(&self, start: Logical, checksums: &[u8]) -> Result<(), TreeError> {
        let tree = self.editor.store.tree(RootId::CSUM_TREE)?;
        let packing = Packing::new(self.editor.store.volume().tree_context());
        let range = DataRange { start, length: packing.covered(checksums.len()) };
        if range.length == 0 {
            return Ok(());
        }
        let _alone = self.editor.changes.refs.lock_checksums();
        let end_of = |run: Run<'_>| (run.start, packing.end(run), run.sums.len());
        let mut before = self.last_up_to(&tree, start, end_of)?;
        let last = self.last_up_to(&tree, start + (range.length - 1), end_of)?;
        if last.is_some_and(|(_, end, _)| end > start.get()) {
            self.cut(&tree, &packing, &range)?;
            before = self.last_up_to(&tree, start, end_of)?;
        }
        let mut taken = 0;
        if let Some((first, end, length)) = before {
            if end == start.get() && length < packing.most * packing.size {
                taken = self
                    .editor
                    .edit(&tree, &key(first), |item| packing.append(first, item, start, checksums))?;
            }
        }
        for (key, sums) in packing.split(start + packing.covered(taken), &checksums[taken..]) {
            self.editor.insert(&tree, &key, sums)?;
        }
        Ok(())
    }

    /// Removes the checksums of a range.
    ///
    /// # Errors
    /// A checksum tree that can't be read.
    pub fn remove(&self, range: DataRange) -> Result<(), TreeError> {
        let tree = match self.editor.store.tree(RootId::CSUM_TREE) {
            Err(TreeError::NoTree(_)) => return Ok(()),
            tree => tree?,
        };
        let packing = Packing::new(self.editor.store.volume().tree_context());
        let _alone = self.editor.changes.refs.lock_checksums();
        if range.length == 0 { Ok(()) } else { self.cut(&tree, &packing, &range) }
    }

    /// Removes a range that is not empty. The rest of an item is there at every moment, as its data may be being
    /// read.
    fn cut(&self, tree: &Arc<Tree>, packing: &Packing, range: &DataRange) -> Result<(), TreeError> {
        let last = range.start + (range.length - 1);
        let behind = |run: Run<'_>| run.sums[packing.without(run, range).behind..].to_vec();
        let behind = self.last_up_to(tree, last, behind)?.unwrap_or_default();
        if !behind.is_empty() {
            self.editor.insert(tree, &key(range.start + range.length), &behind)?;
        }
        let stays = |run: Run<'_>| {
            let reaches_in = run.start < range.start && packing.end(run) > range.start.get();
            reaches_in.then(|| (run.start, packing.without(run, range).before))
        };
        let before = range.start.get().checked_sub(1).map(Logical::new);
        let before = before.map(|at| self.last_up_to(tree, at, stays)).transpose()?;
        if let Some((first, stays)) = before.flatten().flatten() {
            self.editor.edit(tree, &key(first), |item| item.truncate(stays))?;
        }
        self.editor.remove_range(tree, &key(range.start), &key(last), |_, _| Verdict::Remove)?;
        Ok(())
    }

    /// The last item that begins at an address or before it, handed to `look`.
    fn last_up_to<T>(
        &self,
        tree: &Arc<Tree>,
        at: Logical,
        look: impl FnOnce(Run<'_>) -> T,
    ) -> Result<Option<T>, TreeError> {
        let mut cursor = self.editor.store.cursor(tree, Readahead::None);
        cursor.seek_last(&key(at))?;
        let item = cursor.item().filter(|(key, _)| key.item_type == KeyType::EXTENT_CSUM);
        Ok(item.map(|(key, sums)| look(Run { start: Logical::new(key.offset()), sums })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PACKING: Packing = Packing { sectorsize: 4096, size: 4, most: 6 };

    fn sums(from: u64, count: u64) -> Vec<u8> {
        (from..from + count).flat_map(|sector| u32::try_from(sector).expect("small").to_le_bytes()).collect()
    }

    fn at(sector: u64) -> Logical {
        Logical::new(sector * 4096)
    }

    #[test]
    fn items_are_as_long_as_the_kernel_has_them() {
        let longest = |nodesize, size| Packing::of(nodesize, 4096, size).most * size;
        assert_eq!(longest(16384, 4), 16228);
        assert_eq!(longest(4096, 4), 3940);
        assert_eq!(longest(65536, 4), 16384);
        assert_eq!(longest(16384, 32), 16192);
    }

    #[test]
    fn an_item_grows_by_what_follows_it_until_it_is_full() {
        let mut item = sums(10, 4);
        assert_eq!(PACKING.append(at(10), &mut item, at(15), &sums(15, 1)), 0);
        assert_eq!(PACKING.append(at(10), &mut item, at(14), &sums(14, 5)), 8);
        assert_eq!(item, sums(10, 6));
        assert_eq!(PACKING.append(at(10), &mut item, at(16), &sums(16, 1)), 0);
        assert_eq!(PACKING.append(at(10), &mut Vec::new(), at(10), &sums(10, 1)), 0);
    }

    proptest! {
        #[test]
        fn split_items_are_full_but_the_last_and_hold_everything(start in 0u64..50, count in 1u64..40) {
            let sums = sums(start, count);
            let mut next = start;
            let mut all = Vec::new();
            for (key, piece) in PACKING.split(at(start), &sums) {
                prop_assert_eq!(key.offset(), next * 4096);
                prop_assert!(all.len() % 24 == 0 && (1..=24).contains(&piece.len()));
                next += to_u64(piece.len()) / 4;
                all.extend_from_slice(piece);
            }
            prop_assert_eq!(all, sums);
        }

        #[test]
        fn checksums_outside_of_a_range_stay(start in 0u64..20, count in 1u64..20, from in 0u64..40, length in 1u64..20) {
            let sums = sums(start, count);
            let run = Run { start: at(start), sums: &sums };
            let range = DataRange { start: at(from), length: length * 4096 };
            let rest = PACKING.without(run, &range);
            let before: Vec<u64> = (start..start + count).filter(|sector| *sector < from).collect();
            let behind = (start..start + count).filter(|sector| *sector >= from + length).count();
            prop_assert_eq!(rest.before, before.len() * 4);
            prop_assert_eq!(run.sums.len() - rest.behind, behind * 4);
        }
    }
}
