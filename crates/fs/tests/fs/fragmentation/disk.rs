//! A pool in memory, whose trees are read as if it were on a disk.

use crate::simulated::{Layout, Pool};
use brindle_device::{Device, DeviceClass, WritableDevice};
use brindle_fs::OpenOptions;
use brindle_ondisk::{Key, RootId};
use brindle_sim::{Drive, Image, ImageDevice, ModelDevice, VirtualTime};
use brindle_tree::Readahead;
use std::sync::Arc;

pub(super) struct Disk {
    device: Arc<ImageDevice>,
    pub(super) pool: Pool,
}

impl Disk {
    /// A new pool.
    pub(super) fn new(layout: &Layout) -> Self {
        let image = Image::new(layout.device_bytes());
        let device = Arc::new(ImageDevice::new("disk", image, DeviceClass::Rotating));
        let devices = vec![Arc::clone(&device) as Arc<dyn WritableDevice>];
        layout.mkfs(&devices);
        Self { device, pool: Pool::on(devices, layout) }
    }

    /// Time in which a modelled disk reads all of a tree, as of the last commit, in the order of keys.
    pub(super) fn scan_ms(&self, tree: RootId) -> u64 {
        let time = VirtualTime::new();
        let device = ModelDevice::new("disk", self.device.image(), Drive::hard_disk(), &time);
        let devices = vec![Arc::new(device) as Arc<dyn Device>];
        let pool = brindle_tree::Pool::open(devices, &OpenOptions::default().pool).expect("opens");
        let tree = pool.tree(tree).expect("is there");
        let begun = time.now_ns();
        let mut cursor = pool.cursor(&tree, Readahead::Forward);
        cursor.seek(&Key::MIN).expect("readable");
        while cursor.key().is_some() {
            cursor.next().expect("readable");
        }
        (time.now_ns() - begun) / 1_000_000
    }
}
