//! Changing trees: insert, replace and remove items; blocks are copied, split, filled from their neighbours and
//! merged on the way.

use crate::transaction::Writer;
use crate::{Pool, Tree, TreeError};
use brindle_ondisk::{Generation, Key};

/// The right to change trees in the running transaction.
#[derive(Clone, Copy, Debug)]
pub struct Editor<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) writer: &'p Writer,
    pub(crate) generation: Generation,
}

/// What becomes of an item that [`Editor::remove_range`] comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays.
    Keep,
    /// It goes.
    Remove,
    /// It stays, and so does everything behind it.
    Stop,
}

impl<'p> Editor<'p> {
    /// The running transaction: what a block or inode that changes now carries.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The pool.
    pub fn pool(&self) -> &'p Pool {
        self.pool
    }

    /// Adds an item; [`TreeError::Exists`] if there is one of this key.
    pub fn insert(&self, tree: &Tree, key: &Key, data: &[u8]) -> Result<(), TreeError> {
        let _ = (tree, key, data);
        todo!()
    }

    /// Adds items of ascending keys; much faster than one by one where they follow each other.
    pub fn insert_all(&self, tree: &Tree, items: &[(Key, &[u8])]) -> Result<(), TreeError> {
        let _ = (tree, items);
        todo!()
    }

    /// Adds an item, in place of the one of this key if there is one.
    pub fn replace(&self, tree: &Tree, key: &Key, data: &[u8]) -> Result<(), TreeError> {
        let _ = (tree, key, data);
        todo!()
    }

    /// Changes the bytes of an item, not their number; `None` if there is no such item.
    pub fn update<T>(
        &self,
        tree: &Tree,
        key: &Key,
        change: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<Option<T>, TreeError> {
        let _ = (tree, key, change);
        todo!()
    }

    /// Changes an item that packs several entries: hands over its bytes, none if there is no such item; what is
    /// left empty is removed.
    pub fn edit<T>(
        &self,
        tree: &Tree,
        key: &Key,
        change: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> Result<T, TreeError> {
        let _ = (tree, key, change);
        todo!()
    }

    /// Removes an item; whether there was one.
    pub fn remove(&self, tree: &Tree, key: &Key) -> Result<bool, TreeError> {
        let _ = (tree, key);
        todo!()
    }

    /// Goes through the items from `first` to `last` (both included) in ascending order and removes those that
    /// `judge` condemns, leaf by leaf. Returns how many. `judge` must not touch the tree.
    pub fn remove_range(
        &self,
        tree: &Tree,
        first: &Key,
        last: &Key,
        judge: impl FnMut(&Key, &[u8]) -> Verdict,
    ) -> Result<usize, TreeError> {
        let _ = (tree, first, last, judge);
        todo!()
    }
}
