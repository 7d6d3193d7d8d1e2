//! Random lives of a few files.

use super::bench::{Bench, Setup, create};
use brindle_care::mkfs::Features;
use brindle_fs::{
    AllocateMode, Compression, CompressionChoice, Filesystem, FsError, InodeFlags, InodeId, OpenFile,
    RangePair, Whence, WriteOptions,
};
use proptest::prelude::*;

const FILES: usize = 3;
const SIZE_MAX: u64 = 700_000;
const SECTOR: u64 = 4096;

#[derive(Clone, Debug)]
enum Operation {
    Write { file: usize, offset: u64, length: u64, kind: u8 },
    Append { file: usize, length: u64 },
    Truncate { file: usize, size: u64 },
    Allocate { file: usize, mode: AllocateMode, offset: u64, length: u64 },
    Clone { source: usize, target: usize, from: u64, to: u64, length: u64 },
    Copy { source: usize, target: usize, from: u64, to: u64, length: u64 },
    WriteBack { file: usize },
    Drop { file: usize },
    Reopen { file: usize },
    Sync,
    Remount,
}

/// An offset or length: anything, near a sector's border, a small one.
fn position() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..SIZE_MAX,
        (0..SIZE_MAX / SECTOR).prop_map(|sector| sector * SECTOR),
        (1..SIZE_MAX / SECTOR, 0..3u64).prop_map(|(sector, more)| sector * SECTOR + more - 1),
        0..9000u64,
        0..100u64,
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![
        1..300_000u64,
        (1..40u64).prop_map(|sectors| sectors * SECTOR),
        1..9000u64,
        1..100u64,
        Just(SECTOR)
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let file = 0..FILES;
    let modes = prop::sample::select(vec![
        AllocateMode::Allocate,
        AllocateMode::AllocateKeepSize,
        AllocateMode::PunchHole,
        AllocateMode::PunchHole,
        AllocateMode::ZeroRange,
        AllocateMode::ZeroRangeKeepSize,
    ]);
    let pair = (0..FILES, 0..FILES, position(), position(), length());
    let sectors = (0..FILES, 0..FILES, 0..170u64, 0..170u64, 1..40u64);
    prop_oneof![
        10 => (file.clone(), position(), length(), 0..4u8)
            .prop_map(|(file, offset, length, kind)| Operation::Write { file, offset, length, kind }),
        2 => (file.clone(), length()).prop_map(|(file, length)| Operation::Append { file, length }),
        3 => (file.clone(), position()).prop_map(|(file, size)| Operation::Truncate { file, size }),
        4 => (file.clone(), modes, position(), length())
            .prop_map(|(file, mode, offset, length)| Operation::Allocate { file, mode, offset, length }),
        2 => sectors.prop_map(|(source, target, from, to, length)| {
            let (from, to, length) = (from * SECTOR, to * SECTOR, length * SECTOR);
            Operation::Clone { source, target, from, to, length }
        }),
        1 => (0..FILES, 0..FILES, 0..170u64, 0..170u64).prop_map(|(source, target, from, to)| {
            Operation::Clone { source, target, from: from * SECTOR, to: to * SECTOR, length: 0 }
        }),
        1 => pair.prop_map(|(source, target, from, to, length)| {
            Operation::Copy { source, target, from, to, length }
        }),
        4 => file.clone().prop_map(|file| Operation::WriteBack { file }),
        1 => file.clone().prop_map(|file| Operation::Drop { file }),
        1 => file.prop_map(|file| Operation::Reopen { file }),
        1 => Just(Operation::Sync),
        1 => Just(Operation::Remount),
    ]
}

/// Contents of a write: compressible, incompressible, or zeros.
fn contents(length: u64, kind: u8, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    let byte = |at: u64, random: u8| match kind {
        0 => random,
        1 => (at / 512).to_le_bytes()[0] ^ seed.to_le_bytes()[0] | 1,
        2 if at % 8192 < 4096 => random,
        2 => 7,
        _ => seed.to_le_bytes()[0],
    };
    (0..length).map(|at| byte(at, random())).collect()
}

struct Life<'b> {
    bench: &'b Bench,
    filesystem: Option<Filesystem>,
    ids: Vec<InodeId>,
    files: Vec<OpenFile>,
    model: Vec<Vec<u8>>,
    number: u64,
}

impl<'b> Life<'b> {
    fn new(bench: &'b Bench, flags: InodeFlags) -> Self {
        let filesystem = bench.open();
        let number = |file| u64::try_from(file).expect("small");
        let ids: Vec<InodeId> = (0..FILES).map(|file| create(&filesystem, number(file), flags)).collect();
        let mut life = Self {
            bench,
            filesystem: Some(filesystem),
            ids,
            files: Vec::new(),
            model: vec![Vec::new(); FILES],
            number: 0,
        };
        life.open_files();
        life
    }

