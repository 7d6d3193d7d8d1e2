//! Wishes of files, and the misplaced part of their data: of a pool that is not mounted, or of a mount of brindle.

use crate::control::{ControlError, Mounted};
use crate::pool::AdminError;
use brindle_care::balance::{LookEnded, look_at_files};
use brindle_ondisk::item::RootFlags;
use brindle_ondisk::{Item, Key, KeyType, Logical, ObjectId, RootId};
use brindle_policy::tier::files::{FileTiers, Survey};
use brindle_policy::tier::{Content, TierPool};
use brindle_tree::Pool;
use std::ops::ControlFlow;

/// Amounts of file data by tier and location, in bytes as they are allocated, without copies and parity.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts {
    /// Amounts by tier, as far as they are known.
    pub tiers: FileTiers,
    /// Bytes of data in block groups that are not of the fast tier.
    on_bulk_bytes: u64,
}

impl FileFacts {
    fn new(tiers: FileTiers, pool: &TierPool) -> Self {
        let chunks = pool.chunks.iter().filter(|chunk| chunk.content() == Content::Data);
        let on_bulk = chunks.filter(|chunk| !pool.is_of_fast_tier(chunk));
        Self { tiers, on_bulk_bytes: on_bulk.map(|chunk| chunk.used_bytes).sum() }
    }

    /// Data that is not for fast devices, and is not there either.
    pub fn bulk_in_place_bytes(&self) -> u64 {
        self.on_bulk_bytes.saturating_sub(self.tiers.fast_on_bulk.bytes)
    }
}

/// Looks at all files of a mount; `None` if it makes no difference: on a mount of the kernel, or where there are no tiers.
pub fn files_of_mount(mounted: &Mounted, tiers: &TierPool) -> Result<Option<FileFacts>, AdminError> {
    if mounted.is_of_kernel() {
        return Ok(None);
    }
    let space = mounted.space()?;
    if !space.has_tiers || is_idle(tiers, space.small_file_bytes) {
        return Ok(None);
    }
    Ok(Some(FileFacts::new(on_mount(mounted, tiers, space.small_file_bytes)?, tiers)))
}

/// Looks at all files of a pool that is not mounted; `None` where there are no tiers.
pub fn files_of_pool(pool: &Pool, tiers: &TierPool) -> Result<Option<FileFacts>, AdminError> {
    let small_file_bytes = pool.settings()?.small_file_bytes;
    if is_idle(tiers, small_file_bytes) {
        return Ok(None);
    }
    match look_at_files(pool, tiers, small_file_bytes, &mut || true)? {
        LookEnded::Whole(found) => Ok(Some(FileFacts::new(found, tiers))),
        LookEnded::Stopped => unreachable!("it was not asked to stop"),
    }
}

fn is_idle(tiers: &TierPool, small_file_bytes: u64) -> bool {
    Survey::new(tiers, small_file_bytes, Logical::new(0)).is_idle()
}

fn on_mount(mounted: &Mounted, pool: &TierPool, small_file_bytes: u64) -> Result<FileTiers, AdminError> {
    let (mut tiers, mut from) = (FileTiers::default(), Logical::new(0));
    loop {
        let mut survey = Survey::new(pool, small_file_bytes, from);
        for id in subvolumes(mounted)? {
            let looked = mounted.search_each(id, Key::MIN, Key::MAX, &mut |key, data| {
                survey.see(&key, data);
                ControlFlow::Continue(())
            });
            match looked {
                // It was deleted meanwhile.
                Err(ControlError::Refused { source: rustix::io::Errno::NOENT, .. }) => {}
                looked => looked?,
            }
            survey.next_tree();
        }
        tiers += survey.tiers();
        match survey.behind() {
            Some(behind) => from = behind,
            None => return Ok(tiers),
        }
    }
}

/// The subvolumes that are not deleted.
fn subvolumes(mounted: &Mounted) -> Result<Vec<RootId>, AdminError> {
    let first = Key::first_of(RootId::FS_TREE.object_id(), KeyType::ROOT_ITEM);
    let items =
        mounted.search(RootId::ROOT_TREE, first, Key::last_of(ObjectId::LAST_FREE, KeyType(u8::MAX)))?;
    let id = |(key, data): &(Key, Vec<u8>)| {
        let id = RootId::new(key.objectid.get());
        let is_file_tree = id == RootId::FS_TREE || id.is_subvolume();
        match Item::parse(key, data) {
            Ok(Item::Root(item)) if key.item_type == KeyType::ROOT_ITEM && is_file_tree => {
                let is_there = item.refs.get() > 0 && !item.root_flags().contains(RootFlags::DEAD);
                is_there.then_some(id)
            }
            _ => None,
        }
    };
    Ok(items.iter().filter_map(id).collect())
}
