//! A superblock that a crash has torn, and another crash while the pool is opened and used again: no device is lost.

use super::ONE;
use super::subject::LibrarySubject;
use crate::simulated::{Layout, Pool};
use brindle_device::WritableDevice;
use brindle_fs::NewInode;
use brindle_ondisk::Profile;
use brindle_sim::{LossMode, Random, Recorder};
use brindle_testing::crash::Subject;
use std::sync::Arc;

/// The first superblock, in bytes of the device.
const FIRST: u64 = 64 << 10;
/// The second one.
const SECOND: u64 = 64 << 20;

#[test]
fn a_second_crash_after_a_torn_superblock_leaves_every_device_in_the_pool() {
    let layout = Layout { devices: 2, data: Profile::Raid1, metadata: Profile::Raid1, ..ONE };
    let mut images: Vec<_> =
        LibrarySubject::new(layout).make().into_iter().map(|device| device.image).collect();
    let mut before = vec![0; 4096];
    images[1].read(SECOND, &mut before);
    images = change(&layout, images, None);
    // The crash came while the second device got its first superblock: it is torn, and the second one is still older.
    images[1].write(FIRST + 512, &[0x5a; 512]);
    images[1].write(SECOND, &before);
    let recorder = Recorder::new();
    change(&layout, images, Some(&recorder));
    let recording = recorder.recording().with_sectors_of(512);
    let mut replay = recording.replay();
    let mut random = Random::new(3);
    for point in recording.crash_points() {
        replay.advance_to(point);
        for mode in LossMode::ALL.into_iter().cycle().take(40) {
            let devices = replay.state(mode, &mut random).writable();
            Pool::on(devices, &layout).open().unwrap_or_else(|error| panic!("{mode:?} at {point}: {error}"));
        }
    }
}

/// Opens the pool, makes a file, and closes it.
fn change(
    layout: &Layout,
    images: Vec<brindle_sim::Image>,
    recorder: Option<&Recorder>,
) -> Vec<brindle_sim::Image> {
    let own = Recorder::new();
    let recorder = recorder.unwrap_or(&own);
    let devices: Vec<_> = (0..)
        .zip(images)
        .map(|(number, image)| recorder.device(&format!("memory{number}"), image, layout.class(number)))
        .collect();
    let writable = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    let fs = Pool::on(writable, layout).open().expect("opens");
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let name = format!("file{}", fs.read_directory(fs.root(), 0, 100).expect("reads").len());
    fs.create(fs.root(), name.as_bytes(), &new).expect("room");
    fs.shutdown().expect("closes");
    devices.iter().map(|device| device.image()).collect()
}
