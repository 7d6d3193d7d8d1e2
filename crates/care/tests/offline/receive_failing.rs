//! Receiving beside devices that fail midway, on pools of several shapes, while other threads write, sync, read and take snapshots: a
//! subvolume that is marked as received has the bytes that were sent, and what was synced beside it is there.

use crate::support::operations::contents_of;
use crate::support::{MIB, MadePool, assert_clean, options};
use brindle_care::job::Control;
use brindle_care::receive::{ReceiveError, ReceiveOptions, receive};
use brindle_device::{DeviceClass, WritableDevice};
use brindle_fs::{
    Compression, CompressionChoice, Filesystem, FsError, InodeId, NewInode, OpenOptions, WriteBackMode,
    WriteOptions,
};
use brindle_ondisk::{Profile, Uuid};
use brindle_sim::{Counts, Fault, FaultyDevice, Random};
use brindle_stream::{Command, Origin, StreamWriter};
use brindle_tree::WriteBackWish;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const ORIGIN: Origin = Origin { uuid: Uuid([7; 16]), transid: 9 };
const SECTOR: usize = 4096;
const PIECE: usize = 48 << 10;
const SEEDS: u64 = 3;

/// A pool, and how it is written.
#[derive(Clone, Copy, Debug)]
struct Shape {
    devices: &'static [(u64, DeviceClass)],
    data: Profile,
    metadata: Profile,
    write_back: WriteBackMode,
    nodatacow: bool,
    compresses: bool,
    dirty_bytes_max: u64,
}

const DISK: (u64, DeviceClass) = (512 * MIB, DeviceClass::Rotating);
const SMALL: (u64, DeviceClass) = (160 * MIB, DeviceClass::Rotating);
const SSD: (u64, DeviceClass) = (192 * MIB, DeviceClass::Solid);

const PLAIN: Shape = Shape {
    devices: &[DISK],
    data: Profile::Single,
    metadata: Profile::Dup,
    write_back: WriteBackMode::Off,
    nodatacow: false,
    compresses: false,
    dirty_bytes_max: 128 << 20,
};
const COMMON: Shape =
    Shape { devices: &[DISK, DISK, SSD], data: Profile::Raid1, metadata: Profile::Raid1, ..PLAIN };

const SHAPES: [Shape; 9] = [
    PLAIN,
    // There is no room for all of it.
    Shape { devices: &[SMALL], ..PLAIN },
    Shape { devices: &[DISK, DISK], data: Profile::Raid0, metadata: Profile::Raid1, ..PLAIN },
    Shape { devices: &[DISK, DISK, DISK], data: Profile::Raid5, metadata: Profile::Raid1, ..PLAIN },
    COMMON,
    Shape { write_back: WriteBackMode::Sync, compresses: true, ..COMMON },
    Shape { write_back: WriteBackMode::All, ..COMMON },
    Shape { write_back: WriteBackMode::All, dirty_bytes_max: 2 << 20, ..COMMON },
    Shape { nodatacow: true, ..COMMON },
];

/// Names of files, and their contents.
type Tree = BTreeMap<String, Vec<u8>>;

