//! Moving what lies wrong.

use super::fence::refuse_if_busy;
use super::progress::ChunkProgress;
use super::{Fences, Inventory, StateDirectory, TierError, recover};
use crate::balance::Relocated;
use crate::control::Mounted;
use crate::sysfs;
use brindle_ondisk::{BlockGroupType, Uuid};
use brindle_policy::tier::TierPool;
use brindle_policy::tier::plan::{Move, Pass, Plan, Wanted, fences, fences_for, highest, plan};
use std::thread;
use std::time::{Duration, Instant};

/// Options of carrying out a plan.
#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions {
    /// Contents to be moved.
    pub wanted: Wanted,
    /// The most that may be moved in a second on the average, in bytes.
    pub rate: Option<u64>,
    /// Time to wait for the lock.
    pub patience: Duration,
}

/// Observer of the work, which can stop it.
pub trait Observer {
    /// Returns true if the work is to stop.
    fn is_stopped(&self) -> bool;
    /// A plan is about to be carried out.
    fn planned(&mut self, plan: &Plan);
    /// A chunk is about to be moved.
    fn moving(&mut self, chunk: &Move);
    /// Used bytes of it that count as moved by now, by estimate.
    fn progressed(&mut self, bytes: u64);
    /// A chunk was moved.
    fn moved(&mut self, chunk: &Move);
    /// Fences of a process that has ended were taken down.
    fn recovered(&mut self);
}

/// Outcome, where nothing went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Chunks that were relocated.
    pub chunks: u64,
    /// Used bytes of these.
    pub bytes: u64,
    /// True if it was stopped before all was done.
    pub is_stopped: bool,
}

/// Interval at which the observer is asked whether to stop.
const TICK: Duration = Duration::from_millis(50);
/// For longer pauses than this fences are taken down.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Upper bound on the rounds in which chunks that holes in fenced devices have attracted are tried again.
const ROUNDS_MAX: usize = 10;

/// Moves what lies wrong. The classes of devices are the caller's: `classify` makes of an inventory a pool.
pub fn apply(
    mounted: &Mounted,
    directory: &StateDirectory,
    classify: &dyn Fn(&Inventory) -> TierPool,
    options: &ApplyOptions,
    observer: &mut dyn Observer,
) -> Result<Applied, TierError> {
    let fsid = Uuid(mounted.filesystem()?.fsid);
    let _lock = directory.lock(&fsid, options.patience)?;
    if !recover(mounted, directory, &fsid)?.is_empty() {
        observer.recovered();
    }
    apply_locked(mounted, directory, classify, options, observer)
}

/// The same, by a caller that has the lock, with no fence standing.
pub(super) fn apply_locked(
    mounted: &Mounted,
    directory: &StateDirectory,
    classify: &dyn Fn(&Inventory) -> TierPool,
    options: &ApplyOptions,
    observer: &mut dyn Observer,
) -> Result<Applied, TierError> {
    let fsid = Uuid(mounted.filesystem()?.fsid);
    refuse_if_busy(&fsid)?;
    let fences = Fences::new(mounted, directory, &fsid);
    let mut work = Work {
        mounted,
        fsid,
        classify,
        options,
        observer,
        fences,
        done: Applied::default(),
        begin: Instant::now(),
    };
    let ended = work.all();
    work.fences.open_after(ended)?;
    Ok(work.done)
}

/// Choice of the next pass. One that did not help waits for the other, which may make room for it.
#[derive(Debug)]
struct Rounds {
    /// The least that lay wrong so far.
    least: usize,
    /// Number of rounds since that became less.
    in_vain: usize,
}

impl Default for Rounds {
    fn default() -> Self {
        Self { least: usize::MAX, in_vain: 0 }
    }
}

impl Rounds {
    /// Part of a plan that is to be carried out; `None` if all of it has been tried, and nothing helped.
    fn next<'p>(&mut self, plan: &'p Plan) -> Option<&'p Pass> {
        if plan.chunks() < self.least {
            (self.least, self.in_vain) = (plan.chunks(), 0);
        } else {
            self.in_vain += 1;
        }
        plan.passes.get(self.in_vain)
    }
}

