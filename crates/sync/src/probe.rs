//! Panics at chosen acquisitions of locks, for tests; nothing without debug assertions.

#[cfg(all(debug_assertions, not(feature = "explore")))]
pub(crate) use checked::of_thread;
#[cfg(debug_assertions)]
pub(crate) use checked::pass;
#[cfg(debug_assertions)]
pub use checked::{Moment, Probe};
#[cfg(all(not(debug_assertions), not(feature = "explore")))]
pub(crate) use unchecked::of_thread;

#[cfg(debug_assertions)]
mod checked {
    use crate::{Rank, thread_local};
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    thread_local! {
        /// The probe that watches this thread.
        static PROBE: RefCell<OfThread> = const { RefCell::new(OfThread(None)) };
    }

    /// Moment in the life of a held rank.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Moment {
        /// The lock is held, and nothing has been done with it.
        Taken,
        /// The lock has just been given back.
        Released,
    }

    /// Counts of the locks that threads take and give back, and a panic at one of them. A thread that unwinds already is
    /// not counted.
    #[derive(Clone, Debug, Default)]
    pub struct Probe(Arc<Mutex<State>>);

    #[derive(Debug, Default)]
    struct State {
        counts: BTreeMap<(Rank, Moment), u64>,
        panic_at: Option<(Rank, Moment, u64)>,
        has_panicked: bool,
    }

    /// The probe that watches a thread, if one does.
    #[derive(Clone)]
    pub(crate) struct OfThread(Option<Probe>);

    /// Puts the thread's former probe back.
    struct Watch(OfThread);

    impl Probe {
        /// A probe that panics when `rank` comes to `moment` for the `number`-th time, counted from 0.
        #[must_use]
        pub fn panicking_at(rank: Rank, moment: Moment, number: u64) -> Self {
            let state = State { panic_at: Some((rank, moment, number)), ..State::default() };
            Self(Arc::new(Mutex::new(state)))
        }

        /// Has the probe watch what `act` does, on this thread and on those of [`parallel`](crate::parallel).
        pub fn watch<T>(&self, act: impl FnOnce() -> T) -> T {
            OfThread(Some(self.clone())).watching(act)
        }

        /// Number of times that `rank` came to `moment`.
        #[must_use]
        pub fn count(&self, rank: Rank, moment: Moment) -> u64 {
            self.state().counts.get(&(rank, moment)).copied().unwrap_or_default()
        }

        /// Returns true if the panic has come.
        #[must_use]
        pub fn has_panicked(&self) -> bool {
            self.state().has_panicked
        }

        #[track_caller]
        fn pass(&self, rank: Rank, moment: Moment) {
            let mut state = self.state();
            let count = state.counts.entry((rank, moment)).or_default();
            let number = *count;
            *count += 1;
            if state.panic_at == Some((rank, moment, number)) {
                state.has_panicked = true;
                drop(state);
                panic!("a probe panics at {rank:?}, {moment:?} for the {number}th time");
            }
        }

        fn state(&self) -> MutexGuard<'_, State> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl OfThread {
        /// Does something while the probe watches the thread.
        pub(crate) fn watching<T>(&self, act: impl FnOnce() -> T) -> T {
            let _before = Watch(PROBE.with(|probe| probe.replace(self.clone())));
            act()
        }
    }

    impl Drop for Watch {
        fn drop(&mut self) {
            PROBE.with(|probe| probe.swap(&RefCell::new(self.0.clone())));
        }
    }

    /// The probe that watches this thread.
    #[cfg(not(feature = "explore"))]
    pub(crate) fn of_thread() -> OfThread {
        PROBE.with(|probe| probe.borrow().clone())
    }

    /// Tells the thread's probe of a rank that is held, or given back.
    #[track_caller]
    pub(crate) fn pass(rank: Rank, moment: Moment) {
        if std::thread::panicking() {
            return;
        }
        // The locks that a thread gives back as it ends may come after its record of the probe.
        let probe = PROBE.try_with(|probe| probe.borrow().0.clone());
        if let Ok(Some(probe)) = probe {
            probe.pass(rank, moment);
        }
    }
}

#[cfg(all(not(debug_assertions), not(feature = "explore")))]
mod unchecked {
    /// Nothing: locks are watched with debug assertions.
    #[derive(Clone, Copy)]
    pub(crate) struct OfThread;

    impl OfThread {
        #[inline]
        pub(crate) fn watching<T>(&self, act: impl FnOnce() -> T) -> T {
            act()
        }
    }

    pub(crate) fn of_thread() -> OfThread {
        OfThread
    }
}