/// A stream of files that are written, cloned, cut and punched, and the tree that it makes.
fn stream(random: &mut Random) -> (Vec<u8>, Tree) {
    let mut writer = StreamWriter::new(Vec::new(), 2).expect("memory");
    let mut put = |command: &Command<'_>| writer.write(command).expect("short values");
    let mut tree = Tree::new();
    put(&Command::Subvolume { path: b"in", origin: ORIGIN });
    for number in 0..60 {
        let name = format!("file{number}");
        let length = match random.below(4) {
            0 => random.index(3000),
            1 | 2 => random.index(200 << 10),
            _ => random.index(5 << 20),
        };
        let mut bytes = vec![0; length];
        random.fill(&mut bytes);
        if random.chance(1, 3) {
            bytes.chunks_mut(64).for_each(|chunk| chunk.iter_mut().skip(8).for_each(|byte| *byte = 7));
        }
        put(&Command::MakeFile { path: name.as_bytes(), inode: 0 });
        for (place, data) in bytes.chunks(PIECE).enumerate() {
            put(&Command::Write { path: name.as_bytes(), offset: (place * PIECE) as u64, data });
        }
        if random.chance(1, 4) && length > 0 {
            let size = random.index(length);
            put(&Command::Truncate { path: name.as_bytes(), size: size as u64 });
            bytes.truncate(size);
        }
        if random.chance(1, 4) && bytes.len() > 3 * SECTOR {
            let start = random.index(bytes.len() / SECTOR - 1) * SECTOR;
            let length = SECTOR * (1 + random.index(8));
            put(&Command::Allocate {
                path: name.as_bytes(),
                mode: 3,
                offset: start as u64,
                length: length as u64,
            });
            let end = bytes.len().min(start + length);
            bytes[start..end].fill(0);
        }
        let sources: Vec<&String> = tree.keys().collect();
        if random.chance(1, 3) && !sources.is_empty() {
            let source = sources[random.index(sources.len())].clone();
            let sectors = tree[&source].len() / SECTOR;
            if sectors > 0 {
                let from = random.index(sectors);
                let length = (1 + random.index(sectors - from)) * SECTOR;
                let to = random.index(bytes.len() / SECTOR + 2) * SECTOR;
                put(&Command::Clone {
                    path: name.as_bytes(),
                    offset: to as u64,
                    length: length as u64,
                    source: ORIGIN,
                    source_path: source.as_bytes(),
                    source_offset: (from * SECTOR) as u64,
                });
                let cloned = tree[&source][from * SECTOR..from * SECTOR + length].to_vec();
                bytes.resize(bytes.len().max(to + length), 0);
                bytes[to..to + length].copy_from_slice(&cloned);
            }
        }
        if random.chance(1, 8) && !bytes.is_empty() {
            let offset = random.index(bytes.len());
            let data = vec![0x5a; 1 + random.index(20 << 10)];
            put(&Command::Write { path: name.as_bytes(), offset: offset as u64, data: &data });
            bytes.resize(bytes.len().max(offset + data.len()), 0);
            bytes[offset..offset + data.len()].copy_from_slice(&data);
        }
        tree.insert(name, bytes);
    }
    put(&Command::End);
    (writer.into_inner(), tree)
}

impl Shape {
    fn options(&self) -> WriteOptions {
        let choice = CompressionChoice { algorithm: Compression::Zstd, level: None, force: false };
        WriteOptions {
            compression: self.compresses.then_some(choice),
            nodatacow: self.nodatacow,
            write_back: WriteBackWish::Told(self.write_back),
            dirty_bytes_max: self.dirty_bytes_max,
            ..WriteOptions::default()
        }
    }

    fn made(&self) -> MadePool {
        let mut options = options();
        (options.data, options.metadata) = (Some(self.data), Some(self.metadata));
        MadePool::make_of(self.devices, &options).expect("large enough")
    }
}

fn contents_at(fs: &Filesystem, top: InodeId, name: &str) -> Vec<u8> {
    contents_of(fs, fs.resolve(top, name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// Writes files and syncs each. Returns those whose syncs have succeeded.
fn write_beside(fs: &Filesystem, is_over: &AtomicBool, mut random: Random) -> Tree {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let mut synced = Tree::new();
    for number in 0..100 {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("beside{number}");
        let mut bytes = vec![0; random.index(300 << 10)];
        random.fill(&mut bytes);
        let done = (|| -> Result<(), FsError> {
            let (_, file) = fs.create_open(fs.root(), name.as_bytes(), &new)?;
            let written = fs.write(&file, 0, &bytes).and_then(|length| {
                assert_eq!(length, bytes.len());
                fs.sync_file(&file)
            });
            fs.close_file(file)?;
            written
        })();
        if done.is_ok() {
            synced.insert(name, bytes);
        }
    }
    synced
}

/// The pool, opened as a user would: as it is, without the devices that have failed, or else to be read.
fn reopened(shape: &Shape, made: &MadePool) -> Result<Filesystem, FsError> {
    let how = |degraded| {
        let mut how = OpenOptions::default();
        how.pool.volume.degraded = degraded;
        how
    };
    let open = |degraded| {
        let devices =
            made.devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
        Filesystem::open_writable(devices, &how(degraded), &shape.options())
    };
    let open_to_read = |degraded| Filesystem::open(made.readable(), &how(degraded));
    open(false).or_else(|_| open(true)).or_else(|_| open_to_read(false)).or_else(|_| open_to_read(true))
}

/// Counts of a run.
#[derive(Debug, Default)]
struct Outcome {
    received: u64,
    refused: u64,
    faults: u64,
}

/// A fault that is counted from now on.
fn from_now(fault: Fault, counts: Counts) -> Fault {
    match fault {
        Fault::Write { number } => Fault::Write { number: number + counts.writes },
        Fault::WritesFrom { number } => Fault::WritesFrom { number: number + counts.writes },
        Fault::FullFrom { number } => Fault::FullFrom { number: number + counts.writes },
        Fault::ShortWrite { number, bytes } => Fault::ShortWrite { number: number + counts.writes, bytes },
        Fault::Flush { number } => Fault::Flush { number: number + counts.flushes },
        Fault::FlushesFrom { number } => Fault::FlushesFrom { number: number + counts.flushes },
        Fault::VanishAfter { calls } => {
            Fault::VanishAfter { calls: calls + counts.reads + counts.writes + counts.flushes }
        }
        other => other,
    }
}

/// Strikes some devices in the course of what is written; some faults never come.
fn strike(faulty: &[Arc<FaultyDevice>], struck: usize, random: &mut Random) {
    let mut order: Vec<_> = (0..faulty.len()).collect();
    for place in 0..struck {
        order.swap(place, place + random.index(faulty.len() - place));
        let device = &faulty[order[place]];
        device.inject(from_now(Fault::any(random, 400, 30), device.counts()));
    }
}

/// Receives beside a writer, and a thread that syncs and takes snapshots. Returns also the files that were synced.
fn receive_beside(fs: &Filesystem, stream: &[u8], random: &Random) -> (Result<u64, ReceiveError>, Tree) {
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        let is_over = &is_over;
        let beside = random.fork(1);
        let writer = threads.spawn(move || write_beside(fs, is_over, beside));
        threads.spawn(move || {
            for number in 0..4 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let _ = fs.sync();
                if let Ok(found) = fs.resolve(fs.root(), b"in") {
                    let _ =
                        fs.snapshot(found.tree, fs.root(), format!("s{number}").as_bytes(), number % 2 == 0);
                }
            }
        });
        let done = receive(fs, fs.root(), stream, &ReceiveOptions::default(), &mut |_| Control::Continue);
        is_over.store(true, Ordering::Relaxed);
        (done, writer.join().expect("no panic"))
    })
}

