//! A pool that brindle has mounted: the process that serves it does the work, and is asked for its progress.

use super::{
    AdminError, BalanceJob, BalanceStatus, Change, Changed, DefragmentObserver, DefragmentProgress,
    DeviceErrors, LOOK_EVERY, Member, PoolAdmin, PoolFacts, ReplaceState, ReplaceStatus, device_errors_of,
    members_of,
};
use crate::balance::BalanceState;
use crate::control::{ControlError, Mounted};
use crate::devices::name_of_change;
use crate::tier::Inventory;
use brindle_care::job::{Control, Ended, Observer, Progress};
use brindle_ondisk::item::BalanceItem;
use brindle_ondisk::{DevId, RootId, Uuid};
use brindle_policy::balance::Balance;
use brindle_policy::class::DeviceClasses;
use brindle_uapi::message::{
    BALANCE_FORCE, BALANCE_REPORT_NONE, BALANCE_REPORT_RUNNING, BALANCE_RESUME, BALANCE_STOP_CANCEL,
    BALANCE_STOP_PAUSE, BalanceReport, BalanceStart, DEVICE_REJOIN, DEVICE_REPLACE, WORK_ENDED_CANCELLED,
    WORK_ENDED_FAILED, WORK_ENDED_PAUSED, WorkReport, text,
};
use rustix::io::Errno;
use std::thread::sleep;
use zerocopy::{FromBytes, IntoBytes};

/// A mount of brindle.
#[derive(Debug)]
pub struct BrindleMount(pub Mounted);

impl BrindleMount {
    /// Stops the balance, and waits for its end. Returns false without one.
    fn stop_balance(&self, how: u32) -> Result<bool, AdminError> {
        let was_there = self.0.stop_balance(how)?;
        while self.0.balance_report()?.state == BALANCE_REPORT_RUNNING {
            sleep(LOOK_EVERY / 5);
        }
        Ok(was_there)
    }

    /// Shows the observer a job until its end. `look` tells whether it runs, and its report; `stop` passes a control on, once.
    fn follow(
        observer: Observer<'_>,
        mut look: impl FnMut() -> Result<(bool, WorkReport), ControlError>,
        stop: impl Fn(Control) -> Result<bool, ControlError>,
    ) -> Result<Ended, AdminError> {
        let mut is_told = false;
        loop {
            let (is_running, report) = look().map_err(explain_silence)?;
            let progress = progress_of(&report);
            let control = observer(&progress);
            if !is_running {
                return Ok(Ended { progress, control: control_at_end(&report)? });
            }
            if control != Control::Continue && !is_told {
                is_told = true;
                stop(control)?;
            }
            sleep(LOOK_EVERY);
        }
    }
}

impl PoolFacts for BrindleMount {
    fn fsid(&self) -> Result<Uuid, AdminError> {
        Ok(Uuid(self.0.filesystem()?.fsid))
    }

    fn members(&self) -> Result<Vec<Member>, AdminError> {
        members_of(&self.0)
    }

    fn inventory(&self) -> Result<Inventory, AdminError> {
        Ok(self.0.inventory()?)
    }

    fn classes(&self) -> Result<DeviceClasses, AdminError> {
        Ok(self.0.stored_classes()??)
    }

    fn balance_status(&self) -> Result<BalanceStatus, AdminError> {
        let BalanceReport { item, state, work } = self.0.balance_report()?;
        let state = match state {
            BALANCE_REPORT_NONE => BalanceState::None,
            BALANCE_REPORT_RUNNING => BalanceState::Running,
            _ => BalanceState::Paused,
        };
        let kept = BalanceItem::read_from_bytes(&item).ok().filter(|_| state != BalanceState::None);
        let balance = kept.as_ref().map(Balance::from_item);
        Ok(BalanceStatus { state, balance, progress: progress_of(&work) })
    }

    fn device_errors(&self) -> Result<Vec<DeviceErrors>, AdminError> {
        device_errors_of(&self.0, false)
    }

    fn replace_status(&self) -> Result<ReplaceStatus, AdminError> {
        let report = self.0.device_report()?;
        if report.is_running != 0 && is_replacement(report.change) {
            let (state, devid) = (ReplaceState::Started, Some(DevId::new(report.devid)));
            let progress = progress_of(&report.work);
            return Ok(ReplaceStatus { state, devid, progress, ..ReplaceStatus::NEVER });
        }
        let key = ReplaceStatus::key();
        let found = self.0.search(RootId::DEV_TREE, key, key)?;
        Ok(ReplaceStatus::of_record(found.first().map(|(_, record)| record.as_slice())))
    }
}

