//! Pools in which the kernel was interrupted in a balance: what it left is dropped when they are opened to be written.

use crate::golden::{assert_same, read_whole, top_level};
use brindle_care::balance;
use brindle_care::job::Control;
use brindle_check::{CheckOptions, NoProgress};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_fs::{Filesystem, RootId, WriteOptions};
use brindle_ondisk::{Key, KeyType, ObjectId};
use brindle_sim::{Image, ImageDevice, LossMode, Random, Recorder};
use brindle_testing::golden::Golden;
use brindle_tree::Readahead;
use std::sync::Arc;

const IMAGES: [&str; 2] = ["interrupted-metadata-balance", "interrupted-data-balance"];
/// Stride of the crash points that are looked at.
const CRASH_STRIDE: usize = 7;

fn image(golden: &Golden) -> Image {
    let mut image = Image::new(golden.devices[0].size_bytes());
    golden.devices[0].blocks().for_each(|(offset, block)| image.write(offset, block));
    image
}

fn open(device: Arc<dyn WritableDevice>, name: &str) -> Filesystem {
    Filesystem::open_writable(vec![device], &top_level(), &WriteOptions::default())
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn assert_clean(name: &str, device: Arc<dyn Device>) {
    let options = CheckOptions { all_copies: true, check_data_csum: true, ..CheckOptions::default() };
    let report = brindle_check::check(vec![device], &options, &NoProgress).expect("a pool");
    let findings: Vec<String> =
        report.findings().map(|(pass, finding)| format!("{pass}: {finding}")).collect();
    assert!(findings.is_empty(), "{name}: {findings:#?}");
}

/// Returns true if a tree has an item of this object and type.
fn has_item(filesystem: &Filesystem, tree: RootId, objectid: ObjectId, item_type: KeyType) -> bool {
    let tree = filesystem.pool().tree(tree).expect("a tree");
    let mut cursor = filesystem.pool().cursor(&tree, Readahead::None);
    cursor.seek(&Key::first_of(objectid, item_type)).expect("readable");
    cursor.key().is_some_and(|key| (key.objectid, key.item_type) == (objectid, item_type))
}

fn has_relocation_trees(filesystem: &Filesystem) -> bool {
    has_item(filesystem, RootId::ROOT_TREE, ObjectId::TREE_RELOC, KeyType::ROOT_ITEM)
}

fn has_copied_data(filesystem: &Filesystem) -> bool {
    has_item(filesystem, RootId::DATA_RELOC_TREE, ObjectId::ORPHAN, KeyType::ORPHAN_ITEM)
}

#[test]
fn the_kernels_balance_is_ended_and_goes_on_here() {
    for name in IMAGES {
        let golden = Golden::load(name);
        let device = Arc::new(ImageDevice::new("one", image(&golden), DeviceClass::Solid));
        let reader =
            Filesystem::open(vec![Arc::clone(&device) as Arc<dyn Device>], &top_level()).expect("opens");
        assert!(has_relocation_trees(&reader) && has_copied_data(&reader), "{name}");
        drop(reader);
        let filesystem = open(Arc::clone(&device) as Arc<dyn WritableDevice>, name);
        assert_eq!(filesystem.warnings(), [""; 0]);
        assert_same(name, &golden.manifest, &read_whole(&filesystem, name));
        assert!(!has_relocation_trees(&filesystem) && !has_copied_data(&filesystem), "{name}");
        assert_clean(name, Arc::clone(&device) as Arc<dyn Device>);
        let ended = balance::resume(&filesystem, &mut |_| Control::Continue).expect("there is a balance");
        assert!(ended.progress.done > 0 && ended.control == Control::Continue, "{name}: {ended:?}");
        assert_same(name, &golden.manifest, &read_whole(&filesystem, name));
        filesystem.shutdown().expect("closes");
        assert_clean(name, device);
    }
}

#[test]
fn a_crash_while_a_balance_is_ended_leaves_a_pool_that_opens() {
    for name in IMAGES {
        let golden = Golden::load(name);
        let recorder = Recorder::new();
        let device = recorder.device("one", image(&golden), DeviceClass::Solid);
        drop(open(device, name));
        let recording = recorder.recording().with_sectors_of(512);
        assert!(recording.crash_points().len() > 5, "something was written");
        let (mut replay, mut random) = (recording.replay(), Random::new(1));
        for point in recording.crash_points().step_by(CRASH_STRIDE) {
            replay.advance_to(point);
            for mode in LossMode::ALL {
                let name = format!("{name}, {mode:?} at {point}");
                let device = replay.state(mode, &mut random).writable().remove(0);
                let filesystem = open(Arc::clone(&device), &name);
                assert!(!has_relocation_trees(&filesystem) && !has_copied_data(&filesystem), "{name}");
                assert_same(&name, &golden.manifest, &read_whole(&filesystem, &name));
                filesystem.shutdown().unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_clean(&name, device);
            }
        }
    }
}
