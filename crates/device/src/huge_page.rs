//! Memory for long requests, on huge pages.
//!
//! A device is told of a direct request by physically contiguous segments, and takes a limited number of them at a time. On pages of 4 KiB a
//! request of 1 MiB has 256: a queue of virtio with room for 256 descriptors is full with one such request, whatever is
//! submitted beside it. On a huge page it has one. Where the host gives no huge pages (`transparent_hugepage` is `never`,
//! or memory is in pieces), the memory is as any other.
#![expect(unsafe_code, reason = "mappings of memory; the module has all of it")]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Length of a huge page of most machines, in bytes; a mapping is so long, and aligned to it.
const MAPPING_BYTES: usize = 2 << 20;
/// Length of a slot, in bytes.
pub(crate) const SLOT_BYTES: usize = 1 << 20;

/// A mapping, which its slots keep.
#[derive(Debug)]
struct Mapping(NonNull<u8>);

/// A half of a mapping, which nothing else uses.
#[derive(Debug)]
pub(crate) struct Slot {
    mapping: Arc<Mapping>,
    /// First byte within the mapping.
    offset: usize,
}

// SAFETY: a mapping is memory of the process like that of a box. Its bytes are reached through slots alone, which share none.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A mapping of zeros; `None` if the host has no memory.
    fn new() -> Option<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let length = 2 * MAPPING_BYTES;
        // SAFETY: the host chooses the place, so nothing that is in use is mapped anew.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE) };
        let start = NonNull::new(start.ok()?.cast::<u8>())?;
        let skipped = start.as_ptr().align_offset(MAPPING_BYTES);
        // SAFETY: of the mapping that was just made, all that is unmapped lies before or behind the part that is kept.
        unsafe {
            let kept = start.add(skipped);
            if skipped > 0 {
                munmap(start.as_ptr().cast(), skipped).ok()?;
            }
            munmap(kept.add(MAPPING_BYTES).as_ptr().cast(), length - skipped - MAPPING_BYTES).ok()?;
            // Without huge pages the memory is as good, and slower.
            let _ = madvise(kept.as_ptr().cast(), MAPPING_BYTES, Advice::LinuxHugepage);
            Some(Self(kept))
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: no slot is left that could reach it. A failure leaves it mapped.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), MAPPING_BYTES) };
    }
}

impl Slot {
    /// Both slots of a new mapping, with zeros; `None` if the host has no memory.
    pub(crate) fn pair() -> Option<[Self; 2]> {
        let mapping = Arc::new(Mapping::new()?);
        Some([Self { mapping: Arc::clone(&mapping), offset: 0 }, Self { mapping, offset: SLOT_BYTES }])
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot lies in the mapping, which lives as long as the slot, and is initialised by the host. The bytes
        // change through this slot alone.
        unsafe { std::slice::from_raw_parts(self.mapping.0.add(self.offset).as_ptr(), SLOT_BYTES) }
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the slot is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.0.add(self.offset).as_ptr(), SLOT_BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_aligned_and_apart() {
        let [mut one, mut other] = Slot::pair().expect("memory");
        assert_eq!(one.as_ptr().align_offset(MAPPING_BYTES), 0);
        assert!(one.iter().chain(other.iter()).all(|byte| *byte == 0));
        one.fill(1);
        other.fill(2);
        drop(other);
        assert!(one.len() == SLOT_BYTES && one.iter().all(|byte| *byte == 1));
        let start = one.as_ptr().addr();
        drop(one);
        assert!(!is_mapped(start), "both are gone");
    }

    fn is_mapped(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("there is a process");
        maps.lines().any(|line| {
            let (start, rest) = line.split_once('-').expect("a range");
            let end = rest.split(' ').next().expect("a range");
            let parse = |text| usize::from_str_radix(text, 16).expect("hexadecimal");
            (parse(start)..parse(end)).contains(&address)
        })
    }
}
