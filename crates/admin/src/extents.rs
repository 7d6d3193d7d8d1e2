//! Extents of files, and the files of extents, by the trees of a pool in all its guises.
//!
//! An extent is shared if a second file refers to it: another one by a clone, or the same one in a snapshot. A clone has a
//! reference of its own at the extent. A snapshot has none as long as it shares the leaf with the file extents; but it has the
//! file under the same number, so that a look at this number in the other subvolumes finds it.

use crate::pool::AdminError;
use crate::subvolumes::{SubvolumeFacts, subvolumes};
use crate::trees::Trees;
use brindle_ondisk::item::{BackRef, Compression, FileExtent};
use brindle_ondisk::{Item, Key, KeyType, Logical, ObjectId, RootId};
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

/// A file or directory of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    /// Its subvolume.
    pub tree: RootId,
    /// Its number there.
    pub number: ObjectId,
}

/// A part of a file that lies on devices.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Offset in the file.
    pub file_offset: u64,
    /// Its length in the file.
    pub length_bytes: u64,
    /// Start of its extent.
    pub extent: Logical,
    /// Length of the whole extent, as it is allocated.
    pub extent_bytes: u64,
    /// Offset of the piece in the (decompressed) extent.
    pub offset: u64,
    /// True if the extent is compressed.
    pub is_compressed: bool,
}

impl Piece {
    /// Its address; of a compressed one that of the extent.
    pub fn start(&self) -> Logical {
        match self.is_compressed {
            true => self.extent,
            false => Logical::new(self.extent.get().saturating_add(self.offset)),
        }
    }

    /// Bytes that it takes: of a compressed extent all, whatever part of it is used.
    pub fn disk_bytes(&self) -> u64 {
        if self.is_compressed { self.extent_bytes } else { self.length_bytes }
    }

    fn parse(key: &Key, data: &[u8]) -> Option<Self> {
        let Ok(Item::FileExtent(FileExtent::OnDisk { compression, extent, .. })) = Item::parse(key, data)
        else {
            return None;
        };
        (extent.disk_bytenr.get() != 0).then(|| Self {
            file_offset: key.offset(),
            length_bytes: extent.num_bytes.get(),
            extent: extent.disk_bytenr,
            extent_bytes: extent.disk_num_bytes.get(),
            offset: extent.offset.get(),
            is_compressed: compression != Compression::None,
        })
    }
}

/// Parts of a file on devices, in its order. Contents within an item, and holes, are none.
///
/// # Errors
/// A tree that can't be read.
pub fn pieces(trees: &dyn Trees, inode: Inode) -> Result<Vec<Piece>, AdminError> {
    let items = trees.items(inode.tree, inode.number, KeyType::EXTENT_DATA)?;
    Ok(items.iter().filter_map(|(key, data)| Piece::parse(key, data)).collect())
}

/// Bytes of a file's contents that lie within its items.
///
/// # Errors
/// A tree that can't be read.
pub fn inline_bytes(trees: &dyn Trees, inode: Inode) -> Result<u64, AdminError> {
    let items = trees.items(inode.tree, inode.number, KeyType::EXTENT_DATA)?;
    let bytes = |(key, data): &(Key, Vec<u8>)| match Item::parse(key, data) {
        Ok(Item::FileExtent(FileExtent::Inline { data, .. })) => data.len() as u64,
        _ => 0,
    };
    Ok(items.iter().map(bytes).sum())
}

/// A file extent of a generation or a later one.
#[derive(Clone, Copy, Debug)]
pub struct NewExtent {
    /// Number of the file in its subvolume.
    pub inode: ObjectId,
    /// Offset in the file.
    pub file_offset: u64,
    /// Its length in the file.
    pub length_bytes: u64,
    /// Address of the extent; 0 of a hole, and of contents within the item.
    pub start: u64,
    /// Offset in the extent.
    pub offset: u64,
    /// The transaction that wrote it.
    pub generation: u64,
    /// True if it is compressed.
    pub is_compressed: bool,
    /// True if it reads as zeros.
    pub is_prealloc: bool,
    /// True if its contents lie within the item.
    pub is_inline: bool,
}