impl PoolAdmin for BrindleMount {
    fn balance(&self, job: &BalanceJob, observer: Observer<'_>) -> Result<Ended, AdminError> {
        let mut start = BalanceStart { item: [0; 448], rate: job.rate.unwrap_or(0), flags: 0 };
        match &job.balance {
            Some(balance) => start.item.copy_from_slice(balance.to_item().as_bytes()),
            None => start.flags |= BALANCE_RESUME,
        }
        if job.force {
            start.flags |= BALANCE_FORCE;
        }
        self.0.start_balance(start)?;
        let look =
            || self.0.balance_report().map(|report| (report.state == BALANCE_REPORT_RUNNING, report.work));
        Self::follow(observer, look, |control| match control {
            Control::Continue => Ok(false),
            Control::Pause => self.0.stop_balance(BALANCE_STOP_PAUSE),
            Control::Cancel => self.0.stop_balance(BALANCE_STOP_CANCEL),
        })
    }

    fn pause_balance(&self) -> Result<bool, AdminError> {
        self.stop_balance(BALANCE_STOP_PAUSE)
    }

    fn cancel_balance(&self) -> Result<bool, AdminError> {
        self.stop_balance(BALANCE_STOP_CANCEL)
    }

    fn cancel_replace(&self) -> Result<bool, AdminError> {
        let is_running = || {
            let report = self.0.device_report()?;
            Ok::<_, AdminError>(report.is_running != 0 && is_replacement(report.change))
        };
        if !is_running()? || !self.0.stop_device_change()? {
            return Ok(false);
        }
        while is_running()? {
            sleep(LOOK_EVERY / 5);
        }
        Ok(true)
    }

    fn carry_out(&self, change: &Change, observer: Observer<'_>) -> Result<Changed, AdminError> {
        if let Err(error) = self.0.start_device_change(change.message()?) {
            let report = self.0.device_report()?;
            return Err(match report.change {
                _ if report.is_running == 0 => error.into(),
                change => AdminError::UnderWay(name_of_change(change)),
            });
        }
        let mut devid = None;
        let look = || {
            let report = self.0.device_report()?;
            devid = Some(report.devid).filter(|devid| *devid != 0);
            Ok((report.is_running != 0, report.work))
        };
        let Ended { progress, control } = Self::follow(observer, look, |_| self.0.stop_device_change())?;
        Ok(Changed { devid, progress, control })
    }

    fn set_classes(&self, classes: &DeviceClasses) -> Result<(), AdminError> {
        Ok(self.0.set_classes(classes)?)
    }

    fn defragment(&self, whole_pool: bool, observer: DefragmentObserver<'_>) -> Result<Control, AdminError> {
        let (mut piece, mut progress) = (None, DefragmentProgress::default());
        loop {
            let done = self.0.defragment(whole_pool, piece.as_ref())?;
            progress.leaves += done.leaves;
            progress.moved += done.moved;
            let control = observer(&progress);
            if done.tree == 0 {
                return Ok(Control::Continue);
            }
            if control != Control::Continue {
                return Ok(control);
            }
            piece = Some(done);
        }
    }

    fn reset_device_errors(&self) -> Result<Vec<DeviceErrors>, AdminError> {
        device_errors_of(&self.0, true)
    }

    fn close(&self) -> Result<(), AdminError> {
        Ok(())
    }
}

/// Returns true for a change that copies what a device is to hold.
fn is_replacement(change: u64) -> bool {
    matches!(change, DEVICE_REPLACE | DEVICE_REJOIN)
}

/// Progress in a report.
fn progress_of(report: &WorkReport) -> Progress {
    let WorkReport { expected, done, left, expected_bytes, moved_bytes, .. } = *report;
    Progress { expected, done, left, expected_bytes, moved_bytes }
}

/// Last control of a job that has ended, or its failure.
fn control_at_end(report: &WorkReport) -> Result<Control, AdminError> {
    match report.ended {
        WORK_ENDED_FAILED => {
            Err(AdminError::Failed(String::from_utf8_lossy(text(&report.error)).into_owned()))
        }
        WORK_ENDED_PAUSED => Ok(Control::Pause),
        WORK_ENDED_CANCELLED => Ok(Control::Cancel),
        _ => Ok(Control::Continue),
    }
}

/// Reason why a mount says nothing more of its job.
fn explain_silence(error: ControlError) -> AdminError {
    match error {
        ControlError::Refused { path, source: Errno::NOTCONN | Errno::CONNABORTED, .. } => {
            AdminError::ServerGone(path)
        }
        error => AdminError::Silent(error),
    }
}
