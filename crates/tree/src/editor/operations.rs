//! Operations of an editor, over any kind of blocks.

use super::blocks::Blocks;
use super::descent::Edit;
use super::remove::lower;
use crate::error::TreeError;
use crate::tree::Tree;
use brindle_ondisk::{Key, Logical};
use std::cmp::Ordering;

pub(super) fn insert<B: Blocks>(blocks: &B, tree: &Tree, key: &Key, data: &[u8]) -> Result<(), TreeError> {
    let mut edit = Edit::at(blocks, tree, key)?;
    if edit.is_at(key) {
        return Err(TreeError::Exists { tree: tree.id(), key: *key });
    }
    edit.check_size(key, data.len())?;
    edit.own(0)?;
    edit.insert_here(key, data, None);
    Ok(())
}

pub(crate) fn insert_all<B: Blocks>(
    blocks: &B,
    tree: &Tree,
    items: &[(Key, &[u8])],
) -> Result<(), TreeError> {
    assert!(items.is_sorted_by(|(one, _), (next, _)| one < next), "items are added in ascending order");
    let mut rest = items;
    while let Some((key, _)) = rest.first() {
        let mut edit = Edit::at(blocks, tree, key)?;
        if edit.is_at(key) {
            return Err(TreeError::Exists { tree: tree.id(), key: *key });
        }
        // Once for all of them, so that what is too large for a leaf is refused before anything is added.
        if rest.len() == items.len() {
            items.iter().try_for_each(|(key, data)| edit.check_size(key, data.len()))?;
        }
        edit.own(0)?;
        let count = edit.insert_run(rest);
        rest = &rest[count..];
    }
    Ok(())
}

pub(crate) fn replace<B: Blocks>(blocks: &B, tree: &Tree, key: &Key, data: &[u8]) -> Result<(), TreeError> {
    let mut edit = Edit::at(blocks, tree, key)?;
    edit.check_size(key, data.len())?;
    let is_there = edit.is_at(key);
    edit.own(0)?;
    if is_there {
        edit.replace_here(key, data);
    } else {
        edit.insert_here(key, data, None);
    }
    Ok(())
}

pub(super) fn update<B: Blocks, T>(
    blocks: &B,
    tree: &Tree,
    key: &Key,
    change: impl FnOnce(&mut [u8]) -> T,
) -> Result<Option<T>, TreeError> {
    let mut edit = Edit::at(blocks, tree, key)?;
    if !edit.is_at(key) {
        return Ok(None);
    }
    edit.own(0)?;
    let slot = edit.slot();
    Ok(Some(change(edit.at_level_mut(0).item_data_mut(slot))))
}

pub(super) fn edit<B: Blocks, T>(
    blocks: &B,
    tree: &Tree,
    key: &Key,
    change: impl FnOnce(&mut Vec<u8>) -> T,
) -> Result<T, TreeError> {
    let mut edit = Edit::at(blocks, tree, key)?;
    let slot = edit.slot();
    let before = edit.leaf().item(slot).filter(|(found, _)| found == key).map(|(_, data)| data.to_vec());
    let mut after = before.clone().unwrap_or_default();
    let done = change(&mut after);
    edit.check_size(key, after.len())?;
    match before {
        Some(before) if before == after => {}
        None if after.is_empty() => {}
        Some(_) if after.is_empty() => {
            edit.remove_item_here()?;
            lower(blocks, tree, edit)?;
        }
        Some(_) => {
            edit.own(0)?;
            edit.replace_here(key, &after);
        }
        None => {
            edit.own(0)?;
            edit.insert_here(key, &after, None);
        }
    }
    Ok(done)
}

pub(super) fn copy_path<B: Blocks>(
    blocks: &B,
    tree: &Tree,
    at: Logical,
    key: &Key,
    level: u8,
) -> Result<bool, TreeError> {
    let mut edit = Edit::at(blocks, tree, key)?;
    let level = usize::from(level);
    let is_there = level <= edit.path.top && edit.path.steps[level].at == at;
    if is_there {
        edit.own(level)?;
    }
    Ok(is_there)
}

/// Copies a leaf of a tree and all above it, if it still lies there and none of it is shared.
pub(super) fn copy_unshared_path<B: Blocks>(
    blocks: &B,
    tree: &Tree,
    at: Logical,
    key: &Key,
) -> Result<bool, TreeError> {
    let mut edit = Edit::quietly(blocks, tree, key, key)?;
    let leaf = &edit.path.steps[0];
    if leaf.at != at || leaf.clean.is_none() {
        return Ok(false);
    }
    for node in edit.path.steps[..edit.path.top].iter().filter_map(|step| step.clean.as_ref()) {
        if edit.may_be_shared(node) && blocks.is_shared(node)? {
            return Ok(false);
        }
    }
    edit.own(0)?;
    Ok(true)
}

impl<B: Blocks> Edit<'_, B> {
    fn check_size(&self, key: &Key, size: usize) -> Result<(), TreeError> {
        let size_max = self.item_size_max();
        match size <= size_max {
            true => Ok(()),
            false => Err(TreeError::TooLarge { tree: self.tree, key: *key, size, size_max }),
        }
    }

    /// Gives the item at the path, which is owned, other data.
    fn replace_here(&mut self, key: &Key, data: &[u8]) {
        let slot = self.slot();
        let leaf = self.at_level_mut(0);
        let size = leaf.item_data_mut(slot).len();
        match data.len().cmp(&size) {
            Ordering::Greater if data.len() - size > leaf.free_space() => {
                // It may need another leaf. Its key stays that of the leaf meanwhile, if it was the first.
                leaf.remove(slot..slot + 1);
                return self.insert_here(key, data, None);
            }
            Ordering::Equal => {}
            _ => leaf.resize_item(slot, data.len()),
        }
        leaf.item_data_mut(slot).copy_from_slice(data);
    }
}
