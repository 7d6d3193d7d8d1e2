//! A change of the mounted pool's devices: a thread does it, requests begin it, stop it, and ask how far it is.

use brindle_care::balance::{Ended, Progress, Wish};
use brindle_care::device::{AddOptions, DeviceCareError, Leaving, NewSize, Newcomer, add, remove, resize};
use brindle_fs::{Filesystem, Host, PlacementClass, SystemHost};
use brindle_kernel::message::{
    DEVICE_ADD, DEVICE_BULK, DEVICE_DISCARD, DEVICE_ENDED_DONE, DEVICE_ENDED_FAILED, DEVICE_ENDED_STOPPED,
    DEVICE_FAST, DEVICE_FORCE, DEVICE_REMOVE, DEVICE_RESIZE, DeviceReport, DeviceStart, SIZE_GROW, SIZE_MAX,
    SIZE_SHRINK, SIZE_TO, field, text,
};
use brindle_ondisk::DevId;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use zerocopy::FromZeros;

/// The changes of a mount's devices. Dropped, one that runs is stopped.
#[derive(Debug, Default)]
pub(super) struct DeviceService {
    shared: Arc<Mutex<State>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    wish: Wish,
    change: u64,
    devid: u64,
    progress: Progress,
    ended: u64,
    error: String,
}

/// What is to be done.
enum Change {
    Add { path: PathBuf, class: Option<PlacementClass>, options: AddOptions },
    Remove(Leaving),
    Resize(DevId, NewSize),
}

impl Change {
    fn read(start: &DeviceStart) -> Option<Self> {
        let is_set = |flag: u64| start.flags & flag != 0;
        let devid = DevId::new(start.devid);
        match start.change {
            DEVICE_ADD => Some(Self::Add {
                path: Path::new(OsStr::from_bytes(text(&start.path))).to_owned(),
                class: match (is_set(DEVICE_FAST), is_set(DEVICE_BULK)) {
                    (true, false) => Some(PlacementClass::Fast),
                    (false, true) => Some(PlacementClass::Bulk),
                    _ => None,
                },
                options: AddOptions { force: is_set(DEVICE_FORCE), discard: is_set(DEVICE_DISCARD) },
            }),
            DEVICE_REMOVE if start.devid == 0 => Some(Self::Remove(Leaving::Missing)),
            DEVICE_REMOVE => Some(Self::Remove(Leaving::Id(devid))),
            DEVICE_RESIZE => {
                let size = match start.size_kind {
                    SIZE_MAX => NewSize::Max,
                    SIZE_TO => NewSize::To(start.size_bytes),
                    SIZE_GROW => NewSize::Grow(start.size_bytes),
                    SIZE_SHRINK => NewSize::Shrink(start.size_bytes),
                    _ => return None,
                };
                Some(Self::Resize(devid, size))
            }
            _ => None,
        }
    }

    /// Does it. Which device joined, if one did.
    fn carry_out(
        &self,
        filesystem: &Filesystem,
        watcher: &mut dyn FnMut(&Progress) -> Wish,
    ) -> Result<(Ended, Option<DevId>), DeviceCareError> {
        let pool = filesystem.pool();
        match self {
            Self::Add { path, class, options } => {
                let new = Newcomer::open(path, SystemHost.new_uuid(), *class)?;
                let devids = add(pool, &[new], options)?;
                let ended = Ended { progress: Progress::default(), wish: Wish::GoOn };
                Ok((ended, devids.first().copied()))
            }
            Self::Remove(which) => remove(pool, *which, watcher).map(|ended| (ended, None)),
            Self::Resize(devid, size) => resize(pool, *devid, *size, watcher).map(|ended| (ended, None)),
        }
    }
}

impl DeviceService {
    /// Begins one.
    pub(super) fn start(&self, filesystem: &Arc<Filesystem>, start: &DeviceStart) -> Result<(), Errno> {
        if !filesystem.is_writable() {
            return Err(Errno::ROFS);
        }
        let change = Change::read(start).ok_or(Errno::INVAL)?;
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = lock(&self.shared);
            if state.is_running {
                return Err(Errno::INPROGRESS);
            }
            *state = State { is_running: true, change: start.change, devid: start.devid, ..State::default() };
        }
        let (shared, filesystem) = (Arc::clone(&self.shared), Arc::clone(filesystem));
        let run = move || {
            let mut watcher = |progress: &Progress| {
                let mut state = lock(&shared);
                state.progress = *progress;
                state.wish
            };
            let done = change.carry_out(&filesystem, &mut watcher);
            lock(&shared).end(done);
        };
        match std::thread::Builder::new().name("devices".to_owned()).spawn(run) {
            Ok(spawned) => {
                // The one before has ended: it would be running else.
                *thread = Some(spawned);
                Ok(())
            }
            Err(_) => {
                lock(&self.shared).is_running = false;
                Err(Errno::AGAIN)
            }
        }
    }

    /// Stops one.
    pub(super) fn stop(&self) -> Result<(), Errno> {
        let mut state = lock(&self.shared);
        state.wish = Wish::Cancel;
        if state.is_running { Ok(()) } else { Err(Errno::NOTCONN) }
    }

    /// How far it is.
    pub(super) fn report(&self) -> DeviceReport {
        let state = lock(&self.shared);
        let mut report = DeviceReport {
            is_running: state.is_running.into(),
            ended: state.ended,
            change: state.change,
            devid: state.devid,
            expected: state.progress.expected,
            done: state.progress.done,
            expected_bytes: state.progress.expected_bytes,
            moved_bytes: state.progress.moved_bytes,
            ..DeviceReport::new_zeroed()
        };
        let room = report.error.len() - 1;
        let text = state.error.as_bytes();
        report.error = field(&text[..text.len().min(room)]).unwrap_or([0; 512]);
        report
    }
}

impl State {
    fn end(&mut self, done: Result<(Ended, Option<DevId>), DeviceCareError>) {
        self.is_running = false;
        self.ended = match done {
            Ok((ended, joined)) => {
                self.progress = ended.progress;
                self.devid = joined.map_or(self.devid, DevId::get);
                if ended.wish == Wish::GoOn { DEVICE_ENDED_DONE } else { DEVICE_ENDED_STOPPED }
            }
            Err(error) => {
                tracing::error!("{error}");
                self.error = error.to_string();
                DEVICE_ENDED_FAILED
            }
        };
    }
}

impl Drop for DeviceService {
    fn drop(&mut self) {
        lock(&self.shared).wish = Wish::Cancel;
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join().ok();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
