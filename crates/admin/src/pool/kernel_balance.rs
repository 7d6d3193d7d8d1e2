//! A balance of a mount of the kernel: it runs within the ioctl that begins it, so that a thread of the caller waits there while
//! another one asks for its progress.

use super::{AdminError, BalanceJob, BalanceStatus, LOOK_EVERY};
use crate::balance::BalanceState;
use crate::call;
use crate::control::{ControlError, Mounted};
use brindle_care::job::{Control, Ended, Observer, Progress};
use brindle_ondisk::item::{BalanceArgs, BalanceItem};
use brindle_policy::balance::Balance;
use brindle_uapi::message::{self, BALANCE_CANCEL, BALANCE_RUNNING, BalanceFilter};
use brindle_uapi::verb;
use rustix::io::Errno;
use std::thread::{scope, sleep};
use zerocopy::FromZeros;
use zerocopy::little_endian::{U32, U64};

/// Ends a balance for now (`BTRFS_BALANCE_CTL_PAUSE`).
const PAUSE: usize = 1;
/// Metadata may have fewer copies afterwards (`BTRFS_BALANCE_FORCE`).
const FORCE: u64 = 1 << 3;
/// An interrupted balance goes on (`BTRFS_BALANCE_RESUME`).
const RESUME: u64 = 1 << 4;
/// Used bytes as a bound or a range (`BTRFS_BALANCE_ARGS_*`), and the like: bits that the kernel knows.
const KNOWN: u64 = 0x0fff;

/// State of the balance.
pub(super) fn status(mounted: &Mounted) -> Result<BalanceStatus, AdminError> {
    match call::get::<verb::FollowBalance>(&mounted.file) {
        Ok(found) => {
            let is_running = found.state & BALANCE_RUNNING != 0;
            let state = if is_running { BalanceState::Running } else { BalanceState::Paused };
            let balance = Some(Balance::from_item(&item_of(&found)));
            Ok(BalanceStatus { state, balance, progress: progress_of(&found) })
        }
        Err(Errno::NOTCONN) => {
            Ok(BalanceStatus { state: BalanceState::None, balance: None, progress: Progress::default() })
        }
        Err(error) => Err(mounted.refused("ask for a balance (root may)", error).into()),
    }
}

/// Carries a balance out, or goes on with an interrupted one.
pub(super) fn carry_out(
    mounted: &Mounted,
    job: &BalanceJob,
    observer: Observer<'_>,
) -> Result<Ended, AdminError> {
    if job.rate.is_some() {
        return Err(AdminError::KernelBalance("it takes no --rate"));
    }
    if job.balance.as_ref().is_some_and(Balance::is_for_misplaced) {
        return Err(AdminError::KernelBalance(
            "it knows no filter misplaced: `brindle tier apply` moves those",
        ));
    }
    let mut request = match &job.balance {
        Some(balance) => request_of(&balance.to_item()),
        None => message::Balance { flags: RESUME, ..message::Balance::new_zeroed() },
    };
    request.flags |= if job.force { FORCE } else { 0 };
    let (mut asked, mut told) = (Control::Continue, false);
    let (done, last) = scope(|scope| {
        let work = scope.spawn(|| {
            call::update::<verb::RunBalance>(&mounted.file, &mut request).map(|()| progress_of(&request))
        });
        let mut last = Progress::default();
        while !work.is_finished() {
            if let Ok(found) = call::get::<verb::FollowBalance>(&mounted.file) {
                last = progress_of(&found);
                asked = observer(&last);
            }
            if asked != Control::Continue && !told {
                // One that has not begun yet is told again.
                told = stop(mounted, asked).unwrap_or(false);
            }
            sleep(LOOK_EVERY);
        }
        (work.join().expect("the thread does not panic"), last)
    });
    match done {
        Ok(progress) => Ok(Ended { progress, control: Control::Continue }),
        // Another process may have stopped it.
        Err(Errno::CANCELED) => {
            let is_paused = matches!(mounted.balance_state(), Ok((BalanceState::Paused, _)));
            let control = if is_paused { Control::Pause } else { Control::Cancel };
            Ok(Ended { progress: last, control })
        }
        Err(Errno::INPROGRESS) => {
            Err(ControlError::Busy { path: mounted.path().to_owned(), what: "balance" }.into())
        }
        Err(error) => Err(mounted.refused("balance (root may)", error).into()),
    }
}

/// Pauses or cancels the balance, and waits for its end. Returns false without one.
pub(super) fn stop(mounted: &Mounted, how: Control) -> Result<bool, AdminError> {
    let command = if how == Control::Pause { PAUSE } else { BALANCE_CANCEL };
    match call::tell_number::<verb::ControlBalance>(&mounted.file, command) {
        Ok(()) => Ok(true),
        Err(Errno::NOTCONN) => Ok(false),
        Err(error) => Err(mounted.refused("stop a balance (root may)", error).into()),
    }
}

/// Numbers of block groups; the kernel counts no bytes.
fn progress_of(found: &message::Balance) -> Progress {
    let [expected, _, done] = found.progress;
    Progress { expected: expected.max(done), done, ..Progress::default() }
}

/// The request for the kernel: the fields are those of the item, in the machine's own order.
fn request_of(item: &BalanceItem) -> message::Balance {
    let filter = |args: &BalanceArgs| BalanceFilter {
        profiles: args.profiles.get(),
        usage: args.usage.get(),
        devid: args.devid.get(),
        physical_start: args.pstart.get(),
        physical_end: args.pend.get(),
        logical_start: args.vstart.get(),
        logical_end: args.vend.get(),
        target: args.target.get(),
        flags: args.flags.get() & KNOWN,
        limit: args.limit.get(),
        stripes: [args.stripes_min.get(), args.stripes_max.get()],
        unused: [0; 6],
    };
    message::Balance {
        flags: item.flags.get(),
        data: filter(&item.data),
        metadata: filter(&item.meta),
        system: filter(&item.sys),
        ..message::Balance::new_zeroed()
    }
}

/// The item that a balance of the kernel would have.
fn item_of(found: &message::Balance) -> BalanceItem {
    let args = |filter: &BalanceFilter| BalanceArgs {
        profiles: U64::new(filter.profiles),
        usage: U64::new(filter.usage),
        devid: U64::new(filter.devid),
        pstart: U64::new(filter.physical_start),
        pend: U64::new(filter.physical_end),
        vstart: U64::new(filter.logical_start),
        vend: U64::new(filter.logical_end),
        target: U64::new(filter.target),
        flags: U64::new(filter.flags),
        limit: U64::new(filter.limit),
        stripes_min: U32::new(filter.stripes[0]),
        stripes_max: U32::new(filter.stripes[1]),
        unused: [U64::new(0); 6],
    };
    let mut item = BalanceItem::new_zeroed();
    item.flags = U64::new(found.flags);
    (item.data, item.meta, item.sys) = (args(&found.data), args(&found.metadata), args(&found.system));
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_policy::balance::Filter;

    #[test]
    fn a_request_comes_back_as_the_same_balance() {
        let filter: Filter =
            "usage=10..50,profiles=single|raid1,convert=raid5,soft,limit=3,devid=2,vrange=5..9"
                .parse()
                .expect("filters");
        let balance = Balance { data: Some(filter.clone()), metadata: None, system: None };
        let request = request_of(&balance.to_item());
        assert_eq!((request.flags, request.data.devid), (1, 2));
        assert_eq!(Balance::from_item(&item_of(&request)), balance);
    }
}
