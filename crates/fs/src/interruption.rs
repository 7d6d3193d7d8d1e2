//! Operations whose caller may be gone before anything is changed for it.
//!
//! A server's caller may be killed while its operation waits: for room in memory, for a commit, for a device. If it is told so at
//! once, the operation must not change anything any more. So a thread of a server is asked by each operation before its
//! first change, behind all waits; one that is told no fails with [`FsError::Interrupted`], and has
//! changed nothing.

use crate::error::FsError;
use std::cell::RefCell;

type Question = Box<dyn Fn() -> bool>;

thread_local! {
    static BEFORE_EFFECTS: RefCell<Option<Question>> = const { RefCell::new(None) };
    static WHILE: RefCell<Option<Question>> = const { RefCell::new(None) };
}

/// From now on, operations of this thread ask `goes_on` before they change anything. Asked again about an operation that has
/// begun, it must agree.
pub fn before_effects(goes_on: impl Fn() -> bool + 'static) {
    BEFORE_EFFECTS.set(Some(Box::new(goes_on)));
}

/// Does long work of this thread that ends early when `is_wanted` says no.
pub fn while_wanted<T>(is_wanted: impl Fn() -> bool + 'static, act: impl FnOnce() -> T) -> T {
    WHILE.set(Some(Box::new(is_wanted)));
    let done = act();
    WHILE.set(None);
    done
}

/// Returns false if the long work of this thread is to end early.
pub(crate) fn is_wanted() -> bool {
    WHILE.with_borrow(|question| question.as_ref().is_none_or(|is_wanted| is_wanted()))
}

/// Something is about to be changed.
pub(crate) fn begin_effects() -> Result<(), FsError> {
    let goes_on = BEFORE_EFFECTS.with_borrow(|question| question.as_ref().is_none_or(|goes_on| goes_on()));
    if goes_on { Ok(()) } else { Err(FsError::Interrupted) }
}
