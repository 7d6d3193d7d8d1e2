//! Balance: block groups that filters choose are emptied one by one, so that their contents lie elsewhere: on other
//! devices, in another profile, closer together.
//!
//! The walk: the request is checked ([`BalanceRefusal`]) and kept in the pool as the kernel keeps it (`BALANCE_ITEM`), so
//! that after a crash it can go on, by brindle ([`resume`]) or by the kernel, which does so by itself when it mounts
//! the pool. The chosen block groups are listed once. If they are to be converted, new chunks get the new profile
//! from now on; if placement matters, nothing goes into those that are still to be emptied as long as a chunk can be
//! made. `tree` empties each. One that has no room elsewhere is left, and the others are gone on with. In the end the
//! item is removed; a pause leaves it.
//!
//! A balance for misplaced block groups first moves the data that lies in the wrong tier by the wishes of files
//! ([`files`]): extents leave block groups that stay.
//!
//! Each step is a commit of its own and leaves a whole pool. What has been moved stays moved, whatever ends it.

mod files;

pub use files::{LookEnded, look_at_files};

use crate::job::{Control, Ended, Observer, Progress};
use brindle_fs::{Filesystem, FsError};
use brindle_ondisk::item::BalanceItem;
use brindle_ondisk::{
    BlockGroupType, Incompat, Item, Key, KeyType, Logical, ObjectId, Profile, RootId, to_u64,
};
use brindle_policy::balance::{Balance, BalanceRefusal};
use brindle_policy::placement::PlacementClass;
use brindle_policy::tier::{TierChunk, TierDevice, TierPool, TierStripe};
use brindle_tree::{ExclusiveOperation, Moved, Need, Pool, Relocation, TreeError};
use std::ops::ControlFlow;
use thiserror::Error;
use zerocopy::IntoBytes;

/// The content of mixed block groups.
const MIXED: BlockGroupType = BlockGroupType::DATA.union(BlockGroupType::METADATA);

