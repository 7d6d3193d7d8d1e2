//! Record of one extent in the extent tree, and the effect of reference changes on it: a pure function from bytes to
//! bytes.

use super::delayed::{ExtentKind, Head, Referrer};
use brindle_ondisk::item::{BackRef, ExtentFlags, ExtentItem, ExtentItemHeader, TreeBlockInfo};
use brindle_ondisk::{
    Defect, Generation, Item, ItemHeader, Key, KeyType, Logical, NodeHeader, ObjectId, RootId,
};
use std::fmt;

/// Pool properties that decide how extents are recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The size of a tree block.
    pub(crate) nodesize: usize,
    /// True if items of tree blocks go without [`TreeBlockInfo`] (`SKINNY_METADATA`).
    pub(crate) skinny: bool,
    /// The running transaction.
    pub(crate) generation: Generation,
    /// The subvolume that a new extent of data is noted for (simple quotas).
    pub(crate) owner: Option<RootId>,
}

/// An extent item, taken apart.
#[derive(Clone)]
pub(crate) struct Record {
    refs: u64,
    generation: Generation,
    flags: ExtentFlags,
    tree_block: Option<TreeBlockInfo>,
    /// Inline backrefs in the order of [`BackRef::inline_rank`].
    inline: Vec<BackRef>,
}

/// A reference that is an item of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedRef {
    /// Key of its item.
    pub(crate) key: Key,
    /// The reference.
    pub(crate) reference: BackRef,
}

/// Change of a reference that is, or is to be, an item of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyedChange {
    /// A new one, at [`BackRef::key`] or the next free key behind it.
    Add(BackRef),
    /// Its count changes.
    Set(Key, BackRef),
    /// Removes the item.
    Remove(Key),
}

/// Change of an extent.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Its item; `None` if it is freed.
    pub(crate) item: Option<Vec<u8>>,
    /// Its references that are items of their own.
    pub(crate) keyed: Vec<KeyedChange>,
}

impl Layout {
    /// An extent item stays below this size: no inline reference is added that would make it as large
    /// (`BTRFS_MAX_EXTENT_ITEM_SIZE`: a sixteenth of a leaf, less the slot).
    fn item_bound(&self) -> usize {
        ((self.nodesize - size_of::<NodeHeader>()) >> 4) - size_of::<ItemHeader>()
    }

    /// The key of a new extent's item.
    pub(crate) fn key(&self, start: Logical, head: &Head) -> Key {
        let objectid = ObjectId::new(start.get());
        match head.kind {
            ExtentKind::Block { level, .. } if self.skinny => {
                Key::new(objectid, KeyType::METADATA_ITEM, level.into())
            }
            _ => Key::new(objectid, KeyType::EXTENT_ITEM, head.length),
        }
    }
}

impl Record {
    /// An extent without references.
    pub(crate) fn new(kind: ExtentKind, layout: &Layout) -> Self {
        let (flags, tree_block) = match kind {
            ExtentKind::Data => (ExtentFlags::DATA, None),
            ExtentKind::Block { .. } if layout.skinny => (ExtentFlags::TREE_BLOCK, None),
            ExtentKind::Block { level, first_key } => {
                (ExtentFlags::TREE_BLOCK, Some(TreeBlockInfo { key: first_key, level }))
            }
        };
        let owner = layout.owner.filter(|_| kind == ExtentKind::Data);
        let inline = owner.map(BackRef::Owner).into_iter().collect();
        Self { refs: 0, generation: layout.generation, flags, tree_block, inline }
    }

    /// The record that an item's bytes are.
    pub(crate) fn parse(key: &Key, data: &[u8]) -> Result<Self, Defect> {
        let Item::Extent(ExtentItem { header, tree_block, inline_refs }) = Item::parse(key, data)? else {
            return Err(Defect::new("type of an extent item", key.item_type.0.into()));
        };
        Ok(Self {
            refs: header.refs.get(),
            generation: header.generation,
            flags: ExtentFlags::from_bits_retain(header.flags.get()),
            tree_block: tree_block.copied(),
            inline: inline_refs.collect::<Result<_, _>>()?,
        })
    }

