//! A pool in memory whose subvolumes are changed at random, and what must be in them.

use super::super::DataRange;
use super::verify::verify;
use crate::error::TreeError;
use crate::options::OpenOptions;
use crate::options::WriterOptions;
use crate::pool::Pool;
use crate::store::cursor::Readahead;
use crate::transaction::Need;
use crate::tree::Tree;
use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
use brindle_ondisk::item::{ExtentDataRef, FileExtentHeader, FileExtentRef};
use brindle_ondisk::{Item, Key, KeyType, Logical, ObjectId, RootId, to_usize};
use brindle_testing::golden::Golden;
use std::collections::BTreeMap;
use std::sync::Arc;
use zerocopy::IntoBytes;

pub(super) const SECTOR: u64 = 4096;
/// First inode number of the test's files, above those of the image.
const FIRST_FILE: u64 = 1 << 20;
/// Number of the test's files.
pub(super) const FILES: u64 = 3;

/// One file extent item: of which extent, and from which of its sectors on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    range: DataRange,
    sector: u64,
}

pub(super) type Files = BTreeMap<(u64, u64), Piece>;

pub(super) struct World {
    devices: Vec<Arc<dyn WritableDevice>>,
    pub(super) pool: Pool,
    /// Files that the test has put into each subvolume.
    pub(super) subvolumes: BTreeMap<RootId, Files>,
    next: u64,
}

fn extent_key(file: u64, block: u64) -> Key {
    Key::new(ObjectId::new(FIRST_FILE + file), KeyType::EXTENT_DATA, block * SECTOR)
}

pub(super) fn open(devices: &[Arc<dyn WritableDevice>]) -> Pool {
    let writer = WriterOptions { recovers: true, ..WriterOptions::default() };
    Pool::open_writable(devices.to_vec(), &OpenOptions::default(), &writer).expect("opens")
}

/// The devices of a golden image, to be written.
pub(super) fn devices_of(image: &str) -> Vec<Arc<dyn WritableDevice>> {
    let devices = Golden::load(image).devices.into_iter().map(|image| {
        let device = SparseDevice::new("memory", image.size_bytes(), DeviceClass::Solid);
        for (offset, block) in image.blocks() {
            device.write_at(offset, block).expect("fits");
        }
        Arc::new(device) as Arc<dyn WritableDevice>
    });
    devices.collect()
}

impl World {
    /// The pool of a golden image, with the files of the test.
    pub(super) fn new(image: &str) -> Self {
        let devices = devices_of(image);
        let pool = open(&devices);
        verify(&pool);
        let world =
            Self { devices, pool, subvolumes: BTreeMap::from([(RootId::FS_TREE, Files::new())]), next: 0 };
        let tree = world.tree(RootId::FS_TREE);
        let root = Key::new(ObjectId::FIRST_FREE, KeyType::INODE_ITEM, 0);
        let inode = world.pool.with_item(&tree, &root, <[u8]>::to_vec).expect("reads").expect("has a root");
        let transaction = world.pool.join(Need::items(to_usize(FILES))).expect("joins");
        for file in 0..FILES {
            let key = Key::new(ObjectId::new(FIRST_FILE + file), KeyType::INODE_ITEM, 0);
            transaction.insert(&tree, &key, &inode).expect("is new");
        }
        drop(transaction);
        world
    }

    pub(super) fn tree(&self, id: RootId) -> Arc<Tree> {
        self.pool.tree(id).expect("is there")
    }

    /// A subvolume by any number.
    pub(super) fn choose(&self, number: u64) -> RootId {
        let count = u64::try_from(self.subvolumes.len()).expect("few");
        *self.subvolumes.keys().nth(to_usize(number % count)).expect("within")
    }

    fn reference(id: RootId, file: u64, block: u64, piece: Piece) -> ExtentDataRef {
        let offset = (block * SECTOR).wrapping_sub(piece.sector * SECTOR);
        ExtentDataRef {
            root: id,
            objectid: ObjectId::new(FIRST_FILE + file),
            offset: offset.into(),
            count: 1.into(),
        }
    }

