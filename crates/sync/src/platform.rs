//! The locks, threads and atomics below: of the standard library, or of the schedule explorer.

#[cfg(not(feature = "explore"))]
mod chosen {
    pub use std::sync::atomic;
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use std::{thread, thread_local};
}

#[cfg(feature = "explore")]
mod chosen {
    pub use shuttle::sync::atomic;
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use shuttle::{thread, thread_local};
}

/// Declares locks of the whole process. In an explored build each exploration has its own: a plain `static` would be shared by
/// explorations on several threads of the operating system, and one that waits for what another holds is never woken.
#[cfg(not(feature = "explore"))]
#[macro_export]
macro_rules! process_wide {
    ($($(#[$attribute:meta])* static $name:ident: $kind:ty = $value:expr;)+) => {
        $($(#[$attribute])* static $name: $kind = $value;)+
    };
}

/// Declares locks of the whole process. In an explored build each exploration has its own: a plain `static` would be shared by
/// explorations on several threads of the operating system, and one that waits for what another holds is never woken.
#[cfg(feature = "explore")]
#[macro_export]
macro_rules! process_wide {
    ($($(#[$attribute:meta])* static $name:ident: $kind:ty = $value:expr;)+) => {
        $($crate::lazy_static! { $(#[$attribute])* static ref $name: $kind = $value; })+
    };
}

pub(crate) use chosen::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use chosen::{atomic, thread, thread_local};

use std::sync::{LockResult, TryLockError, TryLockResult};

/// Takes the guard of an acquisition that has waited. Panics at a poisoned lock unless the thread unwinds already.
#[track_caller]
pub(crate) fn entered<G>(result: LockResult<G>, name: impl Fn() -> String) -> G {
    match result {
        Ok(guard) => guard,
        Err(poisoned) if thread::panicking() => poisoned.into_inner(),
        Err(_) => refuse(&name()),
    }
}

/// The same, of an acquisition that has not waited.
#[track_caller]
pub(crate) fn entered_at_once<G>(result: TryLockResult<G>, name: impl Fn() -> String) -> Option<G> {
    match result {
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(poisoned)) => Some(entered(Err(poisoned), name)),
        Ok(guard) => Some(guard),
    }
}

/// Ends the call at a poisoned lock.
#[cold]
#[track_caller]
fn refuse(name: &str) -> ! {
    panic!("a thread panicked while it held {name}: what it guards may be half changed");
}