    /// The item's bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (refs, flags) = (self.refs.into(), self.flags.bits().into());
        let header = ExtentItemHeader { refs, generation: self.generation, flags };
        ExtentItem::encode(&header, self.tree_block.as_ref(), &self.inline)
    }

    /// Number of references.
    pub(crate) fn refs(&self) -> u64 {
        self.refs
    }

    /// The flags.
    pub(crate) fn flags(&self) -> ExtentFlags {
        self.flags
    }

    /// The transaction that allocated the extent.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// The subvolume that wrote data first, if that is noted.
    pub(crate) fn owner(&self) -> Option<RootId> {
        self.inline.iter().find_map(|reference| match reference {
            BackRef::Owner(root) => Some(*root),
            _ => None,
        })
    }

    /// The level of a tree block, whose item has this key.
    pub(super) fn level(&self, key: &Key) -> Option<u8> {
        match self.tree_block {
            Some(info) => Some(info.level),
            None => u8::try_from(key.offset()).ok().filter(|_| key.item_type == KeyType::METADATA_ITEM),
        }
    }

    /// The references that are in the item.
    pub(crate) fn inline(&self) -> &[BackRef] {
        &self.inline
    }

    /// Number of references that are items of their own.
    pub(crate) fn keyed_refs(&self) -> u64 {
        self.inline.iter().fold(self.refs, |left, reference| left.saturating_sub(reference.count()))
    }

    fn size(&self) -> usize {
        let info = self.tree_block.map_or(0, |_| size_of::<TreeBlockInfo>());
        let inline: usize = self.inline.iter().map(BackRef::inline_size).sum();
        size_of::<ExtentItemHeader>() + info + inline
    }

    /// Owners among those with changed counts whose reference may be an item of its own.
    pub(crate) fn maybe_keyed(&self, head: &Head) -> Vec<Referrer> {
        if self.keyed_refs() == 0 {
            return Vec::new();
        }
        let changed = head.changes.iter().map(|(who, _)| *who);
        changed.filter(|who| self.inline_position(*who).is_none()).collect()
    }

    fn inline_position(&self, who: Referrer) -> Option<usize> {
        self.inline.iter().position(|reference| Referrer::of(reference) == Some(who))
    }

    /// The record with all that waits for the extent; `keyed` are those of [`maybe_keyed`](Self::maybe_keyed) that
    /// were found.
    pub(crate) fn apply(
        mut self,
        head: &Head,
        keyed: &[KeyedRef],
        layout: &Layout,
    ) -> Result<Outcome, Defect> {
        let mut keyed_refs = self.keyed_refs();
        let mut keyed_changes = Vec::new();
        // Those that go make room for those that come.
        let (gone, more): (Vec<_>, Vec<_>) = head.changes.iter().partition(|(_, by)| *by < 0);
        for (who, by) in gone.into_iter().chain(more) {
            if let Some(at) = self.inline_position(who) {
                match changed(who, self.inline[at].count(), by)? {
                    Some(reference) => self.inline[at] = reference,
                    None => {
                        self.inline.remove(at);
                    }
                }
            } else if let Some(found) = keyed.iter().find(|found| Referrer::of(&found.reference) == Some(who))
            {
                keyed_refs = add(keyed_refs, by)?;
                keyed_changes.push(match changed(who, found.reference.count(), by)? {
                    Some(reference) => KeyedChange::Set(found.key, reference),
                    None => KeyedChange::Remove(found.key),
                });
            } else {
                let Some(reference) = changed(who, 0, by)? else { continue };
                // A lookup reads inline references first, and takes an item of its own to mean that the inline ones
                // are full.
                if keyed_refs == 0 && self.size() + reference.inline_size() < layout.item_bound() {
                    let rank = reference.inline_rank();
                    let at = self.inline.partition_point(|other| other.inline_rank() <= rank);
                    self.inline.insert(at, reference);
                } else {
                    keyed_refs = add(keyed_refs, by)?;
                    keyed_changes.push(KeyedChange::Add(reference));
                }
            }
            self.refs = add(self.refs, by)?;
        }
        if head.becomes_full && self.flags.contains(ExtentFlags::TREE_BLOCK) {
            self.flags |= ExtentFlags::FULL_BACKREF;
        }
        let item = (self.refs > 0).then(|| self.to_bytes());
        Ok(Outcome { item, keyed: keyed_changes })
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refs {} generation {} {:?} {:?}", self.refs, self.generation, self.flags, self.inline)
    }
}

/// A reference that counted `count` and changes by `by`; `None` if none is left.
fn changed(who: Referrer, count: u64, by: i64) -> Result<Option<BackRef>, Defect> {
    let count = add(count, by)?;
    if count > who.most() {
        return Err(Defect::expected("reference would count more than it can", who.most(), count));
    }
    let count = u32::try_from(count).expect("no more than the most");
    Ok((count > 0).then(|| who.times(count)))
}

fn add(count: u64, by: i64) -> Result<u64, Defect> {
    let less = Defect::expected("fewer references than are to be dropped", by.unsigned_abs(), count);
    count.checked_add_signed(by).ok_or(less)
}

#[cfg(test)]
mod tests;