fn run(shape: &Shape, seed: u64, struck: usize, outcome: &mut Outcome) {
    let told = format!("{shape:?}, seed {seed}, {struck} struck");
    let mut random = Random::new(seed);
    let (stream, tree) = stream(&mut random);
    let made = shape.made();
    let faulty: Vec<_> = made
        .devices
        .iter()
        .map(|device| Arc::new(FaultyDevice::new(Arc::clone(device) as Arc<dyn WritableDevice>)))
        .collect();
    let devices = faulty.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let fs = Filesystem::open_writable(devices, &OpenOptions::default(), &shape.options()).expect("sound");
    strike(&faulty, struck, &mut random);
    let (done, beside) = receive_beside(&fs, &stream, &random);
    drop(fs);
    outcome.faults += faulty.iter().map(|device| device.counts().faults).sum::<u64>();
    if struck == 0 && shape.devices[0] == DISK {
        done.as_ref().unwrap_or_else(|error| panic!("{error}: {told}"));
    }
    let fs = reopened(shape, &made).unwrap_or_else(|error| panic!("{error}: {told}"));
    let subvolumes = fs.subvolumes().expect("readable");
    let marked: Vec<_> = subvolumes.iter().filter(|one| one.received_uuid == ORIGIN.uuid).collect();
    assert!(done.is_err() || !marked.is_empty(), "{marked:?}: {told}");
    match &done {
        Ok(_) => outcome.received += 1,
        Err(_) => outcome.refused += 1,
    }
    for one in marked {
        let top = InodeId::root_of(one.id);
        for (name, bytes) in &tree {
            assert!(&contents_at(&fs, top, name) == bytes, "{name}, {done:?}: {told}");
        }
        assert_eq!(fs.read_directory(top, 0, 1000).expect("readable").len(), tree.len(), "{told}");
    }
    for (name, bytes) in &beside {
        assert!(&contents_at(&fs, fs.root(), name) == bytes, "{name}: {told}");
    }
    fs.shutdown().unwrap_or_else(|error| panic!("{error}: {told}"));
    drop(fs);
    if struck == 0 {
        assert_clean(&told, &made.examine());
    }
}

#[test]
fn a_marked_subvolume_has_what_was_sent_whatever_fails() {
    let mut outcome = Outcome::default();
    for (number, shape) in SHAPES.iter().enumerate() {
        for seed in 0..SEEDS {
            for struck in 0..=2.min(shape.devices.len()) {
                run(shape, seed * 1000 + number as u64 * 10 + struck as u64, struck, &mut outcome);
            }
        }
    }
    assert!(outcome.received > 20 && outcome.refused > 5 && outcome.faults > 100, "{outcome:?}");
}