    /// The hash of the reference from a place in a file to an extent's beginning.
    pub(super) fn hash(id: RootId, file: u64, block: u64) -> u64 {
        let range = DataRange { start: Logical::new(0), length: SECTOR };
        Self::reference(id, file, block, Piece { range, sector: 0 }).hash()
    }

    fn place(&mut self, id: RootId, file: u64, block: u64, piece: Piece, is_new: bool) {
        self.remove(id, file, block);
        let header = FileExtentHeader {
            generation: brindle_ondisk::Generation::new(1),
            ram_bytes: piece.range.length.into(),
            compression: 0,
            encryption: 0,
            other_encoding: 0.into(),
            extent_type: 1,
        };
        let extent = FileExtentRef {
            disk_bytenr: piece.range.start,
            disk_num_bytes: piece.range.length.into(),
            offset: (piece.sector * SECTOR).into(),
            num_bytes: SECTOR.into(),
        };
        let transaction = self.pool.join(Need::items(4)).expect("joins");
        let data = [header.as_bytes(), extent.as_bytes()].concat();
        transaction.insert(&self.tree(id), &extent_key(file, block), &data).expect("is free");
        transaction.references().add_data(piece.range, &Self::reference(id, file, block, piece), is_new);
        if is_new {
            let sums: Vec<u8> =
                (0..piece.range.length / SECTOR).flat_map(|sector| sum_of(piece.range, sector)).collect();
            crate::checksums::ChecksumTree::of(&transaction)
                .insert(piece.range.start, &sums)
                .expect("inserts");
        }
        drop(transaction);
        self.subvolumes.get_mut(&id).expect("is there").insert((file, block), piece);
    }

    /// A new extent of `sectors` sectors, each an item of its own.
    pub(super) fn write(&mut self, id: RootId, file: u64, block: u64, sectors: u64) {
        self.pool.reserve_data(sectors * SECTOR).expect("there is room");
        let reserved = self.pool.reserve_extent(sectors * SECTOR, sectors * SECTOR, None).expect("promised");
        let range = DataRange { start: reserved.start, length: reserved.length };
        reserved.keep();
        for sector in 0..sectors {
            self.place(id, file, block + sector, Piece { range, sector }, sector == 0);
        }
    }

    /// The `number`th item of a subvolume also elsewhere.
    pub(super) fn clone(&mut self, id: RootId, number: u64, to: RootId, file: u64, block: u64) {
        let files = &self.subvolumes[&id];
        let Some(count) = u64::try_from(files.len()).ok().filter(|count| *count > 0) else { return };
        let (at, piece) = files.iter().nth(to_usize(number % count)).expect("within");
        if (*at, id) != ((file, block), to) {
            let piece = *piece;
            self.place(to, file, block, piece, false);
        }
    }

    pub(super) fn remove(&mut self, id: RootId, file: u64, block: u64) {
        let Some(piece) = self.subvolumes.get_mut(&id).expect("is there").remove(&(file, block)) else {
            return;
        };
        let transaction = self.pool.join(Need::freeing(4)).expect("joins");
        assert!(transaction.remove(&self.tree(id), &extent_key(file, block)).expect("removes"));
        transaction.references().drop_data(piece.range, &Self::reference(id, file, block, piece));
    }

    pub(super) fn run(&self, limit: usize) {
        let transaction = self.pool.join(Need::items(4)).expect("joins");
        crate::extent_tree::ExtentTree::of(&transaction).apply(limit).expect("applies");
    }

