//! State of the commits of a cache.

/// Commits, and where the table lies on flash.
#[derive(Debug)]
pub(crate) struct Commits {
    /// Number of commits that have begun.
    pub(crate) begun: u64,
    /// Number of the last one that is done.
    pub(crate) done: u64,
    pub(crate) is_running: bool,
    /// Number of the last transaction of the table.
    pub(crate) transaction: u64,
    /// The copy, 0 or 1, of each block of the table that counts.
    pub(crate) copies: Vec<u8>,
}

impl Commits {
    /// No commit yet since the cache was opened.
    pub(crate) fn new(transaction: u64, copies: Vec<u8>) -> Self {
        Self { begun: 0, done: 0, is_running: false, transaction, copies }
    }
}
