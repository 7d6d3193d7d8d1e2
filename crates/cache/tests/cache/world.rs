//! Small caches for tests.

use brindle_cache::{
    Cache, CacheClock, CacheError, CreateOptions, Mode, create, create_mirrored, load, load_mirrored,
};
use brindle_device::{DeviceClass, WritableDevice};
use brindle_sim::{Image, ImageDevice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Length of a block of these caches.
pub(crate) const BLOCK: u64 = 1024;

/// Clock that a test turns.
#[derive(Debug, Default)]
pub(crate) struct TestClock(AtomicU64);

impl TestClock {
    /// Lets seconds pass.
    pub(crate) fn pass(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl CacheClock for TestClock {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

/// Sizes of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) mode: Mode,
    pub(crate) flash_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) associativity: u32,
}

/// 32 slots in sets of 8.
pub(crate) const TINY: Shape =
    Shape { mode: Mode::Back, flash_bytes: (64 + 32) << 10, disk_bytes: 512 << 10, associativity: 8 };
/// 512 slots in sets of 64: three blocks of the table.
pub(crate) const SMALL: Shape =
    Shape { mode: Mode::Back, flash_bytes: (64 + 512) << 10, disk_bytes: 2 << 20, associativity: 64 };

impl Shape {
    pub(crate) fn options(self) -> CreateOptions {
        CreateOptions {
            name: "pair".to_owned(),
            mode: self.mode,
            block_bytes: BLOCK,
            associativity: self.associativity,
            size_bytes: None,
            is_write_only: false,
            is_forced: false,
            uuids: [[1; 16], [2; 16], [3; 16]],
        }
    }

    /// New devices in memory: flash and disk.
    pub(crate) fn devices(self) -> [Arc<ImageDevice>; 2] {
        let device = |name, bytes, class| Arc::new(ImageDevice::new(name, Image::new(bytes), class));
        [
            device("flash", self.flash_bytes, DeviceClass::Solid),
            device("disk", self.disk_bytes, DeviceClass::Rotating),
        ]
    }

    /// New devices in memory: two SSDs and the disk.
    pub(crate) fn mirrored_devices(self) -> [Arc<ImageDevice>; 3] {
        let ([first, disk], [second, _]) = (self.devices(), self.devices());
        let second = ImageDevice::new("mirror", second.image(), DeviceClass::Solid);
        [first, Arc::new(second), disk]
    }

    pub(crate) fn create_mirrored<D: WritableDevice + 'static>(
        self,
        [first, second, disk]: &[Arc<D>; 3],
    ) -> Result<Cache, CacheError> {
        let flash: [Arc<dyn WritableDevice>; 2] = [Arc::clone(first) as _, Arc::clone(second) as _];
        create_mirrored(flash, Arc::clone(disk) as _, &self.options(), Arc::new(TestClock::default()))
    }

    pub(crate) fn create<D: WritableDevice + 'static>(self, devices: &[Arc<D>; 2]) -> Cache {
        self.create_with(devices, Arc::new(TestClock::default()))
    }

    pub(crate) fn create_with<D: WritableDevice + 'static>(
        self,
        [flash, disk]: &[Arc<D>; 2],
        clock: Arc<TestClock>,
    ) -> Cache {
        let made = create(Arc::clone(flash) as _, Arc::clone(disk) as _, &self.options(), clock);
        made.expect("it can be made")
    }
}

/// Opens a cache again.
pub(crate) fn open<D: WritableDevice + 'static>(
    devices: &[Arc<D>; 2],
    is_forced: bool,
) -> Result<Cache, CacheError> {
    open_with(devices, is_forced, Arc::new(TestClock::default()))
}

/// Opens a cache again, with a clock.
pub(crate) fn open_with<D: WritableDevice + 'static>(
    [flash, disk]: &[Arc<D>; 2],
    is_forced: bool,
    clock: Arc<TestClock>,
) -> Result<Cache, CacheError> {
    let (flash, disk): (Arc<dyn WritableDevice>, Arc<dyn WritableDevice>) =
        (Arc::clone(flash) as _, Arc::clone(disk) as _);
    load(&flash, &disk, is_forced, clock)
}

/// Opens a cache on two SSDs again.
pub(crate) fn open_mirrored<D: WritableDevice + 'static>(
    [first, second, disk]: &[Arc<D>; 3],
    is_forced: bool,
) -> Result<Cache, CacheError> {
    let devices = [first, second, disk].map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
    load_mirrored([&devices[0], &devices[1]], &devices[2], is_forced, Arc::new(TestClock::default()))
}

/// Opens a cache on two SSDs with one of them.
pub(crate) fn open_half<D: WritableDevice + 'static>(
    devices: &[Arc<D>; 3],
    half: usize,
    is_forced: bool,
) -> Result<Cache, CacheError> {
    open(&[Arc::clone(&devices[half]), Arc::clone(&devices[2])], is_forced)
}

/// All contents of a device.
pub(crate) fn contents(device: &(impl WritableDevice + ?Sized)) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size_bytes()).expect("small")];
    device.read_at(0, &mut bytes).expect("it can be read");
    bytes
}
