//! The kernel and brindle write the same files by turns, and each finds what the other one left.

use super::can_make;
use super::pool::{KernelPool, run};
use brindle_device::{FileDevice, WritableDevice};
use brindle_fs::{
    AllocateMode, Compression, CompressionChoice, Filesystem, InodeId, OpenFile, OpenOptions, RangePair,
    RootId, SubvolumeChoice, WriteOptions,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const FILES: u64 = 6;
const SIZE_MAX: u64 = 3 << 20;
const TURNS: u64 = 4;
const CHANGES_PER_TURN: u64 = 40;

/// Numbers without end, the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let (kind, byte) = (self.next(3), self.next(255).to_le_bytes()[0]);
        (0..length)
            .map(|at| match kind {
                0 => byte,
                1 => (at / 100).to_le_bytes()[0],
                _ => self.next(256).to_le_bytes()[0],
            })
            .collect()
    }
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Truncate { size: u64 },
    Punch { offset: u64, length: u64 },
    Zero { offset: u64, length: u64 },
    Allocate { offset: u64, length: u64 },
    Clone { source: u64, sectors: u64, from: u64, to: u64 },
}

fn any_change(numbers: &mut Numbers) -> Change {
    let offset = numbers.next(SIZE_MAX);
    let length = 1 + if numbers.next(2) == 0 { numbers.next(8192) } else { numbers.next(600_000) };
    match numbers.next(10) {
        0..=4 => Change::Write { offset, bytes: numbers.bytes(length) },
        5 => Change::Truncate { size: offset },
        6 => Change::Punch { offset, length },
        7 => Change::Zero { offset, length },
        8 => Change::Allocate { offset, length },
        _ => Change::Clone {
            source: numbers.next(FILES),
            sectors: 1 + numbers.next(100),
            from: numbers.next(300),
            to: numbers.next(300),
        },
    }
}

type Model = Vec<Vec<u8>>;

fn usize(offset: u64) -> usize {
    usize::try_from(offset).expect("small")
}

/// Changes the model; whether the change is possible.
fn apply_to(model: &mut Model, file: u64, change: &Change) -> bool {
    let source = match change {
        Change::Clone { source, .. } => model[usize(*source)].clone(),
        _ => Vec::new(),
    };
    let contents = &mut model[usize(file)];
    let write = |contents: &mut Vec<u8>, offset: u64, bytes: &[u8]| {
        contents.resize(contents.len().max(usize(offset) + bytes.len()), 0);
        contents[usize(offset)..usize(offset) + bytes.len()].copy_from_slice(bytes);
    };
    match change {
        Change::Write { offset, bytes } => write(contents, *offset, bytes),
        Change::Truncate { size } => contents.resize(usize(*size), 0),
        Change::Punch { offset, length } => {
            let end = usize(offset + length).min(contents.len());
            contents[usize(*offset).min(end)..end].fill(0);
        }
        Change::Zero { offset, length } => write(contents, *offset, &vec![0; usize(*length)]),
        Change::Allocate { offset, length } => {
            contents.resize(contents.len().max(usize(offset + length)), 0);
        }
        Change::Clone { source: number, sectors, from, to } => {
            let (from, to, length) = (from * 4096, to * 4096, sectors * 4096);
            if usize(from + length) > source.len() || (*number == file && from.abs_diff(to) < length) {
                return false;
            }
            write(contents, to, &source[usize(from)..usize(from + length)]);
        }
    }
    true
}

fn by_kernel(directory: &Path, file: u64, change: &Change) {
    let path = |file: u64| directory.join(format!("file{file}"));
    let target = File::options().read(true).write(true).open(path(file)).expect("opens");
    let fallocate = |options: &[&str], offset: u64, length: u64| {
        let place = ["-o".to_owned(), offset.to_string(), "-l".to_owned(), length.to_string()];
        let path = path(file).to_string_lossy().into_owned();
        run("fallocate", options.iter().copied(), place.into_iter().chain([path]));
    };
    match change {
        Change::Write { offset, bytes } => target.write_all_at(bytes, *offset).expect("writes"),
        Change::Truncate { size } => target.set_len(*size).expect("truncates"),
        Change::Punch { offset, length } => fallocate(&["-p"], *offset, *length),
        Change::Zero { offset, length } => fallocate(&["-z"], *offset, *length),
        Change::Allocate { offset, length } => fallocate(&[], *offset, *length),
        Change::Clone { source, sectors, from, to } => {
            let source = File::open(path(*source)).expect("opens");
            let (mut from, mut to) = (from * 4096, to * 4096);
            let mut left = usize(sectors * 4096);
            while left > 0 {
                let copied =
                    rustix::fs::copy_file_range(&source, Some(&mut from), &target, Some(&mut to), left);
                left -= copied.expect("copies");
            }
        }
    }
}

fn by_brindle(filesystem: &Filesystem, files: &[OpenFile], file: u64, change: &Change) {
    let open = &files[usize(file)];
    match change {
        Change::Write { offset, bytes } => {
            assert_eq!(filesystem.write(open, *offset, bytes).expect("writes"), bytes.len());
        }
        Change::Truncate { size } => filesystem.truncate(open, *size).expect("truncates"),
        Change::Punch { offset, length } => {
            filesystem.allocate(open, AllocateMode::PunchHole, *offset, *length).expect("punches");
        }
        Change::Zero { offset, length } => {
            filesystem.allocate(open, AllocateMode::ZeroRange, *offset, *length).expect("zeroes");
        }
        Change::Allocate { offset, length } => {
            filesystem.allocate(open, AllocateMode::Allocate, *offset, *length).expect("allocates");
        }
        Change::Clone { source, sectors, from, to } => {
            let source = &files[usize(*source)];
            let shared = filesystem.clone_range(&RangePair {
                source,
                source_offset: from * 4096,
                target: open,
                target_offset: to * 4096,
                length: sectors * 4096,
            });
            assert_eq!(shared.expect("shares"), sectors * 4096);
        }
    }
}

