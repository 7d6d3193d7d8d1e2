//! Wishes of files, and the misplaced part of their data: of a pool that is not mounted, or of a mount of ours.

use super::facts::{Facts, Source};
use anyhow::Result;
use brindle_admin::{ControlError, Mounted};
use brindle_care::balance::{LookEnded, look_at_files};
use brindle_ondisk::item::RootFlags;
use brindle_ondisk::{Item, Key, KeyType, Logical, ObjectId, RootId};
use brindle_policy::tier::files::{FileTiers, Survey};
use brindle_policy::tier::{Content, TierPool};
use std::ops::ControlFlow;

/// Amounts of file data by tier and location, in bytes as they are allocated, without copies and parity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileFacts {
    /// Amounts by tier, as far as they are known.
    pub(crate) tiers: FileTiers,
    /// Bytes of data in block groups that are not of the fast tier.
    on_bulk_bytes: u64,
}

impl FileFacts {
    /// Data that is not for fast devices, and is not there either.
    pub(crate) fn bulk_in_place_bytes(&self) -> u64 {
        self.on_bulk_bytes.saturating_sub(self.tiers.fast_on_bulk.bytes)
    }
}

/// Looks at all files; `None` if it makes no difference: on a mount of the kernel, or where there are no tiers.
pub(crate) fn gather(facts: &Facts) -> Result<Option<FileFacts>> {
    let small_file_bytes = match &facts.source {
        Source::Mounted(mounted) if mounted.is_of_kernel() => return Ok(None),
        Source::Mounted(mounted) => {
            let space = mounted.space()?;
            if !space.has_tiers {
                return Ok(None);
            }
            space.small_file_bytes
        }
        Source::Open(pool) => pool.settings()?.small_file_bytes,
    };
    if Survey::new(&facts.pool, small_file_bytes, Logical::new(0)).is_idle() {
        return Ok(None);
    }
    let tiers = match &facts.source {
        Source::Mounted(mounted) => on_mount(mounted, &facts.pool, small_file_bytes)?,
        Source::Open(pool) => match look_at_files(pool, &facts.pool, small_file_bytes, &mut || true)? {
            LookEnded::Whole(tiers) => tiers,
            LookEnded::Stopped => unreachable!("it was not asked to stop"),
        },
    };
    let chunks = facts.pool.chunks.iter().filter(|chunk| chunk.content() == Content::Data);
    let on_bulk = chunks.filter(|chunk| !facts.pool.is_of_fast_tier(chunk));
    Ok(Some(FileFacts { tiers, on_bulk_bytes: on_bulk.map(|chunk| chunk.used_bytes).sum() }))
}

fn on_mount(mounted: &Mounted, pool: &TierPool, small_file_bytes: u64) -> Result<FileTiers> {
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
fn subvolumes(mounted: &Mounted) -> Result<Vec<RootId>> {
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
