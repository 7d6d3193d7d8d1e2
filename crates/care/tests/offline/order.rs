//! The order in which mkfs writes: it may stop anywhere.

use crate::support::{MIB, options};
use brindle_care::mkfs::{NewDevice, mkfs};
use brindle_device::{Device, DeviceClass, DeviceError, SparseDevice, WritableDevice};
use brindle_ondisk::SUPERBLOCK_OFFSETS;
use std::sync::{Arc, Mutex};

/// Operation on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Write { offset: u64, is_zero: bool },
    Flush,
}

type Log = Arc<Mutex<Vec<(usize, Step)>>>;

/// A device that cannot discard, and notes what it is asked.
#[derive(Debug)]
struct Recorder {
    inner: SparseDevice,
    number: usize,
    log: Log,
}

impl Recorder {
    fn note(&self, step: Step) {
        self.log.lock().expect("no test panics holding it").push((self.number, step));
    }
}

impl Device for Recorder {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset, buffer)
    }
}

impl WritableDevice for Recorder {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.note(Step::Write { offset, is_zero: bytes.iter().all(|byte| *byte == 0) });
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.note(Step::Flush);
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<bool, DeviceError> {
        Ok(false)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.set_size(size_bytes)
    }
}

/// Each device's steps, with everything between two flushes sorted into wiping, trees and superblocks.
#[test]
fn superblocks_come_last_and_what_was_there_goes_first() {
    let log = Log::default();
    let recorder = |number: usize| -> NewDevice {
        let inner = SparseDevice::new(format!("recorder{number}"), 256 * MIB, DeviceClass::Unknown);
        NewDevice::new(Arc::new(Recorder { inner, number, log: Arc::clone(&log) }))
    };
    mkfs(&[recorder(0), recorder(1)], &options()).expect("enough devices");
    let steps = log.lock().expect("no test panics holding it").clone();
    let mut phase = 0;
    let mut flushed = [false; 2];
    for (device, step) in steps {
        match step {
            Step::Flush => {
                flushed[device] = true;
                if flushed == [true; 2] {
                    (phase, flushed) = (phase + 1, [false; 2]);
                }
            }
            Step::Write { offset, is_zero } => {
                assert_eq!(flushed, [false; 2], "nothing is written between the flushes of a phase");
                let is_superblock = SUPERBLOCK_OFFSETS.contains(&offset);
                match phase {
                    0 => assert!(is_zero, "first, what was there is wiped: {offset}"),
                    1 => assert!(!is_zero && !is_superblock, "then come the trees: {offset}"),
                    2 => assert!(!is_zero && is_superblock, "and superblocks last: {offset}"),
                    _ => panic!("nothing is written after the last flush"),
                }
            }
        }
    }
    assert_eq!((phase, flushed), (3, [false; 2]), "everything is flushed");
}
