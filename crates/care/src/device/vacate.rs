//! Emptying the block groups that lie on a device from some offset on.

use super::DeviceCareError;
use crate::job::{Control, Ended, Observer, Progress};
use brindle_ondisk::{DevId, Logical, to_u64};
use brindle_tree::{ExclusiveOperation, GroupStatus, Moved, Pool, Relocation, TreeError};
use std::ops::ControlFlow;

/// Those groups, which are not gone on being filled as long as there is room elsewhere.
struct Doomed<'p> {
    pool: &'p Pool,
    groups: Vec<GroupStatus>,
}

impl<'p> Doomed<'p> {
    fn list(pool: &'p Pool, devid: DevId, beyond: u64) -> Result<Self, DeviceCareError> {
        let reaches = |group: &GroupStatus, at: u64| at.saturating_add(group.stripe_bytes) > beyond;
        let is_there = |group: &GroupStatus| {
            group.stripes.iter().any(|(device, at)| *device == devid && reaches(group, *at))
        };
        let mut groups: Vec<GroupStatus> = pool.block_groups()?.into_iter().filter(is_there).collect();
        // The last ones first: what they held goes to the first ones, where those may stay.
        groups.reverse();
        let starts: Vec<Logical> = groups.iter().map(|group| group.start).collect();
        pool.avoid_groups(&starts)?;
        Ok(Self { pool, groups })
    }
}

impl Drop for Doomed<'_> {
    fn drop(&mut self) {
        self.pool.avoid_groups(&[]).ok();
    }
}

/// Empties the block groups; returns the last request of the caller. Nothing is allocated there meanwhile.
pub(super) fn vacate(
    pool: &Pool,
    alone: &ExclusiveOperation<'_>,
    devid: DevId,
    beyond: u64,
    observer: Observer<'_>,
) -> Result<Ended, DeviceCareError> {
    let doomed = Doomed::list(pool, devid, beyond)?;
    let mut progress = Progress {
        expected: to_u64(doomed.groups.len()),
        expected_bytes: doomed.groups.iter().map(|group| group.used_bytes).sum(),
        ..Progress::default()
    };
    let mut control = observer(&progress);
    for group in &doomed.groups {
        if control != Control::Continue {
            break;
        }
        let before = progress.moved_bytes;
        let done = pool.relocate(alone, group.start, &mut |moved: &Moved| {
            progress.moved_bytes = before + moved.bytes;
            control = observer(&progress);
            if control == Control::Continue { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let done = done.map_err(|error| match error {
            TreeError::NoSpace(why) => DeviceCareError::NoSpace(why),
            error => error.into(),
        })?;
        if let Relocation::Done(_) = done {
            progress.done += 1;
            if control == Control::Continue {
                control = observer(&progress);
            }
        }
    }
    Ok(Ended { progress, control })
}
