//! Data that lies in the wrong tier by the wishes of files: finding its extents, and moving them where they belong.
//!
//! All items of all subvolumes are looked at, a window of addresses at a time
//! ([`Survey`](brindle_policy::tier::files::Survey)). The extents found are moved a block group at a time; an extent
//! that has changed since is at worst moved without need, and back the next time. Extents leave the fast devices
//! first, to make room. The pool holds no record of the progress: a new start finds the rest.

use super::{BalanceError, facts};
use crate::job::{Control, Observer, Progress};
use brindle_fs::Filesystem;
use brindle_ondisk::item::RootFlags;
use brindle_ondisk::{Item, Key, KeyType, Logical, ObjectId, RootId};
use brindle_policy::placement::{DataTier, PlacementClass};
use brindle_policy::tier::TierPool;
use brindle_policy::tier::files::{FileTiers, Survey, WrongExtent};
use brindle_tree::{DataRange, ExclusiveOperation, Moved, Pool, Readahead, TreeError};
use std::ops::ControlFlow;

/// Number of items after which the caller is asked whether to go on.
const ITEMS_PER_QUESTION: u32 = 4096;

/// Outcome of looking at files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookEnded {
    /// All files were looked at.
    Whole(FileTiers),
    /// The caller stopped it.
    Stopped,
}