struct Work<'a> {
    mounted: &'a Mounted,
    fsid: Uuid,
    classify: &'a dyn Fn(&Inventory) -> TierPool,
    options: &'a ApplyOptions,
    observer: &'a mut dyn Observer,
    fences: Fences<'a>,
    done: Applied,
    begin: Instant,
}

impl Work<'_> {
    fn all(&mut self) -> Result<(), TierError> {
        let (mut rounds, mut is_settled) = (Rounds::default(), false);
        for _ in 0..ROUNDS_MAX {
            let (inventory, plan) = self.look()?;
            if !plan.refusals.is_empty() {
                return Err(TierError::Refused(plan.refusals));
            }
            if plan.passes.is_empty() {
                return Ok(());
            }
            if let Some(pass) = rounds.next(&plan) {
                self.observer.planned(&plan);
                self.carry_out(pass)?;
            } else if let Some(pass) = self.squeeze(&plan, &inventory) {
                rounds = Rounds::default();
                self.carry_out(&pass)?;
            } else if !is_settled {
                // With the next commit the kernel may use again what the moves have freed, and holes close.
                (is_settled, rounds) = (true, Rounds::default());
                self.mounted.sync()?;
            } else {
                break;
            }
            if self.done.is_stopped {
                return Ok(());
            }
        }
        let (_, plan) = self.look()?;
        match plan.chunks() {
            0 => Ok(()),
            chunks => Err(TierError::Stuck { chunks, bytes: plan.bytes() }),
        }
    }

    fn carry_out(&mut self, pass: &Pass) -> Result<(), TierError> {
        self.pass(pass)?;
        self.fences.open()
    }

    /// Puts up the fences for a chunk, unless they stand. Where devices stay open, which ones is chosen for each chunk.
    fn fence(&mut self, pass: &Pass, chunk: &Move) -> Result<(), TierError> {
        let is_same = pass.moves.iter().all(|other| other.open == 0);
        if self.fences.is_closed() && is_same {
            return Ok(());
        }
        let inventory = self.fences.unfenced(self.mounted.inventory()?);
        let pool = (self.classify)(&inventory);
        let fences = match chunk.open {
            0 => fences(&pool, chunk.kind, pass.target.other()),
            _ => fences_for(&pool, chunk.kind),
        };
        if self.fences.stand_around(&fences) {
            return Ok(());
        }
        self.fences.open()?;
        self.fences.close(&fences, &inventory.devices)
    }

    /// A pass that moves nothing to where it belongs, but what lies highest on the devices that are fenced for the first pass of a
    /// plan, into holes: the next fence leaves less of them. None if that can't help.
    fn squeeze(&self, plan: &Plan, inventory: &Inventory) -> Option<Pass> {
        let (pool, first) = ((self.classify)(inventory), plan.passes.first()?);
        let (kind, class) = (first.moves.first()?.kind, first.target.other());
        let moves = highest(&pool, kind, class);
        let fences = fences(&pool, kind, class);
        let pass = Pass { moves, fences, holds: false, ..first.clone() };
        (!pass.moves.is_empty()).then_some(pass)
    }

    /// The pool as it is, and the plan for it.
    fn look(&self) -> Result<(Inventory, Plan), TierError> {
        // What is used of a block group is told as of the last commit.
        self.mounted.sync()?;
        let inventory = self.mounted.inventory()?;
        if let Some(device) = inventory.devices.iter().find(|device| device.is_missing) {
            return Err(TierError::Missing(device.devid));
        }
        let plan = plan(&(self.classify)(&inventory), self.options.wanted);
        Ok((inventory, plan))
    }

    fn pass(&mut self, pass: &Pass) -> Result<(), TierError> {
        for chunk in &pass.moves {
            self.keep_to_the_rate()?;
            if self.observer.is_stopped() {
                self.done.is_stopped = true;
                return Ok(());
            }
            self.fence(pass, chunk)?;
            self.observer.moving(chunk);
            match self.relocate(chunk)? {
                Relocated::Done => {}
                Relocated::Cancelled => {
                    self.done.is_stopped = true;
                    return Ok(());
                }
                // Others may have room, and so may this one when they are gone.
                Relocated::NoSpace => {
                    tracing::info!("the kernel has no room for the chunk at {}", chunk.logical);
                    continue;
                }
            }
            self.done.chunks += 1;
            self.done.bytes += chunk.used_bytes;
            self.observer.moved(chunk);
        }
        Ok(())
    }

    /// The kernel works in the calling thread and hears nothing meanwhile, so that is another one.
    fn relocate(&mut self, chunk: &Move) -> Result<Relocated, TierError> {
        let kind = chunk.kind & BlockGroupType::CONTENT;
        let (mounted, logical) = (self.mounted, chunk.logical);
        let used = |fsid: &Uuid| sysfs::used_bytes(fsid, &chunk.content.to_string());
        let mut progress = used(&self.fsid).map(|begin| ChunkProgress::new(chunk.used_bytes, begin));
        thread::scope(|scope| {
            let worker = scope.spawn(move || mounted.relocate_chunk(kind, logical));
            while !worker.is_finished() {
                if self.observer.is_stopped() {
                    if let Err(error) = mounted.cancel_balance() {
                        tracing::warn!("{error}");
                    }
                }
                if let Some((progress, now)) = progress.as_mut().zip(used(&self.fsid)) {
                    self.observer.progressed(progress.advance(now));
                }
                thread::sleep(TICK);
            }
            Ok(worker.join().expect("it calls the kernel and does nothing that panics")?)
        })
    }

    /// Waits until what was moved so far may have been moved. Nothing is fenced during a long wait: the devices behind
    /// a fence can't take new data chunks.
    fn keep_to_the_rate(&mut self) -> Result<(), TierError> {
        let Some(rate) = self.options.rate else { return Ok(()) };
        let due = Duration::from_secs_f64(self.done.bytes as f64 / rate.max(1) as f64);
        let wait = due.saturating_sub(self.begin.elapsed());
        if wait > PAUSE_MAX {
            self.fences.open()?;
        }
        while self.begin.elapsed() < due && !self.observer.is_stopped() {
            thread::sleep(TICK.min(due.saturating_sub(self.begin.elapsed())));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::Logical;
    use brindle_policy::placement::PlacementClass::{Bulk, Fast};
    use brindle_policy::tier::Content;

    fn plan_of(passes: &[(brindle_policy::placement::PlacementClass, u64)]) -> Plan {
        let chunk = |number| Move {
            logical: Logical::new(number << 20),
            content: Content::Data,
            kind: BlockGroupType::DATA,
            used_bytes: 1,
            open: 0,
        };
        let pass = |(target, chunks): &(_, u64)| Pass {
            target: *target,
            target_name: target.to_string(),
            moves: (0..*chunks).map(chunk).collect(),
            fences: Vec::new(),
            holds: true,
        };
        Plan { passes: passes.iter().map(pass).collect(), ..Plan::default() }
    }

    #[test]
    fn a_pass_that_did_not_help_waits_for_the_other_and_all_ends_when_neither_does() {
        let mut rounds = Rounds::default();
        let mut next = |passes: &[_]| rounds.next(&plan_of(passes)).map(|pass| pass.target);
        assert_eq!(next(&[(Fast, 2), (Bulk, 2)]), Some(Fast));
        assert_eq!(next(&[(Fast, 2), (Bulk, 2)]), Some(Bulk), "it may make room");
        assert_eq!(next(&[(Fast, 2), (Bulk, 1)]), Some(Fast), "it has helped");
        assert_eq!(next(&[(Fast, 1)]), Some(Fast));
        assert_eq!(next(&[(Fast, 1)]), None);
    }
}
