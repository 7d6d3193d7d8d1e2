//! What the owner of a pool has decided for good, kept in the pool: an item of the device tree that nobody else looks
//! for. Drivers that know nothing of it leave it where it is.

use crate::{Need, Pool, TreeError};
use brindle_ondisk::{Defect, Key, KeyType, ObjectId, RootId};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What the owner of a pool has decided for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// Files up to this length, compressed, have their data on fast devices; 0 for none.
    pub small_file_bytes: u64,
}

/// The item. What later versions know more comes behind.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SettingsItem {
    version: U64,
    small_file_bytes: U64,
}

/// What of the item this version writes.
const VERSION: u64 = 1;
/// "brindle": nobody else's object, behind all devices.
const OBJECT: ObjectId = ObjectId::new(0x0062_7269_6e64_6c65);

/// A kind of item that has one meaning per object, so far with one object (0, statistics of devices).
const KEY: Key = Key::new(OBJECT, KeyType::PERSISTENT_ITEM, 0);

impl Pool {
    /// What the pool has stored; the default where nothing is.
    pub fn settings(&self) -> Result<PoolSettings, TreeError> {
        let tree = self.tree(RootId::DEV_TREE)?;
        let found = self.with_item(&tree, &KEY, |data| match SettingsItem::ref_from_prefix(data) {
            Ok((item, _)) => Ok(PoolSettings { small_file_bytes: item.small_file_bytes.get() }),
            Err(_) => Err(Defect::new("settings of brindle are too short", 0)),
        })?;
        let settings = found.unwrap_or_else(|| Ok(PoolSettings::default()));
        settings.map_err(|defect| TreeError::item(RootId::DEV_TREE, KEY, defect))
    }

    /// Stores other settings; durable with the next commit.
    pub fn set_settings(&self, settings: &PoolSettings) -> Result<(), TreeError> {
        let tree = self.tree(RootId::DEV_TREE)?;
        let item =
            SettingsItem { version: VERSION.into(), small_file_bytes: settings.small_file_bytes.into() };
        let transaction = self.join(Need::items(1))?;
        transaction.replace(&tree, &KEY, item.as_bytes())
    }
}
