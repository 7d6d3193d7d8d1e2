//! Reads beside devices that fail, or give wrong bytes, midway: bytes are right, or there is an error; and no error while redundancy
//! is left.

use crate::simulated::Layout;
use brindle_device::{SparseDevice, WritableDevice};
use brindle_fs::{Compression, FileFlags, Filesystem, InodeId, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::Profile;
use brindle_sim::{Fault, FaultyDevice, Random};
use std::sync::Arc;
use std::thread;

const BYTES: usize = 4 << 20;
const SECTOR: usize = 4096;
/// Longest read of a reader.
const PIECE: usize = 256 << 10;
const SEEDS: u64 = 6;

/// A pool, and how many of its devices may fail.
struct Case {
    layout: Layout,
    tolerated: usize,
}

fn case(devices: usize, data: Profile, metadata: Profile, tolerated: usize) -> Case {
    Case { layout: Layout { devices, data, metadata, device_mib: 512, ..Layout::of(0) }, tolerated }
}

fn cases() -> [Case; 8] {
    [
        case(1, Profile::Single, Profile::Dup, 0),
        case(2, Profile::Raid0, Profile::Raid1, 0),
        case(2, Profile::Raid1, Profile::Raid1, 1),
        case(3, Profile::Raid1c3, Profile::Raid1c3, 2),
        case(4, Profile::Raid10, Profile::Raid1c3, 1),
        case(3, Profile::Raid5, Profile::Raid1c3, 1),
        case(4, Profile::Raid6, Profile::Raid1c3, 2),
        case(4, Profile::Raid6, Profile::Raid6, 2),
    ]
}

/// Two files: one that can't be compressed, and one that is where that is asked for.
fn contents(random: &mut Random) -> [Vec<u8>; 2] {
    let mut dense = vec![0; BYTES];
    random.fill(&mut dense);
    let mut sparse = dense.clone();
    sparse.chunks_mut(64).for_each(|chunk| chunk[8..].fill(7));
    [dense, sparse]
}

fn filled(layout: &Layout, contents: &[Vec<u8>; 2]) -> (Vec<Arc<dyn WritableDevice>>, [InodeId; 2]) {
    let devices = layout.new_devices();
    let options = WriteOptions { compression: layout.compression(), ..WriteOptions::default() };
    let fs = Filesystem::open_writable(devices.clone(), &OpenOptions::default(), &options).expect("a pool");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let mut number = 0;
    let inodes = contents.each_ref().map(|bytes| {
        number += 1;
        let (_, file) = fs.create_open(fs.root(), format!("{number}").as_bytes(), &new).expect("room");
        fs.write(&file, 0, bytes).expect("room");
        let id = file.id();
        fs.close_file(file).expect("room");
        id
    });
    fs.sync().expect("durable");
    (devices, inodes)
}

/// Reads a file in pieces, most of whole sectors, in order but for some jumps. Returns how many reads failed.
fn read(fs: &Filesystem, id: InodeId, contents: &[u8], mut random: Random) -> usize {
    let Ok(file) = fs.open_file(id) else { return 1 };
    let (mut at, mut failed) = (0, 0);
    while at < contents.len() {
        let sectors = (1 + random.index(PIECE / SECTOR)) * SECTOR;
        let cut = if random.chance(1, 6) { random.index(SECTOR) } else { 0 };
        let length = sectors - cut;
        let expected = &contents[at..contents.len().min(at + length)];
        match fs.read_bytes(&file, at as u64, length) {
            Ok(bytes) => {
                let bytes: Vec<u8> = bytes.parts().flatten().copied().collect();
                assert!(bytes == expected, "wrong bytes from {at} on, {length} asked for");
            }
            Err(_) => failed += 1,
        }
        let jumps = random.chance(1, 20);
        at = if jumps { random.index(contents.len() / SECTOR) * SECTOR } else { at + sectors };
    }
    failed
}

/// Strikes some devices while files are read. Returns how many calls of the devices failed, or gave wrong bytes.
fn run(case: &Case, seed: u64, struck: usize) -> u64 {
    let mut random = Random::new(seed);
    let contents = contents(&mut random);
    let (devices, inodes) = filled(&case.layout, &contents);
    let faulty: Vec<_> = devices.iter().map(|device| Arc::new(FaultyDevice::new(device.clone()))).collect();
    let as_devices = || faulty.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let is_written = random.chance(1, 2);
    let fs = if is_written {
        Filesystem::open_writable(as_devices(), &OpenOptions::default(), &WriteOptions::default())
    } else {
        let devices = faulty.iter().map(|device| Arc::clone(device) as _).collect();
        Filesystem::open(devices, &OpenOptions::default())
    };
    let fs = fs.expect("no device has failed yet");
    let mut order: Vec<_> = (0..faulty.len()).collect();
    for place in 0..struck {
        order.swap(place, place + random.index(faulty.len() - place));
        let device = &faulty[order[place]];
        for _ in 0..1 + random.index(2) {
            let reads = device.counts().reads + 40;
            // Nothing lies beyond.
            device.inject(Fault::any_of_reading(&mut random, reads, 128 << 20));
        }
    }
    let failed: usize = thread::scope(|threads| {
        let readers = [(0, 1), (1, 2), (0, 3)].map(|(number, label)| {
            let (fs, random) = (&fs, random.fork(label));
            let (id, contents) = (inodes[number], &contents[number]);
            threads.spawn(move || read(fs, id, contents, random))
        });
        readers.into_iter().map(|reader| reader.join().expect("right bytes")).sum()
    });
    let told = format!("{:?}, seed {seed}, {struck} struck, written: {is_written}", case.layout);
    assert!(failed == 0 || struck > case.tolerated, "{failed} reads failed: {told}");
    drop(fs);
    let faults = faulty.iter().map(|device| device.counts().faults).sum();
    let fs = Filesystem::open(
        devices.iter().map(|device| Arc::clone(device) as _).collect(),
        &OpenOptions::default(),
    );
    let fs = fs.unwrap_or_else(|error| panic!("{error}: {told}"));
    for (id, contents) in inodes.iter().zip(&contents) {
        assert_eq!(read(&fs, *id, contents, random.fork(4)), 0, "what was repaired is right: {told}");
    }
    faults
}

#[test]
fn reads_beside_failing_devices_are_right_while_redundancy_is_left() {
    let mut faults = 0;
    for (number, case) in cases().iter().enumerate() {
        for seed in 0..SEEDS {
            faults += run(case, seed * 100 + number as u64, case.tolerated);
        }
    }
    assert!(faults > 300, "{faults}");
}

#[test]
fn reads_beyond_redundancy_are_right_or_fail() {
    let mut faults = 0;
    for (number, case) in cases().iter().enumerate() {
        for seed in 0..SEEDS {
            let struck = case.layout.devices.min(case.tolerated + 1);
            faults += run(case, 50 + seed * 100 + number as u64, struck);
        }
    }
    assert!(faults > 300, "{faults}");
}

#[test]
fn reads_of_compressed_contents_beside_failing_devices_are_right_or_fail() {
    let mut faults = 0;
    for (number, Case { layout, tolerated }) in cases().iter().enumerate() {
        let case = Case {
            layout: Layout { compression: Some(Compression::Zstd), ..*layout },
            tolerated: *tolerated,
        };
        for seed in 0..SEEDS / 2 {
            let struck = if seed % 2 == 0 { *tolerated } else { case.layout.devices.min(tolerated + 1) };
            faults += run(&case, 10_000 + seed * 100 + number as u64, struck);
        }
    }
    assert!(faults > 100, "{faults}");
}

#[test]
fn a_device_that_fails_under_an_fsync_leaves_a_pool_that_needs_it_whole() {
    for (data, metadata) in [(Profile::Raid0, Profile::Raid1), (Profile::Raid0, Profile::Raid1c3)] {
        let layout = case(3, data, metadata, 0).layout;
        let (devices, inodes) = filled(&layout, &contents(&mut Random::new(1)));
        for place in 0..devices.len() {
            let faulty: Vec<_> =
                devices.iter().map(|device| Arc::new(FaultyDevice::new(device.clone()))).collect();
            let as_devices = faulty.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
            let options = (OpenOptions::default(), WriteOptions::default());
            let fs = Filesystem::open_writable(as_devices.collect(), &options.0, &options.1).expect("whole");
            let new = NewInode { mode: 0o100_644, ..NewInode::default() };
            let name = format!("synced {place}");
            let (_, file) = fs.create_open(fs.root(), name.as_bytes(), &new).expect("room");
            fs.write(&file, 0, b"in an item").expect("room");
            fs.sync().expect("durable");
            let writes = faulty[place].counts().writes;
            faulty[place].inject(Fault::WritesFrom { number: writes });
            fs.write(&file, 0, b"once more").expect("room");
            let synced = fs.sync_file(&file);
            drop((file, fs));
            // The device works again.
            let fs = Filesystem::open_writable(devices.clone(), &options.0, &options.1);
            let fs = fs.unwrap_or_else(|error| panic!("{metadata}, device {place}, {synced:?}: {error}"));
            for (id, contents) in inodes.iter().zip(&contents(&mut Random::new(1))) {
                assert_eq!(read(&fs, *id, contents, Random::new(2)), 0, "{metadata}, device {place}");
            }
            fs.shutdown().expect("works");
        }
    }
}

/// A handle of before a file got checksums verifies by them.
#[test]
fn contents_of_a_file_that_gets_checksums_are_verified_by_handles_of_before() {
    let layout = Layout::of(0);
    let device = Arc::new(SparseDevice::new("memory".to_owned(), layout.device_bytes(), layout.class(0)));
    layout.mkfs(&[Arc::<SparseDevice>::clone(&device)]);
    let given = vec![Arc::clone(&device) as Arc<dyn WritableDevice>];
    let fs = Filesystem::open_writable(given, &OpenOptions::default(), &WriteOptions::default());
    let fs = fs.expect("a pool");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let (made, file) = fs.create_open(fs.root(), b"file", &new).expect("room");
    let mut bytes = vec![0; 1 << 16];
    for (flags, contents, is_verified) in
        [(FileFlags::NOCOW, 0xa7, false), (FileFlags::empty(), 0xb7, true), (FileFlags::NOCOW, 0xc7, false)]
    {
        fs.truncate(&file, 0).expect("works");
        fs.set_flags(made.id, flags).expect("it is empty");
        fs.write(&file, 0, &vec![contents; 1 << 16]).expect("room");
        fs.sync().expect("durable");
        assert_eq!(fs.read(&file, 0, &mut bytes).expect("readable"), 1 << 16);
        for (at, page) in
            device.written().into_iter().filter(|(_, page)| page.iter().all(|it| *it == contents))
        {
            device.write_at(at + 100, &[!page[100]]).expect("memory");
        }
        assert_eq!(fs.read(&file, 0, &mut bytes).is_err(), is_verified, "{flags:?}");
    }
}
