//! A pool in memory, with files in it.

use brindle_care::mkfs::{Features, MkfsOptions, NewDevice, mkfs};
use brindle_check::{CheckOptions, NoProgress, check};
use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, FsError, InodeFlags, InodeId, OpenOptions, WriteOptions};
use brindle_ondisk::item::{DirEntryHeader, FileType, InodeItem};
use brindle_ondisk::{Key, KeyType, ObjectId, RootId, Uuid, name_hash};
use brindle_sim::FaultyDevice;
use brindle_testing::referee::btrfs_check;
use brindle_tree::Need;
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The inode number of the first file.
const FIRST_FILE: u64 = 257;

/// Setup of a pool and of its writer.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) features: Features,
    pub(crate) nodesize: Option<u32>,
    pub(crate) size_mib: u64,
    pub(crate) write: WriteOptions,
}

impl Default for Setup {
    fn default() -> Self {
        Self { features: Features::default(), nodesize: None, size_mib: 256, write: WriteOptions::default() }
    }
}

/// Devices in memory that carry a pool.
pub(crate) struct Bench {
    device: Arc<SparseDevice>,
    setup: Setup,
}

impl Bench {
    pub(crate) fn new(setup: &Setup) -> Self {
        let device = Arc::new(SparseDevice::new("memory", setup.size_mib << 20, DeviceClass::Unknown));
        let mut options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
        options.features = setup.features;
        options.nodesize = setup.nodesize;
        mkfs(&[NewDevice::new(Arc::clone(&device) as Arc<dyn WritableDevice>)], &options).expect("a pool");
        Self { device, setup: setup.clone() }
    }

    pub(crate) fn open(&self) -> Filesystem {
        self.try_open().expect("opens")
    }

    pub(crate) fn try_open(&self) -> Result<Filesystem, FsError> {
        let devices = vec![Arc::clone(&self.device) as Arc<dyn WritableDevice>];
        Filesystem::open_writable(devices, &OpenOptions::default(), &self.setup.write)
    }

    /// Opens it to read it, with the log replayed in memory.
    pub(crate) fn open_replayed(&self) -> Filesystem {
        let devices = vec![Arc::clone(&self.device) as Arc<dyn Device>];
        Filesystem::open_replayed(devices, &OpenOptions::default(), &self.setup.write).expect("opens")
    }

    /// Ranges of the device that are not zero.
    pub(crate) fn written(&self) -> Vec<(u64, Vec<u8>)> {
        self.device.written()
    }

    /// Opens it behind a device that fails as told.
    pub(crate) fn open_faulty(&self) -> (Filesystem, Arc<FaultyDevice>) {
        let faulty = Arc::new(FaultyDevice::new(Arc::clone(&self.device) as Arc<dyn WritableDevice>));
        let devices = vec![Arc::clone(&faulty) as Arc<dyn WritableDevice>];
        let opened = Filesystem::open_writable(devices, &OpenOptions::default(), &self.setup.write);
        (opened.expect("opens"), faulty)
    }

    /// Checks that the committed pool is sound.
    pub(crate) fn assert_clean(&self, when: &str) {
        let options = CheckOptions { all_copies: true, check_data_csum: true, ..CheckOptions::default() };
        let devices = vec![Arc::clone(&self.device) as Arc<dyn Device>];
        let report = check(devices, &options, &NoProgress).expect("the pool opens");
        let findings: Vec<String> =
            report.findings().take(20).map(|(pass, finding)| format!("{pass}: {finding}")).collect();
        assert!(findings.is_empty(), "{when}:\n{}", findings.join("\n"));
    }

    /// The same in the words of btrfs-progs, where they are installed.
    pub(crate) fn assert_btrfs_check(&self, when: &str) {
        let image = tempfile::NamedTempFile::new().expect("temporary file");
        image.as_file().set_len(self.device.size_bytes()).expect("sparse");
        for (offset, bytes) in self.device.written() {
            std::os::unix::fs::FileExt::write_all_at(image.as_file(), &bytes, offset).expect("space");
        }
        match btrfs_check(image.path()) {
            Some(said) => said.unwrap_or_else(|said| panic!("{when}: {said}")),
            None => eprintln!("skipped: btrfs check is not installed"),
        }
    }
}

/// Makes a file, as plainly as can be; which one.
pub(crate) fn create(filesystem: &Filesystem, number: u64, flags: InodeFlags) -> InodeId {
    let root = RootId::FS_TREE;
    let inode = ObjectId::new(FIRST_FILE + number);
    let name = format!("file{number}").into_bytes();
    let pool = filesystem.pool();
    let tree = pool.tree(root).expect("the top level");
    let transaction = pool.join(Need::items(5)).expect("room");
    let mut item = InodeItem::new_zeroed();
    (item.generation, item.transid) = (transaction.generation(), transaction.generation());
    (item.nlink, item.mode, item.flags) = (1.into(), 0o100_644.into(), flags.bits().into());
    let at = |objectid, item_type, offset| Key::new(objectid, item_type, offset);
    let insert = |key: Key, data: &[u8]| transaction.insert(&tree, &key, data).expect("a new item");
    insert(at(inode, KeyType::INODE_ITEM, 0), item.as_bytes());
    let index = number + 2;
    let length = u16::try_from(name.len()).expect("short");
    let reference = [&index.to_le_bytes()[..], &length.to_le_bytes(), &name].concat();
    insert(at(inode, KeyType::INODE_REF, ObjectId::FIRST_FREE.get()), &reference);
    let mut header = DirEntryHeader::new_zeroed();
    header.location = at(inode, KeyType::INODE_ITEM, 0);
    header.transid = transaction.generation();
    (header.name_len, header.file_type) = (length.into(), FileType::Regular as u8);
    let entry = [header.as_bytes(), &name].concat();
    insert(at(ObjectId::FIRST_FREE, KeyType::DIR_ITEM, name_hash(&name)), &entry);
    insert(at(ObjectId::FIRST_FREE, KeyType::DIR_INDEX, index), &entry);
    let directory = at(ObjectId::FIRST_FREE, KeyType::INODE_ITEM, 0);
    let grown = transaction.update(&tree, &directory, |bytes| {
        let item = InodeItem::mut_from_bytes(bytes).expect("an inode item");
        item.size = (item.size.get() + 2 * u64::from(length)).into();
    });
    grown.expect("changes").expect("the root directory");
    InodeId { tree: root, number: inode }
}
