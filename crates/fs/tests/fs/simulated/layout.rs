//! The pools that are tried: profiles, features, sizes of blocks.

use brindle_care::mkfs::{Features, MkfsOptions, NewDevice, mkfs};
use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{Compression, CompressionChoice};
use brindle_ondisk::{Profile, Uuid};
use std::sync::Arc;

/// A kind of pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) devices: usize,
    pub(crate) device_mib: u64,
    pub(crate) data: Profile,
    pub(crate) metadata: Profile,
    pub(crate) nodesize: u32,
    /// Features in the syntax of `mkfs -O`.
    pub(crate) features: &'static str,
    pub(crate) compression: Option<Compression>,
    /// Number of devices that are flash in a pool that has others, and hold small files.
    pub(crate) fast: usize,
}

const PLAIN: Layout = Layout {
    devices: 1,
    device_mib: 1024,
    data: Profile::Single,
    metadata: Profile::Dup,
    nodesize: 16384,
    features: "",
    compression: None,
    fast: 0,
};

const fn on(devices: usize, data: Profile, metadata: Profile) -> Layout {
    Layout { devices, data, metadata, device_mib: 512, ..PLAIN }
}

/// One after the other, each in its turn.
pub(crate) const LAYOUTS: [Layout; 16] = [
    PLAIN,
    Layout { metadata: Profile::Single, nodesize: 4096, ..PLAIN },
    Layout { nodesize: 4096, features: "^block-group-tree", ..PLAIN },
    Layout { features: "^block-group-tree,^free-space-tree", ..PLAIN },
    Layout { features: "^block-group-tree,^no-holes", nodesize: 4096, ..PLAIN },
    Layout { compression: Some(Compression::Zstd), ..PLAIN },
    Layout { compression: Some(Compression::Lzo), nodesize: 65536, ..PLAIN },
    on(2, Profile::Raid0, Profile::Raid1),
    Layout { nodesize: 4096, ..on(3, Profile::Raid1, Profile::Raid1c3) },
    on(4, Profile::Raid10, Profile::Raid1c4),
    on(3, Profile::Raid5, Profile::Raid1),
    Layout { nodesize: 4096, ..on(3, Profile::Raid5, Profile::Raid5) },
    on(4, Profile::Raid6, Profile::Raid6),
    Layout { fast: 2, ..on(4, Profile::Raid1, Profile::Raid1) },
    Layout { fast: 1, compression: Some(Compression::Zstd), ..on(2, Profile::Single, Profile::Dup) },
    Layout {
        features: "^block-group-tree,^free-space-tree,^no-holes,^skinny-metadata",
        compression: Some(Compression::Zlib),
        ..PLAIN
    },
];

/// An SSD and two disks, all mirrored: small files have one copy on the SSD.
pub(crate) const SPLIT: Layout = Layout { fast: 1, nodesize: 4096, ..on(3, Profile::Raid1, Profile::Raid1) };

impl Layout {
    /// One of them, by number.
    pub(crate) fn of(number: u64) -> Self {
        LAYOUTS[usize::try_from(number).expect("few") % LAYOUTS.len()]
    }

    /// Empty devices for it.
    pub(crate) fn empty_devices(&self) -> Vec<Arc<SparseDevice>> {
        let new =
            |number| SparseDevice::new(format!("memory{number}"), self.device_bytes(), self.class(number));
        (0..self.devices).map(|number| Arc::new(new(number))).collect()
    }

    /// Devices with a new pool.
    pub(crate) fn new_devices(&self) -> Vec<Arc<dyn WritableDevice>> {
        let devices = self.empty_devices().into_iter().map(|device| device as Arc<dyn WritableDevice>);
        let devices: Vec<_> = devices.collect();
        self.mkfs(&devices);
        devices
    }

    pub(crate) fn mkfs(&self, devices: &[Arc<dyn WritableDevice>]) {
        self.mkfs_named(devices, Uuid([0x5e; 16]));
    }

    /// The same, for a pool that is told from all others.
    pub(crate) fn mkfs_named(&self, devices: &[Arc<dyn WritableDevice>], uuid: Uuid) {
        let mut options = MkfsOptions::new(uuid, [9; 16], 1_700_000_000);
        options.data = Some(self.data);
        options.metadata = Some(self.metadata);
        options.nodesize = Some(self.nodesize);
        options.features = Features::default().with_list(self.features).expect("known words");
        let devices: Vec<NewDevice> =
            devices.iter().map(|device| NewDevice::new(Arc::clone(device))).collect();
        mkfs(&devices, &options).unwrap_or_else(|error| panic!("{self:?}: {error}"));
    }

    /// Class that the host reports of a device, by number from 0.
    pub(crate) fn class(&self, number: usize) -> DeviceClass {
        if self.fast == 0 || number < self.fast { DeviceClass::Solid } else { DeviceClass::Rotating }
    }

    pub(crate) fn device_bytes(&self) -> u64 {
        self.device_mib << 20
    }

    pub(crate) fn compression(&self) -> Option<CompressionChoice> {
        self.compression.map(|algorithm| CompressionChoice { algorithm, level: None, force: false })
    }
}