    /// A snapshot of a subvolume.
    pub(super) fn snapshot(&mut self, source: RootId) -> RootId {
        self.next += 1;
        let id = RootId::new(100_000 + self.next);
        let (_, item) = self.pool.root_item(source).expect("reads").expect("is there");
        let tree = self.tree(source);
        let snapshot = |editor: &crate::transaction::SoleEditor<'_>| {
            crate::transaction::roots::Roots::snapshot(editor, &tree, id, &item, &[])
        };
        self.pool.exclusively(snapshot).expect("snapshot");
        self.subvolumes.insert(id, self.subvolumes[&source].clone());
        id
    }

    /// Drops a subvolume in steps, with a commit after each; `each` is called between.
    pub(super) fn drop_subvolume(&mut self, id: RootId, budget: usize, mut each: impl FnMut(&mut Self)) {
        self.subvolumes.remove(&id);
        self.pool.commit().expect("commits");
        loop {
            let tree = self.tree(id);
            let transaction = self.pool.join(Need::freeing(10)).expect("joins");
            let is_gone =
                crate::dropping::TreeDropper::of(&transaction).drop_part(&tree, budget).expect("drops");
            drop(transaction);
            self.pool.commit().expect("commits");
            verify(&self.pool);
            if is_gone {
                break;
            }
            each(self);
        }
        assert!(matches!(self.pool.tree(id), Err(TreeError::NoTree(_))));
    }

    /// Commits, and checks everything.
    pub(super) fn commit(&self) -> usize {
        self.pool.commit().expect("commits");
        self.verify_contents();
        verify(&self.pool)
    }

    pub(super) fn reopen(&mut self) {
        self.pool.commit().expect("commits");
        self.pool = open(&self.devices);
    }

    /// The items are those of the model, each extent is known and has its checksums, and no other data has any.
    fn verify_contents(&self) {
        let mut ranges: BTreeMap<Logical, u64> = BTreeMap::new();
        for (id, files) in &self.subvolumes {
            let mut cursor = self.pool.cursor(&self.tree(*id), Readahead::Forward);
            cursor.seek(&extent_key(0, 0)).expect("seek");
            let mut found = BTreeMap::new();
            while let Some((key, data)) = cursor.item() {
                if key.item_type == KeyType::EXTENT_DATA {
                    found.insert(key, data.len());
                }
                cursor.next().expect("next");
            }
            let wanted: BTreeMap<Key, usize> =
                files.keys().map(|(file, block)| (extent_key(*file, *block), 53)).collect();
            assert_eq!(found, wanted, "items of {id}");
            ranges.extend(files.values().map(|piece| (piece.range.start, piece.range.length)));
        }
        let sums = self.checksums();
        for (start, length) in ranges {
            let range = DataRange { start, length };
            for sector in 0..length / SECTOR {
                assert_eq!(sums.get(&(start + sector * SECTOR)), Some(&sum_of(range, sector).to_vec()));
            }
        }
        self.verify_no_stray_checksums(&sums);
    }

    fn checksums(&self) -> BTreeMap<Logical, Vec<u8>> {
        let mut sums = BTreeMap::new();
        let mut cursor = self.pool.cursor(&self.tree(RootId::CSUM_TREE), Readahead::Forward);
        cursor.seek(&Key::MIN).expect("seek");
        while let Some((key, data)) = cursor.item() {
            for (sum, number) in data.chunks(4).zip(0u64..) {
                let at = Logical::new(key.offset() + number * SECTOR);
                assert!(sums.insert(at, sum.to_vec()).is_none(), "checksum of {at} twice");
            }
            cursor.next().expect("next");
        }
        sums
    }

    fn verify_no_stray_checksums(&self, sums: &BTreeMap<Logical, Vec<u8>>) {
        let mut data: BTreeMap<Logical, u64> = BTreeMap::new();
        let mut cursor = self.pool.cursor(&self.tree(RootId::EXTENT_TREE), Readahead::Forward);
        cursor.seek(&Key::MIN).expect("seek");
        while let Some((key, bytes)) = cursor.item() {
            if matches!(Item::parse(&key, bytes), Ok(Item::Extent(item)) if item.header.flags.get() & 1 != 0)
            {
                data.insert(Logical::new(key.objectid.get()), key.offset());
            }
            cursor.next().expect("next");
        }
        for at in sums.keys() {
            let extent = data.range(..=*at).next_back();
            assert!(extent.is_some_and(|(start, length)| *at < *start + *length), "stray checksum of {at}");
        }
    }
}

fn sum_of(range: DataRange, sector: u64) -> [u8; 4] {
    u32::try_from(range.start.get() / SECTOR + sector).expect("small").to_le_bytes()
}
