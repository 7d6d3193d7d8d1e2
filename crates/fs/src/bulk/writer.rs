//! The one that takes everything in order.

use super::encode::BulkPiece;
use super::inode::{
    BulkEntry, BulkInode, ItemContext, inline_header, push_entries, push_names, push_target, push_xattrs,
};
use super::queue::ItemQueue;
use super::space::{DataSpace, Place as DataPlace};
use super::stream::Stream;
use crate::attributes::InodeId;
use crate::bulk::BulkParts;
use crate::core::edit::{Edit, Place, directory_bytes};
use crate::directory::name::check_name;
use crate::error::FsError;
use crate::items::xattr::Xattr;
use crate::new_inode::{FirstName, Inheritance};
use crate::subvolume::change::{ROOT_MODE, new_root_item, planned_root};
use crate::tier::{TIER, TierWish};
use crate::uuid_tree::UuidKind;
use brindle_ondisk::item::{
    Compression, ExtentDataRef, FileExtentHeader, FileExtentRef, FileExtentType, InodeFlags, InodeItem,
};
use brindle_ondisk::{Incompat, Key, KeyType, Logical, ObjectId, RootId, to_u64, to_usize};
use brindle_policy::placement::{DataTier, PlacementClass};
use brindle_policy::tier::files::{SMALL_FILES, limit_of};
use brindle_tree::{ChecksumTree, DataRange, Need, Roots, Tree, TreeError};
use std::ops::Range;
use std::sync::Arc;
use std::thread::Scope;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Approximate number of bytes of items that wait until they enter a tree.
const QUEUE_BYTES: usize = 512 << 10;
/// The longest extent (`BTRFS_MAX_EXTENT_SIZE`), in bytes.
const EXTENT_MAX_BYTES: u64 = 128 << 20;
/// Items that a step changes beside its own: the paths that they come by.
const STEP_ITEMS: usize = 8;

/// A file whose contents are being taken in.
#[derive(Debug)]
struct OpenFile {
    number: ObjectId,
    size: u64,
    tier: DataTier,
    has_checksums: bool,
    nbytes: u64,
    /// Range of the waiting inode item in the queue, if it has not entered the tree yet.
    item: Option<Range<usize>>,
    /// End of the contents, or of the last explicit hole.
    end: u64,
    /// The extent that grows.
    extent: Option<Extent>,
}

/// A file extent on the devices.
#[derive(Clone, Copy, Debug)]
struct Extent {
    start: u64,
    disk: Logical,
    disk_length: u64,
    length: u64,
    compression: Compression,
}

/// Fills a filesystem, inode by inode.
#[derive(Debug)]
pub struct BulkWriter<'f> {
    parts: BulkParts<'f>,
    tree: Option<Arc<Tree>>,
    context: ItemContext,
    sector: u64,
    tells_holes: bool,
    queue: ItemQueue,
    /// Keys that go when the first items come: at no time, lest it be that of a commit, is a subvolume without a
    /// root.
    stale: Vec<Key>,
    file: Option<OpenFile>,
    references: Vec<(DataRange, ExtentDataRef)>,
    /// Checksums of consecutive sectors, run by run.
    checksums: Vec<(Logical, Vec<u8>)>,
    /// The address behind the last run.
    checksums_end: Option<Logical>,
    /// Of each tier that there was data for.
    spaces: Vec<DataSpace<'f>>,
    /// Approximate upper bound on the data of a tier, in bytes.
    data_bytes: u64,
    /// Tier of the last data.
    tier: DataTier,
    stream: Stream<'f>,
}

