//! Memory that reads are made into, and writes from.

use crate::DIRECT_ALIGNMENT;
use crate::huge_page::{SLOT_BYTES, Slot};
use brindle_sync::{Mutex, Rank, process_wide};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Shortest buffer on a huge page, in bytes: a shorter one would waste more than half of its slot.
const SLOT_LENGTH_MIN: usize = SLOT_BYTES / 2 + 1;
/// Shortest memory that is kept for the next buffer, in bytes: the allocator serves shorter ones as fast.
const KEPT_LENGTH_MIN: usize = 64 << 10;
/// Number of memories that are kept, of slots as of others.
const KEPT_MAX: usize = 16;

process_wide! {
    /// Memory that no buffer uses. It serves all pools of the process, so a panic in one of them is none of the others'
    /// business: whatever is in the lists is whole.
    static KEPT: Mutex<Kept> = Mutex::new(Rank::DeviceBuffers, Kept { short: Vec::new(), slots: Vec::new() });
}

struct Kept {
    short: Vec<Vec<u8>>,
    slots: Vec<Slot>,
}

/// Bytes owned by one request, aligned in memory to [`DIRECT_ALIGNMENT`]. Those of up to 1 MiB and more than half of that lie on huge pages.
pub struct Buffer {
    memory: Memory,
    length: usize,
}

enum Memory {
    Slot(Slot),
    Allocated {
        bytes: Vec<u8>,
        start: usize,
    },
    /// Of a buffer that is dropped.
    None,
}

impl Buffer {
    /// A buffer of this length in bytes. Its contents are unspecified: zeros, or those of an earlier buffer.
    pub fn new(length: usize) -> Self {
        let is_slot = (SLOT_LENGTH_MIN..=SLOT_BYTES).contains(&length);
        if let Some(slot) = is_slot.then(take_slot).flatten() {
            return Self { memory: Memory::Slot(slot), length };
        }
        let needed = length + DIRECT_ALIGNMENT;
        let kept = (length >= KEPT_LENGTH_MIN).then(|| take_kept(needed)).flatten();
        let bytes = kept.unwrap_or_else(|| vec![0; needed]);
        let start = bytes.as_ptr().align_offset(DIRECT_ALIGNMENT);
        assert!(start + length <= bytes.len(), "bytes can be aligned to any power of two");
        Self { memory: Memory::Allocated { bytes, start }, length }
    }
}

/// A slot that was kept, or one of a new pair; `None` if the host has no memory.
fn take_slot() -> Option<Slot> {
    let kept = KEPT.lock_after_panic().slots.pop();
    kept.or_else(|| {
        let [slot, other] = Slot::pair()?;
        keep_slot(other);
        Some(slot)
    })
}

fn keep_slot(slot: Slot) {
    let mut kept = KEPT.lock_after_panic();
    if kept.slots.len() < KEPT_MAX {
        kept.slots.push(slot);
    }
}

/// The shortest memory that suffices, unless it is more than twice as long.
fn take_kept(needed: usize) -> Option<Vec<u8>> {
    let kept = &mut KEPT.lock_after_panic().short;
    let fits = |memory: &Vec<u8>| memory.len() >= needed && memory.len() / 2 <= needed;
    let found = (0..kept.len()).filter(|index| fits(&kept[*index])).min_by_key(|index| kept[*index].len())?;
    Some(kept.swap_remove(found))
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.memory, Memory::None) {
            Memory::Slot(slot) => keep_slot(slot),
            Memory::Allocated { bytes, .. } => {
                // The allocator returns longer ones to the host.
                if (KEPT_LENGTH_MIN..SLOT_LENGTH_MIN + DIRECT_ALIGNMENT).contains(&bytes.len()) {
                    let kept = &mut KEPT.lock_after_panic().short;
                    if kept.len() < KEPT_MAX {
                        kept.push(bytes);
                    }
                }
            }
            Memory::None => {}
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Slot(slot) => &slot[..self.length],
            Memory::Allocated { bytes, start } => &bytes[*start..*start + self.length],
            Memory::None => &[],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Slot(slot) => &mut slot[..self.length],
            Memory::Allocated { bytes, start } => &mut bytes[*start..*start + self.length],
            Memory::None => &mut [],
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_their_memory_is_used_again() {
        for length in [0, 1, 4096, 100_000, 512 << 10, (512 << 10) + 1, 1 << 20, (1 << 20) + 1, 3 << 20] {
            let mut buffer = Buffer::new(length);
            assert_eq!((buffer.len(), buffer.as_ptr().align_offset(DIRECT_ALIGNMENT)), (length, 0));
            buffer.fill(7);
        }
        for length in [300_000, 1 << 20] {
            let memory = Buffer::new(length).as_ptr();
            // Other tests may take it in between.
            let again = (0..100).any(|_| Buffer::new(length).as_ptr() == memory);
            let kept = KEPT.lock_after_panic();
            assert!(again || kept.short.len() == KEPT_MAX || kept.slots.len() == KEPT_MAX, "{length}");
        }
    }
}
