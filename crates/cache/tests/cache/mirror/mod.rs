//! Caches on two SSDs that mirror each other.

mod crash;
mod failing;
mod loading;

use crate::world::Shape;
use brindle_cache::Mode;

/// 64 slots in sets of 32: the fewest of a mirror.
pub(super) const NARROW: Shape =
    Shape { mode: Mode::Back, flash_bytes: (64 + 64) << 10, disk_bytes: 512 << 10, associativity: 32 };
