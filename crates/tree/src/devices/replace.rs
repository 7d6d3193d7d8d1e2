//! A device that takes the place of another in the pool's trees: the last step of a replacement, of which
//! [`Replacement`] tells the others.
//!
//! The items that name the device stay as they are, for the target gets its id and its UUID. In one transaction the device
//! item says that its superblock is of this transaction at least, the statistics of the old device go, and the replacement
//! is recorded where the kernel has it (`DEV_REPLACE`), as finished: nothing is recorded before.
//!
//! **A crash at each point.** N is the last commit before, N+1 the one of the replacement.
//! - Before the superblocks of N+1: the pool is that of N, with the old device, which has everything that N refers to. The
//!   target has no superblock, so nothing takes it for a device of the pool.
//! - N+1 is durable but for its superblocks; then the target gets its own, all copies, first and by itself. With the
//!   target given, the pool is that of N+1, and the old device, which is of the same id, and older, is left alone. Without
//!   it, the pool is that of N.
//! - Then the old device loses its superblocks, durably: before others speak of N+1, there is no second device of this id.
//!   If it fails to take that, or is missing, the device item tells that it is stale, and for good that it is not this device
//!   ([`DevItem::placed_in`]): a mark of a later absence of the target does not make it one that was away.
//! - If the target does not take its superblock, nothing more is written, and the pool is that of N.
//!
//! Between the moment at which the target takes over and the superblocks of N+1, rows of parity are written to the target
//! alone. After a crash then, the old device has parity of before, as after any crash between the writes of a row.

use crate::devices::Devices;
use crate::editor::Editor;
use crate::error::TreeError;
use crate::space::Urgency;
use crate::store::Store;
use crate::transaction::Transactions;
use crate::transaction::device_items::remove_statistics;
use brindle_device::WritableDevice;
use brindle_ondisk::item::{DevItem, DevReplaceItem};
use brindle_ondisk::{DevId, Item, Key, KeyType, ObjectId, RootId};
use brindle_volume::Replacement;
use std::sync::Arc;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// Blocks that the items of a replacement may change.
const BLOCKS: usize = 32;
/// A replacement that was begun and has ended (`BTRFS_DEV_REPLACE_ITEM_STATE_FINISHED`).
const FINISHED: u64 = 2;
/// One that was ended before its time (`BTRFS_DEV_REPLACE_ITEM_STATE_CANCELED`).
const CANCELED: u64 = 3;
/// Begun and not ended (`BTRFS_DEV_REPLACE_ITEM_STATE_STARTED`, `BTRFS_DEV_REPLACE_ITEM_STATE_SUSPENDED`).
const INTERRUPTED: [u64; 2] = [1, 4];
/// Id of the source in the record of a replacement that has ended.
const NO_DEVICE: DevId = DevId::new(u64::MAX);

/// A replacement under way.
#[derive(Debug)]
pub struct Replacing<'p> {
    /// Copies to the target.
    pub copies: Replacement<'p>,
    devices: Devices<'p>,
    started: u64,
}

impl<'p> Devices<'p> {
    /// Begins to replace a device, missing or not, by one without superblocks.
    pub(crate) fn begin_replacement(
        self,
        devid: DevId,
        target: &Arc<dyn WritableDevice>,
    ) -> Result<Replacing<'p>, TreeError> {
        let started = self.transactions.now().sec.get() as u64;
        let copies =
            self.store.volume().begin_replacement(devid, target).ok_or(TreeError::NoDevice(devid))?;
        Ok(Replacing { copies, devices: self, started })
    }
}

impl Replacing<'_> {
    /// The target takes the place of the device, durably. `lost` is the number of sectors that could be had from nowhere.
    ///
    /// # Errors
    /// A target that fails before it takes over: nothing has changed. Devices that fail later: nothing more is written.
    pub fn finish(self, lost: u64) -> Result<(), TreeError> {
        let Self { copies, devices, started } = self;
        let Devices { space, transactions, .. } = devices;
        let devid = copies.devid();
        // Little is left to be done with everything else waiting.
        transactions.commit()?;
        let stopped = transactions.now().sec.get() as u64;
        let item = DevReplaceItem {
            src_devid: devid,
            cursor_left: U64::new(0),
            cursor_right: U64::new(0),
            cont_reading_from_srcdev_mode: U64::new(0),
            replace_state: U64::new(FINISHED),
            time_started: U64::new(started),
            time_stopped: U64::new(stopped),
            num_write_errors: U64::new(0),
            num_uncorrectable_read_errors: U64::new(lost),
        };
        // Everything was copied: a full pool is no reason to have done so in vain.
        transactions.exclusively_with(BLOCKS, Urgency::Rescue, |editor| {
            copies.settle()?;
            // From here on it can't be undone.
            let entered = enter(editor, devid, &item);
            let entered = entered
                .and_then(|()| space.device_replaced(editor.store, &editor.changes.options.classes, devid));
            entered.inspect_err(|error| editor.abort(error))
        })?;
        transactions.commit()
    }
}

/// The record of a replacement that the kernel has begun and not ended.
pub(crate) fn interrupted(store: &Store) -> Result<Option<DevReplaceItem>, TreeError> {
    let tree = store.tree(RootId::DEV_TREE)?;
    let found = store.with_item(&tree, &record_key(), |data| match Item::parse(&record_key(), data) {
        Ok(Item::DevReplace(item)) => Some(*item),
        _ => None,
    })?;
    Ok(found.flatten().filter(|item| INTERRUPTED.contains(&item.replace_state.get())))
}

/// Records a replacement that the kernel was interrupted in as ended, with the running transaction, as the kernel does where one is
/// cancelled. All that was written meanwhile is on the source as well.
pub(crate) fn cancel(transactions: &Transactions) -> Result<(), TreeError> {
    let Some(mut item) = interrupted(transactions.store())? else { return Ok(()) };
    item.src_devid = NO_DEVICE;
    item.replace_state.set(CANCELED);
    item.time_stopped.set(transactions.now().sec.get() as u64);
    transactions.exclusively_with(BLOCKS, Urgency::Rescue, |editor| {
        let tree = editor.store.tree(RootId::DEV_TREE)?;
        editor.replace(&tree, &record_key(), item.as_bytes())
    })
}

/// Key of the record of a replacement, in the device tree.
fn record_key() -> Key {
    Key::new(ObjectId::new(0), KeyType::DEV_REPLACE, 0)
}

/// Enters into the trees that a device has another place on disk.
fn enter(editor: &Editor<'_>, devid: DevId, item: &DevReplaceItem) -> Result<(), TreeError> {
    let store = editor.store;
    let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, devid.get());
    editor.update(&*store.tree(RootId::CHUNK_TREE)?, &key, |data| {
        if let Ok((item, _)) = DevItem::mut_from_prefix(data) {
            item.generation = editor.generation;
            item.set_log_fingerprint(None);
            item.set_placed_in(editor.generation);
        }
    })?;
    store.volume().mark_device(devid, editor.generation);
    store.volume().note_placement(devid, editor.generation);
    store.volume().note_log_of(devid, None);
    remove_statistics(editor, devid)?;
    editor.replace(&*store.tree(RootId::DEV_TREE)?, &record_key(), item.as_bytes())
}
