//! Items of devices that a commit writes: those that are stale, counts of errors, ages of superblocks.
//!
//! Ages are brindle's own item of the device tree, by which a later mount tells a device that slept from an old copy of it. The
//! device tree lies on fast devices where disks can sleep, and its leaf changes only when a bulk device took part in the commit
//! before.

use crate::editor::Editor;
use crate::error::TreeError;
use crate::statistics::key_of;
use brindle_ondisk::item::{DevItem, SuperblockAgesHeader, SuperblockAgesItem};
use brindle_ondisk::{DevId, Generation, Key, KeyType, ObjectId, RootId};
use zerocopy::FromBytes;

/// Says of devices that lack something that they do, and which log the superblocks of others name that have missed the end of it.
pub(super) fn mark_devices(editor: &Editor<'_>) -> Result<(), TreeError> {
    let volume = editor.store.volume();
    for (devid, log) in volume.logs_to_note() {
        update(editor, devid, |item| item.set_log_fingerprint(Some(log)))?;
        volume.note_log_of(devid, Some(log));
    }
    for devid in volume.devices_to_mark() {
        // The commit has all of that log.
        let log = volume.log_fingerprint(devid);
        let mark = volume.mark_for(devid, editor.generation);
        update(editor, devid, |item| {
            item.generation = mark;
            if log.is_some() {
                item.set_log_fingerprint(log);
            }
        })?;
        // Of a commit in memory it is no news: the device will be as whole as it is.
        if !editor.changes.options.is_transient {
            tracing::warn!(
                "devid {devid} lacks what was written, and is left out from generation {} on",
                editor.generation
            );
        }
        volume.mark_device(devid, mark);
        if log.is_some() {
            volume.note_log_of(devid, log);
        }
    }
    Ok(())
}

/// Changes the item of a device in the chunk tree, if it has one.
fn update(editor: &Editor<'_>, devid: DevId, change: impl Fn(&mut DevItem)) -> Result<(), TreeError> {
    let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, devid.get());
    editor.update(&*editor.store.tree(RootId::CHUNK_TREE)?, &key, |data| {
        if let Ok((item, _)) = DevItem::mut_from_prefix(data) {
            change(item);
        }
    })?;
    Ok(())
}

/// Records the superblocks that devices hold which may sleep, or which have an older one for whatever reason. Of the
/// others, the last commit but one is to be expected.
pub(super) fn record_ages(
    editor: &Editor<'_>,
    durable: Generation,
    sleepers: &[DevId],
) -> Result<(), TreeError> {
    let mut ages = editor.store.volume().superblock_ages();
    ages.retain(|age| age.generation < durable || sleepers.contains(&age.devid));
    ages.sort_unstable_by_key(|age| age.devid);
    if ages == editor.store.superblock_ages()? {
        return Ok(());
    }
    let item = SuperblockAgesItem::encode(&ages);
    editor.replace(&*editor.store.tree(RootId::DEV_TREE)?, &SuperblockAgesHeader::KEY, &item)
}

/// Writes the counts of errors that have changed.
pub(super) fn write_statistics(editor: &Editor<'_>) -> Result<(), TreeError> {
    let (store, statistics) = (editor.store, &editor.changes.statistics);
    let tree = store.tree(RootId::DEV_TREE)?;
    for device in store.volume().devices() {
        let Some(counts) = statistics.unwritten(&device) else { continue };
        editor.replace(&tree, &key_of(device.devid), &counts.to_bytes())?;
        statistics.note_written(device.devid, counts);
    }
    Ok(())
}

/// Forgets the counts of errors of a device that leaves the pool: another one may have its id later.
pub(crate) fn remove_statistics(editor: &Editor<'_>, devid: DevId) -> Result<(), TreeError> {
    let tree = editor.store.tree(RootId::DEV_TREE)?;
    if editor.store.with_item(&tree, &key_of(devid), |_| ())?.is_some() {
        editor.remove(&tree, &key_of(devid))?;
    }
    editor.changes.statistics.forget(devid);
    Ok(())
}
