//! Logs that the kernel leaves: what was fsynced is there when brindle has replayed them, as when the kernel has.

use super::{assert_clean, assert_same, open};
use crate::golden::{read_whole, top_level};
use crate::kernel::pool::{KernelPool, run, try_run};
use crate::kernel::{can_make, patiently};
use brindle_device::{Device, FileDevice, WritableDevice};
use brindle_fs::Filesystem;
use brindle_sim::Image;
use brindle_testing::manifest::Manifest;
use brindle_testing::model::Model;
use brindle_testing::operations::{Generator, Mix, MountedTarget, Operation, Target};
use brindle_testing::referee::btrfs_check;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// Number of logs that are replayed of each kind of pool.
const ROUNDS: usize = 6;
/// Operations between two of them, each followed by an fsync.
const OPERATIONS: usize = 40;
/// A pool is copied in pieces of this size, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Devices of a mounted pool, as a crash would leave them, twice.
pub(super) struct Crashed {
    scratch: TempDir,
}

impl Crashed {
    fn empty() -> Self {
        let scratch = tempfile::Builder::new().prefix("brindle-log-").tempdir().expect("room");
        let crashed = Self { scratch };
        std::fs::create_dir(crashed.mount_point()).expect("room");
        crashed
    }

    /// Crashed state of a device in memory.
    pub(super) fn as_of(image: &Image) -> Self {
        let crashed = Self::empty();
        let file = File::create(crashed.image("ours")).expect("room");
        file.set_len(image.size_bytes()).expect("room");
        let mut piece = vec![0; PIECE_BYTES];
        for offset in (0..image.size_bytes()).step_by(PIECE_BYTES) {
            image.read(offset, &mut piece);
            if piece.iter().any(|byte| *byte != 0) {
                file.write_all_at(&piece, offset).expect("room");
            }
        }
        run("cp", ["--sparse=always"], [&crashed.image("ours"), &crashed.image("theirs")]);
        crashed
    }

    /// The state of a moment: the kernel commits whenever another program of the machine calls sync(2).
    fn of(pool: &KernelPool) -> Self {
        let crashed = Self::empty();
        run("cp", ["--sparse=always"], [&pool.images()[0], &crashed.image("ours")]);
        run("cp", ["--sparse=always"], [&crashed.image("ours"), &crashed.image("theirs")]);
        crashed
    }

    fn image(&self, whose: &str) -> PathBuf {
        self.scratch.path().join(whose)
    }

    fn mount_point(&self) -> PathBuf {
        self.scratch.path().join("mount")
    }

    /// Manifest of one of them as the kernel shows it; the kernel replays its log if it still has one.
    pub(super) fn as_kernel_sees(&self, whose: &str) -> Manifest {
        let mount_point = self.mount_point();
        run("mount", ["-t", "btrfs", "-o", "loop"], [&self.image(whose), &mount_point]);
        let found = Manifest::of_directory(&mount_point).expect("readable");
        patiently(|| try_run("umount", [""; 0], [&mount_point])).unwrap_or_else(|error| panic!("{error}"));
        found
    }

    fn has_log(&self) -> bool {
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&self.image("ours")).expect("an image"));
        let read = Filesystem::open(vec![device], &top_level()).expect("opens to be read");
        read.pool().superblock().log_root.get() != 0
    }

    /// Manifest as brindle shows it after it has replayed the log.
    pub(super) fn as_brindle_sees(&self, name: &str) -> Manifest {
        let device = FileDevice::open_writable(&self.image("ours")).expect("an image");
        let devices = vec![Arc::new(device) as Arc<dyn WritableDevice>];
        let filesystem = open(devices).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(filesystem.pool().superblock().log_root.get(), 0, "{name}: the log is replayed");
        let found = read_whole(&filesystem, name);
        filesystem.shutdown().unwrap_or_else(|error| panic!("{name}: {error}"));
        found
    }

    pub(super) fn check(&self, name: &str, whose: &str) {
        let image = self.image(whose);
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&image).expect("an image"));
        assert_clean(name, device);
        btrfs_check(&image).expect("btrfs-progs").unwrap_or_else(|said| panic!("{name}: {said}"));
    }
}

/// Lets the kernel do what follows from a seed, and compares what both make of the logs it leaves.
fn replay_as_the_kernel(seed: u64, nodesize: &str, options: &str, mkfs_options: &[&str]) {
    if !can_make() {
        return;
    }
    // No commit but those that the kernel needs itself.
    let mut pool =
        KernelPool::make_with("single", 1, nodesize, &format!("commit=300,{options}"), mkfs_options);
    let mut target = MountedTarget::new(pool.mount_point(), || panic!("it stays mounted"));
    let mut model = Model::new();
    let seed = std::env::var("BRINDLE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(seed);
    let mix = Mix { subvolumes: 0, sync: 1, sync_file: 30, remount: 0, names_max: 60, ..Mix::default() };
    let mut generator = Generator::new(seed, mix);
    let mut crashes = Vec::new();
    for round in 0..rounds() {
        let mut last = Operation::Sync;
        for number in 0.. {
            last = generator.next(&model);
            let (done, expected) = (target.apply(&last).is_ok(), model.apply(&last).is_ok());
            assert_eq!(done, expected, "seed {seed}: {last:?}");
            if number >= OPERATIONS && matches!(last, Operation::SyncFile { .. }) {
                break;
            }
        }
        let name = format!("seed {seed}, round {round}, {last:?}");
        crashes.push((name, Crashed::of(&pool)));
    }
    // The kernel does not mount copies of what it has mounted.
    pool.unmount();
    let logs = crashes.iter().filter(|(_, crashed)| crashed.has_log()).count();
    assert!(logs > 0, "seed {seed}: no log was left");
    for (name, crashed) in crashes {
        let found = crashed.as_brindle_sees(&name);
        crashed.check(&name, "ours");
        assert_same(&name, &crashed.as_kernel_sees("theirs"), &found);
        assert_same(&name, &crashed.as_kernel_sees("ours"), &found);
    }
}

/// More by `BRINDLE_LOGS`.
fn rounds() -> usize {
    std::env::var("BRINDLE_LOGS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS)
}

#[test]
fn logs_are_replayed_as_the_kernel_replays_them() {
    replay_as_the_kernel(1, "16384", "compress=no", &[]);
}

#[test]
fn logs_of_compressed_files_are_replayed() {
    replay_as_the_kernel(2, "4096", "compress=zstd", &[]);
}

#[test]
fn logs_with_holes_that_are_told_are_replayed() {
    replay_as_the_kernel(3, "4096", "compress=no", &["-O", "^no-holes"]);
}

#[test]
fn logs_are_replayed_where_free_space_has_no_tree() {
    replay_as_the_kernel(4, "16384", "nospace_cache,compress=no", &["-R", "^free-space-tree"]);
}
