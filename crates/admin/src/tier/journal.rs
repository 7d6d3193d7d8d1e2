//! The journal of fences: what sizes devices had. One small file for each pool, in a directory that outlives a crash.

use super::TierError;
use brindle_ondisk::Uuid;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The form of the file.
const VERSION: u32 = 1;

/// Sizes of the devices of a pool before they were fenced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    version: u32,
    /// UUID of the pool.
    pub fsid: String,
    /// The absolute path by which it was reached, for messages: it may be mounted elsewhere by now. Old journals have it as
    /// it was typed.
    pub path: PathBuf,
    /// The devices.
    pub devices: Vec<FencedDevice>,
}

/// A device that is fenced, or may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FencedDevice {
    /// Its id.
    pub devid: u64,
    /// Its UUID.
    pub uuid: String,
    /// The size that it had, in bytes.
    pub total_bytes: u64,
    /// All sizes that it may have been given since, in bytes.
    pub fences: Vec<u64>,
}

impl Journal {
    /// Of no device yet.
    pub fn new(fsid: &Uuid, path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { version: VERSION, fsid: fsid.to_string(), path, devices: Vec::new() }
    }
}

/// Time between two looks at a lock that is held.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Directory of journals.
#[derive(Clone, Debug)]
pub struct StateDirectory(PathBuf);

/// Lock on the tiers of a pool: one process at a time works on them.
#[derive(Debug)]
pub struct Lock {
    /// Held open, for the lock is the open file's.
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Returns true if the file still has its name: the last holder removes it.
    fn is_named(&self) -> io::Result<bool> {
        let held = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (held.dev(), held.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is held: a process that waits for the file finds it without a name, and makes another one.
        if self.is_named().unwrap_or(false) {
            fs::remove_file(&self.path).ok();
        }
    }
}

impl StateDirectory {
    /// At this place; it is made when it is needed.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Waits a while for the lock of a pool: a killed process may hold it for as long as the kernel needs to stop what
    /// it does for the process.
    pub fn lock(&self, fsid: &Uuid, patience: Duration) -> Result<Lock, TierError> {
        let path = self.0.join(format!("tier-{fsid}.lock"));
        fs::create_dir_all(&self.0).map_err(|source| state(&self.0, source))?;
        let begin = Instant::now();
        loop {
            let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = open.map_err(|source| state(&path, source))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let lock = Lock { file, path: path.clone() };
                    if lock.is_named().map_err(|source| state(&path, source))? {
                        return Ok(lock);
                    }
                }
                Err(rustix::io::Errno::WOULDBLOCK) if begin.elapsed() < patience => {
                    sleep(LOOK_EVERY);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(TierError::Locked(path)),
                Err(error) => return Err(state(&path, error.into())),
            }
        }
    }

    /// Returns true while a process works on the tiers of a pool.
    pub fn is_locked(&self, fsid: &Uuid) -> bool {
        // A shared lock that is dropped at once keeps others waiting for no more than a moment.
        let file = File::open(self.0.join(format!("tier-{fsid}.lock")));
        file.is_ok_and(|file| {
            flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
        })
    }

    /// The journal of a pool, if it has one.
    pub fn read(&self, fsid: &Uuid) -> Result<Option<Journal>, TierError> {
        read(&self.journal(&fsid.to_string()))
    }

    /// All journals.
    pub fn all(&self) -> Result<Vec<Journal>, TierError> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|source| state(&self.0, source))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(|source| state(&self.0, source))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with("tier-") && name.ends_with(".json") {
                found.extend(read(&path)?);
            }
        }
        Ok(found)
    }

    /// Writes a journal; it is durable when this returns.
    pub fn write(&self, journal: &Journal) -> Result<(), TierError> {
        let path = self.journal(&journal.fsid);
        let new = path.with_extension("new");
        let text = serde_json::to_string_pretty(journal).expect("a journal is text and numbers");
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            self.sync()
        });
        written.map_err(|source| state(&path, source))
    }

    /// Deletes the journal of a pool.
    pub fn remove(&self, fsid: &str) -> Result<(), TierError> {
        let path = self.journal(fsid);
        match fs::remove_file(&path).and_then(|()| self.sync()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|source| state(&path, source)),
        }
    }

    fn journal(&self, fsid: &str) -> PathBuf {
        self.0.join(format!("tier-{fsid}.json"))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }
}

fn read(path: &Path) -> Result<Option<Journal>, TierError> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|source| state(path, source))?,
    };
    let wrong = |why| TierError::Journal { path: path.to_owned(), why };
    let journal: Journal = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match journal.version {
        VERSION => Ok(Some(journal)),
        other => Err(wrong(format!("version {other} is not known here"))),
    }
}

fn state(path: &Path, source: io::Error) -> TierError {
    TierError::State { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(fsid: u8) -> Journal {
        let device = FencedDevice {
            devid: 1,
            uuid: Uuid([7; 16]).to_string(),
            total_bytes: 9 << 30,
            fences: vec![1 << 30],
        };
        Journal { devices: vec![device], ..Journal::new(&Uuid([fsid; 16]), Path::new("/mnt")) }
    }

    #[test]
    fn a_written_journal_is_read_and_gone_when_removed() {
        let place = tempfile::tempdir().expect("room");
        let directory = StateDirectory::new(place.path().join("below"));
        assert!(directory.all().expect("none is no error").is_empty());
        let _lock = directory.lock(&Uuid([1; 16]), Duration::ZERO).expect("free");
        directory.write(&journal(1)).expect("room");
        directory.write(&journal(2)).expect("room");
        assert_eq!(directory.read(&Uuid([1; 16])).expect("whole"), Some(journal(1)));
        assert_eq!(directory.all().expect("whole").len(), 2);
        directory.remove(&journal(1).fsid).expect("there");
        directory.remove(&journal(1).fsid).expect("gone is gone");
        assert_eq!(directory.all().expect("whole"), [journal(2)]);
    }

    #[test]
    fn a_lock_leaves_no_file_and_is_one_for_all_that_wait() {
        let place = tempfile::tempdir().expect("room");
        let directory = StateDirectory::new(place.path().to_owned());
        let held = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let lock = directory.lock(&Uuid([1; 16]), Duration::MAX).expect("free some time");
                        assert_eq!(held.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(place.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn one_at_a_time() {
        let place = tempfile::tempdir().expect("room");
        let directory = StateDirectory::new(place.path().to_owned());
        let fsid = Uuid([1; 16]);
        let lock = directory.lock(&fsid, Duration::ZERO).expect("free");
        assert!(matches!(directory.lock(&fsid, Duration::ZERO), Err(TierError::Locked(_))));
        assert!(directory.is_locked(&fsid) && !directory.is_locked(&Uuid([9; 16])));
        drop(lock);
        directory.lock(&fsid, Duration::ZERO).expect("free again");
    }

    #[test]
    fn a_file_that_is_no_journal_is_named() {
        let place = tempfile::tempdir().expect("room");
        let directory = StateDirectory::new(place.path().to_owned());
        let path = place.path().join(format!("tier-{}.json", Uuid([1; 16])));
        for text in ["", "{}", r#"{"version": 2, "fsid": "", "path": "", "devices": []}"#] {
            fs::write(&path, text).expect("room");
            let error = directory.read(&Uuid([1; 16])).expect_err("no journal");
            assert!(matches!(error, TierError::Journal { .. }), "{error}");
        }
    }
}