    fn filesystem(&self) -> &Filesystem {
        self.filesystem.as_ref().expect("it is open")
    }

    fn open_files(&mut self) {
        self.files = self.ids.iter().map(|id| self.filesystem().open_file(*id).expect("opens")).collect();
    }

    fn sync(&self) {
        self.filesystem().write_back_all(None).expect("writes");
        self.filesystem().pool().commit().expect("commits");
        self.bench.assert_clean("after a commit");
    }

    /// The sectors that `stat` says a file takes.
    fn sectors_on_disk(&self, file: usize) -> u64 {
        let attributes = self.filesystem().attributes(self.ids[file]).expect("there");
        attributes.disk_bytes.div_ceil(SECTOR)
    }

    fn write(&mut self, file: usize, offset: u64, bytes: &[u8]) {
        let model = &mut self.model[file];
        let (start, end) =
            (usize::try_from(offset).expect("small"), usize::try_from(offset).expect("small") + bytes.len());
        model.resize(model.len().max(end), 0);
        model[start..end].copy_from_slice(bytes);
    }

    fn apply(&mut self, operation: &Operation) {
        self.number += 1;
        match *operation {
            Operation::Write { file, offset, length, kind } => {
                let bytes = contents(length, kind, self.number);
                let written = self.filesystem().write(&self.files[file], offset, &bytes).expect("writes");
                assert_eq!(written, bytes.len());
                self.write(file, offset, &bytes);
            }
            Operation::Append { file, length } => {
                let bytes = contents(length, 0, self.number);
                let (at, _) = self.filesystem().append(&self.files[file], &bytes).expect("writes");
                assert_eq!(at, self.model[file].len() as u64);
                self.write(file, at, &bytes);
            }
            Operation::Truncate { file, size } => {
                self.filesystem().truncate(&self.files[file], size).expect("truncates");
                self.model[file].resize(usize::try_from(size).expect("small"), 0);
            }
            Operation::Allocate { file, mode, offset, length } => self.allocate(file, mode, offset, length),
            Operation::Clone { source, target, from, to, length } => {
                self.clone(source, target, from, to, length);
            }
            Operation::Copy { source, target, from, to, length } => {
                self.copy(source, target, from, to, length);
            }
            Operation::WriteBack { file } => {
                let before = self.sectors_on_disk(file);
                self.filesystem().write_back(&self.files[file]).expect("writes");
                assert_eq!(self.sectors_on_disk(file), before, "file {file} takes what it was said to");
            }
            Operation::Drop { file } => {
                self.filesystem().drop_file_contents(self.ids[file]).expect("drops");
                self.model[file].clear();
            }
            Operation::Reopen { file } => {
                self.files[file] = self.filesystem().open_file(self.ids[file]).expect("opens");
            }
            Operation::Sync => self.sync(),
            Operation::Remount => {
                self.sync();
                self.files.clear();
                self.filesystem = None;
                self.filesystem = Some(self.bench.open());
                self.open_files();
                (0..FILES).for_each(|file| self.compare(file));
            }
        }
    }

    fn allocate(&mut self, file: usize, mode: AllocateMode, offset: u64, length: u64) {
        self.filesystem().allocate(&self.files[file], mode, offset, length).expect("allocates");
        let model = &mut self.model[file];
        let end = usize::try_from(offset + length).expect("small");
        if matches!(mode, AllocateMode::Allocate | AllocateMode::ZeroRange) {
            model.resize(model.len().max(end), 0);
        }
        if !matches!(mode, AllocateMode::Allocate | AllocateMode::AllocateKeepSize) {
            let end = end.min(model.len());
            let start = usize::try_from(offset).expect("small").min(end);
            model[start..end].fill(0);
        }
    }

    fn clone(&mut self, source: usize, target: usize, from: u64, to: u64, length: u64) {
        let size = |file: usize| self.model[file].len() as u64;
        let whole = size(source).saturating_sub(from);
        let wanted = if length == 0 { whole } else { length };
        let ends_both = from + wanted == size(source) && to + wanted >= size(target);
        let allowed = from + wanted <= size(source)
            && (wanted % SECTOR == 0 || ends_both)
            && (source != target || from.abs_diff(to) >= wanted);
        let done = self.filesystem().clone_range(&RangePair {
            source: &self.files[source],
            source_offset: from,
            target: &self.files[target],
            target_offset: to,
            length,
        });
        match done {
            Ok(done) => {
                assert!(allowed && done == wanted, "{done} of {wanted}, allowed: {allowed}");
                self.copied(source, target, from, to, wanted);
            }
            Err(FsError::Invalid { why, .. }) => assert!(!allowed, "{why}"),
            Err(error) => panic!("{error}"),
        }
    }

