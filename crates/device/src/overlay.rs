//! A device whose writes stay in memory.

use crate::file::fits;
use crate::{Device, DeviceClass, DeviceError, PendingRead, ReadRequest, WritableDevice, read_in_turn};
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::sync::{Arc, PoisonError, RwLock};

/// Unit of memory, in bytes.
const PAGE_BYTES: usize = 4096;

type Pages = BTreeMap<u64, Box<[u8; PAGE_BYTES]>>;

/// A device that shows another one, which is only read, with what was written since. That stays in memory.
pub struct OverlayDevice {
    base: Arc<dyn Device>,
    /// The most that is written, in bytes.
    limit_bytes: usize,
    /// Pages that were written, by number.
    pages: RwLock<Pages>,
}

impl OverlayDevice {
    /// An overlay of nothing. Writes beyond `limit_bytes` of memory fail.
    pub fn new(base: Arc<dyn Device>, limit_bytes: usize) -> Self {
        Self { base, limit_bytes, pages: RwLock::default() }
    }

    /// Everything that was written: pairs of offset and a page of bytes, in order. A page that passes the end of the device is cut
    /// there.
    pub fn written(&self) -> Vec<(u64, Vec<u8>)> {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let mut written = Vec::with_capacity(pages.len());
        for (number, bytes) in &*pages {
            let offset = number * PAGE_BYTES as u64;
            let left = usize::try_from(self.size_bytes().saturating_sub(offset)).unwrap_or(usize::MAX);
            written.push((offset, bytes[..left.min(PAGE_BYTES)].to_vec()));
        }
        written
    }

    fn check_range(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        let size_bytes = self.size_bytes();
        if fits(offset, length, size_bytes) {
            return Ok(());
        }
        Err(DeviceError::BeyondEnd { device: self.name().to_owned(), offset, length, size_bytes })
    }

    /// A page as the device below has it; zeros behind its end.
    fn below(&self, page: u64) -> Result<Box<[u8; PAGE_BYTES]>, DeviceError> {
        let start = page * PAGE_BYTES as u64;
        let left = self.size_bytes().saturating_sub(start);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(PAGE_BYTES);
        let mut bytes = Box::new([0; PAGE_BYTES]);
        self.base.read_at(start, &mut bytes[..length])?;
        Ok(bytes)
    }
}

impl std::fmt::Debug for OverlayDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OverlayDevice").field("base", &self.base).finish_non_exhaustive()
    }
}

/// The numbers of the pages that a range has a part in.
fn pages_of(offset: u64, length: usize) -> std::ops::Range<u64> {
    let page = PAGE_BYTES as u64;
    offset / page..(offset + length as u64).div_ceil(page)
}

/// The part of a page that belongs to a range, and where in the range it lies.
fn part(page: u64, offset: u64, length: usize) -> (usize, usize, usize) {
    let start = page * PAGE_BYTES as u64;
    let (from, to) = (offset.max(start), (offset + length as u64).min(start + PAGE_BYTES as u64));
    let within = |at: u64| usize::try_from(at).expect("a page, and what is read at once, fit memory");
    (within(from - start), within(from - offset), within(to - from))
}

impl Device for OverlayDevice {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.check_range(offset, buffer.len())?;
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        self.base.read_at(offset, buffer)?;
        for (number, page) in pages.range(pages_of(offset, buffer.len())) {
            let (within, at, length) = part(*number, offset, buffer.len());
            buffer[at..at + length].copy_from_slice(&page[within..within + length]);
        }
        Ok(())
    }

    fn submit_reads(&self, requests: &[ReadRequest]) -> Vec<PendingRead> {
        let is_below = {
            let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
            let is_below = |read: &ReadRequest| {
                self.check_range(read.offset, read.length).is_ok()
                    && pages.range(pages_of(read.offset, read.length)).next().is_none()
            };
            requests.iter().all(is_below)
        };
        if is_below { self.base.submit_reads(requests) } else { read_in_turn(self, requests) }
    }

    fn prefetch(&self, offset: u64, length: u64) -> bool {
        self.base.prefetch(offset, length)
    }

    fn host_in_flight(&self) -> Option<u32> {
        self.base.host_in_flight()
    }

    fn class(&self) -> DeviceClass {
        self.base.class()
    }

    fn queue_depth(&self) -> u32 {
        self.base.queue_depth()
    }
}

impl WritableDevice for OverlayDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check_range(offset, bytes.len())?;
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        for number in pages_of(offset, bytes.len()) {
            if !pages.contains_key(&number) {
                if (pages.len() + 1) * PAGE_BYTES > self.limit_bytes {
                    let source =
                        Error::new(ErrorKind::StorageFull, "what is kept in memory has grown too large");
                    let (device, length) = (self.name().to_owned(), bytes.len() as u64);
                    return Err(DeviceError::Write { device, offset, length, source });
                }
                pages.insert(number, self.below(number)?);
            }
            let (within, at, length) = part(number, offset, bytes.len());
            if let Some(page) = pages.get_mut(&number) {
                page[within..within + length].copy_from_slice(&bytes[at..at + length]);
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _length: u64) -> Result<bool, DeviceError> {
        Ok(false)
    }

    fn set_size(&self, _size_bytes: u64) -> Result<(), DeviceError> {
        Err(DeviceError::FixedSize { device: self.name().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn writes_are_seen_and_the_device_below_stays_as_it_was() {
        let below: Vec<u8> = (0..20_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let base: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", below.clone()));
        let overlay = OverlayDevice::new(Arc::clone(&base), 1 << 20);
        let mut model = below.clone();
        for (offset, length, fill) in [(10, 20, 1), (4000, 200, 2), (4096, 8192, 3), (19_000, 1000, 4)] {
            overlay.write_at(offset as u64, &vec![fill; length]).expect("within");
            model[offset..offset + length].fill(fill);
            for (from, length) in [(0, 20_000), (4090, 10), (offset, length), (19_990, 10), (5000, 0)] {
                let mut bytes = vec![0; length];
                overlay.read_at(from as u64, &mut bytes).expect("within");
                assert_eq!(bytes, model[from..from + length]);
            }
        }
        let mut bytes = vec![0; below.len()];
        base.read_at(0, &mut bytes).expect("within");
        assert_eq!(bytes, below);
        let written = overlay.written();
        assert_eq!(written.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 4096, 8192, 16_384]);
        for (at, page) in written {
            let at = usize::try_from(at).expect("small");
            assert_eq!(page, model[at..(at + 4096).min(model.len())]);
        }
        assert!(matches!(overlay.write_at(19_999, &[0; 2]), Err(DeviceError::BeyondEnd { .. })));
        assert!(overlay.set_size(5).is_err() && !overlay.discard(0, 4096).expect("never fails"));
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let overlay =
            OverlayDevice::new(Arc::new(MemoryDevice::new("below", vec![0; 1 << 20])), 3 * PAGE_BYTES);
        overlay.write_at(100, &[1; 2 * PAGE_BYTES]).expect("three pages");
        assert!(matches!(overlay.write_at(1 << 19, &[1]), Err(DeviceError::Write { .. })));
        overlay.write_at(0, &[2; 100]).expect("a page that is there");
    }
}
