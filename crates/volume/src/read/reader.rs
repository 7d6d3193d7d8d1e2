//! The reader: facts for a policy about the thread, and about the process that it works for.

use brindle_sync::thread_local;
use std::cell::Cell;

thread_local! {
    static PID: Cell<Option<u32>> = const { Cell::new(None) };
    static LAST_MIRROR: Cell<usize> = const { Cell::new(0) };
}

/// This thread reads for that process from now on: the policy `pid` goes by it. A thread that was told of none reads for
/// its own process.
pub fn read_for(pid: u32) {
    PID.with(|known| known.set(Some(pid)));
}

pub(super) fn pid() -> u32 {
    PID.with(Cell::get).unwrap_or_else(std::process::id)
}

pub(super) fn last_mirror() -> usize {
    LAST_MIRROR.with(Cell::get)
}

pub(super) fn set_last_mirror(mirror: usize) {
    LAST_MIRROR.with(|last| last.set(mirror));
}
