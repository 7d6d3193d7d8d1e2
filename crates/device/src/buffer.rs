//! Memory that reads are made into.

use crate::DIRECT_ALIGNMENT;
use brindle_sync::{Mutex, Rank, process_wide};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Longest memory that is kept for the next buffer, in bytes: the allocator returns longer ones to the host.
const KEPT_LENGTH_MAX: usize = (1 << 20) + DIRECT_ALIGNMENT;
/// Shortest memory that is kept: the allocator serves shorter ones as fast.
const KEPT_LENGTH_MIN: usize = 64 << 10;
/// Number of memories that are kept.
const KEPT_MAX: usize = 16;

process_wide! {
    /// Memories that no buffer uses. They serve all pools of the process, so a panic in one of them is none of the others'
    /// business: whatever is in the list is whole.
    static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Rank::DeviceBuffers, Vec::new());
}

/// Bytes owned by one request, aligned in memory to [`DIRECT_ALIGNMENT`].
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// A buffer of this length in bytes. Its contents are unspecified: zeros, or those of an earlier buffer.
    pub fn new(length: usize) -> Self {
        let needed = length + DIRECT_ALIGNMENT;
        let kept = (length >= KEPT_LENGTH_MIN).then(|| take_kept(needed)).flatten();
        let memory = kept.unwrap_or_else(|| vec![0; needed]);
        let start = memory.as_ptr().align_offset(DIRECT_ALIGNMENT);
        assert!(start + length <= memory.len(), "bytes can be aligned to any power of two");
        Self { memory, start, length }
    }
}

/// The shortest memory that suffices, unless it is more than twice as long.
fn take_kept(needed: usize) -> Option<Vec<u8>> {
    let mut kept = KEPT.lock_after_panic();
    let fits = |memory: &Vec<u8>| memory.len() >= needed && memory.len() / 2 <= needed;
    let found = (0..kept.len()).filter(|index| fits(&kept[*index])).min_by_key(|index| kept[*index].len())?;
    Some(kept.swap_remove(found))
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if (KEPT_LENGTH_MIN..=KEPT_LENGTH_MAX).contains(&memory.len()) {
            let mut kept = KEPT.lock_after_panic();
            if kept.len() < KEPT_MAX {
                kept.push(memory);
            }
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
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
        for length in [0, 1, 4096, 100_000, 1 << 20, 3 << 20] {
            let mut buffer = Buffer::new(length);
            assert_eq!((buffer.len(), buffer.as_ptr().align_offset(DIRECT_ALIGNMENT)), (length, 0));
            buffer.fill(7);
        }
        let memory = Buffer::new(300_000).memory.as_ptr();
        // Other tests may take it in between.
        let again = (0..100).any(|_| Buffer::new(300_000).memory.as_ptr() == memory);
        assert!(again || KEPT.lock_after_panic().len() <= KEPT_MAX);
    }
}
