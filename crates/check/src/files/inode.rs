//! TreeFacts about an inode from some of its items, which follow each other in the order of keys.

use crate::Finding;
use crate::fingerprint::{Domain, Sum, add, hash, hash_name, take};
use brindle_ondisk::item::{DirEntry, FileExtent, FileType, InodeItem};
use brindle_ondisk::{Item, Key, KeyType, ObjectId, RootId, to_u64};

/// Fields of an inode item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeFacts {
    mode: u32,
    nlink: u32,
    size: u64,
    nbytes: u64,
}

/// The extents of a file, or of a part of it.
#[derive(Clone, Copy, Debug)]
struct Extents {
    first: u64,
    end: u64,
    gap: Option<u64>,
    /// Start of an extent that overlaps the one before, and the end of that one.
    overlap: Option<(u64, u64)>,
    /// Bytes that count as `nbytes`.
    bytes: u64,
    /// The length of an inline extent.
    inline: Option<u64>,
}

/// Facts from some of the items of an inode.
#[derive(Clone, Debug)]
pub(crate) struct InodePart {
    pub(crate) inode: u64,
    pub(crate) facts: Option<InodeFacts>,
    /// Names in other directories.
    names: u64,
    name_sum: Sum,
    /// Sum that the inode's type multiplies.
    name_type_sum: Sum,
    /// `DIR_INDEX` entries, as the names that inodes must have for them.
    index_sum: Sum,
    /// `DIR_ITEM` less `DIR_INDEX` entries.
    entry_sum: Sum,
    /// Length of all names of entries.
    entry_bytes: u64,
    extents: Option<Extents>,
}

impl InodePart {
    pub(crate) fn new(inode: u64) -> Self {
        Self {
            inode,
            facts: None,
            names: 0,
            name_sum: 0,
            name_type_sum: 0,
            index_sum: 0,
            entry_sum: 0,
            entry_bytes: 0,
            extents: None,
        }
    }

    /// Adds the next item.
    pub(crate) fn note(&mut self, key: &Key, item: &Item<'_>, sectorsize: u64) {
        match item {
            Item::Inode(inode) => self.facts = Some(InodeFacts::of(inode)),
            Item::InodeRef(names) => {
                for name in names.flatten() {
                    self.note_name(key.offset(), name.index, name.name);
                }
            }
            Item::InodeExtref(names) => {
                for name in names.flatten() {
                    self.note_name(name.parent.get(), name.index, name.name);
                }
            }
            Item::DirItem(entries) => {
                for entry in entries.flatten() {
                    self.entry_bytes += to_u64(entry.name.len());
                    add(&mut self.entry_sum, entry_hash(&entry), 1);
                }
            }
            Item::DirIndex(entries) => {
                for entry in entries.flatten() {
                    self.entry_bytes += to_u64(entry.name.len());
                    take(&mut self.entry_sum, entry_hash(&entry), 1);
                    self.note_index(key.offset(), &entry);
                }
            }
            Item::FileExtent(extent) => {
                let next = Extents::of(key.offset(), extent, sectorsize);
                self.extents = Some(self.extents.map_or(next, |before| before.then(next)));
            }
            _ => {}
        }
    }

    /// This part with the one that follows it, of the same inode.
    pub(crate) fn then(mut self, next: &Self) -> Self {
        self.facts = self.facts.or(next.facts);
        self.names += next.names;
        self.name_sum = self.name_sum.wrapping_add(next.name_sum);
        self.name_type_sum = self.name_type_sum.wrapping_add(next.name_type_sum);
        self.index_sum = self.index_sum.wrapping_add(next.index_sum);
        self.entry_sum = self.entry_sum.wrapping_add(next.entry_sum);
        self.entry_bytes += next.entry_bytes;
        self.extents = match (self.extents, next.extents) {
            (Some(before), Some(next)) => Some(before.then(next)),
            (before, next) => before.or(next),
        };
        self
    }

    fn note_name(&mut self, directory: u64, index: u64, name: &[u8]) {
        self.names += 1;
        // The root directory is in no other, and says so by this name.
        if directory == self.inode && name == b".." {
            return;
        }
        let sum = hash_name(Domain::Name, &[directory, index, self.inode], name);
        add(&mut self.name_sum, sum, 1);
        add(&mut self.name_type_sum, type_weight(sum), 1);
    }

    fn note_index(&mut self, index: u64, entry: &DirEntry<'_>) {
        let location = entry.header.location;
        if location.item_type != KeyType::INODE_ITEM {
            return;
        }
        let sum = hash_name(Domain::Name, &[self.inode, index, location.objectid.get()], entry.name);
        add(&mut self.index_sum, sum, 1);
        add(&mut self.index_sum, type_weight(sum), type_number(entry.file_type()));
    }

    /// Returns true if a directory can name the inode.
    fn is_named(&self) -> bool {
        (ObjectId::FIRST_FREE..=ObjectId::LAST_FREE).contains(&ObjectId::new(self.inode))
    }

    /// Contribution of the inode to its tree's names, which come to zero when all agree.
    pub(crate) fn names_balance(&self) -> Sum {
        let mode = self.facts.map_or(0, |facts| facts.mode);
        let mut balance = self.name_sum;
        add(&mut balance, self.name_type_sum, type_number(FileType::from_mode(mode)));
        balance.wrapping_sub(self.index_sum)
    }

