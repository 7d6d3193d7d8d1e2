//! Upkeep of a filesystem that is written: periodic commits, the background work, destaging, torn files that are laid together,
//! and defragmentation of metadata while nothing else happens.
//!
//! The walk: one thread sleeps until the next commit is due, until much has changed (the trees tell so), or for a few
//! seconds; then it does a step of what is due, and begins anew. Behind a part of a torn file it rests for as long as that took.
//! Another thread destages. Both do nothing while the [owner](UpkeepOwner) rests, and end before [`Upkeep`] is gone.

mod calls;
mod destager;
mod idle;

use crate::background::Remaining;
use crate::error::FsError;
use crate::filesystem::Filesystem;
use brindle_policy::defragment::idle::AutoDefragment;
use brindle_policy::writeback::DestageSettings;
use calls::Calls;
use destager::Destager;
use idle::IdleDefragment;
use std::fmt::Debug;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of looking for work when there was none.
const IDLE: Duration = Duration::from_secs(5);
/// Pause between two steps of work, so that requests come first.
const PAUSE: Duration = Duration::from_millis(1);
/// Least rest after a part of a torn file was laid together.
const REST: Duration = Duration::from_millis(50);

/// Owner of a filesystem that is kept up: a mount, or a program.
pub trait UpkeepOwner: Debug + Send + Sync {
    /// The time from one commit to the next; may change.
    fn commit_interval(&self) -> Duration;

    /// Returns true while nothing may be written.
    fn rests(&self) -> bool {
        false
    }

    /// Returns true while a long job of the owner has the devices, such as a scrub: work that can wait is left for later.
    fn is_occupied(&self) -> bool {
        false
    }

    /// Makes everything durable that was done before the call.
    ///
    /// # Errors
    /// Those of [`Filesystem::sync`].
    fn sync(&self) -> Result<(), FsError>;
}

/// Options of upkeep.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpkeepOptions {
    /// Times and amounts of destaging.
    pub destage: DestageSettings,
    /// Pools whose metadata is defragmented while nothing else happens.
    pub auto_defragment: AutoDefragment,
}

/// The threads that do it. Dropped, they end after what they have begun; nothing is committed for that.
#[derive(Debug)]
pub struct Upkeep {
    calls: Arc<Calls>,
    thread: Option<JoinHandle<()>>,
    /// Ends first: its batches are commits.
    destager: Option<Destager>,
}

/// The next that is due.
struct Schedule {
    next_commit: Instant,
    /// End of the rest after a part of a torn file.
    next_part: Instant,
    defragment: IdleDefragment,
}

impl Upkeep {
    /// Begins.
    ///
    /// # Errors
    /// A thread that can't be made.
    pub fn start(
        filesystem: Arc<Filesystem>,
        owner: Arc<dyn UpkeepOwner>,
        options: UpkeepOptions,
    ) -> std::io::Result<Self> {
        let calls = Arc::new(Calls::default());
        let (called, caller) = (Arc::clone(&calls), Arc::clone(&calls));
        // A pool that is only read has no pressure to report.
        filesystem.pool().on_pressure(Box::new(move || caller.press())).ok();
        let destager = Destager::start(Arc::clone(&filesystem), options.destage, Arc::clone(&owner))?;
        let begun = Instant::now();
        let defragment = IdleDefragment::new(options.auto_defragment, begun);
        let next_commit = begun + owner.commit_interval();
        let schedule = Schedule { next_commit, next_part: begun, defragment };
        let run = move || work(&*owner, &filesystem, &called, schedule);
        let thread = std::thread::Builder::new().name("upkeep".to_owned()).spawn(run)?;
        Ok(Self { calls, thread: Some(thread), destager: Some(destager) })
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        drop(self.destager.take());
        self.calls.end();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn work(owner: &dyn UpkeepOwner, filesystem: &Filesystem, calls: &Calls, mut schedule: Schedule) {
    let mut pause = PAUSE;
    while !calls.wait(pause.min(schedule.next_commit.saturating_duration_since(Instant::now()))) {
        match step(owner, filesystem, &mut schedule) {
            Ok(until_next) => pause = until_next,
            Err(error) if filesystem.is_writable() => {
                // One file, or no space: the next time may do better.
                tracing::error!("{error}");
                pause = IDLE;
            }
            // The reason has been logged where it arose.
            Err(_) => return,
        }
    }
}

/// Does a step of what is due; returns the time until the next one.
fn step(
    owner: &dyn UpkeepOwner,
    filesystem: &Filesystem,
    schedule: &mut Schedule,
) -> Result<Duration, FsError> {
    let (now, interval) = (Instant::now(), owner.commit_interval());
    schedule.defragment.look(filesystem, now);
    if owner.rests() {
        schedule.next_commit = now + interval.max(IDLE);
        return Ok(IDLE);
    }
    // The interval may have become shorter.
    schedule.next_commit = schedule.next_commit.min(now + interval);
    if now >= schedule.next_commit {
        schedule.next_commit = now + interval;
        owner.sync()?;
    } else if filesystem.pool().is_under_pressure() {
        filesystem.commit()?;
    }
    let pause = match filesystem.background_step()? {
        Remaining::More => PAUSE,
        Remaining::Nothing => spare_step(owner, filesystem, schedule)?,
    };
    schedule.defragment.remember(filesystem);
    Ok(pause)
}

/// Does a step of what can wait for long: torn files, then metadata.
fn spare_step(
    owner: &dyn UpkeepOwner,
    filesystem: &Filesystem,
    schedule: &mut Schedule,
) -> Result<Duration, FsError> {
    let now = Instant::now();
    if now < schedule.next_part {
        return Ok(schedule.next_part - now);
    }
    if !owner.is_occupied() && filesystem.autodefrag_step(now, &|| !owner.rests())? {
        let rest = now.elapsed().max(REST);
        schedule.next_part = Instant::now() + rest;
        return Ok(rest);
    }
    Ok(if schedule.defragment.step(filesystem, now)? { PAUSE } else { IDLE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::OpenOptions;
    use crate::new_inode::NewInode;
    use crate::write_options::WriteOptions;
    use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
    use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
    use brindle_ondisk::Uuid;

    #[derive(Debug)]
    struct Hasty(Arc<Filesystem>);

    impl UpkeepOwner for Hasty {
        fn commit_interval(&self) -> Duration {
            Duration::ZERO
        }

        fn sync(&self) -> Result<(), FsError> {
            self.0.sync()
        }
    }

    #[test]
    fn a_pool_on_which_nothing_changes_is_not_written() {
        let device = SparseDevice::new("memory".to_owned(), 1 << 30, DeviceClass::Rotating);
        let device = Arc::new(device) as Arc<dyn WritableDevice>;
        let options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
        mkfs(&[NewDevice::new(Arc::clone(&device))], &options).expect("a pool");
        let fs = Filesystem::open_writable(vec![device], &OpenOptions::default(), &WriteOptions::default());
        let owner = Hasty(Arc::new(fs.expect("opens")));
        let (fs, now) = (&owner.0, Instant::now());
        let defragment = IdleDefragment::new(AutoDefragment::Off, now);
        let mut schedule = Schedule { next_commit: now, next_part: now, defragment };
        let mut commits_after = |steps| {
            for _ in 0..steps {
                step(&owner, fs, &mut schedule).expect("writable");
            }
            fs.pool().commit_statistics().commits
        };
        let before = commits_after(20);
        assert_eq!(commits_after(20), before);
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        fs.create(fs.root(), b"file", &new).expect("room");
        assert_eq!(commits_after(20), before + 1);
    }
}
