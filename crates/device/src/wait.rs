//! An action of a thread before it waits for a device.
//!
//! A server with few threads wants to know that one of them is about to wait, so that another one takes its place. Such a thread says so once, and then pays a system call more for each read that has to wait; others pay
//! nothing.

use std::cell::RefCell;

type Action = Box<dyn Fn()>;

thread_local! {
    static BEFORE_WAIT: RefCell<Option<Action>> = const { RefCell::new(None) };
}

/// From now on, this thread calls `action` whenever it is about to wait for a device to be read. It must not read
/// devices itself.
pub fn before_wait(action: impl Fn() + 'static) {
    BEFORE_WAIT.set(Some(Box::new(action)));
}

/// Returns true if this thread has an action.
pub(crate) fn is_awaited() -> bool {
    BEFORE_WAIT.with_borrow(Option::is_some)
}

/// This thread is about to wait.
pub(crate) fn announce() {
    BEFORE_WAIT.with_borrow(|action| {
        if let Some(action) = action {
            action();
        }
    });
}
