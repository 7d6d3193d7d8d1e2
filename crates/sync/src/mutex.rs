//! A lock for one thread at a time.

use crate::held::{Held, RankTag};
use crate::platform::{self, entered, entered_at_once};
use crate::{Rank, Ranked};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

/// A lock for one thread at a time, with a rank in the order of locks.
pub struct Mutex<T> {
    rank: RankTag,
    inner: platform::Mutex<T>,
}

/// A locked [`Mutex`].
#[must_use = "the lock is held as long as it lives"]
pub struct MutexGuard<'l, T> {
    pub(crate) inner: platform::MutexGuard<'l, T>,
    pub(crate) held: Held,
    pub(crate) rank: RankTag,
}

#[cfg(not(debug_assertions))]
const _: () = assert!(
    size_of::<Mutex<u64>>() == size_of::<std::sync::Mutex<u64>>()
        && size_of::<MutexGuard<'_, u64>>() == size_of::<std::sync::MutexGuard<'_, u64>>(),
    "ranks take no memory in a release build"
);

impl<T> Mutex<T> {
    /// A lock of this rank.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { rank: RankTag::new(rank), inner: platform::Mutex::new(value) }
    }

    /// Waits for the lock. Panics if a thread has panicked while it held it, and (with debug assertions) if the caller
    /// holds a lock of this rank or a later one.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.rank.in_order(None);
        self.guard(entered(self.inner.lock(), || self.rank.name()), held)
    }

    /// Waits for one of several locks of a rank: the caller may hold others that it took with a smaller key.
    #[track_caller]
    pub fn lock_by_key(&self, key: u128) -> MutexGuard<'_, T> {
        let held = self.rank.in_order(Some(key));
        self.guard(entered(self.inner.lock(), || self.rank.name()), held)
    }

    /// Waits for the lock, also after a panic: for destructors, and for callers that ask next whether to go on.
    #[track_caller]
    pub fn lock_after_panic(&self) -> MutexGuard<'_, T> {
        let held = self.rank.in_order(None);
        self.guard(self.inner.lock().unwrap_or_else(PoisonError::into_inner), held)
    }

    /// Takes the lock if it is free. Panics if a thread has panicked while it held it.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = entered_at_once(self.inner.try_lock(), || self.rank.name())?;
        Some(self.guard(inner, self.rank.at_once()))
    }

    /// The value, which no other thread sees.
    pub fn into_inner(self) -> T {
        let rank = self.rank;
        entered(self.inner.into_inner(), || rank.name())
    }

    /// The value, which no other thread sees.
    pub fn get_mut(&mut self) -> &mut T {
        let rank = self.rank;
        entered(self.inner.get_mut(), || rank.name())
    }

    /// Returns true if a thread has panicked while it held the lock. An explored build does not know.
    pub fn is_poisoned(&self) -> bool {
        #[cfg(feature = "explore")]
        return false;
        #[cfg(not(feature = "explore"))]
        self.inner.is_poisoned()
    }

    #[track_caller]
    fn guard<'l>(&self, inner: platform::MutexGuard<'l, T>, held: Held) -> MutexGuard<'l, T> {
        let guard = MutexGuard { inner, held, rank: self.rank };
        self.rank.taken();
        guard
    }
}

impl<T: Default + Ranked> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::RANK, T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
