//! Deferred superblocks: a pool that is not recognised as one until it is whole.

use brindle_device::{Batch, Device, DeviceClass, DeviceError, WritableDevice, WriteRequest, write_now};
use brindle_ondisk::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, to_u64, to_usize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Device as the writers of a pool see it. Superblocks stay in memory until the veil is [lifted](Self::lift): if the
/// work ends early, by a crash or by request, the device holds no filesystem, not half of one.
#[derive(Debug)]
pub struct Veiled {
    device: Arc<dyn WritableDevice>,
    /// Superblocks, by where they belong.
    kept: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Veiled {
    /// Keeps back superblocks from now on; what is on the device stays there until it is overwritten otherwise.
    pub fn new(device: Arc<dyn WritableDevice>) -> Self {
        Self { device, kept: Mutex::default() }
    }

    /// Writes the superblocks, when all that they refer to is durable, the first copy last.
    pub fn lift(&self) -> Result<(), DeviceError> {
        self.device.flush()?;
        let kept = std::mem::take(&mut *self.kept());
        for (offset, superblock) in kept.into_iter().rev() {
            // An image may have become shorter.
            if offset + to_u64(superblock.len()) <= self.device.size_bytes() {
                self.device.write_at(offset, &superblock)?;
            }
        }
        self.device.flush()
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<u8>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what lies in a range, which is something else by now.
    fn forget(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        self.kept().retain(|at, superblock| *at >= end || at + to_u64(superblock.len()) <= offset);
    }
}

impl Device for Veiled {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(offset, buffer)?;
        let end = offset + to_u64(buffer.len());
        for (at, superblock) in self.kept().iter() {
            let (from, to) = (offset.max(*at), end.min(at + to_u64(superblock.len())));
            if from < to {
                let part = &superblock[to_usize(from - at)..to_usize(to - at)];
                buffer[to_usize(from - offset)..to_usize(to - offset)].copy_from_slice(part);
            }
        }
        Ok(())
    }

    fn prefetch(&self, offset: u64, length: u64) -> bool {
        self.device.prefetch(offset, length)
    }

    fn class(&self) -> DeviceClass {
        self.device.class()
    }
}

impl WritableDevice for Veiled {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let is_whole = bytes.len() == SUPERBLOCK_SIZE && SUPERBLOCK_OFFSETS.contains(&offset);
        if is_whole && bytes.iter().any(|byte| *byte != 0) {
            self.kept().insert(offset, bytes.to_vec());
            return Ok(());
        }
        self.forget(offset, to_u64(bytes.len()));
        self.device.write_at(offset, bytes)
    }

    fn write_pieces_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        if let [one] = pieces {
            if one.len() == SUPERBLOCK_SIZE {
                return self.write_at(offset, one);
            }
        }
        self.forget(offset, pieces.iter().map(|piece| to_u64(piece.len())).sum());
        self.device.write_pieces_at(offset, pieces)
    }

    fn submit_write<'a>(&'a self, write: WriteRequest<'a>, batch: &mut Batch<'a>) {
        let length = write.pieces.iter().map(|piece| piece.len()).sum();
        if length == SUPERBLOCK_SIZE {
            return batch.answer(write_now(self, &write));
        }
        self.forget(write.offset, to_u64(length));
        self.device.submit_write(write, batch);
    }

    fn submit_flush<'a>(&'a self, batch: &mut Batch<'a>) {
        self.device.submit_flush(batch);
    }

    fn bypass_cache(&self) {
        self.device.bypass_cache();
    }

    fn return_to_cache(&self) {
        self.device.return_to_cache();
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let is_done = self.device.discard(offset, length)?;
        if is_done {
            self.forget(offset, length);
        }
        Ok(is_done)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.device.set_size(size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_device::SparseDevice;

    #[test]
    fn superblocks_are_seen_at_once_and_there_when_the_veil_is_lifted() {
        let device = Arc::new(SparseDevice::new("x", 65 << 20, DeviceClass::Solid));
        let veiled = Veiled::new(Arc::clone(&device) as Arc<dyn WritableDevice>);
        let (first, second) = (SUPERBLOCK_OFFSETS[0], SUPERBLOCK_OFFSETS[1]);
        veiled.write_at(first, &[1; SUPERBLOCK_SIZE]).expect("room");
        veiled.write_pieces_at(second, &[&[2; SUPERBLOCK_SIZE]]).expect("room");
        veiled.write_at(first + to_u64(SUPERBLOCK_SIZE), &[3; 100]).expect("room");
        let read = |device: &dyn Device| {
            let mut around = [9; SUPERBLOCK_SIZE + 2];
            device.read_at(first - 1, &mut around).expect("readable");
            (around[0], around[1], around[SUPERBLOCK_SIZE], around[SUPERBLOCK_SIZE + 1])
        };
        assert_eq!((read(&veiled), read(device.as_ref())), ((0, 1, 1, 3), (0, 0, 0, 3)));
        veiled.set_size(second).expect("shorter");
        veiled.lift().expect("room");
        assert_eq!(read(device.as_ref()), (0, 1, 1, 3));
        veiled.write_at(first, &[0; SUPERBLOCK_SIZE]).expect("room");
        assert_eq!((read(&veiled), read(device.as_ref())), ((0, 0, 0, 3), (0, 0, 0, 3)));
    }
}
