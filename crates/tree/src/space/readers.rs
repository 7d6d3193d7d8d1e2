//! Readers without a lock, and the freed space that waits for them.
//!
//! A reader looks up a place in a tree, gives the tree's lock back, and reads the device. Commits may pass meanwhile, and
//! free the place. It must not be written over, discarded, or lose its chunk before the read is over: the reader would
//! find something else there, blame the device for it, and leave it in the node cache. So a reader takes a
//! [`FreedSpaceHold`] *before* it looks up the place (or while the tree that has it is still locked), and what
//! is freed later stays pinned until the hold is given back.
//!
//! Releases of freed space are numbered; a hold has the number of the next one. What a release frees waits until no hold is
//! left that is as old as it. A new hold never delays what waits already, so that readers without end delay nothing without
//! end. No hold waits for anything but its reader; a commit does not wait for holds either.

use super::Space;
use super::pins::Pinned;
use crate::store::Store;
use crate::store::hold::FreedSpace;
use brindle_sync::{Condvar, Mutex, MutexGuard, Rank, Ranked};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Longest time that an operation in need of space waits for readers at once.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Holds, and the releases that wait for them. Its lock comes before that of the space's state.
#[derive(Debug, Default)]
pub(super) struct Readers {
    state: Mutex<ReadersState>,
    /// Nothing waits any more.
    released: Condvar,
}

#[derive(Debug, Default)]
struct ReadersState {
    /// The number of the next release.
    next: u64,
    /// Holds, by the number of the release that followed first.
    holds: BTreeMap<u64, usize>,
    /// Releases that wait, by number.
    waiting: VecDeque<(u64, Pinned)>,
}

impl Ranked for ReadersState {
    const RANK: Rank = Rank::SpaceReaders;
}

impl Readers {
    fn lock(&self) -> MutexGuard<'_, ReadersState> {
        self.state.lock()
    }

    /// Number of releases that wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.state.is_poisoned()
    }

    fn enter(&self) -> u64 {
        let mut state = self.lock();
        let number = state.next;
        *state.holds.entry(number).or_default() += 1;
        number
    }
}

impl FreedSpace for Space {
    fn enter(&self) -> u64 {
        self.readers.enter()
    }

    fn leave(&self, store: &Store, number: u64) {
        if self.is_poisoned() {
            // A panic has interrupted a change of space, so nothing is freed any more.
            return;
        }
        let mut readers = self.readers.lock();
        if let Some(count) = readers.holds.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                readers.holds.remove(&number);
            }
        }
        self.release_unread(store, readers);
    }
}

impl Space {
    /// The transaction is durable: what it has freed is free when no reader is left that may have looked it up.
    pub(super) fn release_when_unread(&self, store: &Store, pinned: Pinned) {
        let mut readers = self.readers.lock();
        let number = readers.next;
        readers.next += 1;
        self.hold_back(&pinned);
        readers.waiting.push_back((number, pinned));
        self.release_unread(store, readers);
    }

    /// Frees what no hold delays any more.
    fn release_unread(&self, store: &Store, mut readers: MutexGuard<'_, ReadersState>) {
        let oldest = readers.holds.first_key_value().map_or(u64::MAX, |(number, _)| *number);
        while readers.waiting.front().is_some_and(|(number, _)| *number < oldest) {
            if let Some((_, pinned)) = readers.waiting.pop_front() {
                self.release_pins(store, pinned);
            }
        }
        if readers.waiting.is_empty() {
            self.readers.released.notify_all();
        }
    }

    /// Waits until all space freed by durable transactions is free, but no longer than a few seconds: for callers
    /// that need the space.
    pub(crate) fn wait_for_readers(&self) {
        let deadline = Instant::now() + WAIT_MAX;
        let mut readers = self.readers.lock();
        while !readers.waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            readers = self.readers.released.wait_timeout(readers, left).0;
        }
    }
}
