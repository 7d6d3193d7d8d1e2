//! References to an extent: those in the extent tree, and those that wait.

use super::delayed::{Extent, ExtentKind, Head, Referrer};
use super::record::{KeyedRef, Record};
use super::{BlockReferences, DataRange, References};
use crate::error::TreeError;
use crate::store::cursor::Readahead;
use crate::tree::Tree;
use brindle_ondisk::item::{BackRef, ExtentDataRef, ExtentFlags};
use brindle_ondisk::{Defect, Generation, Item, Key, KeyType, Logical, Node, ObjectId, RootId};
use std::sync::Arc;

/// An extent as the extent tree has it.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// Number of references.
    pub(crate) count: u64,
    /// The transaction that allocated it.
    pub(crate) generation: Generation,
    pub(crate) flags: ExtentFlags,
    /// The subvolume that wrote data first, if that is noted.
    pub(crate) owner: Option<RootId>,
    /// Owners of references, and their counts.
    pub(crate) referrers: Vec<(Referrer, i64)>,
}

/// Distance from its hash at which a data reference is looked for past the last one found: references of one hash lie
/// side by side, except for gaps where some are gone.
const HASH_GAP_MAX: u64 = 1 << 16;

impl References<'_> {
    /// References to a block of a real address.
    pub(crate) fn of_block(&self, at: Logical, level: u8) -> Result<BlockReferences, TreeError> {
        let extent = self.block_extent(at, level, Key::MIN);
        let (record, head) = self.all_that_is_known(&extent)?;
        let mut flags = record.as_ref().map_or(ExtentFlags::TREE_BLOCK, Record::flags);
        if head.as_ref().is_some_and(|head| head.becomes_full) {
            flags |= ExtentFlags::FULL_BACKREF;
        }
        Ok(BlockReferences { count: total(&extent, record.as_ref(), head.as_ref())?, flags })
    }

    /// Returns true if more than one block refers to a block.
    pub(crate) fn is_block_shared(&self, node: &Node) -> Result<bool, TreeError> {
        Ok(self.of_block(node.header().bytenr, node.level())?.count > 1)
    }

    /// Returns true if an extent has an item, or a change of its references waits.
    pub(crate) fn is_known(&self, extent: &Extent) -> Result<bool, TreeError> {
        let (record, head) = self.all_that_is_known(extent)?;
        Ok(record.is_some() || head.is_some())
    }

    /// Returns true if data must not be written in place: something else [may refer to
    /// it](Self::is_data_referred_elsewhere), or it is about to move.
    ///
    /// # Errors
    /// An extent tree that can't be read.
    pub fn is_data_shared(
        &self,
        tree: &Tree,
        range: DataRange,
        reference: &ExtentDataRef,
    ) -> Result<bool, TreeError> {
        let is_about_to_move = self.space.is_closed_at(range.start);
        Ok(is_about_to_move || self.is_data_referred_elsewhere(tree, range, reference)?)
    }

    /// Returns true if anything but this one place in a file of `tree`, however often, may refer to an extent of
    /// data: another file, or a snapshot.
    ///
    /// # Errors
    /// An extent tree that can't be read.
    pub fn is_data_referred_elsewhere(
        &self,
        tree: &Tree,
        range: DataRange,
        reference: &ExtentDataRef,
    ) -> Result<bool, TreeError> {
        let extent = Extent::data(range);
        let (record, head) = self.all_that_is_known(&extent)?;
        if record.is_none() && head.is_none() {
            return Ok(true);
        }
        let made =
            head.as_ref().and_then(|head| head.origin).map_or(self.generation, |origin| origin.generation);
        let generation = record.as_ref().map_or(made, Record::generation);
        // A snapshot has the leaf that refers to the extent, which does not show until one of them copies the leaf.
        if generation <= tree.read().last_snapshot
            || record.as_ref().is_some_and(|record| record.keyed_refs() > 0)
        {
            return Ok(true);
        }
        let own = Referrer::of_data(reference);
        let changes = head.map(|head| head.changes).unwrap_or_default();
        let inline = record.as_ref().map(Record::inline).unwrap_or_default();
        let recorded = inline.iter().filter_map(|reference| {
            let count = i64::try_from(reference.count()).expect("32 bits");
            Referrer::of(reference).map(|who| (who, count))
        });
        let mut counts: Vec<(Referrer, i64)> = recorded.collect();
        for (who, by) in changes {
            match counts.iter_mut().find(|(other, _)| *other == who) {
                Some((_, count)) => *count += by,
                None => counts.push((who, by)),
            }
        }
        Ok(counts.iter().any(|(who, count)| *who != own && *count > 0))
    }

    /// The extent that begins at an address, as an extent tree has it; `None` if none begins there.
    pub(crate) fn recorded_at(
        &self,
        tree: &Arc<Tree>,
        start: Logical,
    ) -> Result<Option<(Extent, Recorded)>, TreeError> {
        let Some((key, record)) = self.find_item(tree, start)? else { return Ok(None) };
        let is_block = record.flags().contains(ExtentFlags::TREE_BLOCK);
        let extent = match record.level(&key) {
            Some(level) if is_block => self.block_extent(start, level, Key::MIN),
            _ => Extent::data(DataRange { start, length: key.offset() }),
        };
        Ok(self.recorded(tree, &extent)?.map(|recorded| (extent, recorded)))
    }

    /// Everything that an extent tree has of an extent, whatever waits; `None` if it has nothing.
    pub(crate) fn recorded(&self, tree: &Arc<Tree>, extent: &Extent) -> Result<Option<Recorded>, TreeError> {
        let Some((_, record)) = self.find_record(tree, extent)? else { return Ok(None) };
        let of =
            |reference: &BackRef| Some((Referrer::of(reference)?, i64::try_from(reference.count()).ok()?));
        let mut referrers: Vec<(Referrer, i64)> = record.inline().iter().filter_map(of).collect();
        if record.keyed_refs() > 0 {
            let objectid = ObjectId::new(extent.start.get());
            let mut cursor = self.store.cursor(tree, Readahead::None);
            cursor.seek(&Key::last_of(objectid, KeyType::METADATA_ITEM))?;
            while let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid == objectid) {
                let item = Item::parse(&key, data);
                if let Item::ExtentRef(reference) =
                    item.map_err(|defect| TreeError::item(tree.id(), key, defect))?
                {
                    referrers.extend(of(&reference));
                }
                cursor.next()?;
            }
        }
        let (generation, flags, owner) = (record.generation(), record.flags(), record.owner());
        Ok(Some(Recorded { count: record.refs(), generation, flags, owner, referrers }))
    }

    /// Record of an extent in the extent tree, and the waiting changes, as of one moment.
    fn all_that_is_known(&self, extent: &Extent) -> Result<(Option<Record>, Option<Head>), TreeError> {
        let tree = self.store.tree(RootId::EXTENT_TREE)?;
        let refs = self.delayed;
        let _held = refs.hold();
        let head = refs.waiting(extent.start);
        if head.as_ref().is_some_and(|head| head.is_new) {
            return Ok((None, head));
        }
        Ok((self.find_record(&tree, extent)?.map(|(_, record)| record), head))
    }

    /// The item of an extent.
    pub(crate) fn find_record(
        &self,
        tree: &Arc<Tree>,
        extent: &Extent,
    ) -> Result<Option<(Key, Record)>, TreeError> {
        let Some((key, record)) = self.find_item(tree, extent.start)? else { return Ok(None) };
        check_identity(&key, &record, extent).map_err(|defect| TreeError::item(tree.id(), key, defect))?;
        Ok(Some((key, record)))
    }

    /// The item of the extent that begins at an address.
    fn find_item(&self, tree: &Arc<Tree>, start: Logical) -> Result<Option<(Key, Record)>, TreeError> {
        let objectid = ObjectId::new(start.get());
        let mut cursor = self.store.cursor(tree, Readahead::None);
        cursor.seek(&Key::first_of(objectid, KeyType::EXTENT_ITEM))?;
        let is_item = |key: &Key| {
            key.objectid == objectid && matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM)
        };
        let Some((key, data)) = cursor.item().filter(|(key, _)| is_item(key)) else {
            return Ok(None);
        };
        let record = Record::parse(&key, data).map_err(|defect| TreeError::item(tree.id(), key, defect))?;
        Ok(Some((key, record)))
    }

    /// The reference from somewhere, if it is an item of its own.
    pub(crate) fn find_keyed(
        &self,
        tree: &Arc<Tree>,
        start: Logical,
        who: Referrer,
    ) -> Result<Option<KeyedRef>, TreeError> {
        let first = who.times(1).key(start);
        let mut cursor = self.store.cursor(tree, Readahead::None);
        cursor.seek(&first)?;
        let gap = if matches!(who, Referrer::Data { .. }) { HASH_GAP_MAX } else { 0 };
        let mut bound = first.offset().saturating_add(gap);
        while let Some((key, data)) = cursor.item() {
            if (key.objectid, key.item_type) != (first.objectid, first.item_type) || key.offset() > bound {
                break;
            }
            match Item::parse(&key, data).map_err(|defect| TreeError::item(tree.id(), key, defect))? {
                Item::ExtentRef(reference) if Referrer::of(&reference) == Some(who) => {
                    return Ok(Some(KeyedRef { key, reference }));
                }
                _ => {}
            }
            bound = key.offset().saturating_add(gap);
            cursor.next()?;
        }
        Ok(None)
    }
}

