//! One subvolume as it is in the commit that is sent from: its inodes, names, attributes and extents.

use crate::send::error::SendError;
use brindle_fs::{Subvolume, Xattr};
use brindle_ondisk::item::{Compression, FileExtent, FileType, InodeItem};
use brindle_ondisk::{Defect, IdMap, Item, Key, KeyType, Logical, ObjectId, RootId, Uuid, name_hash, to_u64};
use brindle_stream::Origin;
use brindle_tree::{Committed, Cursor, Pool, Readahead, Tree, TreeError};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// Number of inodes that are remembered.
const KNOWN_MAX: usize = 1 << 15;
/// Deeper than any path of directories can be.
const DEPTH_MAX: usize = 1 << 16;

/// A subvolume that is read.
pub(super) struct View<'s> {
    pool: &'s Pool,
    pub(super) tree: Arc<Tree>,
    pub(super) origin: Origin,
    known: RefCell<IdMap<ObjectId, Option<Inode>>>,
}

/// An inode that has a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inode {
    pub(super) kind: FileType,
    pub(super) item: InodeItem,
}

/// A name of an inode.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) parent: ObjectId,
    pub(super) name: Vec<u8>,
}

/// A range of a file, and the source of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) source: Source,
}

/// Source of the bytes of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Hole,
    /// Space that reads as zeros.
    Prealloc,
    Inline {
        compression: Compression,
        ram_bytes: u64,
        data: Vec<u8>,
    },
    Extent(ExtentPart),
}

/// A part of an extent on the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtentPart {
    pub(super) address: Logical,
    pub(super) disk_length: u64,
    pub(super) compression: Compression,
    /// Length of the whole extent, decompressed, in bytes.
    pub(super) ram_bytes: u64,
    /// Offset of the part in the decompressed extent, in bytes.
    pub(super) offset: u64,
}

impl Piece {
    /// The part of the piece between two offsets, which lie within it.
    pub(super) fn part(&self, start: u64, end: u64) -> Self {
        let mut part = Self { start, end, ..self.clone() };
        if let Source::Extent(extent) = &mut part.source {
            extent.offset += start - self.start;
        }
        part
    }
}

impl<'s> View<'s> {
    pub(super) fn of(
        pool: &'s Pool,
        committed: &Committed<'_>,
        subvolume: &Subvolume,
    ) -> Result<Self, SendError> {
        if !subvolume.is_read_only() {
            return Err(SendError::Writable(subvolume.path.clone()));
        }
        let tree = committed.tree(subvolume.id)?.ok_or(SendError::NoSubvolume(subvolume.id))?;
        let uuid =
            if subvolume.received_uuid == Uuid::NIL { subvolume.uuid } else { subvolume.received_uuid };
        let origin = Origin { uuid, transid: subvolume.changed_generation };
        Ok(Self { pool, tree, origin, known: RefCell::default() })
    }

    pub(super) fn id(&self) -> RootId {
        self.tree.id()
    }

