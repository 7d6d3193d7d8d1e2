//! Pools of two classes of devices, and where things lie in them.

use crate::simulated::check;
use brindle_care::mkfs::{Features, MkfsOptions, NewDevice, mkfs};
use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{
    Filesystem, FsError, InodeId, NewInode, OpenOptions, PlacementClass, TreeError, WriteOptions, XattrMode,
};
use brindle_ondisk::item::FileExtent;
use brindle_ondisk::{BlockGroupType, Item, Key, KeyType, Profile, Uuid};
use brindle_tree::Readahead;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The devices of a pool: what the host says of each, and its size in MiB.
pub(super) type Devices<'a> = &'a [(DeviceClass, u64)];

/// Parameters of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Making {
    pub(super) data: Profile,
    pub(super) metadata: Profile,
    pub(super) features: &'static str,
    /// The classes are told to mkfs, which stores them.
    pub(super) is_told: bool,
}

impl Making {
    pub(super) const fn of(data: Profile, metadata: Profile) -> Self {
        Self { data, metadata, features: "", is_told: false }
    }
}

/// A pool of devices in memory.
pub(super) struct MixedPool {
    pub(super) devices: Vec<Arc<dyn WritableDevice>>,
    pub(super) open: OpenOptions,
    pub(super) write: WriteOptions,
}

impl MixedPool {
    pub(super) fn new(devices: Devices<'_>, making: Making) -> Self {
        let new = |(number, (class, mib)): (usize, &(DeviceClass, u64))| {
            Arc::new(SparseDevice::new(format!("memory{}", number + 1), mib << 20, *class))
                as Arc<dyn WritableDevice>
        };
        let devices: Vec<_> = devices.iter().enumerate().map(new).collect();
        make(&devices, making);
        Self { devices, open: OpenOptions::default(), write: WriteOptions::default() }
    }

    pub(super) fn open(&self) -> Filesystem {
        let opened = Filesystem::open_writable(self.devices.clone(), &self.open, &self.write);
        opened.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Closes it, and has it examined.
    pub(super) fn close(&self, fs: Filesystem) {
        fs.shutdown().expect("closes");
        drop(fs);
        check(&self.devices).unwrap_or_else(|findings| panic!("{findings}"));
    }
}

pub(super) fn make(devices: &[Arc<dyn WritableDevice>], making: Making) {
    let mut options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
    (options.data, options.metadata) = (Some(making.data), Some(making.metadata));
    options.features = Features::default().with_list(making.features).expect("known words");
    let told = |device: &Arc<dyn WritableDevice>| match device.class() {
        DeviceClass::Solid => PlacementClass::Fast,
        _ => PlacementClass::Bulk,
    };
    let new = |device: &Arc<dyn WritableDevice>| NewDevice {
        class: making.is_told.then(|| told(device)),
        ..NewDevice::new(Arc::clone(device))
    };
    let devices: Vec<NewDevice> = devices.iter().map(new).collect();
    mkfs(&devices, &options).unwrap_or_else(|error| panic!("{making:?}: {error}"));
}

/// The names of the devices that chunks of a content lie on, each once.
pub(super) fn devices_of(fs: &Filesystem, content: BlockGroupType) -> BTreeSet<String> {
    let volume = fs.pool().volume();
    let names = volume.devices();
    let chunks = volume.chunks().into_iter().filter(|chunk| chunk.kind.contains(content));
    let stripes = chunks.flat_map(|chunk| chunk.stripes);
    let name = |devid| names.iter().find(|device| device.devid == devid).expect("of the pool").name.clone();
    stripes.map(|stripe| name(stripe.devid)).collect()
}

/// The names of the devices that a file's extents lie on.
pub(super) fn devices_of_file(fs: &Filesystem, file: InodeId) -> BTreeSet<String> {
    let volume = fs.pool().volume();
    let (names, chunks) = (volume.devices(), volume.chunks());
    let tree = fs.pool().tree(file.tree).expect("there it is");
    let mut cursor = fs.pool().cursor(&tree, Readahead::None);
    cursor.seek(&Key::new(file.number, KeyType::EXTENT_DATA, 0)).expect("readable");
    let mut found = BTreeSet::new();
    while let Some((key, data)) = cursor.item() {
        if (key.objectid, key.item_type) != (file.number, KeyType::EXTENT_DATA) {
            break;
        }
        let Ok(Item::FileExtent(extent)) = Item::parse(&key, data) else { panic!("{key}: no extent") };
        if let FileExtent::OnDisk { extent, .. } = extent
            && extent.disk_bytenr.get() != 0
        {
            let at = extent.disk_bytenr.get();
            let holds = |start: u64, length: u64| (start..start + length).contains(&at);
            let chunk = chunks.iter().find(|chunk| holds(chunk.start.get(), chunk.length));
            for stripe in &chunk.expect("it lies in a chunk").stripes {
                let device = names.iter().find(|device| device.devid == stripe.devid);
                found.insert(device.expect("of the pool").name.clone());
            }
        }
        cursor.next().expect("readable");
    }
    found
}

/// Makes a file, and writes it back: short ones with contents that do not compress, long ones of zeros, which take no
/// memory.
pub(super) fn put(fs: &Filesystem, parent: InodeId, name: &str, bytes: usize) -> Result<InodeId, FsError> {
    let id = fs.create(parent, name.as_bytes(), &NewInode { mode: 0o100_644, ..NewInode::default() })?.id;
    append(fs, id, 0, bytes)?;
    Ok(id)
}

/// Writes `bytes` at an offset, and writes them back.
pub(super) fn append(fs: &Filesystem, id: InodeId, offset: u64, bytes: usize) -> Result<(), FsError> {
    let file = fs.open_file(id)?;
    let mut seed = id.number.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut contents = Vec::with_capacity(bytes);
    if bytes >= 1 << 20 {
        contents.resize(bytes, 0);
    }
    while contents.len() < bytes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        contents.extend_from_slice(&seed.to_be_bytes());
    }
    let mut at = 0;
    while at < bytes {
        at += fs.write(&file, offset + at as u64, &contents[at..bytes])?;
    }
    fs.write_back(&file)
}

pub(super) fn directory(fs: &Filesystem, parent: InodeId, name: &str) -> InodeId {
    let new = NewInode { mode: 0o040_755, ..NewInode::default() };
    fs.create(parent, name.as_bytes(), &new).expect("room").id
}

pub(super) fn mark(fs: &Filesystem, id: InodeId, tier: &str) {
    fs.set_xattr(id, b"user.brindle.tier", tier.as_bytes(), XattrMode::Any).expect("it can be marked");
}

pub(super) fn is_no_space(error: &FsError) -> bool {
    matches!(error, FsError::Tree(TreeError::NoSpace(_)))
}

/// Names as a set.
pub(super) fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}
