//! Permanent settings of a pool, kept in an item of the device tree that only brindle looks for. Drivers that know
//! nothing of it leave it where it is.

use crate::error::TreeError;
use crate::store::Store;
use brindle_ondisk::item::{DeviceClassesHeader, LogSettingsItem, PoolSettingsItem};
use brindle_ondisk::{Item, RootId};
use brindle_policy::class::{ClassesProblem, DeviceClasses};
use brindle_policy::log::LogProfile;

/// Permanent settings of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// Files up to this length, compressed, have their data on fast devices; 0 for none.
    pub small_file_bytes: u64,
}

/// Settings stored in the pool; the defaults if there are none.
pub(crate) fn stored(store: &Store) -> Result<PoolSettings, TreeError> {
    let tree = store.tree(RootId::DEV_TREE)?;
    let key = PoolSettingsItem::KEY;
    let found = store.with_item(&tree, &key, |data| match Item::parse(&key, data) {
        Ok(Item::PoolSettings(item)) => {
            Ok(Some(PoolSettings { small_file_bytes: item.small_file_bytes.get() }))
        }
        Ok(_) => Ok(None),
        Err(defect) => Err(TreeError::item(RootId::DEV_TREE, key, defect)),
    })?;
    Ok(found.transpose()?.flatten().unwrap_or_default())
}

/// Profile of the log that is stored in the pool.
///
/// # Errors
/// A device tree that can't be read.
pub(crate) fn stored_log_profile(store: &Store) -> Result<LogProfile, TreeError> {
    let tree = store.tree(RootId::DEV_TREE)?;
    let key = LogSettingsItem::KEY;
    let found = store.with_item(&tree, &key, |data| match Item::parse(&key, data) {
        // A number of a later version is none that may be guessed at.
        Ok(Item::LogSettings(item)) => Ok(LogProfile::from_disk(item.copies.get()).unwrap_or_default()),
        Ok(_) => Ok(LogProfile::default()),
        Err(defect) => Err(TreeError::item(RootId::DEV_TREE, key, defect)),
    })?;
    Ok(found.transpose()?.unwrap_or_default())
}

/// Classes of devices that are stored in the pool, or the reason for which they can't be understood.
///
/// # Errors
/// A device tree that can't be read.
pub(crate) fn stored_classes(store: &Store) -> Result<Result<DeviceClasses, ClassesProblem>, TreeError> {
    let tree = store.tree(RootId::DEV_TREE)?;
    let found = store.with_item(&tree, &DeviceClassesHeader::KEY, DeviceClasses::decode)?;
    Ok(found.unwrap_or_else(|| Ok(DeviceClasses::default())))
}