    fn cursor(&self, readahead: Readahead) -> Cursor<'s> {
        self.pool.cursor(&self.tree, readahead)
    }

    fn refuse(&self, key: Key) -> impl Fn(Defect) -> SendError {
        let tree = self.id();
        move |defect| TreeError::item(tree, key, defect).into()
    }

    pub(super) fn corrupt(&self, inode: ObjectId, why: &'static str) -> SendError {
        SendError::Names { tree: self.id(), inode, why }
    }

    /// An inode; `None` if there is none, or it has lost its last name.
    pub(super) fn inode(&self, number: ObjectId) -> Result<Option<Inode>, SendError> {
        if let Some(known) = self.known.borrow().get(&number) {
            return Ok(*known);
        }
        let key = Key::new(number, KeyType::INODE_ITEM, 0);
        let refuse = self.refuse(key);
        let parse = |data: &[u8]| match Item::parse(&key, data)? {
            Item::Inode(item) => {
                let mode = item.mode.get();
                let kind = FileType::from_mode(mode);
                let kind = kind.ok_or(Defect::new("mode has no file type", mode.into()))?;
                Ok((item.nlink.get() > 0).then_some(Inode { kind, item: *item }))
            }
            _ => Ok(None),
        };
        let found = self.pool.with_item(&self.tree, &key, parse)?.unwrap_or(Ok(None)).map_err(refuse)?;
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(number, found);
        Ok(found)
    }

    /// Calls `take` for the items of an inode from a key on, as long as it returns true.
    fn items(
        &self,
        from: &Key,
        mut take: impl FnMut(Key, Item<'_>) -> Result<bool, Defect>,
    ) -> Result<(), SendError> {
        let mut cursor = self.cursor(Readahead::None);
        cursor.seek(from)?;
        while let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid == from.objectid) {
            let goes_on = Item::parse(&key, data).and_then(|item| take(key, item));
            if !goes_on.map_err(self.refuse(key))? {
                break;
            }
            cursor.next()?;
        }
        Ok(())
    }

    /// The names of an inode, in order.
    pub(super) fn names(&self, number: ObjectId) -> Result<Vec<Place>, SendError> {
        let mut names = Vec::new();
        self.items(&Key::new(number, KeyType::INODE_REF, 0), |key, item| {
            match item {
                Item::InodeRef(packed) => {
                    for name in packed {
                        names.push(Place { parent: ObjectId::new(key.offset()), name: name?.name.to_vec() });
                    }
                }
                Item::InodeExtref(packed) => {
                    for name in packed {
                        let name = name?;
                        names.push(Place { parent: name.parent, name: name.name.to_vec() });
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        names.sort_unstable();
        Ok(names)
    }

    /// The one name of a directory.
    pub(super) fn place(&self, directory: ObjectId) -> Result<Place, SendError> {
        let mut names = self.names(directory)?;
        match (names.pop(), names.is_empty()) {
            (Some(place), true) => Ok(place),
            (Some(_), false) => Err(self.corrupt(directory, "is a directory with several names")),
            (None, _) => Err(self.corrupt(directory, "is a directory without a name")),
        }
    }

    /// Path of an inode from the root of the subvolume, by its first name.
    pub(super) fn path(&self, number: ObjectId) -> Result<Option<Vec<u8>>, SendError> {
        let Some(place) = self.names(number)?.into_iter().next() else { return Ok(None) };
        let (mut parts, mut at) = (vec![place.name], place.parent);
        while at != ObjectId::FIRST_FREE {
            let place = self.place(at)?;
            parts.push(place.name);
            at = place.parent;
            self.check_depth(at, parts.len())?;
        }
        parts.reverse();
        Ok(Some(parts.join(&b'/')))
    }

    /// Refuses a walk towards the root that has no end.
    pub(super) fn check_depth(&self, at: ObjectId, depth: usize) -> Result<(), SendError> {
        if depth > DEPTH_MAX { Err(self.corrupt(at, "is a directory within itself")) } else { Ok(()) }
    }

    /// The inode that a name of a directory stands for; `None` for the place of a subvolume too.
    pub(super) fn entry(&self, directory: ObjectId, name: &[u8]) -> Result<Option<ObjectId>, SendError> {
        let key = Key::new(directory, KeyType::DIR_ITEM, name_hash(name));
        let find = |data: &[u8]| -> Result<Option<ObjectId>, Defect> {
            let Item::DirItem(entries) = Item::parse(&key, data)? else { return Ok(None) };
            for entry in entries {
                let entry = entry?;
                let location = entry.header.location;
                if entry.name == name && location.item_type == KeyType::INODE_ITEM {
                    return Ok(Some(location.objectid));
                }
            }
            Ok(None)
        };
        let found = self.pool.with_item(&self.tree, &key, find)?;
        found.unwrap_or(Ok(None)).map_err(self.refuse(key))
    }

    /// Numbers of the inodes in a directory.
    pub(super) fn children(&self, directory: ObjectId) -> Result<Vec<ObjectId>, SendError> {
        let mut children = Vec::new();
        self.items(&Key::new(directory, KeyType::DIR_INDEX, 0), |_, item| {
            let Item::DirIndex(entries) = item else { return Ok(false) };
            for entry in entries {
                let location = entry?.header.location;
                if location.item_type == KeyType::INODE_ITEM {
                    children.push(location.objectid);
                }
            }
            Ok(true)
        })?;
        Ok(children)
    }

    /// The extended attributes of an inode, by name.
    pub(super) fn xattrs(&self, number: ObjectId) -> Result<Vec<Xattr>, SendError> {
        let mut found = Vec::new();
        self.items(&Key::new(number, KeyType::XATTR_ITEM, 0), |_, item| {
            let Item::Xattr(entries) = item else { return Ok(false) };
            for entry in entries {
                let entry = entry?;
                found.push(Xattr { name: entry.name.to_vec(), value: entry.value.to_vec() });
            }
            Ok(true)
        })?;
        found.sort_unstable();
        Ok(found)
    }

    /// The target of a symbolic link.
    pub(super) fn link_target(&self, number: ObjectId) -> Result<Vec<u8>, SendError> {
        match self.pieces(number, 0..u64::MAX)?.next()?.map(|piece| piece.source) {
            Some(Source::Inline { compression: Compression::None, data, .. }) => Ok(data),
            _ => Err(self.corrupt(number, "is a symbolic link whose target is not in its item")),
        }
    }

    /// The pieces of a range of a file, holes among them: they lie one behind the other and fill it.
    pub(super) fn pieces(&self, file: ObjectId, range: Range<u64>) -> Result<Pieces<'s, '_>, SendError> {
        let mut cursor = self.cursor(Readahead::None);
        cursor.seek_last(&Key::new(file, KeyType::EXTENT_DATA, range.start))?;
        let is_extent = |key: &Key| (key.objectid, key.item_type) == (file, KeyType::EXTENT_DATA);
        if !cursor.key().is_some_and(|key| is_extent(&key)) {
            cursor.seek(&Key::new(file, KeyType::EXTENT_DATA, range.start))?;
        }
        Ok(Pieces { view: self, cursor, file, at: range.start, end: range.end, ahead: None })
    }

    /// The number of the first inode that is not below a number.
    pub(super) fn next_number(
        &self,
        cursor: &mut Cursor<'s>,
        from: ObjectId,
    ) -> Result<Option<ObjectId>, SendError> {
        cursor.seek(&Key::new(from, KeyType(0), 0))?;
        Ok(cursor.key().map(|key| key.objectid).filter(|number| *number <= ObjectId::LAST_FREE))
    }

    /// A cursor that goes through all of the tree.
    pub(super) fn scan(&self) -> Cursor<'s> {
        self.cursor(Readahead::Forward)
    }

    pub(super) fn sector(&self) -> u64 {
        self.pool.volume().tree_context().sectorsize.into()
    }
}

/// The pieces of a range of a file.
pub(super) struct Pieces<'s, 'v> {
    view: &'v View<'s>,
    cursor: Cursor<'s>,
    file: ObjectId,
    at: u64,
    end: u64,
    /// The next piece that has an item.
    ahead: Option<Piece>,
}

impl Pieces<'_, '_> {
    /// The next piece; `None` at the end of the range.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, SendError> {
        if self.at >= self.end {
            return Ok(None);
        }
        if self.ahead.is_none() {
            self.ahead = self.next_item()?;
        }
        let hole_end = self.ahead.as_ref().map_or(self.end, |piece| piece.start.min(self.end));
        let piece = if hole_end > self.at {
            Piece { start: self.at, end: hole_end, source: Source::Hole }
        } else {
            match self.ahead.take() {
                Some(piece) => piece.part(piece.start, piece.end.min(self.end)),
                None => return Ok(None),
            }
        };
        self.at = piece.end;
        Ok(Some(piece))
    }

    /// The next item with an extent that reaches beyond the place, cut at it.
    fn next_item(&mut self) -> Result<Option<Piece>, SendError> {
        let is_extent = |key: &Key| (key.objectid, key.item_type) == (self.file, KeyType::EXTENT_DATA);
        while let Some((key, data)) = self.cursor.item().filter(|(key, _)| is_extent(key)) {
            if key.offset() >= self.end {
                break;
            }
            let piece = parse(&key, data, self.view.sector()).map_err(self.view.refuse(key))?;
            self.cursor.next()?;
            if piece.end > self.at {
                let start = piece.start.max(self.at);
                let is_whole = !matches!(piece.source, Source::Inline { .. });
                return Ok(Some(if is_whole { piece.part(start, piece.end) } else { piece }));
            }
        }
        Ok(None)
    }
}

/// The piece of an item; an inline one reaches to the end of its sector.
pub(super) fn parse(key: &Key, data: &[u8], sector: u64) -> Result<Piece, Defect> {
    let Item::FileExtent(extent) = Item::parse(key, data)? else {
        return Err(Defect::new("item of another type", 0));
    };
    let start = key.offset();
    let (length, source) = match extent {
        FileExtent::Inline { header, compression, data } => {
            let ram_bytes = match compression {
                Compression::None => to_u64(data.len()),
                _ => header.ram_bytes.get(),
            };
            (
                ram_bytes.next_multiple_of(sector),
                Source::Inline { compression, ram_bytes, data: data.to_vec() },
            )
        }
        FileExtent::OnDisk { header, compression, is_prealloc, extent } => {
            let part = ExtentPart {
                address: extent.disk_bytenr,
                disk_length: extent.disk_num_bytes.get(),
                compression,
                ram_bytes: header.ram_bytes.get(),
                offset: extent.offset.get(),
            };
            let source = match (part.address.get(), is_prealloc) {
                (0, _) => Source::Hole,
                (_, true) => Source::Prealloc,
                (_, false) => Source::Extent(part),
            };
            (extent.num_bytes.get(), source)
        }
    };
    let end = start.checked_add(length).ok_or(Defect::new("file extent passes the end of a file", start))?;
    Ok(Piece { start, end, source })
}
