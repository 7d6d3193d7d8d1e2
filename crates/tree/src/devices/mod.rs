//! The devices of a pool change: one joins, leaves, has another size or id, or takes the place of another.
//!
//! The parts of a device that belong to chunks are known to [`Space`], which is told of each change; items change in transactions.

mod renumber;
pub(crate) mod replace;

use crate::error::TreeError;
use crate::space::Space;
use crate::statistics::Statistics;
use crate::store::Store;
use crate::transaction::device_items::remove_statistics;
use crate::transaction::{Need, Transactions};
use brindle_device::WritableDevice;
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{DevId, Key, KeyType, ObjectId, RootId, Uuid};
use brindle_policy::placement::AllocationHint;
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// A device that is to join.
#[derive(Clone, Debug)]
pub struct JoiningDevice {
    /// The device, on which nothing is that could be taken for a filesystem.
    pub device: Arc<dyn WritableDevice>,
    /// The UUID that it is to have: no other device has ever had it.
    pub uuid: Uuid,
    /// Hint that the pool is to store.
    pub hint: AllocationHint,
}

/// A device that has left.
#[derive(Debug)]
pub struct Parted {
    /// Device as it was written, if it was there.
    pub device: Option<Arc<dyn WritableDevice>>,
}

/// Changes of the devices of a pool that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Devices<'p> {
    store: &'p Store,
    space: &'p Space,
    statistics: &'p Statistics,
    transactions: &'p Transactions,
}

impl<'p> Devices<'p> {
    pub(crate) fn of(transactions: &'p Transactions) -> Self {
        let changes = transactions.changes();
        Self {
            store: transactions.store(),
            space: &changes.space,
            statistics: &changes.statistics,
            transactions,
        }
    }

    /// A device joins the pool; which id it has. Chunks may lie on it at once; durable with the next commit.
    pub(crate) fn join(&self, new: &JoiningDevice) -> Result<DevId, TreeError> {
        let superblock = self.store.superblock();
        let sectorsize = superblock.sectorsize.get();
        let highest =
            self.store.volume().devices().iter().map(|device| device.devid.get()).max().unwrap_or(0);
        let devid = DevId::new(highest + 1);
        let size_bytes = new.device.size_bytes();
        let mut item = DevItem::new_zeroed();
        item.devid = devid;
        item.total_bytes.set(size_bytes - size_bytes % u64::from(sectorsize));
        item.io_align.set(sectorsize);
        item.io_width.set(sectorsize);
        item.sector_size.set(sectorsize);
        item.device_type.set(new.hint.number().into());
        item.uuid = new.uuid;
        item.fsid = superblock.dev_item.fsid;
        let transaction = self.transactions.join(Need::rescuing(2))?;
        transaction.insert(&*self.store.tree(RootId::CHUNK_TREE)?, &item_key(devid), item.as_bytes())?;
        self.store.volume().join_device(&item, &new.device);
        let known =
            self.store.volume().writable_devices().into_iter().find(|known| known.item.devid == devid);
        self.space.device_joined(&known.expect("it has joined"));
        Ok(devid)
    }

    /// A device has another size as far as the pool is concerned; durable with the next commit. `false`, and nothing has
    /// changed, while a chunk lies behind its new end. A smaller one needs a [`Withheld`](crate::space::membership::Withheld) end before.
    pub(crate) fn resize(&self, devid: DevId, total_bytes: u64) -> Result<bool, TreeError> {
        self.space.wait_for_readers();
        let transaction = self.transactions.join(Need::rescuing(2))?;
        let done = self.space.resize_device(self.store, devid, total_bytes);
        drop(transaction);
        done
    }

    /// A device leaves the pool, durably with the next commit; `None`, and nothing has changed, while a chunk lies on it.
    /// It needs a [`Withheld`](crate::space::membership::Withheld) end before, unless it is missing. What it was written with, if it was there: it is to
    /// be left alone before the commit is durable.
    pub(crate) fn part_with(&self, devid: DevId) -> Result<Option<Parted>, TreeError> {
        self.space.wait_for_readers();
        let transaction = self.transactions.join(Need::items(4))?;
        if self.store.volume().lies_on(devid, 0) {
            return Ok(None);
        }
        let known = self.store.volume().devices().into_iter().find(|known| known.devid == devid);
        let known = known.filter(|known| !known.is_seed).ok_or(TreeError::NoDevice(devid))?;
        transaction.remove(&*self.store.tree(RootId::CHUNK_TREE)?, &item_key(devid))?;
        remove_statistics(&transaction, devid)?;
        let device = self.space.device_left(self.store, devid, known.total_bytes);
        drop(transaction);
        Ok(Some(Parted { device }))
    }
}

fn item_key(devid: DevId) -> Key {
    Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, devid.get())
}