/// Error of a balance.
#[derive(Debug, Error)]
pub enum BalanceError {
    /// The request makes no sense for this pool.
    #[error("{0}")]
    Refused(BalanceRefusal),
    /// One was begun and not ended.
    #[error("a balance was interrupted or is paused: resume or cancel it first")]
    UnderWay,
    /// No balance could be resumed.
    #[error("there is no balance to resume")]
    None,
    /// Block groups were left because there was no room elsewhere for what they hold.
    #[error("{count} of the block groups could not be moved: {why}; the others were")]
    NoSpace {
        /// Number of block groups.
        count: u64,
        /// Message of the first.
        why: String,
    },
    /// The pool could not be read or written.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Files could not be looked at.
    #[error(transparent)]
    Files(#[from] FsError),
}

/// Balances. `force`: also to fewer copies of metadata.
pub fn start(
    filesystem: &Filesystem,
    balance: &Balance,
    force: bool,
    observer: Observer<'_>,
) -> Result<Ended, BalanceError> {
    let pool = filesystem.pool();
    let alone = pool.begin_exclusive("balance")?;
    if interrupted(pool)?.is_some() {
        return Err(BalanceError::UnderWay);
    }
    let facts = facts(pool)?;
    if let Some(refusal) = balance.refusal(&facts, force).or_else(|| too_few(pool, balance, &facts)) {
        return Err(BalanceError::Refused(refusal));
    }
    if balance.is_for_misplaced() && is_of_two_classes(&facts) && !pool.has_tiers() {
        return Err(BalanceError::Refused(BalanceRefusal::NoTiers));
    }
    keep(pool, Some(balance))?;
    run(filesystem, &alone, balance, observer)
}

/// Goes on with a balance that was interrupted, by a pause or a crash. What has its new profile already is left alone.
pub fn resume(filesystem: &Filesystem, observer: Observer<'_>) -> Result<Ended, BalanceError> {
    let alone = filesystem.pool().begin_exclusive("balance")?;
    let mut balance = interrupted(filesystem.pool())?.ok_or(BalanceError::None)?;
    for filter in [&mut balance.data, &mut balance.metadata, &mut balance.system].into_iter().flatten() {
        filter.soft |= filter.convert.is_some();
    }
    run(filesystem, &alone, &balance, observer)
}

/// The balance that was begun and not ended.
pub fn interrupted(pool: &Pool) -> Result<Option<Balance>, TreeError> {
    let parsed =
        pool.with_item(&pool.tree(RootId::ROOT_TREE)?, &KEY, |data| match Item::parse(&KEY, data) {
            Ok(Item::Balance(item)) => Ok(Balance::from_item(item)),
            Ok(_) => Ok(Balance::default()),
            Err(defect) => Err(TreeError::item(RootId::ROOT_TREE, KEY, defect)),
        })?;
    parsed.transpose()
}

/// Gives an interrupted balance up; whether there was one.
pub fn forget(pool: &Pool) -> Result<bool, TreeError> {
    let is_there = interrupted(pool)?.is_some();
    if is_there {
        keep(pool, None)?;
    }
    Ok(is_there)
}

/// Devices and chunks, for decisions: only devices that can be written.
pub fn facts(pool: &Pool) -> Result<TierPool, TreeError> {
    let device = |device: brindle_tree::DeviceSpace| TierDevice {
        devid: device.devid,
        class: device.class,
        rank: device.rank,
        total_bytes: device.total_bytes,
    };
    let summary = pool.space_summary()?;
    let chunk = |group: brindle_tree::GroupStatus| TierChunk {
        logical: group.start,
        length_bytes: group.length,
        used_bytes: group.used_bytes,
        kind: group.kind,
        stripes: group
            .stripes
            .iter()
            .map(|(devid, at)| TierStripe { devid: *devid, physical: brindle_ondisk::Physical::new(*at) })
            .collect(),
        is_write_back: group.is_write_back,
    };
    let facts = TierPool {
        devices: summary.devices.into_iter().map(device).collect(),
        members: Vec::new(),
        chunks: pool.block_groups()?.into_iter().map(chunk).collect(),
        classes: summary.classes,
        is_ours: true,
        is_by_side: false,
    };
    Ok(facts.settled())
}

const KEY: Key = Key::new(ObjectId::BALANCE, KeyType::TEMPORARY_ITEM, 0);

/// Devices are missing, and block groups would lose copies by being moved.
fn too_few(pool: &Pool, balance: &Balance, facts: &TierPool) -> Option<BalanceRefusal> {
    let devices = pool.volume().writable_devices().len();
    let chosen = balance.chosen(facts);
    let lost = chosen.iter().find_map(|chunk| {
        let target = balance.filter(chunk.kind).and_then(|filter| filter.convert);
        let profile = target.unwrap_or_else(|| chunk.profile());
        (usize::from(profile.attributes().devs_min) > devices).then_some(profile)
    });
    lost.map(|profile| BalanceRefusal::TooFewDevices(profile, profile.attributes().devs_min))
}

/// Keeps what is being done in the pool, durably.
fn keep(pool: &Pool, balance: Option<&Balance>) -> Result<(), TreeError> {
    let tree = pool.tree(RootId::ROOT_TREE)?;
    // A full pool is no reason not to give one up.
    let need = if balance.is_some() { Need::items(1) } else { Need::rescuing(1) };
    let transaction = pool.join(need)?;
    match balance {
        Some(balance) => {
            let item: BalanceItem = balance.to_item();
            transaction.replace(&tree, &KEY, item.as_bytes())?;
            for (_, filter) in balance.filters() {
                match filter.convert {
                    Some(Profile::Raid5 | Profile::Raid6) => transaction.use_feature(Incompat::RAID56),
                    Some(Profile::Raid1c3 | Profile::Raid1c4) => transaction.use_feature(Incompat::RAID1C34),
                    _ => {}
                }
            }
        }
        None => {
            transaction.remove(&tree, &KEY)?;
        }
    }
    drop(transaction);
    pool.commit()
}

/// Directions to the allocator, undone on drop.
struct Directions<'p>(&'p Pool);

