//! The superblock of a transaction.

use crate::editor::Editor;
use crate::error::TreeError;
use crate::root::TreeRoot;
use crate::space::recount::{device_items, makes_free_space_tree};
use crate::store::Store;
use brindle_ondisk::{CompatRo, Logical, RootBackup, RootId, Superblock};

/// The superblock that the settled transaction is reached by.
pub(super) fn next_superblock(editor: &Editor<'_>) -> Result<Box<Superblock>, TreeError> {
    let store = editor.store;
    let mut next = Box::new(Superblock::clone(&store.superblock()));
    let uuid_tree_was_current = next.uuid_tree_generation.get() == next.generation.get();
    let (root, chunk_root) = (store.tree(RootId::ROOT_TREE)?.root(), store.tree(RootId::CHUNK_TREE)?.root());
    next.generation = editor.generation;
    (next.root, next.root_level) = (root.bytenr, root.level);
    (next.chunk_root, next.chunk_root_level) = (chunk_root.bytenr, chunk_root.level);
    next.chunk_root_generation = chunk_root.generation;
    next.log_root = Logical::new(0);
    next.log_root_level = 0;
    next.bytes_used.set(editor.changes.space.bytes_used());
    let devices = editor.changes.space.take_membership();
    next.total_bytes.set(devices.total_bytes(next.total_bytes.get()));
    next.num_devices.set(devices.count(next.num_devices.get()));
    // The UUID tree was current, and brindle keeps it current.
    if uuid_tree_was_current {
        next.uuid_tree_generation.set(editor.generation.get());
    }
    record_recount(editor, &mut next)?;
    let features = *editor.changes.features.lock();
    next.incompat_flags.set((next.incompat() | features).bits());
    if let Some(label) = editor.changes.label.lock().take() {
        next.label = *label;
    }
    if let Some(chunks) = editor.changes.space.system_chunk_array() {
        let length = chunks.len();
        next.sys_chunk_array[..length].copy_from_slice(&chunks);
        next.sys_chunk_array[length..].fill(0);
        next.sys_chunk_array_size.set(u32::try_from(length).expect("it fits into the array"));
    }
    back_up_roots(store, &mut next)?;
    Ok(next)
}

/// Corrects what was counted anew when the pool was opened.
fn record_recount(editor: &Editor<'_>, next: &mut Superblock) -> Result<(), TreeError> {
    let recount = editor.changes.options.recount;
    if recount.space && makes_free_space_tree(editor.store) {
        next.compat_ro_flags.set((next.compat_ro() | CompatRo::FREE_SPACE_TREE_VALID).bits());
    }
    if recount.devices {
        let (mut bytes, mut count) = (0_u64, 0);
        for item in device_items(editor.store)? {
            bytes = bytes.saturating_add(item.total_bytes.get());
            count += 1;
        }
        next.total_bytes.set(bytes);
        next.num_devices.set(count);
    }
    Ok(())
}

/// Puts the roots into the slot behind the newest one.
fn back_up_roots(store: &Store, next: &mut Superblock) -> Result<(), TreeError> {
    let newest = (0..next.super_roots.len()).max_by_key(|slot| next.super_roots[*slot].tree_root_gen);
    let slot = newest.map_or(0, |newest| (newest + 1) % next.super_roots.len());
    let root = |id| Ok::<TreeRoot, TreeError>(store.tree(id)?.root());
    let (extents, files) = (root(RootId::EXTENT_TREE)?, root(RootId::FS_TREE)?);
    let (devices, checksums) = (root(RootId::DEV_TREE)?, root(RootId::CSUM_TREE)?);
    next.super_roots[slot] = RootBackup {
        tree_root: next.root,
        tree_root_gen: next.generation,
        chunk_root: next.chunk_root,
        chunk_root_gen: next.chunk_root_generation,
        extent_root: extents.bytenr,
        extent_root_gen: extents.generation,
        fs_root: files.bytenr,
        fs_root_gen: files.generation,
        dev_root: devices.bytenr,
        dev_root_gen: devices.generation,
        csum_root: checksums.bytenr,
        csum_root_gen: checksums.generation,
        total_bytes: next.total_bytes,
        bytes_used: next.bytes_used,
        num_devices: next.num_devices,
        unused_64: Default::default(),
        tree_root_level: next.root_level,
        chunk_root_level: next.chunk_root_level,
        extent_root_level: extents.level,
        fs_root_level: files.level,
        dev_root_level: devices.level,
        csum_root_level: checksums.level,
        unused_8: Default::default(),
    };
    Ok(())
}
