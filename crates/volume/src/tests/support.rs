//! Devices that count and fail, and a writer of pools: slow, and as close to the words of the format as can
//! be.

use crate::{OpenOptions, Volume};
use brindle_device::{Device, DeviceError, MemoryDevice, PendingRead, ReadRequest, read_in_turn};
use brindle_ondisk::item::{Chunk, ChunkHeader, DevItem, Stripe};
use brindle_ondisk::{
    BlockGroupType, ChecksumType, DevId, Generation, Incompat, Key, KeyType, Logical, ObjectId, Physical,
    Profile, RootId, SUPERBLOCK_SIZE, Superblock, Uuid, to_usize,
};
use proptest::test_runner::TestRng;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use zerocopy::{FromZeros, IntoBytes};

pub(crate) const STRIP: usize = 64 << 10;
pub(crate) const SECTOR: usize = 4096;
pub(crate) const FSID: Uuid = Uuid([7; 16]);
/// Start of the data chunk of a [`TestPool`].
pub(crate) const START: Logical = Logical::new(1 << 30);
const DATA_OFFSET: usize = 1 << 20;
const SECTOR_SIZE: u32 = 4096;
const STRIP_LENGTH: u32 = 64 << 10;

/// A device that remembers what was asked of it, and fails where it was told to.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: MemoryDevice,
    pub(crate) bad: Vec<Range<u64>>,
    pub(crate) reads: Mutex<Vec<Range<u64>>>,
    /// Ranges that a host has in its cache of the device, if there is a cache.
    pub(crate) cached: Option<Vec<Range<u64>>>,
    /// Ranges that the host was told to fetch.
    pub(crate) hinted: Mutex<Vec<Range<u64>>>,
    /// Ranges read past the host's cache.
    pub(crate) bypassed: Mutex<Vec<Range<u64>>>,
}

impl Faulty {
    pub(crate) fn new(name: &str, bytes: Vec<u8>) -> Self {
        let inner = MemoryDevice::new(name, bytes);
        let (reads, hinted, bypassed) = Default::default();
        Self { inner, bad: Vec::new(), reads, cached: None, hinted, bypassed }
    }
}

impl Device for Faulty {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let range = offset..offset + buffer.len() as u64;
        self.reads.lock().expect("no panic").push(range.clone());
        if self.bad.iter().any(|bad| bad.start < range.end && range.start < bad.end) {
            let source = std::io::Error::other("test failure");
            return Err(DeviceError::Read {
                device: self.name().into(),
                offset,
                length: buffer.len(),
                source,
            });
        }
        self.inner.read_at(offset, buffer)
    }

    fn submit_reads(&self, requests: &[ReadRequest]) -> Vec<PendingRead> {
        let ranges = requests.iter().filter(|request| request.bypasses_cache);
        let ranges = ranges.map(|request| request.offset..request.offset + request.length as u64);
        self.bypassed.lock().expect("no panic").extend(ranges);
        read_in_turn(self, requests)
    }

    fn prefetch(&self, offset: u64, length: u64) -> bool {
        self.hinted.lock().expect("no panic").push(offset..offset + length);
        self.cached.is_some()
    }

    fn cached_bytes(&self, offset: u64, length: u64) -> Option<u64> {
        let common =
            |range: &Range<u64>| range.end.min(offset + length).saturating_sub(range.start.max(offset));
        self.cached.as_ref().map(|ranges| ranges.iter().map(common).sum())
    }
}

/// A chunk item that owns its parts.
#[derive(Clone)]
pub(crate) struct OwnedChunk {
    pub(crate) header: ChunkHeader,
    pub(crate) stripes: Vec<Stripe>,
}

