//! A device in memory that can be written, and takes no more memory than was written.

use crate::file::fits;
use crate::{Device, DeviceClass, DeviceError, WritableDevice};
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The unit that memory is taken in, in bytes.
const PAGE_BYTES: usize = 4096;

/// Bytes in memory, to be read and written as a device; what was never written is zero.
pub struct SparseDevice {
    name: String,
    class: DeviceClass,
    contents: RwLock<Contents>,
}

struct Contents {
    size_bytes: u64,
    /// By number; what is not there is zero.
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
}

/// A part of a request that lies within one page.
struct Piece {
    page: u64,
    within: usize,
    length: usize,
}

impl SparseDevice {
    /// A device of zeros.
    pub fn new(name: impl Into<String>, size_bytes: u64, class: DeviceClass) -> Self {
        let contents = Contents { size_bytes, pages: BTreeMap::new() };
        Self { name: name.into(), class, contents: RwLock::new(contents) }
    }

    /// Everything that was written and is not zero: pairs of offset and bytes, in order.
    pub fn written(&self) -> Vec<(u64, Vec<u8>)> {
        let contents = self.read();
        let pages = contents.pages.iter().filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
        pages.map(|(page, bytes)| (page * PAGE_BYTES as u64, bytes.to_vec())).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_range(&self, offset: u64, length: usize, size_bytes: u64) -> Result<(), DeviceError> {
        if fits(offset, length, size_bytes) {
            return Ok(());
        }
        Err(DeviceError::BeyondEnd { device: self.name.clone(), offset, length, size_bytes })
    }
}

/// A range, cut at the bounds of pages.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = Piece> {
    let mut at = offset;
    let mut left = length;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let within = usize::try_from(at % PAGE_BYTES as u64).expect("a page is small");
        let piece = Piece { page: at / PAGE_BYTES as u64, within, length: left.min(PAGE_BYTES - within) };
        at += piece.length as u64;
        left -= piece.length;
        Some(piece)
    })
}

impl std::fmt::Debug for SparseDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SparseDevice").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Device for SparseDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.read().size_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let contents = self.read();
        self.check_range(offset, buffer.len(), contents.size_bytes)?;
        let mut rest = buffer;
        for piece in pieces(offset, rest.len()) {
            let (target, after) = rest.split_at_mut(piece.length);
            match contents.pages.get(&piece.page) {
                Some(page) => target.copy_from_slice(&page[piece.within..piece.within + piece.length]),
                None => target.fill(0),
            }
            rest = after;
        }
        Ok(())
    }

    fn class(&self) -> DeviceClass {
        self.class
    }
}

impl WritableDevice for SparseDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut contents = self.write();
        self.check_range(offset, bytes.len(), contents.size_bytes)?;
        let mut rest = bytes;
        for piece in pieces(offset, bytes.len()) {
            let (source, after) = rest.split_at(piece.length);
            rest = after;
            // Zeros take no memory where there is nothing else.
            if !contents.pages.contains_key(&piece.page) && source.iter().all(|byte| *byte == 0) {
                continue;
            }
            let page = contents.pages.entry(piece.page).or_insert_with(|| Box::new([0; PAGE_BYTES]));
            page[piece.within..piece.within + piece.length].copy_from_slice(source);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let mut contents = self.write();
        let end = offset.saturating_add(length).min(contents.size_bytes);
        contents.pages.retain(|page, bytes| {
            let start = page * PAGE_BYTES as u64;
            let within = |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
            let (from, to) = (within(offset).min(PAGE_BYTES), within(end).min(PAGE_BYTES));
            if from < to {
                bytes[from..to].fill(0);
            }
            from > 0 || to < PAGE_BYTES
        });
        Ok(true)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        let old = self.size_bytes();
        if size_bytes < old {
            self.discard(size_bytes, old - size_bytes)?;
        }
        self.write().size_bytes = size_bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(device: &SparseDevice) -> Vec<u8> {
        let mut bytes = vec![1; usize::try_from(device.size_bytes()).expect("small")];
        device.read_at(0, &mut bytes).expect("within");
        bytes
    }

    #[test]
    fn writes_and_discards_across_pages_are_those_of_a_plain_vector() {
        let device = SparseDevice::new("sparse", 5 * 4096, DeviceClass::Unknown);
        let mut model = vec![0u8; 5 * 4096];
        for (offset, length, fill) in [(10, 20, 1), (4000, 200, 2), (4096, 8192, 3), (20000, 480, 4)] {
            device.write_at(offset as u64, &vec![fill; length]).expect("within");
            model[offset..offset + length].fill(fill);
            assert_eq!(bytes_of(&device), model);
        }
        for (offset, length) in [(4050, 100), (4096, 4096), (0, 12), (20100, 1 << 30)] {
            assert!(device.discard(offset as u64, length as u64).expect("always"));
            let end = (offset + length).min(model.len());
            model[offset..end].fill(0);
            assert_eq!(bytes_of(&device), model);
        }
        assert!(matches!(device.write_at(5 * 4096, &[0]), Err(DeviceError::BeyondEnd { .. })));
    }

    #[test]
    fn bytes_that_are_cut_off_do_not_come_back() {
        let device = SparseDevice::new("sparse", 8192, DeviceClass::Solid);
        device.write_at(0, &[9; 8192]).expect("within");
        device.set_size(5000).expect("always");
        device.set_size(8192).expect("always");
        let bytes = bytes_of(&device);
        assert!(bytes[..5000].iter().all(|byte| *byte == 9) && bytes[5000..].iter().all(|byte| *byte == 0));
    }
}
