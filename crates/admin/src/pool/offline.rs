//! A pool on devices that nothing has mounted, opened by this process.

use super::{
    AdminError, BalanceJob, BalanceStatus, Change, Changed, DefragmentObserver, DefragmentProgress,
    DeviceErrors, LOOK_EVERY, Member, PoolAdmin, PoolFacts, ReplaceStatus,
};
use crate::balance::BalanceState;
use crate::tier::{Inventory, MountedDevice};
use brindle_care::balance;
use brindle_care::device::{Newcomer, add, open_device, rejoin, remove, replace, resize};
use brindle_care::job::{Control, Ended, Observer, Pace, Progress};
use brindle_fs::{DefragmentPlace, DefragmentScope, Filesystem, Host, SystemHost};
use brindle_ondisk::{DevId, Item, Key, KeyType, Logical, ObjectId, RootId, Uuid};
use brindle_policy::class::DeviceClasses;
use brindle_policy::tier::{TierChunk, TierStripe};
use brindle_tree::{Pool, Readahead, TreeError};
use std::collections::HashMap;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Instant;

/// Leaves of a piece of a defragmentation.
const LEAVES_PER_PIECE: usize = 1024;

/// A pool that is open to be written.
#[derive(Debug)]
pub struct OpenPool(pub Box<Filesystem>);

impl OpenPool {
    /// Gives the pool another label, of at most 255 bytes, from its next commit on.
    pub fn set_label(&self, label: &[u8]) -> Result<(), AdminError> {
        let mut field = [0; 256];
        assert!(label.len() < field.len(), "a label has at most 255 bytes");
        field[..label.len()].copy_from_slice(label);
        Ok(self.0.pool().set_label(&field)?)
    }
}

impl PoolFacts for Pool {
    fn fsid(&self) -> Result<Uuid, AdminError> {
        Ok(self.superblock().fsid)
    }

    fn members(&self) -> Result<Vec<Member>, AdminError> {
        let devices = self.volume().devices().into_iter();
        let member = devices.map(|device| Member {
            devid: device.devid,
            uuid: device.uuid,
            total_bytes: device.total_bytes,
            is_missing: device.missing,
        });
        Ok(member.collect())
    }

    fn inventory(&self) -> Result<Inventory, AdminError> {
        Ok(inventory(self)?)
    }

    fn classes(&self) -> Result<DeviceClasses, AdminError> {
        Ok(self.stored_classes()??)
    }

    fn balance_status(&self) -> Result<BalanceStatus, AdminError> {
        let balance = balance::interrupted(self)?;
        let state = if balance.is_some() { BalanceState::Paused } else { BalanceState::None };
        Ok(BalanceStatus { state, balance, progress: Progress::default() })
    }

    fn device_errors(&self) -> Result<Vec<DeviceErrors>, AdminError> {
        let found = self.device_statistics()?.into_iter();
        let errors = found.map(|(device, counters)| DeviceErrors {
            devid: device.devid,
            name: if device.missing { Vec::new() } else { device.name.into_bytes() },
            counters: counters.values(),
        });
        Ok(errors.collect())
    }

    fn replace_status(&self) -> Result<ReplaceStatus, AdminError> {
        let devices = self.tree(RootId::DEV_TREE)?;
        let found =
            self.with_item(&devices, &ReplaceStatus::key(), |data| ReplaceStatus::of_record(Some(data)))?;
        Ok(found.unwrap_or(ReplaceStatus::NEVER))
    }
}

impl PoolFacts for OpenPool {
    fn fsid(&self) -> Result<Uuid, AdminError> {
        self.0.pool().fsid()
    }

    fn members(&self) -> Result<Vec<Member>, AdminError> {
        self.0.pool().members()
    }

    fn inventory(&self) -> Result<Inventory, AdminError> {
        PoolFacts::inventory(self.0.pool())
    }

    fn classes(&self) -> Result<DeviceClasses, AdminError> {
        self.0.pool().classes()
    }

    fn balance_status(&self) -> Result<BalanceStatus, AdminError> {
        self.0.pool().balance_status()
    }

    fn device_errors(&self) -> Result<Vec<DeviceErrors>, AdminError> {
        self.0.pool().device_errors()
    }

    fn replace_status(&self) -> Result<ReplaceStatus, AdminError> {
        self.0.pool().replace_status()
    }
}

impl PoolAdmin for OpenPool {
    fn balance(&self, job: &BalanceJob, observer: Observer<'_>) -> Result<Ended, AdminError> {
        let begun = Instant::now();
        let pace = job.rate.map(|rate| Pace { rate });
        let mut paced = |progress: &Progress| {
            loop {
                let control = observer(progress);
                let owed =
                    pace.map(|pace| pace.owed(progress.moved_bytes, begun.elapsed())).unwrap_or_default();
                if control != Control::Continue || owed.is_zero() {
                    return control;
                }
                sleep(owed.min(LOOK_EVERY));
            }
        };
        Ok(match &job.balance {
            Some(balance) => balance::start(&self.0, balance, job.force, &mut paced),
            None => balance::resume(&self.0, &mut paced),
        }?)
    }

    fn pause_balance(&self) -> Result<bool, AdminError> {
        Ok(false)
    }

    fn cancel_balance(&self) -> Result<bool, AdminError> {
        Ok(balance::forget(self.0.pool())?)
    }

