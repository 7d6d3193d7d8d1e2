//! Opening a pool to write: what must not be there, and what has to be read first.

use super::gate::Gate;
use super::pressure::Pressure;
use super::publish::SeriesState;
use super::{CommitStatistics, Durable, Exclusive, Writer};
use crate::error::TreeError;
use crate::log::Log;
use crate::pool::{OpenOptions, Pool};
use crate::refs::delayed::DelayedRefs;
use crate::root::TreeRoot;
use crate::space::Space;
use crate::transaction::options::WriterOptions;
use brindle_device::WritableDevice;
use brindle_ondisk::item::QgroupStatusHeader;
use brindle_ondisk::{Generation, IdMap, Incompat, Item, Key, KeyType, ObjectId, RootId, to_usize};
use brindle_sync::atomic::AtomicBool;
use brindle_sync::{Mutex, Rank, RwLock};
use brindle_volume::Volume;
use std::sync::{Arc, OnceLock};
use zerocopy::FromBytes;

impl Pool {
    /// Opens a pool to read and write it. Refuses what it could not keep whole: a log that the caller does not replay, a
    /// relocation of the kernel's that it does not end, a replacement that is under way.
    pub fn open_writable(
        devices: Vec<Arc<dyn WritableDevice>>,
        options: &OpenOptions,
        writer: &WriterOptions,
    ) -> Result<Self, TreeError> {
        let volume = Volume::open_writable(devices, &options.volume)?;
        let pool = Self::from_volume(volume, options.cache_bytes)?;
        pool.check_nothing_is_under_way(writer)?;
        let space = Space::load(&pool, writer)?;
        let durable = pool.superblock().generation;
        let running = Generation::new(durable.get() + 1);
        let nodesize = to_usize(pool.nodesize().into());
        let writer = Writer {
            refs: DelayedRefs::default(),
            space,
            statistics: pool.load_statistics()?,
            pressure: Pressure::new(options.cache_bytes, nodesize),
            log: Log::default(),
            gate: Gate::new(running),
            next_virtual: 0.into(),
            frozen: RwLock::new(Rank::FrozenBlocks, IdMap::default()),
            commit: Mutex::new(Rank::Commit, Durable { generation: durable }),
            durable: durable.get().into(),
            features: Mutex::new(Rank::Features, Incompat::empty()),
            label: Mutex::new(Rank::Label, None),
            // The first commit writes all.
            copies_are_current: AtomicBool::new(true),
            series: SeriesState::default(),
            commits: Mutex::new(Rank::CommitStatistics, CommitStatistics::default()),
            exclusive: Exclusive::default(),
            waits_for_log: AtomicBool::new(TreeRoot::log_root_tree(&pool.superblock()).is_some()),
            aborted: OnceLock::new(),
            options: writer.clone(),
        };
        pool.set_writer(writer);
        pool.mark_quotas_inconsistent()?;
        Ok(pool)
    }

    fn check_nothing_is_under_way(&self, writer: &WriterOptions) -> Result<(), TreeError> {
        if !writer.recovers && TreeRoot::log_root_tree(&self.superblock()).is_some() {
            return Err(TreeError::UnderWay(
                "it has a log tree, with fsyncs after the last commit: mount it once, which replays the log",
            ));
        }
        if writer.is_transient {
            return Ok(());
        }
        if !writer.recovers && self.next_relocation_tree()?.is_some() {
            return Err(TreeError::UnderWay(
                "a relocation (balance, or removal of a device) was interrupted: mount it once, which ends it",
            ));
        }
        let replace = Key::new(ObjectId::new(0), KeyType::DEV_REPLACE, 0);
        let devices = self.tree(RootId::DEV_TREE)?;
        let is_replacing = self.with_item(&devices, &replace, |data| match Item::parse(&replace, data) {
            // 1 is started, 4 suspended.
            Ok(Item::DevReplace(item)) => matches!(item.replace_state.get(), 1 | 4),
            _ => false,
        })?;
        if is_replacing == Some(true) {
            return Err(TreeError::UnderWay(
                "a device is being replaced: let the kernel end or cancel it first",
            ));
        }
        Ok(())
    }

    /// Quota amounts are not kept here; the kernel counts anew where it is told that they are wrong.
    fn mark_quotas_inconsistent(&self) -> Result<(), TreeError> {
        let quotas = match self.tree(RootId::QUOTA_TREE) {
            Ok(quotas) => quotas,
            Err(TreeError::NoTree(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let key = Key::new(ObjectId::new(0), KeyType::QGROUP_STATUS, 0);
        let transaction = self.join(super::Need::items(1))?;
        transaction.update(&quotas, &key, |data| {
            if let Ok((status, _)) = QgroupStatusHeader::mut_from_prefix(data) {
                status.flags |= QgroupStatusHeader::INCONSISTENT;
            }
        })?;
        Ok(())
    }
}
