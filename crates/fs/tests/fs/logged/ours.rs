//! Logs that brindle leaves: the kernel replays them as brindle does, and both find what was fsynced.

use super::kernel::Crashed;
use super::{assert_clean, assert_same};
use crate::kernel::can_make;
use crate::simulated::{Habits, Layout, Library, Pool};
use brindle_device::{DeviceClass, WritableDevice};
use brindle_fs::{Compression, NewInode};
use brindle_ondisk::{Profile, Uuid};
use brindle_sim::{Image, ImageDevice};
use brindle_testing::manifest::{Kind, Manifest};
use brindle_testing::model::{Expectation, Model, TreePath};
use brindle_testing::operations::{Generator, Mix, Operation, Target};
use std::sync::Arc;

/// Number of logs that are replayed of each kind of pool.
const ROUNDS: usize = 6;
/// Operations between two of them, at the least.
const OPERATIONS: usize = 25;

const PLAIN: Layout = Layout {
    devices: 1,
    device_mib: 512,
    data: Profile::Single,
    metadata: Profile::Dup,
    nodesize: 4096,
    features: "",
    compression: None,
    fast: 0,
};

/// A pool as it was when an fsync had returned.
struct Left {
    name: String,
    crashed: Crashed,
    synced: TreePath,
    expected: Expectation,
}

/// Does what follows from a seed, and has both replay the logs that are left.
fn kernel_replays(seed: u64, uuid: u8, layout: &Layout) {
    kernel_replays_mix(seed, uuid, layout, &Mix::default());
}

/// The same of operations that are mixed otherwise.
fn kernel_replays_mix(seed: u64, uuid: u8, layout: &Layout, mix: &Mix) {
    if !can_make() {
        return;
    }
    let seed = std::env::var("BRINDLE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(seed);
    for left in leave(seed, uuid, layout, mix) {
        let (name, crashed) = (&left.name, &left.crashed);
        let theirs = crashed.as_kernel_sees("theirs");
        crashed.check(name, "theirs");
        let found = theirs.entry(left.synced.bytes());
        assert!(left.expected.allows(left.synced.bytes(), found), "{name}: the kernel finds {found:?}");
        if found.is_some_and(|entry| entry.kind == Kind::Directory) {
            let names = |tree: &Manifest| -> Vec<TreePath> {
                let paths = tree.entries().map(|entry| TreePath::new(&entry.path[..]));
                paths.filter(|path| path.split().is_some_and(|(above, _)| above == left.synced)).collect()
            };
            let expected = names(left.expected.manifest());
            assert_eq!(names(&theirs), expected, "{name}: the names that the kernel finds in it");
        }
        let ours = crashed.as_brindle_sees(name);
        crashed.check(name, "ours");
        assert_same(name, &theirs, &ours);
    }
}

/// A directory that is not in memory counts its indexes on from the entries that it has.
#[test]
fn the_kernel_replays_an_entry_with_the_index_of_one_that_has_gone() {
    if !can_make() {
        return;
    }
    let device = Arc::new(ImageDevice::new("one", Image::new(PLAIN.device_bytes()), DeviceClass::Solid));
    let devices: Vec<Arc<dyn WritableDevice>> = vec![Arc::clone(&device) as _];
    PLAIN.mkfs_named(&devices, Uuid([0xb6; 16]));
    let mut pool = Pool::on(devices, &PLAIN);
    pool.write.tree_log = true;
    let new = |mode| NewInode { mode, ..NewInode::default() };
    let filesystem = pool.open().expect("a new pool");
    let directory = filesystem.create(filesystem.root(), b"d", &new(0o40_755)).expect("room").id;
    for name in [b"stays", b"goes."] {
        filesystem.create(directory, name, &new(0o100_644)).expect("room");
    }
    filesystem.shutdown().expect("closes");
    drop(filesystem);
    let filesystem = pool.open().expect("once more");
    let last = || filesystem.last_index(directory).expect("read");
    let index = last();
    filesystem.unlink(directory, b"goes.").expect("there");
    let comes = filesystem.create(directory, b"comes", &new(0o100_644)).expect("room").id;
    assert_eq!(last(), index, "the index is used again");
    filesystem.sync_attributes(comes).expect("logged");
    let crashed = Crashed::as_of(&device.image());
    let theirs = crashed.as_kernel_sees("theirs");
    let found: Vec<&[u8]> = theirs.entries().map(|entry| &entry.path[..]).collect();
    assert_eq!(found, [&b""[..], b"d", b"d/comes", b"d/stays"]);
    let ours = crashed.as_brindle_sees("ours");
    crashed.check("a reused index", "ours");
    crashed.check("a reused index", "theirs");
    assert_same("a reused index", &theirs, &ours);
}

fn leave(seed: u64, uuid: u8, layout: &Layout, mix: &Mix) -> Vec<Left> {
    let device = Arc::new(ImageDevice::new("one", Image::new(layout.device_bytes()), DeviceClass::Solid));
    let devices: Vec<Arc<dyn WritableDevice>> = vec![Arc::clone(&device) as _];
    // The kernel tells pools by their UUIDs, those that other tests have mounted included.
    layout.mkfs_named(&devices, Uuid([uuid; 16]));
    let mut pool = Pool::on(devices, layout);
    pool.write.tree_log = true;
    let mut library = Library::open(pool, Habits::default()).expect("opens");
    let mut model = Model::new();
    let mix = Mix { subvolumes: 0, sync: 2, sync_file: 30, remount: 0, names_max: 60, ..mix.clone() };
    let mut generator = Generator::new(seed, mix);
    let (mut left, mut since) = (Vec::new(), 0);
    while left.len() < rounds() {
        let operation = generator.next(&model);
        let (done, expected) = (library.apply(&operation).is_ok(), model.apply(&operation).is_ok());
        assert_eq!(done, expected, "seed {seed}: {operation:?}");
        since += 1;
        assert!(since < 100 * OPERATIONS, "seed {seed}: no log is left");
        let Operation::SyncFile { path } = &operation else { continue };
        if since >= OPERATIONS && done && library.has_log() {
            left.push(Left {
                name: format!("seed {seed}, log {}, {operation:?}", left.len()),
                crashed: Crashed::as_of(&device.image()),
                synced: path.clone(),
                expected: model.expectation(),
            });
            since = 0;
        }
    }
    library.close().expect("closes");
    assert_clean("closed", device);
    left
}

/// More by `BRINDLE_LOGS`.
fn rounds() -> usize {
    std::env::var("BRINDLE_LOGS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS)
}

#[test]
fn the_kernel_replays_logs_as_brindle_does() {
    kernel_replays(1, 0xb1, &PLAIN);
}

#[test]
fn the_kernel_replays_logs_of_names() {
    kernel_replays_mix(5, 0xb5, &PLAIN, &Mix { names: 90, contents: 10, ..Mix::default() });
}

#[test]
fn the_kernel_replays_logs_of_compressed_files() {
    let layout = Layout { nodesize: 16384, compression: Some(Compression::Zstd), ..PLAIN };
    kernel_replays(2, 0xb2, &layout);
}

#[test]
fn the_kernel_replays_logs_with_holes_that_are_told() {
    kernel_replays(3, 0xb3, &Layout { features: "^block-group-tree,^no-holes", ..PLAIN });
}

#[test]
fn the_kernel_replays_logs_where_free_space_has_no_tree() {
    kernel_replays(4, 0xb4, &Layout { features: "^block-group-tree,^free-space-tree", ..PLAIN });
}