fn assert_contents(when: &str, model: &Model, read: impl Fn(u64) -> Vec<u8>) {
    for (file, expected) in model.iter().enumerate() {
        let found = read(file as u64);
        assert_eq!(found.len(), expected.len(), "{when}: size of file {file}");
        if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
            panic!("{when}: file {file}, byte {at}: {} instead of {}", found[at], expected[at]);
        }
    }
}

fn open(pool: &KernelPool, options: &WriteOptions) -> Filesystem {
    let open = |image| {
        let device = super::patiently(|| FileDevice::open_writable(image)).expect("image");
        Arc::new(device) as Arc<dyn WritableDevice>
    };
    let devices = pool.images().iter().map(|image| open(image)).collect();
    let top = OpenOptions { subvolume: SubvolumeChoice::Id(RootId::FS_TREE), ..OpenOptions::default() };
    Filesystem::open_writable(devices, &top, options).expect("opens")
}

fn brindle_turn(
    pool: &KernelPool,
    options: &WriteOptions,
    model: &mut Model,
    numbers: &mut Numbers,
    when: &str,
) {
    let filesystem = open(pool, options);
    let id = |file: u64| -> InodeId {
        filesystem.resolve(filesystem.root(), format!("file{file}").as_bytes()).expect("there")
    };
    let files: Vec<OpenFile> =
        (0..FILES).map(|file| filesystem.open_file(id(file)).expect("opens")).collect();
    let read = |file: u64| {
        let open = &files[usize(file)];
        let mut contents = vec![0; usize(open.size())];
        assert_eq!(filesystem.read(open, 0, &mut contents).expect("reads"), contents.len());
        contents
    };
    assert_contents(&format!("{when}, left by the kernel"), model, read);
    for number in 0..CHANGES_PER_TURN {
        let (file, change) = (numbers.next(FILES), any_change(numbers));
        if apply_to(model, file, &change) {
            by_brindle(&filesystem, &files, file, &change);
        }
        if number % 7 == 3 {
            filesystem.write_back(&files[usize(file)]).expect("writes");
        }
        if number % 13 == 5 {
            filesystem.sync_file(&files[usize(file)]).expect("syncs");
        }
    }
    assert_contents(&format!("{when}, in memory"), model, read);
    filesystem.shutdown().expect("commits");
}

fn kernel_turn(pool: &mut KernelPool, options: &str, model: &mut Model, numbers: &mut Numbers, when: &str) {
    pool.mount(options);
    let directory = pool.mount_point().to_owned();
    let read = |file: u64| std::fs::read(directory.join(format!("file{file}"))).expect("reads");
    assert_contents(&format!("{when}, left by brindle"), model, read);
    for _ in 0..CHANGES_PER_TURN {
        let (file, change) = (numbers.next(FILES), any_change(numbers));
        if apply_to(model, file, &change) {
            by_kernel(&directory, file, &change);
        }
    }
    run("btrfs", ["scrub", "start", "-B"], [&directory]);
    pool.unmount();
}

/// Turns, after each of which `btrfs check` has nothing to say.
fn take_turns(
    profile: &str,
    device_count: usize,
    algorithm: Compression,
    no_holes: bool,
    attribute: Option<&str>,
) {
    if !can_make() {
        return;
    }
    let name = format!("{profile}, {algorithm}, no-holes {no_holes}, {attribute:?}");
    let mount_options = match algorithm {
        Compression::None => "compress=no".to_owned(),
        algorithm => format!("compress={algorithm}"),
    };
    let compression = (algorithm != Compression::None).then_some(CompressionChoice {
        algorithm,
        level: None,
        force: false,
    });
    let options = WriteOptions { compression, ..WriteOptions::default() };
    let features = if no_holes { "no-holes" } else { "^no-holes" };
    let mut pool = KernelPool::make_with(profile, device_count, "16384", &mount_options, &["-O", features]);
    for file in 0..FILES {
        let path = pool.mount_point().join(format!("file{file}"));
        File::create(&path).expect("creates");
        if let Some(attribute) = attribute {
            run("chattr", [attribute], [&path]);
        }
    }
    pool.unmount();
    let mut model = vec![Vec::new(); usize(FILES)];
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    for turn in 0..TURNS {
        let when = format!("{name}, turn {turn}");
        brindle_turn(&pool, &options, &mut model, &mut numbers, &when);
        pool.check();
        kernel_turn(&mut pool, &mount_options, &mut model, &mut numbers, &when);
    }
    brindle_turn(&pool, &options, &mut model, &mut numbers, &format!("{name}, last turn"));
}

#[test]
fn plain() {
    take_turns("single", 1, Compression::None, true, None);
}

#[test]
fn with_told_holes() {
    take_turns("single", 1, Compression::None, false, None);
}

#[test]
fn zlib() {
    take_turns("single", 1, Compression::Zlib, true, None);
}

#[test]
fn lzo() {
    take_turns("single", 1, Compression::Lzo, false, None);
}

#[test]
fn zstd_on_two() {
    take_turns("raid1", 2, Compression::Zstd, true, None);
}

#[test]
fn in_place() {
    take_turns("single", 1, Compression::None, true, Some("+C"));
}

#[test]
fn raid5() {
    take_turns("raid5", 3, Compression::Zstd, true, None);
}