fn total(extent: &Extent, record: Option<&Record>, head: Option<&Head>) -> Result<u64, TreeError> {
    let (recorded, waiting) = (record.map_or(0, Record::refs), head.map_or(0, Head::sum));
    recorded.checked_add_signed(waiting).ok_or_else(|| {
        let key = Key::new(ObjectId::new(extent.start.get()), KeyType::EXTENT_ITEM, extent.length);
        let why = "fewer references than are to be dropped";
        TreeError::item(RootId::EXTENT_TREE, key, Defect::expected(why, waiting.unsigned_abs(), recorded))
    })
}

/// Checks that an item belongs to the extent that it is taken for.
fn check_identity(key: &Key, record: &Record, extent: &Extent) -> Result<(), Defect> {
    let is_block = record.flags().contains(ExtentFlags::TREE_BLOCK);
    let (expected, found) = match extent.kind {
        ExtentKind::Block { level, .. } if key.item_type == KeyType::METADATA_ITEM => {
            (level.into(), key.offset())
        }
        _ => (extent.length, key.offset()),
    };
    if is_block != matches!(extent.kind, ExtentKind::Block { .. }) {
        return Err(Defect::new("extent is of the other kind", record.flags().bits()));
    }
    if expected != found {
        return Err(Defect::expected(
            "level or length of extent differs from its referrer's word",
            expected,
            found,
        ));
    }
    Ok(())
}