impl OwnedChunk {
    pub(crate) fn new(kind: BlockGroupType, length: u64, stripes: Vec<Stripe>) -> Self {
        let mut header = ChunkHeader::new_zeroed();
        header.length.set(length);
        header.owner = RootId::EXTENT_TREE;
        header.stripe_len.set(STRIP as u64);
        header.chunk_type.set(kind.bits());
        header.io_align.set(STRIP_LENGTH);
        header.io_width.set(STRIP_LENGTH);
        header.sector_size.set(SECTOR_SIZE);
        header.num_stripes.set(u16::try_from(stripes.len()).expect("few"));
        header.sub_stripes.set(if kind.contains(BlockGroupType::RAID10) { 2 } else { 1 });
        Self { header, stripes }
    }

    pub(crate) fn view(&self) -> Chunk<'_> {
        Chunk { header: &self.header, stripes: &self.stripes }
    }
}

pub(crate) fn device_uuid(devid: u64) -> Uuid {
    Uuid([u8::try_from(devid).expect("few"); 16])
}

pub(crate) fn stripe(devid: u64, offset: u64) -> Stripe {
    Stripe { devid: DevId::new(devid), offset: Physical::new(offset), dev_uuid: device_uuid(devid) }
}

pub(crate) fn dev_item(devid: u64, fsid: Uuid, total_bytes: u64) -> DevItem {
    let mut item = DevItem::new_zeroed();
    item.devid = DevId::new(devid);
    item.total_bytes.set(total_bytes);
    item.uuid = device_uuid(devid);
    item.fsid = fsid;
    item
}

/// A superblock with one system chunk, of 64 KiB on devid 1 at 128 KiB.
pub(crate) fn superblock(fsid: Uuid, devid: u64, devices: u64, generation: u64) -> Box<Superblock> {
    let mut it = Superblock::from_bytes(&[0; SUPERBLOCK_SIZE]);
    it.magic = *b"_BHRfS_M";
    it.fsid = fsid;
    it.generation = Generation::new(generation);
    it.num_devices.set(devices);
    it.total_bytes.set(devices << 30);
    it.bytes_used.set(1 << 20);
    it.root = Logical::new(START.get());
    it.chunk_root = Logical::new(1 << 20);
    it.sectorsize.set(SECTOR_SIZE);
    it.nodesize.set(16384);
    it.leafsize.set(16384);
    it.stripesize.set(SECTOR_SIZE);
    it.incompat_flags.set(Incompat::MIXED_BACKREF.bits());
    it.dev_item = dev_item(devid, fsid, 1 << 30);
    let chunk = OwnedChunk::new(BlockGroupType::SYSTEM, STRIP as u64, vec![stripe(1, 2 * STRIP as u64)]);
    let key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, 1 << 20);
    let entry = [key.as_bytes(), chunk.header.as_bytes(), chunk.stripes.as_bytes()].concat();
    it.sys_chunk_array[..entry.len()].copy_from_slice(&entry);
    it.sys_chunk_array_size.set(u32::try_from(entry.len()).expect("small"));
    it
}

/// Writes a superblock to one of its places.
pub(crate) fn put_superblock(image: &mut [u8], superblock: &Superblock, offset: usize) {
    let mut it = superblock.clone();
    it.bytenr.set(offset as u64);
    let checksum = it.compute_checksum(ChecksumType::Crc32c);
    it.csum[..4].copy_from_slice(checksum.as_bytes());
    image[offset..offset + SUPERBLOCK_SIZE].copy_from_slice(it.as_bytes());
}

/// Contents of one strip of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// The strip of data of this number, from the start of the chunk.
    Data(usize),
    P,
    Q,
}

