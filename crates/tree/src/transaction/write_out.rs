//! Disks write out what they took ahead of a commit, while syncs of the log go on: those of new names wait for the commit from
//! its beginning, and so for its flush of these disks.

use super::Transactions;
use brindle_sync::atomic::{AtomicU64, Ordering};
use brindle_sync::{Mutex, Rank};

/// Writing out, one at a time.
#[derive(Debug)]
pub(super) struct WriteOuts {
    turn: Mutex<()>,
    begun: AtomicU64,
}

impl Default for WriteOuts {
    fn default() -> Self {
        Self { turn: Mutex::new(Rank::WriteOut, ()), begun: AtomicU64::new(0) }
    }
}

/// A call: the number of those that had begun before it.
#[derive(Clone, Copy, Debug)]
struct Call(u64);

impl WriteOuts {
    fn call(&self) -> Call {
        Call(self.begun.load(Ordering::Acquire))
    }

    /// Acts, unless another caller has begun to after this call: it has done this one's part.
    fn act_for(&self, call: Call, act: impl FnOnce()) {
        let _turn = self.turn.lock_after_panic();
        if self.begun.load(Ordering::Acquire) == call.0 {
            self.begun.fetch_add(1, Ordering::AcqRel);
            act();
        }
    }
}

impl Transactions {
    /// Has disks write out what they took, if a log is in use. The commit's flush meets what fails, or the pool bears it.
    pub(super) fn write_out_disks(&self) {
        let call = self.write_outs.call();
        let disks = self.changes.space.sleepers().filter(|_| self.changes.log.is_in_use());
        if let Some(disks) = disks {
            self.write_outs.act_for(call, || {
                let _ = self.store.volume().write_out(&disks.into_iter().collect());
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_that_wait_for_the_same_one_share_the_next() {
        let (write_outs, mut count) = (WriteOuts::default(), 0);
        let mut waiting = Vec::new();
        write_outs.act_for(write_outs.call(), || {
            // What these have written may come too late for the one that is under way.
            waiting.extend([(); 3].map(|()| write_outs.call()));
            count += 1;
        });
        for call in waiting {
            write_outs.act_for(call, || count += 1);
        }
        assert_eq!(count, 2);
        write_outs.act_for(write_outs.call(), || count += 1);
        assert_eq!(count, 3);
    }
}
