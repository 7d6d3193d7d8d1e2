//! A pool in memory, cheap to copy, on a device that lets other threads go on before each request.

use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_check::{CheckOptions, NoProgress};
use brindle_device::{Device, DeviceClass, DeviceError, WritableDevice};
use brindle_fs::{
    Filesystem, FsError, Host, InodeId, NewInode, OpenFile, OpenOptions, Remaining, Timestamp, WriteOptions,
};
use brindle_ondisk::item::DevStats;
use brindle_ondisk::{Profile, Uuid};
use brindle_sim::{Image, ImageDevice};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Schedules of each kind that a scenario goes through unless told otherwise.
pub(crate) const SCHEDULES: usize = 400;
/// The size of the device, in bytes.
const DEVICE_BYTES: u64 = 256 << 20;
/// A file that only its owner uses.
pub(crate) const NEW_FILE: NewInode<'static> =
    NewInode { mode: 0o100_600, umask: 0, uid: 0, gid: 0, rdev: 0, target: None };

/// A device whose writes a crash loses until they are flushed.
pub(crate) struct Yielding {
    device: ImageDevice,
    durable: Mutex<Image>,
    /// A thread that writes or flushes goes behind all others, as one that waits for a device does. Otherwise it may be
    /// overtaken, and need not: then a thread can be held up for long elsewhere.
    yields: bool,
    /// An atomic of the explorer: another thread may go on at each access.
    requests: brindle_sync::atomic::AtomicU64,
}

impl Yielding {
    fn new(image: &Image, yields: bool) -> Self {
        let device = ImageDevice::new("memory", image.clone(), DeviceClass::Solid);
        Self { device, durable: Mutex::new(image.clone()), yields, requests: 0.into() }
    }

    /// Lets another thread go on before a request that changes something.
    fn give_turn(&self) {
        if self.yields { brindle_sync::thread::yield_now() } else { self.offer_turn() }
    }

    /// Another thread may go on before a request.
    fn offer_turn(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for Yielding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}

impl Device for Yielding {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.offer_turn();
        self.device.read_at(offset, buffer)
    }

    fn class(&self) -> DeviceClass {
        self.device.class()
    }
}

impl WritableDevice for Yielding {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.give_turn();
        self.device.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.give_turn();
        *self.durable.lock().expect("one thread") = self.device.image();
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.offer_turn();
        self.device.discard(offset, length)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.device.set_size(size_bytes)
    }
}

/// A filesystem that is mounted, and its device.
pub(crate) struct World {
    device: Arc<Yielding>,
    pub(crate) fs: Filesystem,
}

impl World {
    /// The image of a new pool, after `prepare` has changed it.
    pub(crate) fn image(prepare: impl Fn(&Filesystem) + Send + Sync + 'static) -> Image {
        brindle_sync::once(move || {
            let device = Arc::new(Yielding::new(&Image::new(DEVICE_BYTES), false));
            let mut options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
            (options.data, options.metadata) = (Some(Profile::Single), Some(Profile::Single));
            options.nodesize = Some(4096);
            let new = NewDevice::new(Arc::<Yielding>::clone(&device));
            mkfs(&[new], &options).expect("a device that is large enough");
            let world = Self::on(device, false);
            prepare(&world.fs);
            world.fs.commit().expect("durable");
            let World { device, fs } = world;
            drop(fs);
            device.device.image()
        })
    }

    /// Mounts the pool of an image.
    pub(crate) fn mount(image: &Image) -> Self {
        Self::on(Arc::new(Yielding::new(image, false)), false)
    }

    /// The same, on a device that is slow to write.
    pub(crate) fn mount_slow(image: &Image) -> Self {
        Self::on(Arc::new(Yielding::new(image, true)), false)
    }

    /// The same, with upkeep that gives freed space back to the device.
    pub(crate) fn mount_discarding(image: &Image) -> Self {
        Self::on(Arc::new(Yielding::new(image, false)), true)
    }

    fn on(device: Arc<Yielding>, discard: bool) -> Self {
        let mut generation = [0; 8];
        device.read_at(0x1_0048, &mut generation).expect("within the device");
        let next = AtomicU64::new(u64::from_le_bytes(generation) << 20);
        let write = WriteOptions { host: Arc::new(Numbers(next)), discard, ..WriteOptions::default() };
        let devices: Vec<Arc<dyn WritableDevice>> = vec![Arc::<Yielding>::clone(&device)];
        let fs = Filesystem::open_writable(devices, &OpenOptions::default(), &write).expect("a whole pool");
        Self { device, fs }
    }