/// The cells of each stripe, row by row, dealt out one by one.
pub(crate) fn deal(profile: Profile, stripes: usize, rows: usize) -> Vec<Vec<Cell>> {
    let mut table = vec![Vec::new(); stripes];
    let mut next = 0;
    let mut data = || {
        next += 1;
        Cell::Data(next - 1)
    };
    for row in 0..rows {
        match profile {
            Profile::Raid0 => table.iter_mut().for_each(|stripe| stripe.push(data())),
            Profile::Raid10 => {
                for pair in table.chunks_mut(2) {
                    let cell = data();
                    pair.iter_mut().for_each(|stripe| stripe.push(cell));
                }
            }
            Profile::Raid5 | Profile::Raid6 => {
                let mut cells = Vec::new();
                let parity = if profile == Profile::Raid5 { &[Cell::P][..] } else { &[Cell::P, Cell::Q] };
                cells.resize_with(stripes - parity.len(), &mut data);
                cells.extend(parity);
                // The first strip of data moves on by one device in each row.
                cells.rotate_right(row % stripes);
                table.iter_mut().zip(cells).for_each(|(stripe, cell)| stripe.push(cell));
            }
            _ => {
                let cell = data();
                table.iter_mut().for_each(|stripe| stripe.push(cell));
            }
        }
    }
    table
}

/// Number of strips of data in a row.
pub(crate) fn columns(profile: Profile, stripes: usize) -> usize {
    deal(profile, stripes, 1)
        .iter()
        .flatten()
        .filter_map(|cell| as_data(*cell))
        .max()
        .map_or(0, |last| last + 1)
}

pub(crate) fn as_data(cell: Cell) -> Option<usize> {
    if let Cell::Data(strip) = cell { Some(strip) } else { None }
}

/// Multiplication in GF(2^8) by the school's method.
pub(crate) fn slow_multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = if a & 0x80 != 0 { (a << 1) ^ 0x1d } else { a << 1 };
        b >>= 1;
    }
    product
}

/// A pool with one data chunk of random contents.
#[derive(Clone)]
pub(crate) struct TestPool {
    pub(crate) chunk: OwnedChunk,
    /// Contents of the chunk.
    pub(crate) contents: Vec<u8>,
    /// Its checksums.
    pub(crate) checksums: Vec<u8>,
    /// A device for each stripe (dup has but one): its bytes.
    pub(crate) images: Vec<Vec<u8>>,
    /// Ranges that can't be read: the device, and where on it.
    pub(crate) bad: Vec<(usize, Range<u64>)>,
    pub(crate) table: Vec<Vec<Cell>>,
}

impl TestPool {
    pub(crate) fn new(profile: Profile, stripes: usize, rows: usize, rng: &mut TestRng) -> Self {
        use proptest::prelude::Rng;
        let table = deal(profile, stripes, rows);
        let mut contents = vec![0; rows * columns(profile, stripes) * STRIP];
        rng.fill_bytes(&mut contents);
        let devices = if profile == Profile::Dup { 1 } else { stripes };
        let place = |stripe: usize| {
            let (device, nth) = (stripe % devices, stripe / devices);
            (device, DATA_OFFSET + (device + nth * (rows + 1)) * STRIP)
        };
        let mut images = vec![vec![0; DATA_OFFSET + (2 * rows + devices + 1) * STRIP]; devices];
        for (index, image) in images.iter_mut().enumerate() {
            let superblock = superblock(FSID, index as u64 + 1, devices as u64, 10);
            put_superblock(image, &superblock, STRIP);
        }
        for row in 0..rows {
            for stripe in 0..stripes {
                let (device, start) = place(stripe);
                let target = &mut images[device][start + row * STRIP..][..STRIP];
                fill_cell(target, &contents, &table, stripe, row);
            }
        }
        let kind = BlockGroupType::DATA | profile.attributes().flag;
        let item = |index| {
            let (device, start) = place(index);
            stripe(device as u64 + 1, start as u64)
        };
        let chunk = OwnedChunk::new(kind, contents.len() as u64, (0..stripes).map(item).collect());
        let sums = contents.chunks(SECTOR).map(|sector| ChecksumType::Crc32c.compute(sector));
        let checksums = sums.flat_map(|sum| sum.as_bytes().to_vec()).collect();
        Self { chunk, contents, checksums, images, bad: Vec::new(), table }
    }

