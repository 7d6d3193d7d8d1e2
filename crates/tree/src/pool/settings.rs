//! Changes of the permanent settings of a pool.

use crate::error::TreeError;
use crate::settings::PoolSettings;
use crate::transaction::{Need, Transactions};
use brindle_ondisk::RootId;
use brindle_ondisk::item::{DeviceClassesHeader, LogSettingsItem, PoolSettingsItem};
use brindle_policy::class::DeviceClasses;
use brindle_policy::log::LogProfile;
use zerocopy::IntoBytes;

/// Stores other settings; durable with the next commit.
pub(super) fn store(transactions: &Transactions, settings: &PoolSettings) -> Result<(), TreeError> {
    let tree = transactions.store().tree(RootId::DEV_TREE)?;
    let item = PoolSettingsItem {
        version: PoolSettingsItem::VERSION.into(),
        small_file_bytes: settings.small_file_bytes.into(),
    };
    let transaction = transactions.join(Need::items(1))?;
    transaction.replace(&tree, &PoolSettingsItem::KEY, item.as_bytes())
}

/// Stores another profile of the log, and goes by it from now on; durable with the next commit.
///
/// # Errors
/// A pool that is not written.
pub(super) fn store_log_profile(transactions: &Transactions, profile: LogProfile) -> Result<(), TreeError> {
    let tree = transactions.store().tree(RootId::DEV_TREE)?;
    let item = LogSettingsItem { version: LogSettingsItem::VERSION.into(), copies: profile.copies().into() };
    let transaction = transactions.join(Need::items(1))?;
    transaction.replace(&tree, &LogSettingsItem::KEY, item.as_bytes())?;
    transactions.changes().space.use_log_profile(profile);
    Ok(())
}

/// Stores other classes of devices, and goes by them from the next chunk on; durable with the next commit.
///
/// # Errors
/// A pool that is not written.
pub(super) fn store_classes(transactions: &Transactions, classes: &DeviceClasses) -> Result<(), TreeError> {
    let tree = transactions.store().tree(RootId::DEV_TREE)?;
    let transaction = transactions.join(Need::items(1))?;
    match classes.encode() {
        Some(item) => transaction.replace(&tree, &DeviceClassesHeader::KEY, &item)?,
        None => drop(transaction.remove(&tree, &DeviceClassesHeader::KEY)?),
    }
    transactions.changes().space.use_classes(classes.clone());
    Ok(())
}
