//! Pools with logs of what was fsynced: replayed when they are opened to be written, as a whole or not at all.

mod kernel;

use crate::golden::{read_whole, top_level};
use brindle_check::{CheckOptions, NoProgress};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_fs::{Filesystem, FsError, WriteOptions};
use brindle_sim::{Image, ImageDevice, LossMode, Random, Recorder};
use brindle_testing::golden::{Golden, SparseImage};
use brindle_testing::manifest::{Entry, Kind, Manifest, Time};
use std::sync::Arc;

fn image(device: &SparseImage) -> Image {
    let mut image = Image::new(device.size_bytes());
    device.blocks().for_each(|(offset, block)| image.write(offset, block));
    image
}

fn open(devices: Vec<Arc<dyn WritableDevice>>) -> Result<Filesystem, FsError> {
    Filesystem::open_writable(devices, &top_level(), &WriteOptions::default())
}

/// Without the times of directories, which the kernel changes in replaying, and without what only it knows.
fn comparable(manifest: &Manifest) -> Manifest {
    let entries = manifest.entries().cloned().map(|mut entry| {
        if entry.kind == Kind::Directory {
            entry.mtime = Time { sec: 0, nsec: 0 };
        }
        Entry { flags: None, ..entry }
    });
    entries.collect()
}

fn assert_same(name: &str, expected: &Manifest, found: &Manifest) {
    let differences = comparable(expected).diff(&comparable(found));
    assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
}

fn assert_clean(name: &str, device: Arc<dyn Device>) {
    let options = CheckOptions { all_copies: true, check_data_csum: true, ..CheckOptions::default() };
    let report = brindle_check::check(vec![device], &options, &NoProgress).expect("a pool");
    let findings: Vec<String> =
        report.findings().map(|(pass, finding)| format!("{pass}: {finding}")).take(20).collect();
    assert!(findings.is_empty(), "{name}: {findings:#?}");
}

#[test]
fn a_log_is_replayed_by_who_may_write() {
    let golden = Golden::load("log-tree");
    let replayed = golden.other_manifest("manifest-replayed").expect("there");
    let device = Arc::new(ImageDevice::new("one", image(&golden.devices[0]), DeviceClass::Solid));
    let reader = Filesystem::open(vec![Arc::clone(&device) as Arc<dyn Device>], &top_level()).expect("opens");
    assert!(reader.warnings().iter().any(|warning| warning.contains("log")), "{:?}", reader.warnings());
    assert_same("read", &golden.manifest, &read_whole(&reader, "read"));
    let filesystem = open(vec![Arc::clone(&device) as Arc<dyn WritableDevice>]).expect("opens");
    assert_eq!(filesystem.warnings(), [""; 0]);
    assert_same("replayed", &replayed, &read_whole(&filesystem, "replayed"));
    assert!(comparable(&golden.manifest) != comparable(&replayed), "the log changes something");
    filesystem.shutdown().expect("closes");
    assert_clean("replayed", device);
}

#[test]
fn a_crash_while_a_log_is_replayed_leaves_it_or_what_it_says() {
    let golden = Golden::load("log-tree");
    let replayed = golden.other_manifest("manifest-replayed").expect("there");
    let recorder = Recorder::new();
    let device = recorder.device("one", image(&golden.devices[0]), DeviceClass::Solid);
    open(vec![device]).expect("opens");
    let recording = recorder.recording().with_sectors_of(512);
    assert!(recording.crash_points().len() > 5, "something was written");
    let mut replay = recording.replay();
    let mut random = Random::new(1);
    for point in recording.crash_points() {
        replay.advance_to(point);
        for mode in LossMode::ALL {
            let name = format!("{mode:?} at {point}");
            let state = replay.state(mode, &mut random).writable();
            let filesystem = open(state.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_same(&name, &replayed, &read_whole(&filesystem, &name));
            filesystem.shutdown().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