    /// Location of a stripe's byte: the device, and the offset on it.
    pub(crate) fn place(&self, stripe: usize, offset: usize) -> (usize, usize) {
        let item = &self.chunk.stripes[stripe];
        (to_usize(item.devid.get()) - 1, to_usize(item.offset.get()) + offset)
    }

    /// The stripes and offsets in them that hold a byte of the chunk.
    pub(crate) fn copies_of(&self, offset: usize) -> Vec<(usize, usize)> {
        let wanted = Cell::Data(offset / STRIP);
        let mut found = Vec::new();
        for (stripe, cells) in self.table.iter().enumerate() {
            let rows = cells.iter().enumerate().filter(|(_, cell)| **cell == wanted);
            found.extend(rows.map(|(row, _)| (stripe, row * STRIP + offset % STRIP)));
        }
        found
    }

    /// Every device but those missing.
    pub(crate) fn devices(&self, missing: &[usize]) -> Vec<Arc<Faulty>> {
        let there = self.images.iter().enumerate().filter(|(index, _)| !missing.contains(index));
        there
            .map(|(index, image)| {
                let mut device = Faulty::new(&format!("disk{index}"), image.clone());
                device.bad = self.bad.iter().filter(|bad| bad.0 == index).map(|bad| bad.1.clone()).collect();
                Arc::new(device)
            })
            .collect()
    }

    /// The volume without some of its devices. Devices have items, as on a real pool.
    pub(crate) fn open(&self, missing: &[usize]) -> Volume {
        self.open_devices(self.devices(missing))
    }

    pub(crate) fn open_devices(&self, devices: Vec<Arc<Faulty>>) -> Volume {
        let options = OpenOptions { degraded: true, ..OpenOptions::default() };
        let devices = devices.into_iter().map(|device| device as Arc<dyn Device>).collect();
        let volume = Volume::open(devices, &options).expect("there is a pool");
        for (index, image) in self.images.iter().enumerate() {
            volume.add_device(&dev_item(index as u64 + 1, FSID, image.len() as u64)).expect("device");
        }
        volume.add_chunk(START, &self.chunk.view()).expect("chunk");
        volume
    }
}

fn fill_cell(target: &mut [u8], contents: &[u8], table: &[Vec<Cell>], stripe: usize, row: usize) {
    if let Cell::Data(strip) = table[stripe][row] {
        target.copy_from_slice(&contents[strip * STRIP..][..STRIP]);
        return;
    }
    let mut strips: Vec<usize> = table.iter().filter_map(|cells| as_data(cells[row])).collect();
    strips.sort_unstable();
    let mut factor = 1;
    for strip in strips {
        let data = &contents[strip * STRIP..][..STRIP];
        let products: Vec<u8> = (0..=255).map(|value| slow_multiply(value, factor)).collect();
        for (target, data) in target.iter_mut().zip(data) {
            *target ^= products[usize::from(*data)];
        }
        if table[stripe][row] == Cell::Q {
            factor = slow_multiply(factor, 2);
        }
    }
}

/// A reproducible source of randomness.
pub(crate) fn rng(seed: u8) -> TestRng {
    TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &[seed; 32])
}

/// Every profile, with numbers of stripes that suit it.
pub(crate) const SHAPES: [(Profile, usize); 19] = [
    (Profile::Single, 1),
    (Profile::Dup, 2),
    (Profile::Raid0, 1),
    (Profile::Raid0, 3),
    (Profile::Raid1, 2),
    (Profile::Raid1c3, 3),
    (Profile::Raid1c4, 4),
    (Profile::Raid10, 2),
    (Profile::Raid10, 4),
    (Profile::Raid10, 6),
    (Profile::Raid5, 2),
    (Profile::Raid5, 3),
    (Profile::Raid5, 4),
    (Profile::Raid5, 5),
    (Profile::Raid6, 3),
    (Profile::Raid6, 4),
    (Profile::Raid6, 5),
    (Profile::Raid6, 6),
    (Profile::Raid6, 7),
];
