//! Every decision that is a matter of taste, as pure functions over plain facts: the caller gathers the
//! facts, asks, and acts on the answer.
//! Must not know: any I/O, any lock.

pub mod balance;
pub mod cache;
pub mod class;
pub mod defragment;
pub mod log;
pub mod placement;
pub mod read;
pub mod sleep;
pub mod tier;
pub mod writeback;