/// Amounts of data by tier and location, in a pool of these devices and chunks.
pub fn look_at_files(
    pool: &Pool,
    facts: &TierPool,
    small_file_bytes: u64,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<LookEnded, TreeError> {
    let (mut tiers, mut from) = (FileTiers::default(), Logical::new(0));
    loop {
        let mut survey = Survey::new(facts, small_file_bytes, from);
        if !look(pool, &mut survey, goes_on)? {
            return Ok(LookEnded::Stopped);
        }
        tiers += survey.tiers();
        match survey.behind() {
            Some(behind) => from = behind,
            None => return Ok(LookEnded::Whole(tiers)),
        }
    }
}

/// Result of going through all files once.
#[derive(Debug, Default)]
struct Pass {
    /// Reason for which an extent could not be moved, if any.
    refused: Option<String>,
    /// Number of extents that were split.
    cut: u64,
}

/// Moves what lies in the wrong tier; why something could not be moved, if anything.
pub(super) fn put_right(
    filesystem: &Filesystem,
    alone: &ExclusiveOperation<'_>,
    progress: &mut Progress,
    control: &mut Control,
    observer: Observer<'_>,
) -> Result<Option<String>, BalanceError> {
    let first = go_through(filesystem, alone, progress, control, observer)?;
    if first.cut == 0 || *control != Control::Continue {
        return Ok(first.refused);
    }
    // The parts of an extent that files of both tiers share may belong elsewhere than all of it did. What had no room
    // is tried again, and counted again.
    progress.left = 0;
    Ok(go_through(filesystem, alone, progress, control, observer)?.refused)
}

fn go_through(
    filesystem: &Filesystem,
    alone: &ExclusiveOperation<'_>,
    progress: &mut Progress,
    control: &mut Control,
    observer: Observer<'_>,
) -> Result<Pass, BalanceError> {
    let pool = filesystem.pool();
    let (mut from, mut pass) = (Logical::new(0), Pass::default());
    loop {
        let facts = facts(pool)?;
        let mut survey = Survey::new(&facts, filesystem.small_file_bytes(), from);
        let is_whole = look(pool, &mut survey, &mut || {
            *control = observer(progress);
            *control == Control::Continue
        })?;
        if !is_whole {
            return Ok(pass);
        }
        let work = by_block_group(&survey, &facts);
        progress.expected += brindle_ondisk::to_u64(work.len());
        progress.expected_bytes += work.iter().map(Work::bytes).sum::<u64>();
        for work in &work {
            match carry_out(pool, alone, work, progress, &mut pass, control, observer) {
                Ok(()) => progress.done += u64::from(*control == Control::Continue),
                Err(TreeError::NoSpace(why)) => {
                    tracing::warn!("data at logical {} stays: no space left: {why}", work.group);
                    progress.left += 1;
                    pass.refused.get_or_insert(why);
                }
                Err(error) => return Err(error.into()),
            }
            if *control != Control::Continue {
                return Ok(pass);
            }
        }
        match survey.behind() {
            Some(behind) => from = behind,
            None => return Ok(pass),
        }
    }
}

/// Extents that are to leave a block group.
#[derive(Debug)]
struct Work {
    group: Logical,
    target: DataTier,
    extents: Vec<DataRange>,
}

impl Work {
    fn bytes(&self) -> u64 {
        self.extents.iter().map(|range| range.length).sum()
    }
}

/// Misplaced extents by block groups; those on fast devices first.
fn by_block_group(survey: &Survey, facts: &TierPool) -> Vec<Work> {
    let mut starts: Vec<Logical> = facts.chunks.iter().map(|chunk| chunk.logical).collect();
    starts.sort_unstable();
    let mut work: Vec<Work> = Vec::new();
    for WrongExtent { start, length_bytes, target } in survey.wrong() {
        let after = starts.partition_point(|group| *group <= start);
        let Some(group) = after.checked_sub(1).map(|index| starts[index]) else { continue };
        let range = DataRange { start, length: length_bytes };
        match work.last_mut().filter(|work| (work.group, work.target) == (group, target)) {
            Some(work) => work.extents.push(range),
            None => work.push(Work { group, target, extents: vec![range] }),
        }
    }
    work.sort_by_key(|work| work.target.side != PlacementClass::Bulk);
    work
}

fn carry_out(
    pool: &Pool,
    alone: &ExclusiveOperation<'_>,
    work: &Work,
    progress: &mut Progress,
    pass: &mut Pass,
    control: &mut Control,
    observer: Observer<'_>,
) -> Result<(), TreeError> {
    let summary = pool.space_summary()?;
    let room = match work.target.side {
        PlacementClass::Fast => summary.fast_data_room.preferred_bytes,
        PlacementClass::Bulk => summary.data_room.preferred_bytes,
    };
    if work.extents.iter().all(|range| range.length > room) {
        let why = format!("the {} devices are full", work.target.side);
        return Err(TreeError::NoSpace(why));
    }
    let (before, cut_before) = (progress.moved_bytes, pass.cut);
    pool.move_data(alone, work.group, &work.extents, work.target, &mut |moved: &Moved| {
        progress.moved_bytes = before + moved.bytes;
        pass.cut = cut_before + moved.cut;
        *control = observer(progress);
        if *control == Control::Continue { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(())
}

/// Shows all items of all subvolumes to a survey; whether it went on to the end.
fn look(pool: &Pool, survey: &mut Survey, goes_on: &mut dyn FnMut() -> bool) -> Result<bool, TreeError> {
    if survey.is_idle() {
        return Ok(true);
    }
    for id in subvolumes(pool)? {
        let tree = match pool.tree(id) {
            // It was deleted meanwhile.
            Err(TreeError::NoTree(_)) => continue,
            tree => tree?,
        };
        let mut cursor = pool.cursor(&tree, Readahead::Forward);
        cursor.seek(&Key::MIN)?;
        let mut count = 0;
        while let Some((key, data)) = cursor.item() {
            survey.see(&key, data);
            count += 1;
            if count % ITEMS_PER_QUESTION == 0 && !goes_on() {
                return Ok(false);
            }
            cursor.next()?;
        }
        survey.next_tree();
    }
    Ok(true)
}

/// The subvolumes that are not deleted.
fn subvolumes(pool: &Pool) -> Result<Vec<RootId>, TreeError> {
    let tree = pool.tree(RootId::ROOT_TREE)?;
    let mut cursor = pool.cursor(&tree, Readahead::None);
    let mut found = Vec::new();
    cursor.seek(&Key::first_of(RootId::FS_TREE.object_id(), KeyType::ROOT_ITEM))?;
    while let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid <= ObjectId::LAST_FREE) {
        let id = RootId::new(key.objectid.get());
        if key.item_type == KeyType::ROOT_ITEM && (id == RootId::FS_TREE || id.is_subvolume()) {
            if let Ok(Item::Root(item)) = Item::parse(&key, data) {
                if item.refs.get() > 0 && !item.root_flags().contains(RootFlags::DEAD) {
                    found.push(id);
                }
            }
        }
        cursor.next()?;
    }
    Ok(found)
}
