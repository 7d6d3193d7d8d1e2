//! Transactions: joining, committing, giving up.

mod options;

pub use options::{Clock, WriterOptions};

use crate::refs::DelayedRefs;
use crate::space::{Space, Urgency};
use crate::{Editor, Pool, TreeError};
use std::ops::Deref;

/// What a writable pool has on top of one that is only read.
#[derive(Debug)]
pub struct Writer {
    pub(crate) refs: DelayedRefs,
    pub(crate) space: Space,
}

/// What an operation will need of the pool.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// The most items that it inserts, changes or removes, in how many places.
    pub items: usize,
    /// How badly.
    pub urgency: Urgency,
}

impl Need {
    /// An operation that changes so many items.
    pub const fn items(items: usize) -> Self {
        Self { items, urgency: Urgency::Normal }
    }

    /// An operation that changes so many items and frees space.
    pub const fn freeing(items: usize) -> Self {
        Self { items, urgency: Urgency::Freeing }
    }
}

/// Part in the running transaction, which can't be committed until this is dropped.
#[derive(Debug)]
pub struct Transaction<'p> {
    editor: Editor<'p>,
}

impl<'p> Deref for Transaction<'p> {
    type Target = Editor<'p>;

    fn deref(&self) -> &Editor<'p> {
        &self.editor
    }
}

impl Pool {
    /// Takes part in the running transaction. Waits while one is being closed; [`TreeError::NoSpace`] if there is
    /// no room for what the operation needs.
    pub fn join(&self, need: Need) -> Result<Transaction<'_>, TreeError> {
        let _ = need;
        todo!()
    }

    /// Makes everything durable that was changed before the call. Callers that come together share a commit.
    pub fn commit(&self) -> Result<(), TreeError> {
        todo!()
    }
}