/// File extents of a subvolume that were written in a generation or later.
///
/// # Errors
/// A tree that can't be read.
pub fn newer_extents(trees: &dyn Trees, tree: RootId, generation: u64) -> Result<Vec<NewExtent>, AdminError> {
    let mut found = Vec::new();
    let range = Key::first_of(ObjectId::FIRST_FREE, KeyType::EXTENT_DATA)
        ..=Key::last_of(ObjectId::LAST_FREE, KeyType::EXTENT_DATA);
    trees.each(tree, range, generation, &mut |key, data| {
        found.extend(NewExtent::parse(&key, data).filter(|extent| extent.generation >= generation));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

impl NewExtent {
    fn parse(key: &Key, data: &[u8]) -> Option<Self> {
        let Ok(Item::FileExtent(extent)) = Item::parse(key, data) else { return None };
        let (inode, file_offset) = (key.objectid, key.offset());
        Some(match extent {
            FileExtent::Inline { header, compression, .. } => Self {
                inode,
                file_offset,
                length_bytes: header.ram_bytes.get(),
                start: 0,
                offset: 0,
                generation: header.generation.get(),
                is_compressed: compression != Compression::None,
                is_prealloc: false,
                is_inline: true,
            },
            FileExtent::OnDisk { header, compression, is_prealloc, extent } => Self {
                inode,
                file_offset,
                length_bytes: extent.num_bytes.get(),
                start: extent.disk_bytenr.get(),
                offset: extent.offset.get(),
                generation: header.generation.get(),
                is_compressed: compression != Compression::None,
                is_prealloc,
                is_inline: false,
            },
        })
    }
}

/// The file of an extent, and the offset at which it has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The file.
    pub inode: Inode,
    /// Offset in the file.
    pub offset: u64,
}

/// Looks for sharers of extents.
pub struct Extents<'t> {
    trees: &'t dyn Trees,
    subvolumes: Vec<SubvolumeFacts>,
    /// Extents of a file in all other subvolumes, of the file that was asked about last.
    elsewhere: Option<(Inode, BTreeSet<Logical>)>,
    /// References at extents.
    known: HashMap<Logical, Vec<BackRef>>,
}

/// Extents of which references are remembered.
const KNOWN_MAX: usize = 1 << 16;

impl<'t> Extents<'t> {
    /// With the subvolumes of a pool.
    ///
    /// # Errors
    /// A root tree that can't be read.
    pub fn new(trees: &'t dyn Trees) -> Result<Self, AdminError> {
        let (subvolumes, _) = subvolumes(trees)?;
        Ok(Self { trees, subvolumes, elsewhere: None, known: HashMap::new() })
    }

    /// The subvolumes.
    pub fn subvolumes(&self) -> &[SubvolumeFacts] {
        &self.subvolumes
    }

    /// Returns true if another file, or the same one in another subvolume, refers to the extent of a piece. `own` are all pieces
    /// of the file.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn is_shared(&mut self, inode: Inode, piece: &Piece, own: &[Piece]) -> Result<bool, AdminError> {
        if self.elsewhere(inode)?.contains(&piece.extent) {
            return Ok(true);
        }
        let references = self.references(piece.extent)?;
        let is_other = |reference: &BackRef| match reference {
            BackRef::Data(data) => (data.root, data.objectid) != (inode.tree, inode.number),
            _ => false,
        };
        if references.iter().any(is_other) {
            return Ok(true);
        }
        let in_leaves: u64 = references
            .iter()
            .map(|reference| match reference {
                BackRef::SharedData { count, .. } => u64::from(*count),
                _ => 0,
            })
            .sum();
        let own = own.iter().filter(|other| other.extent == piece.extent).count() as u64;
        Ok(in_leaves > own)
    }

    fn elsewhere(&mut self, inode: Inode) -> Result<&BTreeSet<Logical>, AdminError> {
        if self.elsewhere.as_ref().is_none_or(|(known, _)| *known != inode) {
            let mut found = BTreeSet::new();
            for tree in self.others(inode.tree) {
                found.extend(pieces(self.trees, Inode { tree, ..inode })?.iter().map(|piece| piece.extent));
            }
            self.elsewhere = Some((inode, found));
        }
        let (_, found) = self.elsewhere.as_ref().expect("just put there");
        Ok(found)
    }

    fn others(&self, tree: RootId) -> Vec<RootId> {
        let live = self.subvolumes.iter().filter(|one| !one.is_deleted).map(|one| RootId::new(one.id));
        live.filter(|id| *id != tree).collect()
    }

    fn references(&mut self, extent: Logical) -> Result<&[BackRef], AdminError> {
        if !self.known.contains_key(&extent) {
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            let found = references(self.trees, extent)?;
            self.known.insert(extent, found);
        }
        Ok(&self.known[&extent])
    }

    /// Files that have an address, by the extent that it is in; without `exact` those that refer to any part of the extent. `None`
    /// if the address is in no extent of data.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn files_at(&self, at: Logical, exact: bool) -> Result<Option<Vec<Reference>>, AdminError> {
        let Some(extent) = extent_at(self.trees, at)? else { return Ok(None) };
        let mut candidates: BTreeSet<ObjectId> = BTreeSet::new();
        let mut is_in_shared_leaf = false;
        for reference in references(self.trees, extent)? {
            match reference {
                BackRef::Data(data) => drop(candidates.insert(data.objectid)),
                BackRef::SharedData { .. } => is_in_shared_leaf = true,
                _ => {}
            }
        }
        let mut found = Vec::new();
        for tree in self.others(RootId::ROOT_TREE) {
            let mut see = |inode, piece: &Piece| {
                if piece.extent == extent {
                    if let Some(offset) = offset_of(piece, at, exact) {
                        found.push(Reference { inode, offset });
                    }
                }
            };
            if is_in_shared_leaf {
                self.scan(tree, &mut see)?;
                continue;
            }
            for number in &candidates {
                let inode = Inode { tree, number: *number };
                pieces(self.trees, inode)?.iter().for_each(|piece| see(inode, piece));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(Some(found))
    }

    /// Goes through all file extents of a subvolume.
    fn scan(&self, tree: RootId, see: &mut dyn FnMut(Inode, &Piece)) -> Result<(), AdminError> {
        let range = Key::first_of(ObjectId::FIRST_FREE, KeyType::EXTENT_DATA)
            ..=Key::last_of(ObjectId::LAST_FREE, KeyType::EXTENT_DATA);
        self.trees.each(tree, range, 0, &mut |key, data| {
            if key.item_type == KeyType::EXTENT_DATA {
                if let Some(piece) = Piece::parse(&key, data) {
                    see(Inode { tree, number: key.objectid }, &piece);
                }
            }
            ControlFlow::Continue(())
        })
    }
}

/// Offset in the file of an address, if the piece has it.
fn offset_of(piece: &Piece, at: Logical, exact: bool) -> Option<u64> {
    if piece.is_compressed || !exact {
        return Some(piece.file_offset);
    }
    let within = at.get().checked_sub(piece.start().get())?;
    (within < piece.length_bytes).then(|| piece.file_offset + within)
}

/// Start of the extent of data that an address is in.
fn extent_at(trees: &dyn Trees, at: Logical) -> Result<Option<Logical>, AdminError> {
    /// Length of an extent of data, at most.
    const EXTENT_BYTES_MAX: u64 = 128 << 20;
    let first = at.get().saturating_sub(EXTENT_BYTES_MAX);
    let key = |start, item_type| Key::new(ObjectId::new(start), item_type, 0);
    let range =
        key(first, KeyType::EXTENT_ITEM)..=Key::new(ObjectId::new(at.get()), KeyType::EXTENT_ITEM, u64::MAX);
    let mut found = None;
    trees.each(RootId::EXTENT_TREE, range, 0, &mut |key, data| {
        if key.item_type == KeyType::EXTENT_ITEM && key.objectid.get().saturating_add(key.offset()) > at.get()
        {
            if let Ok(Item::Extent(extent)) = Item::parse(&key, data) {
                if extent.tree_block.is_none() {
                    found = Some(Logical::new(key.objectid.get()));
                }
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// References at an extent: in its item, and behind it.
fn references(trees: &dyn Trees, extent: Logical) -> Result<Vec<BackRef>, AdminError> {
    let object = ObjectId::new(extent.get());
    let range =
        Key::new(object, KeyType::EXTENT_ITEM, 0)..=Key::new(object, KeyType::SHARED_DATA_REF, u64::MAX);
    let mut found = Vec::new();
    trees.each(RootId::EXTENT_TREE, range, 0, &mut |key, data| {
        match Item::parse(&key, data) {
            Ok(Item::Extent(item)) => found.extend(item.inline_refs.flatten()),
            Ok(Item::ExtentRef(reference)) => found.push(reference),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
