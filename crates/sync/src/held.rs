//! The ranks that a thread holds: checked and kept with debug assertions, nothing otherwise.

use crate::Rank;

#[cfg(debug_assertions)]
pub(crate) use checked::{Held, RankTag};
#[cfg(not(debug_assertions))]
pub(crate) use unchecked::{Held, RankTag};

/// A rank that is held though no lock is: what is waited for otherwise. Stays with its thread.
#[derive(Debug)]
#[must_use = "the rank is held as long as it lives"]
pub struct HeldRank {
    _held: Held,
}

impl Rank {
    /// Holds the rank from now on. Panics (with debug assertions) if the thread holds it, or a later one: to be called
    /// before the wait.
    #[track_caller]
    pub fn hold(self) -> HeldRank {
        let held = HeldRank { _held: RankTag::new(self).in_order(None) };
        RankTag::new(self).taken();
        held
    }

    /// Holds the rank from now on, which the caller did not wait for.
    #[track_caller]
    pub fn hold_without_wait(self) -> HeldRank {
        let held = HeldRank { _held: RankTag::new(self).at_once() };
        RankTag::new(self).taken();
        held
    }

    /// Panics (with debug assertions) unless the thread holds this rank: the caller has taken a lock for what follows.
    #[track_caller]
    pub fn assert_held(self) {
        RankTag::new(self).check_held();
    }

    /// Panics (with debug assertions) if the thread holds this rank or a later one: the caller is about to wait for it.
    #[track_caller]
    pub fn assert_free(self) {
        RankTag::new(self).check_order();
    }
}

#[cfg(debug_assertions)]
mod checked {
    use crate::probe::{self, Moment};
    use crate::{Rank, thread_local};
    use std::cell::RefCell;
    use std::fmt;
    use std::marker::PhantomData;
    use std::panic::Location;

    thread_local! {
        /// Held locks, in the order in which they were taken.
        static HELD: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
    }

    /// A rank that this thread holds.
    #[derive(Clone, Copy)]
    struct Entry {
        /// Tells apart several of one rank.
        number: u64,
        rank: Rank,
        key: Option<u128>,
        taken: &'static Location<'static>,
    }

    /// The rank that a lock was made with.
    #[derive(Clone, Copy)]
    pub(crate) struct RankTag(Rank);

    /// A held rank; given back when this is dropped.
    #[derive(Debug)]
    pub(crate) struct Held {
        number: u64,
        rank: Rank,
        /// The thread's.
        _stays: PhantomData<*const ()>,
    }

    impl RankTag {
        pub(crate) const fn new(rank: Rank) -> Self {
            Self(rank)
        }

        /// The lock's name.
        pub(crate) fn name(self) -> String {
            format!("{:?}", self.0)
        }

        /// Takes the rank for an acquisition that may wait.
        #[track_caller]
        pub(crate) fn in_order(self, key: Option<u128>) -> Held {
            let wanted = Entry::here(self.0, key);
            wanted.check();
            wanted.keep()
        }

        /// Refuses what [`in_order`](Self::in_order) would refuse.
        #[track_caller]
        pub(crate) fn check_order(self) {
            Entry::here(self.0, None).check();
        }

        /// Refuses to go on without the rank.
        #[track_caller]
        pub(crate) fn check_held(self) {
            let is_held = HELD.with(|held| held.borrow().iter().any(|entry| entry.rank == self.0));
            assert!(is_held, "lock order: {:?} is to be held by the caller", self.0);
        }

        /// Tells a probe that the lock is held now.
        #[track_caller]
        pub(crate) fn taken(self) {
            probe::pass(self.0, Moment::Taken);
        }

        /// Takes the rank of an acquisition that did not wait.
        #[track_caller]
        pub(crate) fn at_once(self) -> Held {
            Entry::here(self.0, None).keep()
        }
    }

    impl Entry {
        #[track_caller]
        fn here(rank: Rank, key: Option<u128>) -> Self {
            Self { number: 0, rank, key, taken: Location::caller() }
        }

        #[track_caller]
        fn check(&self) {
            // A thread that unwinds takes locks in destructors, wherever it was. A second panic would end the process.
            if !std::thread::panicking() {
                HELD.with(|held| held.borrow().iter().for_each(|held| held.check_before(self)));
            }
        }

        fn keep(mut self) -> Held {
            HELD.with(|held| {
                let mut held = held.borrow_mut();
                self.number = held.iter().map(|entry| entry.number).max().map_or(0, |last| last + 1);
                held.push(self);
            });
            Held { number: self.number, rank: self.rank, _stays: PhantomData }
        }

        #[track_caller]
        fn check_before(&self, wanted: &Self) {
            let is_before = self.rank < wanted.rank
                || (self.rank == wanted.rank && self.key.is_some() && self.key < wanted.key);
            assert!(is_before, "lock order: {wanted} is wanted while {self} is held");
        }
    }

    impl fmt::Display for Entry {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:?}", self.rank)?;
            if let Some(key) = self.key {
                write!(f, " {key:#x}")?;
            }
            write!(f, " (taken at {})", self.taken)
        }
    }

    impl Held {
        /// Waits, by `wait`, without the rank.
        pub(crate) fn released<T>(self, wait: impl FnOnce() -> T) -> (T, Self) {
            let number = self.number;
            let entry = HELD.with(|held| held.borrow().iter().find(|entry| entry.number == number).copied());
            drop(self);
            let done = wait();
            (done, entry.expect("a guard's rank is held").keep())
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // The last ones to be dropped by a thread that ends may find nothing any more.
            let _ = HELD.try_with(|held| held.borrow_mut().retain(|entry| entry.number != self.number));
            probe::pass(self.rank, Moment::Released);
        }
    }
}

#[cfg(not(debug_assertions))]
mod unchecked {
    use crate::Rank;
    use std::marker::PhantomData;

    /// Nothing: the order is checked with debug assertions.
    #[derive(Clone, Copy)]
    pub(crate) struct RankTag;

    /// Nothing.
    #[derive(Debug)]
    pub(crate) struct Held(PhantomData<*const ()>);

    impl RankTag {
        pub(crate) const fn new(_rank: Rank) -> Self {
            Self
        }

        pub(crate) fn name(self) -> String {
            "a lock".into()
        }

        #[inline]
        pub(crate) fn in_order(self, _key: Option<u128>) -> Held {
            Held(PhantomData)
        }

        #[inline]
        pub(crate) fn at_once(self) -> Held {
            Held(PhantomData)
        }

        #[inline]
        pub(crate) fn check_order(self) {}

        #[inline]
        pub(crate) fn check_held(self) {}

        #[inline]
        pub(crate) fn taken(self) {}
    }

    impl Held {
        #[inline]
        pub(crate) fn released<T>(self, wait: impl FnOnce() -> T) -> (T, Self) {
            (wait(), self)
        }
    }
}
