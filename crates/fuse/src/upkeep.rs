//! Upkeep of a writable mount: periodic commits, the background work, and destaging.

use crate::MountOptions;
use crate::idle::IdleDefragment;
use crate::operations::Operations;
use brindle_fs::{Destager, Filesystem, FsError, Remaining};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of looking for work when there was none.
const IDLE: Duration = Duration::from_secs(5);
/// Pause between two steps of work, so that requests come first.
const PAUSE: Duration = Duration::from_millis(1);

/// The threads that do it. Dropped, they end.
#[derive(Debug)]
pub(crate) struct Upkeep {
    calls: Arc<Calls>,
    thread: Option<JoinHandle<()>>,
    /// Ends first: its batches are commits.
    destager: Option<Destager>,
}

/// Reasons for which it is called.
#[derive(Debug, Default)]
struct Calls {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// True to end.
    is_over: bool,
    /// True to commit, for much has changed.
    is_pressed: bool,
}

/// The next that is due.
struct Schedule {
    next_commit: Instant,
    defragment: IdleDefragment,
}

impl Upkeep {
    /// Begins.
    pub(crate) fn start(
        operations: Arc<Operations>,
        filesystem: Arc<Filesystem>,
        options: &MountOptions,
    ) -> std::io::Result<Self> {
        let calls = Arc::new(Calls::default());
        let (called, caller) = (Arc::clone(&calls), Arc::clone(&calls));
        // A pool that is only read has no pressure to report.
        filesystem.pool().on_pressure(Box::new(move || caller.press())).ok();
        let destager = {
            let operations = Arc::clone(&operations);
            let may_work = Box::new(move || !operations.rests());
            Destager::start(Arc::clone(&filesystem), options.destage, may_work)?
        };
        let begun = Instant::now();
        let defragment = IdleDefragment::new(options.auto_defragment, begun);
        let schedule = Schedule { next_commit: begun + operations.commit_interval(), defragment };
        let run = move || work(&operations, &filesystem, &called, schedule);
        let thread = std::thread::Builder::new().name("upkeep".to_owned()).spawn(run)?;
        Ok(Self { calls, thread: Some(thread), destager: Some(destager) })
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        drop(self.destager.take());
        self.calls.waiting().is_over = true;
        self.calls.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Calls {
    /// Waits; true if it is time to end.
    fn wait(&self, time: Duration) -> bool {
        let is_quiet = |waiting: &mut Waiting| !waiting.is_over && !waiting.is_pressed;
        let wait = self.changed.wait_timeout_while(self.waiting(), time, is_quiet);
        let mut waiting = wait.unwrap_or_else(PoisonError::into_inner).0;
        waiting.is_pressed = false;
        waiting.is_over
    }

    fn press(&self) {
        self.waiting().is_pressed = true;
        self.changed.notify_all();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn work(operations: &Operations, filesystem: &Filesystem, calls: &Calls, mut schedule: Schedule) {
    let mut pause = PAUSE;
    while !calls.wait(pause.min(schedule.next_commit.saturating_duration_since(Instant::now()))) {
        match step(operations, filesystem, &mut schedule) {
            Ok(Remaining::More) => pause = PAUSE,
            Ok(Remaining::Nothing) => pause = IDLE,
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

fn step(
    operations: &Operations,
    filesystem: &Filesystem,
    schedule: &mut Schedule,
) -> Result<Remaining, FsError> {
    let (now, interval) = (Instant::now(), operations.commit_interval());
    schedule.defragment.look(filesystem, now);
    if operations.rests() {
        schedule.next_commit = now + interval.max(IDLE);
        return Ok(Remaining::Nothing);
    }
    // The interval may have become shorter.
    schedule.next_commit = schedule.next_commit.min(now + interval);
    if now >= schedule.next_commit {
        schedule.next_commit = now + interval;
        operations.sync_all()?;
    } else if filesystem.pool().is_under_pressure() {
        filesystem.commit()?;
    }
    let mut remaining = filesystem.background_step()?;
    if remaining == Remaining::Nothing && schedule.defragment.step(filesystem, Instant::now())? {
        remaining = Remaining::More;
    }
    schedule.defragment.remember(filesystem);
    Ok(remaining)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
    use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
    use brindle_fs::{NewInode, OpenOptions, WriteOptions};
    use brindle_ondisk::Uuid;
    use brindle_policy::defragment::idle::AutoDefragment;

    #[test]
    fn a_pool_on_which_nothing_changes_is_not_written() {
        let device = SparseDevice::new("memory".to_owned(), 1 << 30, DeviceClass::Rotating);
        let device = Arc::new(device) as Arc<dyn WritableDevice>;
        let options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
        mkfs(&[NewDevice::new(Arc::clone(&device))], &options).expect("a pool");
        let fs = Filesystem::open_writable(vec![device], &OpenOptions::default(), &WriteOptions::default());
        let fs = Arc::new(fs.expect("opens"));
        let commit_interval = Duration::ZERO;
        let options = MountOptions { read_only: false, commit_interval, ..MountOptions::default() };
        let operations = Operations::new(Arc::clone(&fs), &options);
        let now = Instant::now();
        let defragment = IdleDefragment::new(AutoDefragment::Off, now);
        let mut schedule = Schedule { next_commit: now, defragment };
        let mut commits_after = |steps| {
            for _ in 0..steps {
                step(&operations, &fs, &mut schedule).expect("writable");
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
