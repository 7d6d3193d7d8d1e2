//! A lock for one writer or many readers.

use crate::held::{Held, RankTag};
use crate::platform::{self, entered, entered_at_once};
use crate::{Rank, Ranked};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A lock for one writer or many readers, with a rank in the order of locks. A reader that waits for the same lock once
/// more could wait for a writer that waits for it, so readers keep to the order, too.
pub struct RwLock<T> {
    rank: RankTag,
    inner: platform::RwLock<T>,
}

/// An [`RwLock`] that is held for reading.
#[must_use = "the lock is held as long as it lives"]
pub struct RwLockReadGuard<'l, T> {
    inner: platform::RwLockReadGuard<'l, T>,
    _held: Held,
}

/// An [`RwLock`] that is held for writing.
#[must_use = "the lock is held as long as it lives"]
pub struct RwLockWriteGuard<'l, T> {
    inner: platform::RwLockWriteGuard<'l, T>,
    _held: Held,
}

#[cfg(not(debug_assertions))]
const _: () = assert!(
    size_of::<RwLock<u64>>() == size_of::<std::sync::RwLock<u64>>()
        && size_of::<RwLockReadGuard<'_, u64>>() == size_of::<std::sync::RwLockReadGuard<'_, u64>>()
        && size_of::<RwLockWriteGuard<'_, u64>>() == size_of::<std::sync::RwLockWriteGuard<'_, u64>>(),
    "ranks take no memory in a release build"
);

impl<T> RwLock<T> {
    /// A lock of this rank.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { rank: RankTag::new(rank), inner: platform::RwLock::new(value) }
    }

    /// Waits for the lock, to read. Panics if a writer has panicked while it held it, and (with debug assertions) if the
    /// caller holds a lock of this rank or a later one.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.read_in_order(None)
    }

    /// Waits for the lock, to write. Panics as [`read`](Self::read) does.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.write_in_order(None)
    }

    /// Waits for one of several locks of a rank, to read: the caller may hold others that it took with a smaller key.
    #[track_caller]
    pub fn read_by_key(&self, key: u128) -> RwLockReadGuard<'_, T> {
        self.read_in_order(Some(key))
    }

    /// Waits for one of several locks of a rank, to write: the caller may hold others that it took with a smaller key.
    #[track_caller]
    pub fn write_by_key(&self, key: u128) -> RwLockWriteGuard<'_, T> {
        self.write_in_order(Some(key))
    }

    /// Takes the lock to write if it is free. Panics if a writer has panicked while it held it.
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let inner = entered_at_once(self.inner.try_write(), || self.rank.name())?;
        let guard = RwLockWriteGuard { inner, _held: self.rank.at_once() };
        self.rank.taken();
        Some(guard)
    }

    /// The value, which no other thread sees.
    pub fn into_inner(self) -> T {
        let rank = self.rank;
        entered(self.inner.into_inner(), || rank.name())
    }

    /// Returns true if a writer has panicked while it held the lock. An explored build does not know.
    pub fn is_poisoned(&self) -> bool {
        #[cfg(feature = "explore")]
        return false;
        #[cfg(not(feature = "explore"))]
        self.inner.is_poisoned()
    }

    #[track_caller]
    fn read_in_order(&self, key: Option<u128>) -> RwLockReadGuard<'_, T> {
        let held = self.rank.in_order(key);
        let guard = RwLockReadGuard { inner: entered(self.inner.read(), || self.rank.name()), _held: held };
        self.rank.taken();
        guard
    }

    #[track_caller]
    fn write_in_order(&self, key: Option<u128>) -> RwLockWriteGuard<'_, T> {
        let held = self.rank.in_order(key);
        let guard = RwLockWriteGuard { inner: entered(self.inner.write(), || self.rank.name()), _held: held };
        self.rank.taken();
        guard
    }
}

impl<T: Default + Ranked> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::RANK, T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