    /// Returns true if its `DIR_ITEM`s and `DIR_INDEX`es are the same.
    pub(crate) fn entries_agree(&self) -> bool {
        self.entry_sum == 0
    }

    /// Returns true if the inode should have an orphan item.
    pub(crate) fn is_orphan(&self) -> bool {
        self.facts.is_some_and(|facts| facts.nlink == 0) && self.is_named()
    }

    /// Reports all errors of the inode by itself, all of its items being here.
    pub(crate) fn judge(
        &self,
        tree: RootId,
        has_holes_without_extents: bool,
        report: &mut dyn FnMut(Finding),
    ) {
        let inode = ObjectId::new(self.inode);
        let Some(facts) = self.facts else {
            let problem = "has items and no inode item";
            return report(Finding::InodeRule { tree, inode, problem });
        };
        let mut compare = |field, expected: u64, found: u64| {
            if expected != found {
                report(Finding::Inode { tree, inode, field, expected, found });
            }
        };
        if self.is_named() {
            compare("nlink", self.names, facts.nlink.into());
        }
        match FileType::from_mode(facts.mode) {
            Some(FileType::Directory) => compare("size of directory", self.entry_bytes, facts.size),
            Some(FileType::Regular) => compare("nbytes", self.bytes(), facts.nbytes),
            Some(FileType::Symlink) => {
                compare("nbytes", self.bytes(), facts.nbytes);
                compare("size of symlink", self.extents.and_then(|e| e.inline).unwrap_or(0), facts.size);
            }
            _ => {}
        }
        self.judge_rules(tree, inode, facts, has_holes_without_extents, report);
    }

    fn bytes(&self) -> u64 {
        self.extents.map_or(0, |extents| extents.bytes)
    }

    fn judge_rules(
        &self,
        tree: RootId,
        inode: ObjectId,
        facts: InodeFacts,
        has_holes_without_extents: bool,
        report: &mut dyn FnMut(Finding),
    ) {
        let kind = FileType::from_mode(facts.mode);
        let mut rule = |problem| report(Finding::InodeRule { tree, inode, problem });
        if kind != Some(FileType::Directory) && (self.entry_bytes > 0 || self.entry_sum != 0) {
            rule("has directory entries and is no directory");
        }
        let can_have_extents = matches!(kind, Some(FileType::Regular | FileType::Symlink));
        if !can_have_extents && self.extents.is_some() {
            rule("has file extents and is no file");
        }
        let Some(extents) = self.extents else {
            if can_have_extents && !has_holes_without_extents && facts.nlink > 0 && facts.size > 0 {
                report(Finding::FileGap { tree, inode, offset: 0 });
            }
            return;
        };
        if let Some((offset, end)) = extents.overlap {
            report(Finding::FileOverlap { tree, inode, offset, end });
        }
        let tail = (extents.end < facts.size).then_some(extents.end);
        let gap = if extents.first > 0 { Some(0) } else { extents.gap.or(tail) };
        if let Some(offset) = gap.filter(|gap| *gap < facts.size) {
            if can_have_extents && !has_holes_without_extents && facts.nlink > 0 {
                report(Finding::FileGap { tree, inode, offset });
            }
        }
    }
}

impl InodeFacts {
    fn of(inode: &InodeItem) -> Self {
        Self {
            mode: inode.mode.get(),
            nlink: inode.nlink.get(),
            size: inode.size.get(),
            nbytes: inode.nbytes.get(),
        }
    }
}

impl Extents {
    fn of(offset: u64, extent: &FileExtent<'_>, sectorsize: u64) -> Self {
        let length = extent.length();
        let covered = length.checked_next_multiple_of(sectorsize).unwrap_or(length);
        let (bytes, inline) = match extent {
            FileExtent::Inline { .. } => (length, Some(length)),
            FileExtent::OnDisk { extent, .. } if extent.disk_bytenr.get() == 0 => (0, None),
            FileExtent::OnDisk { .. } => (length, None),
        };
        let end = offset.saturating_add(covered);
        Self { first: offset, end, gap: None, overlap: None, bytes, inline }
    }

    fn then(self, next: Self) -> Self {
        let gap = (next.first > self.end).then_some(self.end);
        let overlap = (next.first < self.end).then_some((next.first, self.end));
        Self {
            first: self.first,
            end: self.end.max(next.end),
            gap: self.gap.or(gap).or(next.gap),
            overlap: self.overlap.or(overlap).or(next.overlap),
            bytes: self.bytes.saturating_add(next.bytes),
            inline: self.inline.or(next.inline),
        }
    }
}

fn entry_hash(entry: &DirEntry<'_>) -> Sum {
    let location = entry.header.location;
    let words = [
        location.objectid.get(),
        location.item_type.0.into(),
        location.offset(),
        type_number(entry.file_type()),
    ];
    hash_name(Domain::Entry, &words, entry.name)
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
fn type_weight(name: Sum) -> Sum {
    hash(Domain::NameType, &[name as u64, (name >> 64) as u64])
}

fn type_number(kind: Option<FileType>) -> u64 {
    kind.map_or(0, |kind| u64::from(kind as u8))
}
