//! Small caches for tests.

use brindle_cache::{Cache, CacheClock, CacheError, CreateOptions, Mode, create, load};
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

    pub(crate) fn create<D: WritableDevice + 'static>(self, [flash, disk]: &[Arc<D>; 2]) -> Cache {
        let made = create(
            Arc::clone(flash) as _,
            Arc::clone(disk) as _,
            &self.options(),
            Arc::new(TestClock::default()),
        );
        made.expect("it can be made")
    }
}

/// Opens a cache again.
pub(crate) fn open<D: WritableDevice + 'static>(
    [flash, disk]: &[Arc<D>; 2],
    is_forced: bool,
) -> Result<Cache, CacheError> {
    let (flash, disk): (Arc<dyn WritableDevice>, Arc<dyn WritableDevice>) =
        (Arc::clone(flash) as _, Arc::clone(disk) as _);
    load(&flash, &disk, is_forced, Arc::new(TestClock::default()))
}

/// All contents of a device.
pub(crate) fn contents(device: &(impl WritableDevice + ?Sized)) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size_bytes()).expect("small")];
    device.read_at(0, &mut bytes).expect("it can be read");
    bytes
}