    fn copy(&mut self, source: usize, target: usize, from: u64, to: u64, length: u64) {
        let wanted = length.min((self.model[source].len() as u64).saturating_sub(from));
        let done = self.filesystem().copy_range(&RangePair {
            source: &self.files[source],
            source_offset: from,
            target: &self.files[target],
            target_offset: to,
            length,
        });
        match done {
            Ok(done) => {
                assert_eq!(done, wanted);
                self.copied(source, target, from, to, wanted);
            }
            Err(FsError::Invalid { why, .. }) => {
                assert!(source == target && from.abs_diff(to) < wanted, "{why}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn copied(&mut self, source: usize, target: usize, from: u64, to: u64, length: u64) {
        if length > 0 {
            let from = usize::try_from(from).expect("small");
            let bytes = self.model[source][from..from + usize::try_from(length).expect("small")].to_vec();
            self.write(target, to, &bytes);
        }
    }

    fn compare(&self, file: usize) {
        let (filesystem, open, model) = (self.filesystem(), &self.files[file], &self.model[file]);
        assert_eq!(open.size(), model.len() as u64, "size of file {file}");
        assert_eq!(filesystem.attributes(self.ids[file]).expect("there").size, model.len() as u64);
        let mut found = vec![0xee; model.len() + 10];
        let length = filesystem.read(open, 0, &mut found).expect("reads");
        assert_eq!(length, model.len());
        let wrong = found.iter().zip(model).position(|(found, model)| found != model);
        if let Some(at) = wrong {
            panic!("file {file}, byte {at} of {length}: {} instead of {}", found[at], model[at]);
        }
        self.compare_holes(file);
    }

    /// Checks that holes read as zeros.
    fn compare_holes(&self, file: usize) {
        let (filesystem, open, model) = (self.filesystem(), &self.files[file], &self.model[file]);
        let (mut at, size) = (0, model.len() as u64);
        let usize = |offset: u64| usize::try_from(offset).expect("small");
        while at < size {
            let data = filesystem.seek(open, at, Whence::Data).expect("seeks").unwrap_or(size);
            assert!(
                model[usize(at)..usize(data)].iter().all(|byte| *byte == 0),
                "a hole at {at} in file {file}"
            );
            if data == size {
                break;
            }
            at = filesystem.seek(open, data, Whence::Hole).expect("seeks").expect("the end is one");
            assert!(at > data);
        }
    }
}

fn live(setup: &Setup, flags: InodeFlags, operations: &[Operation]) {
    let bench = Bench::new(setup);
    let mut life = Life::new(&bench, flags);
    for operation in operations {
        life.apply(operation);
        (0..FILES).for_each(|file| life.compare(file));
    }
    life.apply(&Operation::Remount);
    drop(life);
    bench.assert_btrfs_check("at the end");
}

fn compressed(algorithm: Compression, force: bool) -> Setup {
    let compression = Some(CompressionChoice { algorithm, level: None, force });
    Setup { write: WriteOptions { compression, ..WriteOptions::default() }, ..Setup::default() }
}

fn cases() -> ProptestConfig {
    // More by PROPTEST_CASES.
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    ProptestConfig { cases, max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() }
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(operation(), 1..60)
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn plain_files(operations in operations()) {
        live(&Setup::default(), InodeFlags::empty(), &operations);
    }

    #[test]
    fn compressed_files(operations in operations(), algorithm in 0..3usize, force: bool) {
        let algorithm = [Compression::Zlib, Compression::Lzo, Compression::Zstd][algorithm];
        live(&compressed(algorithm, force), InodeFlags::empty(), &operations);
    }

    #[test]
    fn files_without_checksums(operations in operations()) {
        live(&Setup::default(), InodeFlags::NODATASUM, &operations);
    }

    #[test]
    fn files_that_are_overwritten_in_place(operations in operations()) {
        live(&Setup::default(), InodeFlags::NODATASUM | InodeFlags::NODATACOW, &operations);
    }

    #[test]
    fn holes_that_are_told(operations in operations()) {
        let features = Features::default() - Features::NO_HOLES - Features::BLOCK_GROUP_TREE;
        live(&Setup { features, ..Setup::default() }, InodeFlags::empty(), &operations);
    }

    #[test]
    fn little_memory_and_small_nodes(operations in operations()) {
        let write = WriteOptions { dirty_bytes_max: 300_000, ..WriteOptions::default() };
        live(&Setup { nodesize: Some(4096), write, ..Setup::default() }, InodeFlags::empty(), &operations);
    }

    #[test]
    fn nothing_inline(operations in operations()) {
        let write = WriteOptions { max_inline_bytes: 0, ..WriteOptions::default() };
        live(&Setup { write, ..Setup::default() }, InodeFlags::empty(), &operations);
    }
}
