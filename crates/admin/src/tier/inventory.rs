//! Devices and chunks of a mounted pool.

use crate::call;
use crate::control::{ControlError, Mounted};
use crate::sysfs;
use brindle_ondisk::item::{Chunk, DevItem, DeviceClassesHeader, WriteBackHeader};
use brindle_ondisk::{DevId, Item, Key, KeyType, Logical, ObjectId, RootId, Uuid};
use brindle_policy::class::{ClassesProblem, DeviceClasses};
use brindle_policy::tier::{TierChunk, TierStripe};
use brindle_uapi::message::{CLASSES_BYTES, ClassesRequest, text};
use brindle_uapi::verb;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A mounted pool's devices and chunks.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// UUID of the pool.
    pub fsid: Uuid,
    /// Its devices, by their ids.
    pub devices: Vec<MountedDevice>,
    /// Its chunks, by their addresses.
    pub chunks: Vec<TierChunk>,
    /// Classes of devices that the pool stores, or the reason for which they can't be understood.
    pub classes: Result<DeviceClasses, ClassesProblem>,
}

/// A device of a mounted pool.
#[derive(Clone, Debug)]
pub struct MountedDevice {
    /// Its id.
    pub devid: DevId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its path; empty if it is missing.
    pub path: PathBuf,
    /// Its size as the pool has it, in bytes.
    pub total_bytes: u64,
    /// Hint that the pool stores (`dev_item.type`).
    pub stored: u64,
    /// True if it is not there.
    pub is_missing: bool,
    /// True if it belongs to the seed that the pool has grown from.
    pub is_seed: bool,
}

impl Mounted {
    /// Looks what there is. How much of a chunk is used is as of the last commit.
    pub fn inventory(&self) -> Result<Inventory, ControlError> {
        let fsid = Uuid(self.filesystem()?.fsid);
        let mut used = self.block_groups_of_their_own_tree()?;
        let (mut chunks, waiting) = (Vec::new(), self.write_back_chunks()?);
        for (key, data) in self.search(
            RootId::CHUNK_TREE,
            Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, 0),
            Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, u64::MAX),
        )? {
            let logical = Logical::new(key.offset());
            let Ok(Item::Chunk(chunk)) = Item::parse(&key, &data) else { return Err(self.nonsense()) };
            let used_bytes = match &mut used {
                Some(used) => used.remove(&logical).unwrap_or(0),
                None => self.block_group_in_the_extent_tree(logical)?,
            };
            let is_write_back = waiting.contains(&logical);
            chunks.push(TierChunk { is_write_back, ..tier_chunk(logical, &chunk, used_bytes) });
        }
        Ok(Inventory { fsid, devices: self.devices(&fsid)?, chunks, classes: self.stored_classes()? })
    }

    fn devices(&self, fsid: &Uuid) -> Result<Vec<MountedDevice>, ControlError> {
        let mut devices = Vec::new();
        let metadata_uuid = Uuid(self.filesystem()?.metadata_uuid);
        let is_of_seed = |item: &DevItem| ![*fsid, metadata_uuid, Uuid::NIL].contains(&item.fsid);
        for (key, data) in self.search(
            RootId::CHUNK_TREE,
            Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, 0),
            Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, u64::MAX),
        )? {
            let Ok(Item::Device(item)) = Item::parse(&key, &data) else { return Err(self.nonsense()) };
            let Some(info) = self.device(item.devid)? else { continue };
            let path = PathBuf::from(OsStr::from_bytes(text(&info.path)));
            devices.push(MountedDevice {
                devid: item.devid,
                uuid: item.uuid,
                total_bytes: info.total_bytes,
                stored: item.device_type.get(),
                is_missing: path.as_os_str().is_empty() || sysfs::is_missing(fsid, item.devid),
                is_seed: match self.is_of_kernel() {
                    true => sysfs::is_seed(fsid, item.devid),
                    false => is_of_seed(item),
                },
                path,
            });
        }
        Ok(devices)
    }

    /// Classes of devices that the pool stores, or the reason for which they can't be understood.
    ///
    /// # Errors
    /// A device tree that can't be searched.
    pub fn stored_classes(&self) -> Result<Result<DeviceClasses, ClassesProblem>, ControlError> {
        let key = DeviceClassesHeader::KEY;
        let found = self.search(RootId::DEV_TREE, key, key)?;
        Ok(found
            .first()
            .map_or_else(|| Ok(DeviceClasses::default()), |(_, data)| DeviceClasses::decode(data)))
    }

    /// Stores other classes of devices in the pool of a mount of ours, which goes by them.
    ///
    /// # Errors
    /// A mount of the kernel, or one that is not written.
    pub fn set_classes(&self, classes: &DeviceClasses) -> Result<(), ControlError> {
        let what = "classes of devices";
        self.only_ours(what)?;
        let item = classes.encode().unwrap_or_default();
        let mut request = ClassesRequest { length: item.len() as u64, item: [0; CLASSES_BYTES] };
        request.item[..item.len()].copy_from_slice(&item);
        self.explain(what, call::set::<verb::SetClasses>(&self.file, request))
    }

    /// Chunks of the write-back tier. The kernel has none: it places what they hold as any data.
    fn write_back_chunks(&self) -> Result<BTreeSet<Logical>, ControlError> {
        if self.is_of_kernel() {
            return Ok(BTreeSet::new());
        }
        let found = self.search(RootId::DEV_TREE, WriteBackHeader::KEY, WriteBackHeader::KEY)?;
        let chunks = found.iter().flat_map(|(key, data)| match Item::parse(key, data) {
            Ok(Item::WriteBack(item)) => item.chunks.iter().map(|chunk| chunk.start).collect(),
            _ => Vec::new(),
        });
        Ok(chunks.collect())
    }

    /// Used bytes of each block group, where they have a tree of their own.
    fn block_groups_of_their_own_tree(&self) -> Result<Option<HashMap<Logical, u64>>, ControlError> {
        match self.search(RootId::BLOCK_GROUP_TREE, Key::MIN, Key::MAX) {
            Ok(items) => {
                let used = |(key, data): &(Key, Vec<u8>)| match Item::parse(key, data) {
                    Ok(Item::BlockGroup(group)) => Some((Logical::new(key.objectid.get()), group.used.get())),
                    _ => None,
                };
                Ok(Some(items.iter().filter_map(used).collect()))
            }
            Err(ControlError::Refused { source: Errno::NOENT, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn block_group_in_the_extent_tree(&self, logical: Logical) -> Result<u64, ControlError> {
        let key = |offset| Key::new(ObjectId::new(logical.get()), KeyType::BLOCK_GROUP_ITEM, offset);
        let found = self.search(RootId::EXTENT_TREE, key(0), key(u64::MAX))?;
        Ok(found
            .iter()
            .find_map(|(key, data)| match Item::parse(key, data) {
                Ok(Item::BlockGroup(group)) => Some(group.used.get()),
                _ => None,
            })
            .unwrap_or(0))
    }

    fn nonsense(&self) -> ControlError {
        ControlError::Nonsense { path: self.path.clone(), what: "list chunks and devices" }
    }
}

fn tier_chunk(logical: Logical, chunk: &Chunk<'_>, used_bytes: u64) -> TierChunk {
    let stripe =
        |stripe: &brindle_ondisk::item::Stripe| TierStripe { devid: stripe.devid, physical: stripe.offset };
    TierChunk {
        logical,
        length_bytes: chunk.header.length.get(),
        used_bytes,
        kind: chunk.block_group_type(),
        stripes: chunk.stripes.iter().map(stripe).collect(),
        is_write_back: false,
    }
}
