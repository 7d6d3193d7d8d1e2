//! Keeping everything where it belongs on a mount of brindle. Such a mount places what is new by itself, so this moves what has
//! become misplaced: block groups when there are any, data of files from time to time. Nothing of the mount is open between two
//! looks, so that it can be unmounted.

use crate::control::{ControlError, Mounted};
use crate::pool::{AdminError, BalanceJob, BrindleMount, PoolAdmin};
use crate::tier::watch::pause;
use crate::tier::{classes_of_mount, classified, require_no_seed};
use brindle_care::job::{Control, Ended, Progress};
use brindle_care::tier::keep::{KeepEnded, Kept, Looked, Retry, keep};
use brindle_ondisk::Uuid;
use brindle_policy::balance::{Balance, Filter};
use brindle_policy::tier::TierPool;
use brindle_uapi::message::{BALANCE_REPORT_NONE, BALANCE_REPORT_RUNNING};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Options of keeping a mount of brindle.
#[derive(Clone, Copy, Debug)]
pub struct ServedOptions {
    /// Interval between two looks.
    pub interval: Duration,
    /// Interval between two looks at files; `None` for never.
    pub files_interval: Option<Duration>,
    /// Limit in bytes a second.
    pub rate: Option<u64>,
}

/// Observer of the work, which can stop it.
pub trait ServedObserver {
    /// Returns true if the work is to stop.
    fn is_stopped(&self) -> bool;
    /// Data is being moved.
    fn moving(&mut self, progress: &Progress);
    /// The move has ended, well or not.
    fn ended(&mut self);
    /// The move has failed, which is no reason to stop.
    fn failed(&mut self, error: AdminError);
}

/// Keeps the pool that is mounted at `path` until the observer says to stop, or it is not mounted there any more.
pub fn keep_served(
    path: &Path,
    fsid: Uuid,
    options: &ServedOptions,
    observer: &mut dyn ServedObserver,
) -> Result<KeepEnded, AdminError> {
    let files_due = options.files_interval.map(|_| Instant::now());
    let mut keeper = Keeper { path, fsid, options, observer, files_due, retry: Retry::default() };
    keep(&mut keeper, options.interval)
}

struct Keeper<'a> {
    path: &'a Path,
    fsid: Uuid,
    options: &'a ServedOptions,
    observer: &'a mut dyn ServedObserver,
    /// Time of the next look at files.
    files_due: Option<Instant>,
    /// The rule of trying again to move block groups.
    retry: Retry,
}

impl Kept for Keeper<'_> {
    type Error = AdminError;

    fn look(&mut self) -> Result<Looked, AdminError> {
        let Some(mount) = self.mount()? else { return Ok(Looked::Gone) };
        let mounted = &mount.0;
        let report = mounted.balance_report()?;
        if report.state == BALANCE_REPORT_RUNNING || !mounted.space()?.has_tiers {
            return Ok(Looked::There);
        }
        let pool = pool_of(mounted)?;
        let now = Instant::now();
        let is_due = self.files_due.is_some_and(|due| due <= now);
        let is_wrong = self.retry.may_try(now) && pool.chunks.iter().any(|chunk| pool.is_misplaced(chunk));
        if !is_due && !is_wrong {
            return Ok(Looked::There);
        }
        if report.state != BALANCE_REPORT_NONE && !mount.forget_misplaced()? {
            return Ok(Looked::Busy("a balance is paused".to_owned()));
        }
        let all = Balance::of_misplaced();
        let looked = self.put_right(&mount, if is_due { all } else { without_files(all) });
        if let Some(interval) = self.options.files_interval.filter(|_| is_due) {
            self.files_due = Instant::now().checked_add(interval);
        }
        Ok(looked)
    }

    fn pause(&mut self, time: Duration) -> bool {
        pause(time, &|| self.observer.is_stopped())
    }
}

impl Keeper<'_> {
    /// The mount, as long as it is that of the pool.
    fn mount(&self) -> Result<Option<BrindleMount>, ControlError> {
        let mounted = match Mounted::open(self.path) {
            Ok(mounted) => mounted,
            // The directory may have gone with the mount.
            Err(ControlError::NotBtrfs(_) | ControlError::Refused { source: Errno::NOENT, .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let is_it = !mounted.is_of_kernel() && Uuid(mounted.filesystem()?.fsid) == self.fsid;
        Ok(is_it.then_some(BrindleMount(mounted)))
    }

    /// Moves misplaced data. A failure is told, and is no reason to stop: a server that has gone is found by the next look.
    fn put_right(&mut self, mount: &BrindleMount, balance: Balance) -> Looked {
        let job = BalanceJob { balance: Some(balance), force: false, rate: self.options.rate };
        let observer = &mut *self.observer;
        let done = mount.balance(&job, &mut |progress| {
            observer.moving(progress);
            if observer.is_stopped() { Control::Cancel } else { Control::Continue }
        });
        self.observer.ended();
        match done {
            Ok(Ended { progress, .. }) => {
                self.retry.succeed();
                if progress.moved_bytes > 0 {
                    tracing::info!("{} bytes moved to where they belong", progress.moved_bytes);
                }
            }
            // Another process was faster.
            Err(AdminError::Control(error @ ControlError::Busy { .. })) => {
                return Looked::Busy(error.to_string());
            }
            Err(error) => {
                self.retry.fail(Instant::now());
                self.observer.failed(error);
            }
        }
        Looked::There
    }
}

/// Devices with their classes, and chunks, as of a commit that is made now.
fn pool_of(mounted: &Mounted) -> Result<TierPool, AdminError> {
    mounted.sync()?;
    let inventory = mounted.inventory()?;
    require_no_seed(&inventory)?;
    Ok(classified(inventory, false, &HashMap::new(), &classes_of_mount(mounted)?).1)
}

/// The same, for block groups alone.
fn without_files(balance: Balance) -> Balance {
    let data = balance.data.map(|filter| Filter { groups_alone: true, ..filter });
    Balance { data, ..balance }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_groups_alone_are_chosen_as_before_and_no_files_looked_at() {
        let all = Balance::of_misplaced();
        assert!(all.is_for_files());
        let groups = without_files(all);
        assert!(groups.is_for_misplaced_alone() && !groups.is_for_files());
        assert_eq!(groups.data.as_ref().and_then(|filter| filter.limit.clone()), None);
        assert_eq!(Balance::from_item(&groups.to_item()), groups);
    }
}
