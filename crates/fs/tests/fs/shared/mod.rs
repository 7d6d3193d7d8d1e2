//! Pools that two systems have open at once: other writers are found before anything of theirs is written over.

mod guard;
mod kernel;
mod lease;
pub(crate) mod machine;

use crate::simulated::Layout;
use brindle_device::WritableDevice;
use brindle_fs::{Filesystem, NewInode};
use brindle_ondisk::{Profile, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use std::sync::Arc;

/// Two fast devices and two others.
const PAIRS: Layout = Layout {
    devices: 4,
    device_mib: 512,
    data: Profile::Raid1,
    metadata: Profile::Raid1,
    nodesize: 4096,
    features: "",
    compression: None,
    fast: 2,
};

/// A new file with some contents.
fn put(filesystem: &Filesystem, name: &str) {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let (_, file) = filesystem.create_open(filesystem.root(), name.as_bytes(), &new).expect("room");
    filesystem.write(&file, 0, &[7; 50_000]).expect("room");
    filesystem.close_file(file).expect("closes");
}

/// The first superblocks of devices.
fn superblocks(devices: &[Arc<dyn WritableDevice>]) -> Vec<Vec<u8>> {
    let first = |device: &Arc<dyn WritableDevice>| {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        device.read_at(SUPERBLOCK_OFFSETS[0], &mut bytes).expect("in memory");
        bytes
    };
    devices.iter().map(first).collect()
}
