//! A scrub of the mounted pool.

use super::mode::MountMode;
use brindle_care::job::Control;
use brindle_care::scrub::{DevId, Scrub, ScrubError, ScrubJob, ScrubRecord, carry_out};
use brindle_fs::Filesystem;
use brindle_uapi::message::{
    SCRUB_LEAVE_SLEEPING, SCRUB_READ_ONLY, SCRUB_RESUME, SCRUB_TEXT_BYTES, ScrubLimit, ScrubPage, ScrubStart,
};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// The scrub of a mount: one at a time, by a thread of its own. To be [ended](Self::end) with the mount.
#[derive(Debug)]
pub(super) struct ScrubService {
    filesystem: Arc<Filesystem>,
    mode: Arc<MountMode>,
    /// Directory of its record.
    directory: Option<PathBuf>,
    state: Arc<Mutex<State>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    /// The scrub that runs.
    scrub: Option<Arc<Scrub>>,
    /// The record of the last one.
    record: Option<ScrubRecord>,
    /// Text of the record, as the last first page was of.
    text: String,
}

impl ScrubService {
    pub(super) fn new(filesystem: Arc<Filesystem>, mode: Arc<MountMode>, directory: Option<PathBuf>) -> Self {
        Self { filesystem, mode, directory, state: Arc::default(), thread: Mutex::default() }
    }

    /// Returns true while one runs.
    pub(super) fn is_running(&self) -> bool {
        self.lock().scrub.is_some()
    }

    /// Begins one, or goes on with one.
    pub(super) fn start(&self, start: &ScrubStart) -> Result<(), Errno> {
        let filesystem = &self.filesystem;
        let read_only = start.flags & SCRUB_READ_ONLY != 0;
        let may_write = self.mode.is_written() && !self.mode.is_resting() && filesystem.is_writable();
        if !(read_only || may_write) {
            return Err(Errno::ROFS);
        }
        let count = usize::try_from(start.count).map_err(|_| Errno::INVAL)?;
        let devices = start.devices.get(..count).ok_or(Errno::INVAL)?;
        let devices = devices.iter().map(|devid| DevId::new(*devid)).collect();
        let resume = start.flags & SCRUB_RESUME != 0;
        let leaves_sleeping = start.flags & SCRUB_LEAVE_SLEEPING != 0;
        let job = ScrubJob { devices, read_only, limit: start.limit, resume, leaves_sleeping };
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        if state.scrub.is_some() {
            return Err(Errno::INPROGRESS);
        }
        let last = state.record.take().or_else(|| self.load());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let begun = job.begin(filesystem, last.clone(), now);
        let (scrub, mut record) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                state.record = last;
                return Err(errno_of(&error));
            }
        };
        record.claim();
        // Before the answer, so that there is something to go on with from then on. The scrub itself tells if it can't be kept.
        let _ = self.directory.as_deref().map(|directory| record.store(directory));
        let scrub = Arc::new(scrub);
        (state.scrub, state.record) = (Some(Arc::clone(&scrub)), Some(record.clone()));
        drop(state);
        let (filesystem, shared) = (Arc::clone(filesystem), Arc::clone(&self.state));
        let directory = self.directory.clone();
        let run = move || {
            let mut look = |record: &ScrubRecord| {
                lock(&shared).record = Some(record.clone());
                Control::Continue
            };
            let done = carry_out(&filesystem, &scrub, record, directory.as_deref(), &mut look);
            if let Err(error) = done {
                tracing::error!("scrub: {error}");
            }
            lock(&shared).scrub = None;
        };
        match std::thread::Builder::new().name("scrub".to_owned()).spawn(run) {
            Ok(spawned) => {
                *thread = Some(spawned);
                Ok(())
            }
            Err(_) => {
                self.lock().scrub = None;
                Err(Errno::AGAIN)
            }
        }
    }

    /// Ends one for now.
    pub(super) fn stop(&self) -> Result<(), Errno> {
        self.lock().scrub.as_ref().map(|scrub| scrub.stop()).ok_or(Errno::NOTCONN)
    }

    /// Ends one that runs, and waits for its end: the mount ends, or is not written any more.
    pub(super) fn end(&self) {
        let _ = self.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join().ok();
        }
    }

    /// Limits one that runs.
    pub(super) fn limit(&self, limit: &ScrubLimit) -> Result<(), Errno> {
        let scrub = self.lock().scrub.clone().ok_or(Errno::NOTCONN)?;
        let devices = scrub.report().devices.into_iter().map(|device| device.devid);
        let meant: Vec<DevId> =
            devices.filter(|devid| limit.devid == 0 || devid.get() == limit.devid).collect();
        meant.iter().for_each(|devid| {
            scrub.set_limit(*devid, limit.bytes);
        });
        if meant.is_empty() {
            return Err(Errno::NODEV);
        }
        // The next look of the scrub at itself may be seconds away.
        let report = scrub.report();
        self.lock().record.iter_mut().for_each(|record| record.report = report.clone());
        Ok(())
    }

    /// A page of the record.
    pub(super) fn page(&self, mut page: ScrubPage) -> Result<ScrubPage, Errno> {
        let mut state = self.lock();
        if page.offset == 0 {
            if state.record.is_none() {
                state.record = self.load();
            }
            state.text = state.record.as_ref().map_or_else(String::new, ScrubRecord::to_text);
        }
        let from = usize::try_from(page.offset).map_err(|_| Errno::INVAL)?;
        let rest = state.text.as_bytes().get(from..).ok_or(Errno::INVAL)?;
        let rest = &rest[..rest.len().min(SCRUB_TEXT_BYTES)];
        page.length = state.text.len().try_into().map_err(|_| Errno::FBIG)?;
        page.is_running = state.scrub.is_some().into();
        page.text.fill(0);
        page.text[..rest.len()].copy_from_slice(rest);
        Ok(page)
    }

    /// The record of the last one, of this mount or an earlier one.
    fn load(&self) -> Option<ScrubRecord> {
        let loaded = ScrubRecord::load(self.directory.as_ref()?, &self.filesystem.pool().superblock().fsid);
        loaded.inspect_err(|error| tracing::warn!("{error}")).ok()?
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of an error that no scrub was begun for.
fn errno_of(error: &ScrubError) -> Errno {
    match error {
        ScrubError::NoDevice(_) => Errno::NODEV,
        ScrubError::NothingToResume => Errno::NOENT,
        ScrubError::NoAnswer(_) | ScrubError::Tree(_) | ScrubError::Files(_) => Errno::IO,
    }
}