    /// The device as a crash leaves it now: without what was not flushed.
    pub(crate) fn crash(&self) -> Image {
        self.device.durable.lock().expect("one thread").clone()
    }

    /// Ends all upkeep, commits, and unmounts; the pool must be sound. Returns it, mounted once more.
    pub(crate) fn remount(self) -> Self {
        while self.fs.background_step().expect("upkeep") == Remaining::More {}
        self.fs.sync().expect("durable");
        self.assert_no_errors();
        let World { device, fs } = self;
        drop(fs);
        let image = device.device.image();
        check(&image);
        Self::mount(&image)
    }

    /// No read has found what did not belong there.
    pub(crate) fn assert_no_errors(&self) {
        for (device, errors) in self.fs.pool().device_statistics().expect("they are in memory") {
            assert!(errors == DevStats::default(), "{device:?}: {errors:?}");
        }
    }

    /// A file of this name, opened; `None` if there is none.
    pub(crate) fn open(&self, name: &[u8]) -> Option<OpenFile> {
        self.open_in(self.fs.root(), name)
    }

    /// The same, in a directory.
    pub(crate) fn open_in(&self, directory: InodeId, name: &[u8]) -> Option<OpenFile> {
        let entry = self.fs.lookup(directory, name).expect("reads")?;
        Some(self.fs.open_file(entry.inode).expect("it is there"))
    }

    /// The contents of a file; `None` if there is none.
    pub(crate) fn contents(&self, name: &[u8]) -> Option<Vec<u8>> {
        let file = self.open(name)?;
        let bytes = self.read(&file);
        self.fs.close_file(file).expect("closes");
        Some(bytes)
    }

    /// The contents of an open file.
    pub(crate) fn read(&self, file: &OpenFile) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        let length = self.fs.read(file, 0, &mut bytes).expect("reads");
        bytes.truncate(length);
        bytes
    }
}

/// Makes a file with these contents.
pub(crate) fn make(fs: &Filesystem, name: &[u8], contents: &[u8]) {
    let (_, file) = fs.create_open(fs.root(), name, &NEW_FILE).expect("room");
    fs.write(&file, 0, contents).expect("room");
    fs.sync_file(&file).expect("durable");
    fs.close_file(file).expect("closes");
}

/// The pool of an image is sound, by brindle's own examination.
pub(crate) fn check(image: &Image) {
    let device = ImageDevice::new("examined", image.clone(), DeviceClass::Solid);
    let options = CheckOptions { check_data_csum: true, threads: Some(1), ..CheckOptions::default() };
    let report = brindle_check::check(vec![Arc::new(device)], &options, &NoProgress).expect("it can be read");
    let findings: Vec<String> =
        report.findings().map(|(pass, finding)| format!("{pass}: {finding}")).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// A crash left a sound pool of this image; `look` sees it with its log replayed.
pub(crate) fn after_crash(image: &Image, look: impl FnOnce(&World)) {
    let world = World::mount(image);
    look(&world);
    drop(world.remount());
}

/// Asserts that all bytes of a range are among these.
pub(crate) fn assert_all(bytes: &[u8], range: Range<usize>, allowed: &[u8], what: &str) {
    assert!(bytes.len() >= range.end, "{what}: {} bytes", bytes.len());
    let odd = bytes[range].iter().position(|byte| !allowed.contains(byte));
    assert!(odd.is_none(), "{what}: something else at {odd:?}");
}

/// The result of an operation that may come too late.
pub(crate) fn came_in_time(result: Result<(), FsError>) -> bool {
    match result {
        Ok(()) => true,
        Err(FsError::NotFound(_) | FsError::NoInode(_) | FsError::Exists(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

/// A time that stands still, and numbers that no pool has twice.
#[derive(Debug)]
struct Numbers(AtomicU64);

impl Host for Numbers {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: 1_800_000_000, nanoseconds: 5 }
    }

    fn new_uuid(&self) -> Uuid {
        let mut bytes = [0x80; 16];
        bytes[8..].copy_from_slice(&(1 << 63 | self.0.fetch_add(1, Ordering::Relaxed)).to_be_bytes());
        Uuid(bytes)
    }
}
