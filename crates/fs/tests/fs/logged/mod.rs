//! Pools with logs of what was fsynced: replayed when they are opened to be written, as a whole or not at all.

mod asleep;
mod copies;
mod fewer;
mod holes;
mod kernel;
mod modelled;
mod names;
mod ours;
mod renumbered;
mod reserve;
mod series;
mod tiers;

use crate::golden::{read_whole, top_level};
use brindle_check::{CheckOptions, NoProgress};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_fs::{Filesystem, FsError, WriteOptions};
use brindle_ondisk::{KeyType, RootId};
use brindle_sim::{Image, ImageDevice, LossMode, Random, Recorder};
use brindle_testing::damage::Victim;
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
    let findings = findings(device);
    assert!(findings.is_empty(), "{name}: {findings:#?}");
}

fn findings(device: Arc<dyn Device>) -> Vec<String> {
    let options = CheckOptions { all_copies: true, check_data_csum: true, ..CheckOptions::default() };
    let report = brindle_check::check(vec![device], &options, &NoProgress).expect("a pool");
    report.findings().map(|(pass, finding)| format!("{pass}: {finding}")).take(20).collect()
}

#[test]
fn a_log_is_replayed_by_a_writable_mount() {
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

/// The devices of a pool as a victim has them, to be written.
fn devices(victim: &Victim) -> Vec<Arc<ImageDevice>> {
    let device = |one| Arc::new(ImageDevice::new("one", image(one), DeviceClass::Solid));
    victim.images().iter().map(device).collect()
}

fn writable(devices: &[Arc<ImageDevice>]) -> Vec<Arc<dyn WritableDevice>> {
    devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect()
}

#[test]
fn a_log_that_can_not_be_read_is_said_to_be_one_and_nothing_is_written() {
    let mut victim = Victim::load("log-tree");
    let leaves: Vec<_> = victim.leaves(RootId::TREE_LOG).collect();
    victim.edit_block_raw(leaves.last().expect("a log").at, |bytes| bytes[200..300].fill(0x55));
    let devices = devices(&victim);
    let error = open(writable(&devices)).expect_err("it can't be read");
    assert!(matches!(error, FsError::Log(_)), "{error:?}");
    let text = error.to_string();
    for word in ["the log of fsyncs", "checksum is", "ro", "zero-log"] {
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(devices[0].image().first_difference(&image(&victim.images()[0])), None);
}

#[test]
fn a_log_of_the_future_is_refused() {
    // Generation and transaction of an inode, and the generation of an extent.
    for (kind, at) in [(KeyType::INODE_ITEM, 4), (KeyType::INODE_ITEM, 12), (KeyType::EXTENT_DATA, 4)] {
        let mut victim = Victim::load("log-tree");
        let leaves: Vec<_> = victim.leaves(RootId::TREE_LOG).map(|leaf| leaf.at).collect();
        for leaf in leaves {
            victim.edit_leaf(leaf, |items| {
                let items = items.iter_mut().filter(|item| item.key.item_type == kind);
                items.for_each(|item| item.data[at] = 1);
            });
        }
        let error = open(writable(&devices(&victim))).expect_err("nobody has written that yet");
        assert!(error.to_string().contains("future"), "{error}");
    }
}

/// Bytes of a log that are nonsense with a right checksum: it is refused, and stays, or nothing but what it says of its
/// files is nonsense.
#[test]
fn a_log_of_nonsense_does_no_harm() {
    let healthy = Victim::load("log-tree");
    let leaves: Vec<_> = healthy.leaves(RootId::TREE_LOG).map(|leaf| leaf.at).collect();
    let (mut refused, mut replayed) = (0, 0);
    for seed in 0..nonsense() {
        let mut victim = Victim::load("log-tree");
        let mut random = Random::new(seed);
        victim.edit_block(*random.pick(&leaves), |bytes| {
            for _ in 0..=random.index(5) {
                let at = random.index(bytes.len());
                bytes[at] = random.number().to_le_bytes()[0];
            }
        });
        let devices = devices(&victim);
        match open(writable(&devices)) {
            Err(_) => {
                refused += 1;
                assert_eq!(
                    devices[0].image().first_difference(&image(&victim.images()[0])),
                    None,
                    "seed {seed}"
                );
            }
            Ok(filesystem) => {
                replayed += 1;
                filesystem.shutdown().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let mut findings = findings(Arc::clone(&devices[0]) as Arc<dyn Device>);
                findings.retain(|finding| !OF_FILES.iter().any(|pass| finding.starts_with(pass)));
                assert!(findings.is_empty(), "seed {seed}: {findings:#?}");
            }
        }
    }
    assert!(refused > 0 && replayed > 0, "{refused} were refused, {replayed} replayed");
}

/// Findings about files alone.
const OF_FILES: [&str; 3] = ["files: ", "checksums: ", "data: "];

/// More by `BRINDLE_NONSENSE`.
fn nonsense() -> u64 {
    std::env::var("BRINDLE_NONSENSE").ok().and_then(|number| number.parse().ok()).unwrap_or(40)
}
