//! Ages of superblocks: brindle's own item of the device tree, by which a later mount tells a device that slept from an old
//! copy of it. The device tree lies on fast devices where disks can sleep, and its leaf changes only when a bulk device took
//! part in the commit before.

use crate::editor::Editor;
use crate::error::TreeError;
use brindle_ondisk::item::{SuperblockAgesHeader, SuperblockAgesItem};
use brindle_ondisk::{DevId, Generation, RootId};

impl Editor<'_> {
    /// Records the superblocks that devices hold which may sleep, or which have an older one for whatever reason. Of the
    /// others, the last commit but one is to be expected.
    pub(super) fn record_ages(&self, durable: Generation, sleepers: &[DevId]) -> Result<(), TreeError> {
        let mut ages = self.store.volume().superblock_ages();
        ages.retain(|age| age.generation < durable || sleepers.contains(&age.devid));
        ages.sort_unstable_by_key(|age| age.devid);
        if ages == self.store.superblock_ages()? {
            return Ok(());
        }
        let item = SuperblockAgesItem::encode(&ages);
        self.replace(&*self.store.tree(RootId::DEV_TREE)?, &SuperblockAgesHeader::KEY, &item)
    }
}
