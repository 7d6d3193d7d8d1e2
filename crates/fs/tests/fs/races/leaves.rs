//! Items that change while a lookup goes from one leaf to the next.

use crate::simulated::{Layout, Pool};
use brindle_device::{Device, DeviceClass, DeviceError, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, NewInode, OpenFile, Whence};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Something to be done.
type Deed = Box<dyn FnOnce() + Send>;

/// A device that has something done before it answers one of its next reads.
struct InterruptedReads {
    inner: Arc<SparseDevice>,
    /// With the number of reads that are answered before.
    before: Mutex<Option<(usize, Deed)>>,
}

impl InterruptedReads {
    fn before_read(&self, after: usize, act: impl FnOnce() + Send + 'static) {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Some((after, Box::new(act)));
    }

    /// Returns what is to be done before this read, if that is now.
    fn next_read(&self) -> Option<Deed> {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, _) = before.as_mut()?;
        match left.checked_sub(1) {
            Some(less) => {
                *left = less;
                None
            }
            None => before.take().map(|(_, act)| act),
        }
    }
}

impl fmt::Debug for InterruptedReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Device for InterruptedReads {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        if let Some(act) = self.next_read() {
            // On a thread of its own: the one that reads holds locks of the file.
            std::thread::scope(|scope| scope.spawn(act).join()).expect("no panic");
        }
        self.inner.read_at(offset, buffer)
    }

    fn class(&self) -> DeviceClass {
        self.inner.class()
    }
}

impl WritableDevice for InterruptedReads {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.inner.discard(offset, length)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.set_size(size_bytes)
    }
}

/// Pieces of a file whose items fill several leaves, and the length of each, in bytes.
const PIECES: u64 = 300;
const PIECE_BYTES: usize = 64 << 10;

/// Looks at a file while others write into the middle of each of its pieces, from which on a device answers the read of this
/// number. Returns true if it did.
fn looked_at(device: &Arc<SparseDevice>, layout: &Layout, reads: usize, look: Look) -> bool {
    let interrupted = Arc::new(InterruptedReads { inner: Arc::clone(device), before: Mutex::default() });
    let pool = Pool::on(vec![Arc::<InterruptedReads>::clone(&interrupted)], layout);
    let filesystem = Arc::new(pool.open().expect("a pool"));
    let entry = filesystem.lookup(filesystem.root(), b"file").expect("readable").expect("there");
    let file = filesystem.open_file(entry.inode).expect("opens");
    let weak = Arc::downgrade(&filesystem);
    interrupted.before_read(reads, move || {
        let filesystem = weak.upgrade().expect("it is open");
        let file = filesystem.open_file(entry.inode).expect("opens");
        for piece in 0..PIECES {
            filesystem.write(&file, piece * PIECE_BYTES as u64 + 16384, &[2; 4096]).expect("room");
        }
        filesystem.write_back(&file).expect("room");
    });
    look(&filesystem, &file);
    let is_left = interrupted.before.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    !is_left
}

type Look = fn(&Filesystem, &OpenFile);

#[test]
fn files_are_read_while_items_change_from_leaf_to_leaf() {
    let layout = Layout { nodesize: 4096, ..Layout::of(0) };
    let device = Arc::new(SparseDevice::new("memory".to_owned(), layout.device_bytes(), layout.class(0)));
    layout.mkfs(&[Arc::<SparseDevice>::clone(&device)]);
    let pool = Pool::on(vec![Arc::<SparseDevice>::clone(&device)], &layout);
    let filesystem = pool.open().expect("a new pool");
    let new = NewInode { mode: 0o100_600, ..NewInode::default() };
    let (_, file) = filesystem.create_open(filesystem.root(), b"file", &new).expect("room");
    for piece in 0..PIECES {
        filesystem.write(&file, piece * PIECE_BYTES as u64, &[1; PIECE_BYTES]).expect("room");
        filesystem.write_back(&file).expect("room");
    }
    filesystem.close_file(file).expect("closes");
    filesystem.shutdown().expect("durable");
    drop(filesystem);
    let looks: [Look; 4] = [
        |fs, file| {
            let found = fs.read_bytes(file, 0, PIECE_BYTES).expect("readable");
            assert!(found.parts().flatten().all(|byte| *byte == 1 || *byte == 2));
        },
        |fs, file| {
            let mut found = vec![0; 1 << 20];
            fs.read(file, 0, &mut found).expect("readable");
            assert!(found.iter().all(|byte| *byte == 1 || *byte == 2));
        },
        |fs, file| {
            assert_eq!(fs.seek(file, 5, Whence::Hole).expect("readable"), Some(PIECES * PIECE_BYTES as u64));
        },
        |fs, file| assert_eq!(fs.write(file, 100, b"in a sector").expect("room"), 11),
    ];
    for (number, look) in looks.into_iter().enumerate() {
        let copy = || {
            let copy = SparseDevice::new("copy".to_owned(), device.size_bytes(), device.class());
            device.written().into_iter().for_each(|(at, bytes)| copy.write_at(at, &bytes).expect("memory"));
            Arc::new(copy)
        };
        let interrupted = (0..100).take_while(|reads| looked_at(&copy(), &layout, *reads, look)).count();
        assert!(interrupted > 4, "look {number}: {interrupted} reads");
    }
}
