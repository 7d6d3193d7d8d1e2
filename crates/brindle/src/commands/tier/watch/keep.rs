//! Watching a mount of brindle: it places what is new by itself, so it is enough to look from time to time.

use super::WatchCommand;
use crate::commands::balance::work;
use crate::commands::place::administer;
use crate::commands::stop::Stop;
use crate::commands::tier::apply::misplaced;
use crate::commands::tier::facts::Facts;
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::pool::{BalanceJob, BrindleMount};
use brindle_admin::{AdminError, ControlError, Mounted, PoolAdmin, PoolFacts};
use brindle_care::job::Ended;
use brindle_ondisk::Uuid;
use brindle_policy::balance::Balance;
use brindle_policy::tier::plan::Wanted;
use brindle_uapi::message::{BALANCE_REPORT_NONE, BALANCE_REPORT_RUNNING};
use rustix::io::Errno;
use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Interval of looking for a request to stop.
const TICK: Duration = Duration::from_millis(50);
/// Time after a failure until block groups are looked at again.
const RETRY: Duration = Duration::from_secs(600);

/// Watches until it is told to stop.
pub(super) fn run(command: &WatchCommand, mount: BrindleMount, stop: &Stop) -> Result<ExitCode> {
    if !command.classes.is_empty() {
        bail!(
            "--fast and --bulk are for pools that the kernel has mounted; a mount of brindle has classes of its own: \
             `brindle mount DEVICE:fast`, `brindle property set ... allocation_hint`"
        );
    }
    mount.0.require_written("tier watch")?;
    let fsid = mount.fsid()?;
    drop(mount);
    tracing::info!("watching {}", command.pool.display());
    let every = Duration::from_secs(command.files_interval.saturating_mul(60));
    let mut keeper = Keeper { command, stop, fsid, every, files_due: Some(Instant::now()), failed: None };
    if every.is_zero() {
        keeper.files_due = None;
    }
    while !stop.is_set() {
        if keeper.look()?.is_break() {
            return Ok(ExitCode::SUCCESS);
        }
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(command.interval) && !stop.is_set() {
            std::thread::sleep(TICK);
        }
    }
    Ok(ExitCode::SUCCESS)
}

struct Keeper<'a> {
    command: &'a WatchCommand,
    stop: &'a Stop,
    fsid: Uuid,
    every: Duration,
    /// Time of the next look at files.
    files_due: Option<Instant>,
    /// Time of the last failure to move block groups.
    failed: Option<Instant>,
}

impl Keeper<'_> {
    /// Looks, and moves misplaced data; `Break` if the pool is not mounted any more. Nothing of the mount is open in between,
    /// so that it can be unmounted.
    fn look(&mut self) -> Result<ControlFlow<()>> {
        let path = &self.command.pool;
        let Some(mounted) = self.mount()? else {
            let mut out = output::stdout();
            writeln!(out, "{}: the pool is not mounted there any more.", path.display())?;
            out.flush()?;
            return Ok(ControlFlow::Break(()));
        };
        let report = mounted.balance_report()?;
        if report.state == BALANCE_REPORT_RUNNING || !mounted.space()?.has_tiers {
            return Ok(ControlFlow::Continue(()));
        }
        let facts = Facts::of_mounted(mounted, &self.command.classes)?;
        let is_due = self.files_due.is_some_and(|due| due <= Instant::now());
        let may_try = self.failed.is_none_or(|failed| failed.elapsed() > RETRY);
        let is_wrong = may_try && facts.pool.chunks.iter().any(|chunk| facts.pool.is_misplaced(chunk));
        if !is_due && !is_wrong {
            return Ok(ControlFlow::Continue(()));
        }
        let all = misplaced(Wanted { metadata: true, data: true });
        let balance = if is_due { all } else { without_files(all) };
        let pool = administer(std::slice::from_ref(path))?;
        if report.state != BALANCE_REPORT_NONE && !pool.forget_misplaced()? {
            tracing::info!("a balance is paused");
            return Ok(ControlFlow::Continue(()));
        }
        self.put_right(&*pool, balance)?;
        if is_due {
            self.files_due = Instant::now().checked_add(self.every);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The mount, as long as it is that of the pool.
    fn mount(&self) -> Result<Option<Mounted>, ControlError> {
        let mounted = match Mounted::open(&self.command.pool) {
            Ok(mounted) => mounted,
            // The directory may have gone with the mount.
            Err(ControlError::NotBtrfs(_) | ControlError::Refused { source: Errno::NOENT, .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let is_it = !mounted.is_of_kernel() && Uuid(mounted.filesystem()?.fsid) == self.fsid;
        Ok(is_it.then_some(mounted))
    }

    /// Moves misplaced data. A lack of room is logged, and no reason to stop.
    fn put_right(&mut self, pool: &dyn PoolAdmin, balance: Balance) -> Result<()> {
        let job = BalanceJob { balance: Some(balance), force: false, rate: self.command.rate };
        let bar = work::progress_bar();
        let done = pool.balance(&job, &mut work::observer(self.stop, &bar));
        bar.finish_and_clear();
        match done {
            Ok(Ended { progress, .. }) => {
                self.failed = None;
                if progress.moved_bytes > 0 {
                    tracing::info!("{} bytes moved to where they belong", progress.moved_bytes);
                }
            }
            // Another process was faster.
            Err(error @ AdminError::Control(ControlError::Busy { .. })) => {
                tracing::info!("{error}");
            }
            Err(error) => {
                // The server of the mount is still there, or the next look finds it gone.
                tracing::warn!("{}", output::explain(&error.into()));
                self.failed = Some(Instant::now());
            }
        }
        Ok(())
    }
}

/// The same, for block groups alone.
fn without_files(balance: Balance) -> Balance {
    let data = balance.data.map(|filter| brindle_policy::balance::Filter { groups_alone: true, ..filter });
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
