//! Locks, the threads that take them, and the order in which they are taken. The interface is that of `std::sync`
//! without its `Result`.
//! Must not know: what any lock guards; of other crates, only the names in [`Rank`].
//!
//! A lock does three things, of which each build has its part:
//!
//! | | release | debug assertions | feature `explore` |
//! |---|---|---|---|
//! | lock | `std::sync` | `std::sync` | shuttle's, each acquisition a point where another thread may go on |
//! | rank | no field, no code | checked | checked |
//! | poison | a panic | a panic | a panic |
//!
//! **Ranks.** Each lock is made with a [`Rank`]; the order in which the ranks are declared is the order of locks, of all
//! crates, and this is its only list. A thread that waits for a lock holds none of the same rank or of a later one, so no
//! threads wait for each other in a circle. Builds with debug assertions keep the held ranks of each thread and panic at
//! an acquisition out of order, whether or not a second thread is there to make it a deadlock; the message names both
//! locks and the lines that took them. Three things differ:
//! - [`Mutex::try_lock`] and its like wait for nothing, so they are exempt; what they have taken counts for what follows.
//! - Several locks of one rank are taken with a key each, in ascending order ([`Mutex::lock_by_key`]).
//! - What is no lock and is waited for all the same (part in a transaction) takes a rank by [`Rank::hold`].
//!
//! A wait on a [`Condvar`] gives the rank back with the lock.
//!
//! **Poison.** A panic while a lock is held leaves behind it whatever was half changed. A later acquisition panics too,
//! and says so: to go on would publish nonsense, and to end the process is the decision of the program, whose panic hook
//! does it (a mount's) or does not (a library's: its user gets one failed call after the other, and the pool is
//! stopped by the guards of `tree`). Two exceptions:
//! - A thread that unwinds already enters: its destructors must run, and a second panic would end the process.
//! - [`Mutex::lock_after_panic`] enters: for destructors, and for callers that ask at once whether the pool has stopped.
//!
//! **Probes.** With debug assertions a test may have a panic come at a chosen acquisition or release of a rank
//! ([`Probe`]): it goes through all of [`Rank::ALL`], and sees that none leaves a pool that publishes nonsense.
//!
//! **Exploration.** The feature puts shuttle's scheduler in the place of the operating system's: all threads are tasks on
//! one, and which one goes on after each lock, atomic and spawn is drawn from a seed or replayed from a printed schedule.
//! It is a feature, not a `--cfg`, so that third-party crates are not built twice. It must not leak by unification: no
//! crate's default or ordinary dependency asks for it, and a build without debug assertions refuses it. In an explored
//! build [`thread_local!`], [`thread`] and [`atomic`] are shuttle's, a timed wait never times out, and
//! [`parallel`] is a loop. A lock of the whole process is declared by [`process_wide`]. What is locked inside of `OnceLock::get_or_init` would block the only thread: that is
//! forbidden everywhere.

#[cfg(all(feature = "explore", not(debug_assertions)))]
compile_error!("the feature `explore` is for tests: an optimised build must not have a test's scheduler");

/// False in an explored build, where no wait ends because time is over: what waits for others for a moment does not wait there.
pub const HAS_TIME: bool = cfg!(not(feature = "explore"));

mod condvar;
#[cfg(feature = "explore")]
mod explore;
mod held;
mod mutex;
pub mod parallel;
mod platform;
mod probe;
mod rank;
mod rwlock;

pub use condvar::Condvar;
#[cfg(feature = "explore")]
pub use explore::{explore, once};
pub use held::HeldRank;
pub use mutex::{Mutex, MutexGuard};
pub use platform::{atomic, thread, thread_local};
#[cfg(debug_assertions)]
pub use probe::{Moment, Probe};
pub use rank::{Rank, Ranked};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
/// Statics of one exploration, for [`process_wide`].
#[cfg(feature = "explore")]
#[doc(hidden)]
pub use shuttle::lazy_static;

#[cfg(test)]
mod tests;
