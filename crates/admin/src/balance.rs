//! Having the kernel relocate chunks.

use crate::call;
use crate::control::{ControlError, Mounted};
use brindle_ondisk::{BlockGroupType, Logical};
use brindle_uapi::message::{
    BALANCE_CANCEL, BALANCE_LOGICAL_RANGE, BALANCE_REPORT_RUNNING, BALANCE_RUNNING, Balance, BalanceFilter,
    BalanceReport, BalanceStart,
};
use brindle_uapi::verb;
use rustix::io::Errno;
use zerocopy::FromZeros;

/// Outcome of the relocation of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocated {
    /// Done, or the chunk had gone already.
    Done,
    /// Cancelled; what was moved stays where it is now.
    Cancelled,
    /// There is no room elsewhere; what was moved stays where it is now.
    NoSpace,
}

/// State of balances, as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalanceState {
    /// There is none.
    None,
    /// One runs.
    Running,
    /// One is paused.
    Paused,
}

impl Mounted {
    /// Relocates the chunk that begins there, of this kind; returns when that is done.
    pub fn relocate_chunk(&self, kind: BlockGroupType, logical: Logical) -> Result<Relocated, ControlError> {
        let what = "relocate a chunk (root may)";
        let mut balance = chunk_balance(kind, logical);
        match call::update::<verb::RunBalance>(&self.file, &mut balance) {
            Ok(()) => Ok(Relocated::Done),
            Err(Errno::CANCELED | Errno::INTR) => Ok(Relocated::Cancelled),
            Err(Errno::NOSPC) => Ok(Relocated::NoSpace),
            Err(Errno::INPROGRESS) => Err(ControlError::Busy { path: self.path.clone(), what }),
            Err(error) => Err(self.refused(what, error)),
        }
    }

    /// Ends whatever balance there is, running or paused, and waits for its end; false if there was none. (The kernel has
    /// no error of its own for one that ends by itself meanwhile: that counts as ended.)
    pub fn cancel_balance(&self) -> Result<bool, ControlError> {
        match call::tell_number::<verb::ControlBalance>(&self.file, BALANCE_CANCEL) {
            Ok(()) => Ok(true),
            Err(Errno::NOTCONN) => Ok(false),
            Err(error) => Err(self.refused("cancel a balance (root may)", error)),
        }
    }

    /// Returns true while a balance runs on a mount, of the kernel or of ours.
    pub fn is_balancing(&self) -> Result<bool, ControlError> {
        Ok(match self.is_of_kernel() {
            true => self.balance_state()?.0 == BalanceState::Running,
            false => self.balance_report()?.state == BALANCE_REPORT_RUNNING,
        })
    }

    /// State of a balance, and the first address of the chunk that it is for if it is one of
    /// [`relocate_chunk`](Self::relocate_chunk).
    pub fn balance_state(&self) -> Result<(BalanceState, Option<Logical>), ControlError> {
        match call::get::<verb::FollowBalance>(&self.file) {
            Ok(balance) if balance.state & BALANCE_RUNNING != 0 => {
                Ok((BalanceState::Running, only_chunk(&balance)))
            }
            Ok(balance) => Ok((BalanceState::Paused, only_chunk(&balance))),
            Err(Errno::NOTCONN) => Ok((BalanceState::None, None)),
            Err(error) => Err(self.refused("ask for a balance (root may)", error)),
        }
    }
}

/// Requests to a mount of ours; it does the work itself.
impl Mounted {
    /// Has it begin a balance, or go on with one.
    pub fn start_balance(&self, start: BalanceStart) -> Result<(), ControlError> {
        let what = "balance";
        self.require_ours(what)?;
        match call::set::<verb::StartBalance>(&self.file, start) {
            Err(Errno::INPROGRESS) => Err(ControlError::Busy { path: self.path.clone(), what }),
            answer => self.explain(what, answer),
        }
    }

    /// Has it pause or cancel one: a `BALANCE_STOP_` of the messages. False if there is none.
    pub fn stop_balance(&self, how: u32) -> Result<bool, ControlError> {
        let what = "stop a balance";
        self.require_ours(what)?;
        match call::set::<verb::StopBalance>(&self.file, how) {
            Err(Errno::NOTCONN) => Ok(false),
            answer => self.explain(what, answer).map(|()| true),
        }
    }

    /// Progress of a balance.
    pub fn balance_report(&self) -> Result<BalanceReport, ControlError> {
        let what = "state of a balance";
        self.require_ours(what)?;
        self.explain(what, call::get::<verb::ReportBalance>(&self.file))
    }

    fn require_ours(&self, what: &'static str) -> Result<(), ControlError> {
        match self.is_of_kernel() {
            true => Err(ControlError::KernelMount { path: self.path.clone(), what }),
            false => Ok(()),
        }
    }
}

/// The balance that is for one chunk.
fn chunk_balance(kind: BlockGroupType, logical: Logical) -> Balance {
    // The kernel means every chunk that overlaps the range; the first byte is in one chunk only.
    let filter = BalanceFilter {
        flags: BALANCE_LOGICAL_RANGE,
        logical_start: logical.get(),
        logical_end: logical.get().saturating_add(1),
        ..BalanceFilter::default()
    };
    let content = kind & BlockGroupType::CONTENT;
    let filter_of = |bit| if content.contains(bit) { filter } else { BalanceFilter::default() };
    Balance {
        flags: content.bits(),
        data: filter_of(BlockGroupType::DATA),
        metadata: filter_of(BlockGroupType::METADATA),
        system: filter_of(BlockGroupType::SYSTEM),
        ..Balance::new_zeroed()
    }
}

/// The chunk of a balance that is for one chunk.
fn only_chunk(balance: &Balance) -> Option<Logical> {
    let filters = [balance.data, balance.metadata, balance.system];
    let mut found = None;
    for filter in filters.into_iter().filter(|filter| filter.flags != 0) {
        let is_one = filter.flags == BALANCE_LOGICAL_RANGE
            && filter.logical_end == filter.logical_start.saturating_add(1)
            && found.is_none_or(|other| other == filter.logical_start);
        if !is_one {
            return None;
        }
        found = Some(filter.logical_start);
    }
    found.map(Logical::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_balance_of_one_chunk_is_known_again() {
        let at = Logical::new(1 << 30);
        let balance = chunk_balance(BlockGroupType::METADATA | BlockGroupType::RAID1, at);
        assert_eq!((balance.flags, balance.system.flags), (BlockGroupType::METADATA.bits(), 0));
        assert_eq!(only_chunk(&balance), Some(at));
        let mut other = balance;
        other.data = BalanceFilter { flags: 1 << 1, ..BalanceFilter::default() };
        assert_eq!(only_chunk(&other), None);
        assert_eq!(only_chunk(&Balance::new_zeroed()), None);
    }
}
