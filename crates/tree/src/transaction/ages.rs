//! Ages of superblocks: brindle's own item of the device tree, by which a later mount tells a device that slept from an old
//! copy of it. The device tree lies on fast devices where disks can sleep, and its leaf changes only when a bulk device took
//! part in the commit before.

use crate::editor::Editor;
use crate::error::TreeError;
use crate::pool::Pool;
use brindle_ondisk::item::{SuperblockAge, SuperblockAgesHeader, SuperblockAgesItem};
use brindle_ondisk::{DevId, Item, RootId};

impl Pool {
    /// Ages of superblocks that the pool has recorded; none if there is no record.
    pub(crate) fn superblock_ages(&self) -> Result<Vec<SuperblockAge>, TreeError> {
        let tree = self.tree(RootId::DEV_TREE)?;
        let key = SuperblockAgesHeader::KEY;
        let found = self.with_item(&tree, &key, |data| match Item::parse(&key, data) {
            Ok(Item::SuperblockAges(item)) => Ok(item.devices.to_vec()),
            Ok(_) => Ok(Vec::new()),
            Err(defect) => Err(TreeError::item(RootId::DEV_TREE, key, defect)),
        })?;
        Ok(found.transpose()?.unwrap_or_default())
    }
}

impl Editor<'_> {
    /// Records the superblocks that devices hold which may sleep, or which have an older one for whatever reason. Of the
    /// others, the last commit but one is to be expected.
    pub(super) fn record_ages(&self, sleepers: &[DevId]) -> Result<(), TreeError> {
        let newest = self.writer.durable_generation();
        let mut ages = self.pool.volume().superblock_ages();
        ages.retain(|age| age.generation < newest || sleepers.contains(&age.devid));
        ages.sort_unstable_by_key(|age| age.devid);
        if ages == self.pool.superblock_ages()? {
            return Ok(());
        }
        let item = SuperblockAgesItem::encode(&ages);
        self.replace(&*self.pool.tree(RootId::DEV_TREE)?, &SuperblockAgesHeader::KEY, &item)
    }
}