impl<'p> Directions<'p> {
    fn give(pool: &'p Pool, balance: &Balance, facts: &TierPool) -> Result<Self, TreeError> {
        let directions = Self(pool);
        let is_mixed = facts.chunks.iter().any(|chunk| chunk.kind.contains(MIXED));
        for (content, filter) in balance.filters() {
            let content = if is_mixed && content != BlockGroupType::SYSTEM { MIXED } else { content };
            pool.set_target_profile(content, filter.convert)?;
        }
        let is_avoided = |chunk: &&TierChunk| {
            balance.filter(chunk.kind).is_some_and(brindle_policy::balance::Filter::avoids_chosen)
        };
        let avoided: Vec<Logical> =
            balance.chosen(facts).into_iter().filter(is_avoided).map(|chunk| chunk.logical).collect();
        pool.avoid_groups(&avoided)?;
        Ok(directions)
    }
}

impl Drop for Directions<'_> {
    fn drop(&mut self) {
        for content in [BlockGroupType::DATA, BlockGroupType::METADATA, BlockGroupType::SYSTEM, MIXED] {
            self.0.set_target_profile(content, None).ok();
        }
        self.0.avoid_groups(&[]).ok();
    }
}

/// Returns true if a pool has fast devices and others.
fn is_of_two_classes(facts: &TierPool) -> bool {
    [PlacementClass::Fast, PlacementClass::Bulk].iter().all(|class| facts.count(*class) > 0)
}

fn run(
    filesystem: &Filesystem,
    alone: &ExclusiveOperation<'_>,
    balance: &Balance,
    observer: Observer<'_>,
) -> Result<Ended, BalanceError> {
    let pool = filesystem.pool();
    let (mut progress, mut control, mut refused) = (Progress::default(), Control::Continue, None);
    if balance.is_for_files() && pool.has_tiers() {
        refused = files::put_right(filesystem, alone, &mut progress, &mut control, observer)?;
    }
    let facts = facts(pool)?;
    let directions = Directions::give(pool, balance, &facts)?;
    let chosen = balance.chosen(&facts);
    progress.expected += to_u64(chosen.len());
    progress.expected_bytes += chosen.iter().map(|chunk| chunk.used_bytes).sum::<u64>();
    if control == Control::Continue {
        control = observer(&progress);
    }
    for chunk in &chosen {
        if control != Control::Continue {
            break;
        }
        let is_wrong = balance.filter(chunk.kind).is_some_and(|filter| filter.misplaced);
        let has_room = if is_wrong { room_where_it_belongs(pool, chunk) } else { Ok(()) };
        match has_room.and_then(|()| empty(pool, alone, chunk.logical, &mut progress, &mut control, observer))
        {
            Ok(()) => {}
            Err(TreeError::NoSpace(why)) => {
                tracing::warn!("block group at logical {} stays: no space left: {why}", chunk.logical);
                progress.left += 1;
                refused.get_or_insert(why);
                control = observer(&progress);
            }
            Err(error) => return Err(error.into()),
        }
    }
    drop(directions);
    if control != Control::Pause {
        keep(pool, None)?;
    }
    match refused {
        Some(why) if control == Control::Continue => Err(BalanceError::NoSpace { count: progress.left, why }),
        _ => Ok(Ended { progress, control }),
    }
}

/// Checks that a misplaced chunk would get to where it belongs, rather than to another wrong place.
fn room_where_it_belongs(pool: &Pool, chunk: &TierChunk) -> Result<(), TreeError> {
    let summary = pool.space_summary()?;
    let (room, class) = match chunk.kind.contains(BlockGroupType::DATA) {
        true => (summary.data_room, PlacementClass::Bulk),
        false => (summary.metadata_room, PlacementClass::Fast),
    };
    if room.preferred_bytes < chunk.used_bytes {
        return Err(TreeError::NoSpace(format!("the {class} devices are full")));
    }
    Ok(())
}

/// Empties one block group, unless it is gone.
fn empty(
    pool: &Pool,
    alone: &ExclusiveOperation<'_>,
    start: Logical,
    progress: &mut Progress,
    control: &mut Control,
    observer: Observer<'_>,
) -> Result<(), TreeError> {
    let before = progress.moved_bytes;
    let done = pool.relocate(alone, start, &mut |moved: &Moved| {
        progress.moved_bytes = before + moved.bytes;
        *control = observer(progress);
        if *control == Control::Continue { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if let Relocation::Done(_) = done {
        progress.done += 1;
        if *control == Control::Continue {
            *control = observer(progress);
        }
    }
    Ok(())
}
