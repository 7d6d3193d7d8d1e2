//! A balance of the mounted pool.

use super::long_work::LongWork;
use crate::errno::number;
use brindle_care::balance;
use brindle_care::job::{Control, Pace};
use brindle_fs::Filesystem;
use brindle_ondisk::item::BalanceItem;
use brindle_policy::balance::Balance;
use brindle_uapi::message::{
    BALANCE_FORCE, BALANCE_REPORT_NONE, BALANCE_REPORT_PAUSED, BALANCE_REPORT_RUNNING, BALANCE_RESUME,
    BALANCE_STOP_CANCEL, BALANCE_STOP_PAUSE, BalanceReport, BalanceStart,
};
use rustix::io::Errno;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// The balance of a mount.
#[derive(Debug)]
pub(super) struct BalanceService {
    filesystem: Arc<Filesystem>,
    work: LongWork<()>,
}

impl BalanceService {
    pub(super) fn new(filesystem: Arc<Filesystem>) -> Self {
        Self { filesystem, work: LongWork::new("balance", Control::Pause) }
    }

    /// Begins one, or goes on with one.
    pub(super) fn start(&self, start: &BalanceStart) -> Result<(), Errno> {
        if !self.filesystem.is_writable() {
            return Err(Errno::ROFS);
        }
        let item = BalanceItem::read_from_bytes(&start.item).map_err(|_| Errno::INVAL)?;
        let wanted = (start.flags & BALANCE_RESUME == 0).then(|| Balance::from_item(&item));
        let force = start.flags & BALANCE_FORCE != 0;
        let pace = (start.rate > 0).then_some(Pace { rate: start.rate });
        let filesystem = Arc::clone(&self.filesystem);
        self.work.start((), pace, move |observer| {
            let ended = match &wanted {
                Some(balance) => balance::start(&filesystem, balance, force, observer),
                None => balance::resume(&filesystem, observer),
            };
            ended.map(|ended| (ended, ()))
        })
    }

    /// Pauses or cancels one.
    pub(super) fn stop(&self, how: u32) -> Result<(), Errno> {
        let control = match how {
            BALANCE_STOP_PAUSE => Control::Pause,
            BALANCE_STOP_CANCEL => Control::Cancel,
            _ => return Err(Errno::INVAL),
        };
        let was_there = self.work.stop(control)
            || control == Control::Cancel
                && number(balance::forget(self.filesystem.pool()).map_err(Into::into))?;
        if was_there { Ok(()) } else { Err(Errno::NOTCONN) }
    }

    /// Pauses one that runs, for the mount ends.
    pub(super) fn end(&self) {
        self.work.end();
    }

    /// Returns true while one runs.
    pub(super) fn is_running(&self) -> bool {
        self.work.report().0
    }

    /// Progress of the balance.
    pub(super) fn report(&self) -> Result<BalanceReport, Errno> {
        let kept = number(balance::interrupted(self.filesystem.pool()).map_err(Into::into))?;
        let (is_running, (), work) = self.work.report();
        let state = match (is_running, &kept) {
            (true, _) => BALANCE_REPORT_RUNNING,
            (false, Some(_)) => BALANCE_REPORT_PAUSED,
            (false, None) => BALANCE_REPORT_NONE,
        };
        let mut report = BalanceReport { item: [0; 448], state, work };
        if let Some(balance) = &kept {
            report.item.copy_from_slice(balance.to_item().as_bytes());
        }
        Ok(report)
    }
}
