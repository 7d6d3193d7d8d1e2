//! Changing trees: insert, replace and remove items; blocks are copied, split, filled from their neighbours and
//! merged on the way.
//!
//! Each operation locks its tree, goes down to its leaf through blocks in memory ([`descent`]; what is not there is
//! read with the lock given back), makes the blocks of that path the transaction's own, and changes the leaf. What
//! must hold whenever the lock is free:
//!
//! - A block belongs to the transaction exactly if it is in the tree's `dirty`; whatever points to one does too.
//! - The parent's key for a child is the child's first key. No block is empty, but for a root that is a leaf.
//! - Every block in `dirty` hangs in the tree, once.
//!
//! A block is copied before its first change, and the references are told before the copy differs.
//! The copy, like any new block, has a virtual address; should it leave the tree before the commit gives it a real
//! one, no trace of it remains. An operation fails only before its first change or, in the middle of many, between
//! two leaves, when the tree is whole.
//!
//! Splits look at where the last items went (`habit`): a stream of ascending keys leaves full leaves behind it,
//! wherever in the tree it runs; anything else is cut in halves.

pub(crate) mod blocks;
mod cut;
pub(crate) mod descent;
mod insert;
pub(crate) mod operations;
pub(crate) mod remove;
#[cfg(test)]
mod tests;

use operations::{insert_all, replace};
use remove::remove_range;

use crate::changes::Changes;
use crate::error::TreeError;
use crate::refs::References;
use crate::space::metadata::Load;
use crate::store::Store;
use crate::tree::Tree;
use brindle_ondisk::{Generation, Incompat, Key, Logical};
use std::fmt;

/// The right to change trees in the running transaction.
#[derive(Clone, Copy, Debug)]
pub struct Editor<'p> {
    pub(crate) store: &'p Store,
    pub(crate) changes: &'p Changes,
    pub(crate) generation: Generation,
}

/// Decision on an item that [`Editor::remove_range`] comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Keeps the item.
    Keep,
    /// Removes the item.
    Remove,
    /// Keeps the item and everything after it.
    Stop,
}

impl<'p> Editor<'p> {
    /// The running transaction: what a block or inode that changes now carries.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Blocks and trees of the pool.
    pub fn store(&self) -> &'p Store {
        self.store
    }

    /// References to extents, as the transaction sees and changes them.
    pub fn references(&self) -> References<'p> {
        let Changes { refs, space, quotas, .. } = self.changes;
        References::new(self.store, refs, space, quotas, self.generation)
    }

    /// Pending changes, as far as space for them is concerned.
    pub(crate) fn load(&self) -> Load {
        self.changes.load(self.store)
    }

    /// Ends all writing, for a change that failed half way.
    pub fn abort(&self, error: &dyn fmt::Display) {
        self.store.stop().abort(error);
    }

    /// Says that the pool uses a feature from now on; the next superblock has its bit.
    pub fn use_feature(&self, feature: Incompat) {
        *self.changes.features.lock() |= feature;
    }

    /// Adds an item; [`TreeError::Exists`] if there is one of this key.
    pub fn insert(&self, tree: &Tree, key: &Key, data: &[u8]) -> Result<(), TreeError> {
        operations::insert(self, tree, key, data)
    }

    /// Adds items of ascending keys; much faster than one by one where they follow each other. If one of them is
    /// there already, those before it have been added.
    pub fn insert_all(&self, tree: &Tree, items: &[(Key, &[u8])]) -> Result<(), TreeError> {
        insert_all(self, tree, items)
    }

    /// Adds an item, in place of the one of this key if there is one.
    pub fn replace(&self, tree: &Tree, key: &Key, data: &[u8]) -> Result<(), TreeError> {
        replace(self, tree, key, data)
    }

    /// Changes the bytes of an item, not their number; `None` if there is no such item. `change` must not touch the
    /// tree.
    pub fn update<T>(
        &self,
        tree: &Tree,
        key: &Key,
        change: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<Option<T>, TreeError> {
        operations::update(self, tree, key, change)
    }

    /// Changes an item that packs several entries: hands over its bytes, none if there is no such item; what is
    /// left empty is removed. `change` must not touch the tree.
    pub fn edit<T>(
        &self,
        tree: &Tree,
        key: &Key,
        change: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> Result<T, TreeError> {
        operations::edit(self, tree, key, change)
    }

    /// Copies a block of a tree and all above it, if it still lies there: the block of this first key at this level.
    pub(crate) fn copy_path(
        &self,
        tree: &Tree,
        at: Logical,
        key: &Key,
        level: u8,
    ) -> Result<bool, TreeError> {
        operations::copy_path(self, tree, at, key, level)
    }

    /// Copies a leaf of a tree, by its first key, and all above it, if it still lies there, and neither it nor what is
    /// above it is part of another tree too.
    pub(crate) fn copy_unshared_path(&self, tree: &Tree, at: Logical, key: &Key) -> Result<bool, TreeError> {
        operations::copy_unshared_path(self, tree, at, key)
    }

    /// Removes an item; whether there was one.
    pub fn remove(&self, tree: &Tree, key: &Key) -> Result<bool, TreeError> {
        remove::remove(self, tree, key)
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
        remove_range(self, tree, first, last, judge)
    }
}
