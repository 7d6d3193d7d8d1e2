//! Pools in memory that are written.

use super::target::Ground;
use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_check::{CheckOptions, NoProgress};
use brindle_device::{Device, DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, FixedHost, NewInode, OpenOptions, Timestamp, WriteOptions};
use brindle_ondisk::Uuid;
use brindle_testing::referee::btrfs_check;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The size of the one device, in bytes.
const DEVICE_BYTES: u64 = 1 << 30;
/// The time that it always is, in seconds.
pub(crate) const NOW: i64 = 1_800_000_000;

/// A pool of one device in memory.
pub(crate) struct Pool {
    device: Arc<SparseDevice>,
    write: WriteOptions,
}

impl Pool {
    /// A new one.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A new one, made by other options.
    pub(crate) fn with(choose: impl FnOnce(&mut MkfsOptions)) -> Self {
        let device = Arc::new(SparseDevice::new("memory".to_owned(), DEVICE_BYTES, DeviceClass::Unknown));
        let mut options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
        choose(&mut options);
        mkfs(&[NewDevice::new(Arc::clone(&device) as Arc<dyn WritableDevice>)], &options).expect("a pool");
        let host = Arc::new(FixedHost::new(Timestamp { seconds: NOW, nanoseconds: 5 }));
        Self { device, write: WriteOptions { host, ..WriteOptions::default() } }
    }

    /// Opens it to write.
    pub(crate) fn open(&self) -> Filesystem {
        let devices = vec![Arc::clone(&self.device) as Arc<dyn WritableDevice>];
        Filesystem::open_writable(devices, &OpenOptions::default(), &self.write).expect("the pool opens")
    }

    /// Opens it to read.
    pub(crate) fn open_read_only(&self) -> Filesystem {
        let devices = vec![Arc::clone(&self.device) as Arc<dyn Device>];
        Filesystem::open(devices, &OpenOptions::default()).expect("the pool opens")
    }

    /// Panics with what brindle's own examination finds.
    pub(crate) fn assert_clean(&self, when: &str) {
        let options = CheckOptions { check_data_csum: true, threads: Some(1), ..CheckOptions::default() };
        let devices = vec![Arc::clone(&self.device) as Arc<dyn Device>];
        let report = brindle_check::check(devices, &options, &NoProgress).expect("there is a pool");
        let findings: Vec<String> =
            report.findings().take(20).map(|(pass, finding)| format!("{pass}: {finding}")).collect();
        assert!(findings.is_empty(), "{when}: {findings:#?}");
    }

    /// Writes it into an image file.
    pub(crate) fn write_to(&self, path: &Path) {
        let image = std::fs::File::create(path).expect("room");
        image.set_len(DEVICE_BYTES).expect("room, sparsely");
        for (offset, bytes) in self.device.written() {
            image.write_all_at(&bytes, offset).expect("room");
        }
    }

    /// Panics with what `btrfs check` finds, where that is installed.
    pub(crate) fn assert_btrfs_check(&self, when: &str) {
        let image = tempfile::NamedTempFile::new().expect("room");
        self.write_to(image.path());
        match btrfs_check(image.path()) {
            Some(said) => said.unwrap_or_else(|said| panic!("{when}: {said}")),
            None => eprintln!("skipped: btrfs check is not installed"),
        }
    }
}

impl Ground for Pool {
    fn open(&self) -> Filesystem {
        self.open()
    }

    fn assert_clean(&self, when: &str) {
        self.assert_clean(when);
    }
}

/// A subvolume as root makes it.
pub(crate) const NEW_SUBVOLUME: NewInode<'static> =
    NewInode { mode: 0o755, umask: 0o022, uid: 0, gid: 0, rdev: 0, target: None };