    /// One of this pool runs in the process that has the pool open, and in no other.
    fn cancel_replace(&self) -> Result<bool, AdminError> {
        Ok(false)
    }

    fn carry_out(&self, change: &Change, observer: Observer<'_>) -> Result<Changed, AdminError> {
        let pool = self.0.pool();
        let (devid, ended) = match change {
            Change::Add { path, class, options, .. } => {
                let new = Newcomer::open(path, SystemHost.new_uuid(), *class)?;
                let devids = add(pool, &[new], options)?;
                return Ok(Changed::at_once(devids.first().map(|devid| devid.get())));
            }
            Change::Remove(which) => (which.devid(), remove(pool, *which, observer)?),
            Change::Resize(devid, size) => (Some(devid.get()), resize(pool, *devid, *size, observer)?),
            Change::Replace { which, path, options } => {
                let (devid, ended) = replace(&self.0, *which, &open_device(path)?, options, observer)?;
                (Some(devid.get()), ended)
            }
            Change::Rejoin { path } => {
                let (devid, ended) = rejoin(&self.0, &open_device(path)?, observer)?;
                (Some(devid.get()), ended)
            }
        };
        Ok(Changed { devid, progress: ended.progress, control: ended.control })
    }

    fn set_classes(&self, classes: &DeviceClasses) -> Result<(), AdminError> {
        self.0.pool().set_classes(classes)?;
        Ok(self.0.pool().commit()?)
    }

    /// Without a directory there is no subvolume of it: all trees are defragmented.
    fn defragment(&self, _: bool, observer: DefragmentObserver<'_>) -> Result<Control, AdminError> {
        let mut progress = DefragmentProgress::default();
        let mut from: Option<DefragmentPlace> = None;
        loop {
            let done = self.0.defragment(DefragmentScope::Pool, from, LEAVES_PER_PIECE)?;
            from = done.next;
            progress.leaves += done.leaves;
            progress.moved += done.moved;
            let control = observer(&progress);
            if from.is_none() {
                return Ok(Control::Continue);
            }
            if control != Control::Continue {
                return Ok(control);
            }
        }
    }

    fn reset_device_errors(&self) -> Result<Vec<DeviceErrors>, AdminError> {
        let before = self.device_errors()?;
        for device in &before {
            self.0.pool().reset_device_statistics(device.devid)?;
        }
        Ok(before)
    }

    fn close(&self) -> Result<(), AdminError> {
        Ok(self.0.shutdown()?)
    }
}

/// Devices and chunks of an open pool.
pub fn inventory(pool: &Pool) -> Result<Inventory, TreeError> {
    let stored = stored_hints(pool)?;
    let devices = pool.volume().devices().into_iter().map(|device| MountedDevice {
        devid: device.devid,
        uuid: device.uuid,
        path: if device.missing { PathBuf::new() } else { PathBuf::from(device.name) },
        total_bytes: device.total_bytes,
        stored: stored.get(&device.devid).copied().unwrap_or(0),
        is_missing: device.missing,
        is_seed: device.is_seed,
    });
    let used = used_of_block_groups(pool)?;
    let waiting = pool.write_back_chunks()?;
    let chunks = pool.volume().chunks().into_iter().map(|chunk| TierChunk {
        logical: chunk.start,
        length_bytes: chunk.length,
        used_bytes: used.get(&chunk.start).copied().unwrap_or(0),
        kind: chunk.kind,
        stripes: chunk
            .stripes
            .iter()
            .map(|stripe| TierStripe { devid: stripe.devid, physical: stripe.physical })
            .collect(),
        is_write_back: waiting.contains(&chunk.start),
    });
    let (fsid, classes) = (pool.superblock().fsid, pool.stored_classes()?);
    Ok(Inventory { fsid, devices: devices.collect(), chunks: chunks.collect(), classes })
}

/// Allocation hints in the pool (`dev_item.type`).
fn stored_hints(pool: &Pool) -> Result<HashMap<DevId, u64>, TreeError> {
    let mut stored = HashMap::new();
    let mut cursor = pool.cursor(&pool.tree(RootId::CHUNK_TREE)?, Readahead::None);
    cursor.seek(&Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, 0))?;
    while let Some((key, data)) = cursor.item() {
        match Item::parse(&key, data) {
            Ok(Item::Device(item)) => stored.insert(item.devid, item.device_type.get()),
            _ => break,
        };
        cursor.next()?;
    }
    Ok(stored)
}

/// Bytes used of each block group.
fn used_of_block_groups(pool: &Pool) -> Result<HashMap<Logical, u64>, TreeError> {
    let mut used = HashMap::new();
    let has_own_tree = pool.root_item(RootId::BLOCK_GROUP_TREE)?.is_some();
    let tree = if has_own_tree { RootId::BLOCK_GROUP_TREE } else { RootId::EXTENT_TREE };
    let tree = pool.tree(tree)?;
    for chunk in pool.volume().chunks() {
        let key = Key::new(ObjectId::new(chunk.start.get()), KeyType::BLOCK_GROUP_ITEM, chunk.length);
        let bytes = pool.with_item(&tree, &key, |data| match Item::parse(&key, data) {
            Ok(Item::BlockGroup(group)) => group.used.get(),
            _ => 0,
        })?;
        used.insert(chunk.start, bytes.unwrap_or(0));
    }
    Ok(used)
}