impl<'f> BulkWriter<'f> {
    pub(super) fn new<'e>(
        parts: BulkParts<'f>,
        scope: &'f Scope<'f, 'e>,
        data_bytes: u64,
    ) -> Result<Self, FsError> {
        let _writing = parts.core.writing()?;
        let pool = parts.core.pool();
        let generation = pool.join(Need::items(1)).map_err(FsError::from)?.generation();
        Ok(Self {
            parts,
            tree: None,
            context: ItemContext { generation, item_bytes_max: parts.core.item_bytes_max() },
            sector: pool.volume().tree_context().sectorsize.into(),
            tells_holes: !pool.superblock().incompat().contains(Incompat::NO_HOLES),
            queue: ItemQueue::default(),
            stale: Vec::new(),
            file: None,
            references: Vec::new(),
            checksums: Vec::new(),
            checksums_end: None,
            spaces: Vec::new(),
            data_bytes,
            tier: PlacementClass::Bulk.into(),
            stream: Stream::new(pool, scope),
        })
    }

    /// Makes a subvolume with an empty root directory. The directory that holds it is told of it as of any other entry.
    pub fn create_subvolume(
        &mut self,
        directory: InodeId,
        index: u64,
        name: &[u8],
    ) -> Result<RootId, FsError> {
        check_name(name)?;
        self.flush()?;
        let id = self.parts.subvolumes.new_subvolume_id()?;
        let uuid = self.parts.core.writing()?.options.host.new_uuid();
        self.parts.core.change(Need::items(16), |edit: &Edit<'_>| {
            let pool = edit.editor.store();
            let item = new_root_item(uuid, edit.generation(), edit.now, pool.nodesize());
            let tree = Roots::of(&edit.editor).create(id, 0, &item)?;
            let (flags, xattrs) = (InodeFlags::empty(), Vec::new());
            let root = planned_root(id, 0, Inheritance { mode: ROOT_MODE, gid: 0, flags, xattrs });
            let first = FirstName { parent: ObjectId::FIRST_FREE, name: b"..", index: 0 };
            edit.insert_inode(&tree, &root, Some(first))?;
            let above = pool.tree(directory.tree)?;
            edit.add_root_reference(Place { tree: &above, directory, name }, id, index)?;
            edit.add_uuid(UuidKind::Subvolume, uuid, id)
        })?;
        Ok(id)
    }

    /// Goes on with a subvolume, from its root directory on. What was there of that goes.
    pub fn enter(&mut self, id: RootId) -> Result<(), FsError> {
        self.flush()?;
        let tree = self.parts.core.tree(id)?;
        let root = InodeId::root_of(id);
        for key in [root.key(KeyType::INODE_ITEM, 0), root.key(KeyType::INODE_REF, root.number.get())] {
            if self.parts.core.pool().with_item(&tree, &key, |_| ())?.is_some() {
                self.stale.push(key);
            }
        }
        self.tree = Some(tree);
        Ok(())
    }

    /// A directory with its entries.
    pub fn directory(
        &mut self,
        inode: &BulkInode,
        xattrs: &[Xattr],
        entries: &[BulkEntry<'_>],
    ) -> Result<(), FsError> {
        let size: u64 = entries.iter().map(|entry| directory_bytes(entry.name).unsigned_abs()).sum();
        self.begin(inode, size, 0, xattrs)?;
        push_entries(&mut self.queue, inode.number, entries, self.context)?;
        self.flush_if_full()
    }

    /// A symbolic link.
    pub fn symlink(&mut self, inode: &BulkInode, xattrs: &[Xattr], target: &[u8]) -> Result<(), FsError> {
        let size = to_u64(target.len());
        self.begin(inode, size, size, xattrs)?;
        let id = InodeId { tree: self.tree().id(), number: inode.number };
        push_target(&mut self.queue, id, target, self.context)?;
        self.flush_if_full()
    }

    /// A device, pipe or socket.
    pub fn special(&mut self, inode: &BulkInode, xattrs: &[Xattr]) -> Result<(), FsError> {
        self.begin(inode, 0, 0, xattrs)?;
        self.flush_if_full()
    }

    /// Begins a file. Its pieces follow, in order, then its [end](Self::end_file).
    pub fn begin_file(&mut self, inode: &BulkInode, xattrs: &[Xattr]) -> Result<(), FsError> {
        let item = self.begin(inode, inode.size, 0, xattrs)?;
        let mark = xattrs.iter().find(|xattr| xattr.name == TIER);
        let pool = self.parts.core.pool();
        let mark = mark.and_then(|xattr| pool.tier_named(&xattr.value));
        let own = xattrs.iter().find(|xattr| xattr.name == SMALL_FILES);
        let limit = own.and_then(|xattr| limit_of(&xattr.value));
        let limit = limit.unwrap_or_else(|| self.parts.tiers.small_file_bytes());
        let wish = TierWish { mark, size: inode.size, limit, is_split: false };
        self.file = Some(OpenFile {
            tier: if pool.has_tiers() { wish.tier(0, 0) } else { DataTier::default() },
            number: inode.number,
            size: inode.size,
            has_checksums: !inode.flags.contains(InodeFlags::NODATASUM),
            nbytes: 0,
            item: Some(item),
            end: 0,
            extent: None,
        });
        Ok(())
    }

    /// A piece of the file that was begun.
    pub fn piece(&mut self, piece: &BulkPiece) -> Result<(), FsError> {
        self.note_compression(piece.compression)?;
        if piece.is_inline {
            return self.inline_piece(piece);
        }
        let is_plain = piece.compression == Compression::None;
        let (mut done, length) = (0, to_u64(piece.bytes.len()));
        let checksum_bytes = piece.checksums.len() / to_usize(length / self.sector).max(1);
        while done < length {
            let rest = length - done;
            let place = self.take_space(if is_plain { self.sector } else { rest }, rest)?;
            if place.is_fresh {
                self.stream.send()?;
            }
            let range = to_usize(done)..to_usize(done + place.length);
            self.stream.write(place.start, &piece.bytes[range])?;
            let sums = [done, done + place.length].map(|at| to_usize(at / self.sector) * checksum_bytes);
            self.push_checksums(place.start, place.length, &piece.checksums[sums[0]..sums[1]]);
            let extent = Extent {
                start: piece.start + if is_plain { done } else { 0 },
                disk: place.start,
                disk_length: place.length,
                length: if is_plain { place.length } else { piece.length },
                compression: piece.compression,
            };
            self.add_extent(extent, place.is_fresh);
            done += place.length;
        }
        self.flush_if_full()
    }

    /// A place in the file's tier; one that goes on where the last one ended is told from others.
    fn take_space(&mut self, min: u64, max: u64) -> Result<DataPlace, FsError> {
        let tier = self.file.as_ref().map_or(PlacementClass::Bulk.into(), |file| file.tier);
        let known = self.spaces.iter().position(|space| space.tier() == tier);
        let index = known.unwrap_or_else(|| {
            self.spaces.push(DataSpace::new(self.parts.core.pool(), tier, self.data_bytes));
            self.spaces.len() - 1
        });
        let place = self.spaces[index].take(min, max)?;
        let is_fresh = place.is_fresh || tier != self.tier;
        self.tier = tier;
        Ok(DataPlace { is_fresh, ..place })
    }

    /// Ends the file that was begun.
    pub fn end_file(&mut self) -> Result<(), FsError> {
        self.push_extent();
        let file = self.file.as_mut().expect("a file was begun");
        let (size, nbytes) = (file.size.next_multiple_of(self.sector), file.nbytes);
        if self.tells_holes && file.end < size {
            let hole = file.end;
            self.push_hole(hole, size - hole);
        }
        let file = self.file.take().expect("a file was begun");
        let set = |data: &mut [u8]| {
            if let Ok(item) = InodeItem::mut_from_bytes(data) {
                item.nbytes.set(nbytes);
            }
        };
        match file.item {
            Some(range) => set(&mut self.queue.bytes[range]),
            None => {
                let (key, tree) = (Key::new(file.number, KeyType::INODE_ITEM, 0), Arc::clone(self.tree()));
                self.parts
                    .core
                    .change(Need::items(1), |edit| edit.editor.update(&tree, &key, set).map(|_| ()))?;
            }
        }
        self.flush_if_full()
    }

    /// Writes the rest, after the last input.
    pub(super) fn finish(mut self) -> Result<(), FsError> {
        self.flush()?;
        self.stream.finish()
    }

    fn tree(&self) -> &Arc<Tree> {
        self.tree.as_ref().expect("a subvolume was entered")
    }

    /// The items that every inode has; where the inode item waits.
    fn begin(
        &mut self,
        inode: &BulkInode,
        size: u64,
        nbytes: u64,
        xattrs: &[Xattr],
    ) -> Result<Range<usize>, FsError> {
        assert!(self.file.is_none(), "the file before was ended");
        let item = inode.item(self.context.generation, size, nbytes);
        self.queue.push(Key::new(inode.number, KeyType::INODE_ITEM, 0), &[item.as_bytes()]);
        let range = self.queue.items.last().map(|(_, range)| range.clone()).unwrap_or_default();
        push_names(&mut self.queue, inode, self.context)?;
        push_xattrs(&mut self.queue, inode.number, xattrs, self.context)?;
        Ok(range)
    }

    fn note_compression(&self, compression: Compression) -> Result<(), FsError> {
        let feature = match compression {
            Compression::Lzo => Incompat::COMPRESS_LZO,
            Compression::Zstd => Incompat::COMPRESS_ZSTD,
            Compression::None | Compression::Zlib => return Ok(()),
        };
        self.parts.core.pool().join(Need::items(1))?.use_feature(feature);
        Ok(())
    }

    fn inline_piece(&mut self, piece: &BulkPiece) -> Result<(), FsError> {
        let header = inline_header(self.context.generation, piece.length, piece.compression as u8);
        let file = self.file.as_mut().expect("a file was begun");
        self.queue.push(Key::new(file.number, KeyType::EXTENT_DATA, 0), &[header.as_bytes(), &piece.bytes]);
        file.nbytes = piece.length;
        file.end = self.sector;
        Ok(())
    }

    /// Lets the extent before grow, or begins another one.
    fn add_extent(&mut self, new: Extent, is_fresh: bool) {
        let plain = Compression::None;
        if let Some(last) = self.file.as_mut().and_then(|file| file.extent.as_mut()) {
            if !is_fresh
                && (last.compression, new.compression) == (plain, plain)
                && (last.start + last.length, last.disk + last.length) == (new.start, new.disk)
                && last.length + new.length <= EXTENT_MAX_BYTES
            {
                last.length += new.length;
                last.disk_length += new.disk_length;
                return;
            }
        }
        self.push_extent();
        self.file.as_mut().expect("a file was begun").extent = Some(new);
    }

    /// The extent that grew is complete.
    fn push_extent(&mut self) {
        let file = self.file.as_mut().expect("a file was begun");
        let Some(extent) = file.extent.take() else { return };
        let hole = (file.end, extent.start - file.end);
        file.end = extent.start + extent.length;
        file.nbytes += extent.length;
        let number = file.number;
        if self.tells_holes && hole.1 > 0 {
            self.push_hole(hole.0, hole.1);
        }
        self.push_file_extent(number, &extent);
        let range = DataRange { start: extent.disk, length: extent.disk_length };
        let reference = ExtentDataRef {
            root: self.tree().id(),
            objectid: number,
            offset: U64::new(extent.start),
            count: U32::new(1),
        };
        self.references.push((range, reference));
    }

    fn push_hole(&mut self, start: u64, length: u64) {
        let number = self.file.as_ref().expect("a file was begun").number;
        let (disk, compression) = (Logical::new(0), Compression::None);
        self.push_file_extent(number, &Extent { start, disk, disk_length: 0, length, compression });
    }

    fn push_file_extent(&mut self, number: ObjectId, extent: &Extent) {
        let header = FileExtentHeader {
            generation: self.context.generation,
            ram_bytes: U64::new(extent.length),
            compression: extent.compression as u8,
            encryption: 0,
            other_encoding: U16::new(0),
            extent_type: FileExtentType::Regular as u8,
        };
        let place = FileExtentRef {
            disk_bytenr: extent.disk,
            disk_num_bytes: U64::new(extent.disk_length),
            offset: U64::new(0),
            num_bytes: U64::new(extent.length),
        };
        let key = Key::new(number, KeyType::EXTENT_DATA, extent.start);
        self.queue.push(key, &[header.as_bytes(), place.as_bytes()]);
    }

    fn push_checksums(&mut self, start: Logical, length: u64, sums: &[u8]) {
        if sums.is_empty() || !self.file.as_ref().is_some_and(|file| file.has_checksums) {
            return;
        }
        match self.checksums.last_mut().filter(|_| self.checksums_end == Some(start)) {
            Some((_, run)) => run.extend_from_slice(sums),
            None => self.checksums.push((start, sums.to_vec())),
        }
        self.checksums_end = Some(start + length);
    }

    fn flush_if_full(&mut self) -> Result<(), FsError> {
        if self.queue.space() < QUEUE_BYTES { Ok(()) } else { self.flush() }
    }

    /// Lets what waits enter the trees.
    fn flush(&mut self) -> Result<(), FsError> {
        let checksum_bytes: usize = self.checksums.iter().map(|(_, sums)| sums.len()).sum();
        if self.queue.items.is_empty() && checksum_bytes == 0 {
            return Ok(());
        }
        // An item of `Need` stands for several blocks, and these fill theirs.
        let nodesize = to_usize(self.parts.core.pool().nodesize().into());
        let need = STEP_ITEMS + (self.queue.space() + checksum_bytes).div_ceil(nodesize);
        let queue = std::mem::take(&mut self.queue);
        let items: Vec<(Key, &[u8])> =
            queue.items.iter().map(|(key, range)| (*key, &queue.bytes[range.clone()])).collect();
        let transaction = self.parts.core.pool().join(Need::items(need))?;
        let mut enter = || -> Result<(), TreeError> {
            if let Some(tree) = &self.tree {
                for key in self.stale.drain(..) {
                    transaction.remove(tree, &key)?;
                }
                transaction.insert_all(tree, &items)?;
            }
            for (range, reference) in self.references.drain(..) {
                transaction.references().add_data(range, &reference, true);
            }
            for (start, sums) in self.checksums.drain(..) {
                ChecksumTree::of(&transaction).insert(start, &sums)?;
            }
            Ok(())
        };
        enter()?;
        drop(transaction);
        self.checksums_end = None;
        if let Some(file) = &mut self.file {
            file.item = None;
        }
        (self.queue.bytes, self.queue.items) = (queue.bytes, queue.items);
        self.queue.bytes.clear();
        self.queue.items.clear();
        Ok(())
    }
}
