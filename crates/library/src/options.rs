//! Options of opening a pool.

use crate::{Error, Pool};
use brindle_device::{Device, FileDevice, WritableDevice};
use brindle_fs::{
    Filesystem, FsError, OpenOptions, SubvolumeChoice, WriteBackMode, WriteBackWish, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Interval of commits unless told otherwise.
const COMMIT_INTERVAL: Duration = Duration::from_secs(30);

/// Options of opening a pool: to be read, the default subvolume, all devices there, unless told otherwise.
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct PoolOptions {
    write: bool,
    leaves_log: bool,
    commit_interval: Duration,
    open: OpenOptions,
    write_options: WriteOptions,
}

impl Default for PoolOptions {
    fn default() -> Self {
        let write_back = WriteBackWish::Stored(WriteBackMode::OF_MOUNTS);
        Self {
            write: false,
            leaves_log: false,
            commit_interval: COMMIT_INTERVAL,
            open: OpenOptions::default(),
            write_options: WriteOptions { write_back, ..WriteOptions::default() },
        }
    }
}

impl PoolOptions {
    /// Sets whether the pool is opened to be written. No other process can write it then.
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Sets whether the pool is opened although devices are missing: to read it as long as all metadata can be read, to
    /// write it as long as every chunk can be.
    pub fn degraded(mut self, degraded: bool) -> Self {
        self.open.pool.volume.degraded = degraded;
        self
    }

    /// Sets the subvolume that paths begin at.
    pub fn subvolume(mut self, choice: SubvolumeChoice) -> Self {
        self.open.subvolume = choice;
        self
    }

    /// Sets whether a pool that is only read shows the last commit, without what was fsynced after it. Otherwise its log
    /// is replayed in memory.
    pub fn ignore_log(mut self, ignore: bool) -> Self {
        self.leaves_log = ignore;
        self
    }

    /// Sets the time from one commit to the next.
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.commit_interval = interval;
        self
    }

    /// Sets how the pool is written: compression, placement, the clock and the random numbers, and more.
    pub fn write_options(mut self, options: WriteOptions) -> Self {
        self.write_options = options;
        self
    }

    /// Opens the pool that lies on image files or block devices, named in any order. All that belong to the pool are to be
    /// named.
    ///
    /// # Errors
    /// [`Error::Device`] for a device that can't be opened or is in use, [`Error::Pool`] if there is no pool on them, if
    /// devices are missing, if the pool has features that are not supported, or if its log can't be replayed.
    pub fn open<P: AsRef<Path>>(self, devices: impl IntoIterator<Item = P>) -> Result<Pool, Error> {
        if !self.write {
            let open =
                |path: P| Ok::<_, Error>(Arc::new(FileDevice::open(path.as_ref())?) as Arc<dyn Device>);
            let devices = devices.into_iter().map(open).collect::<Result<_, _>>()?;
            let filesystem = self.open_to_read(devices).map_err(Error::of_pool)?;
            return Ok(Pool::of(filesystem));
        }
        let open = |path: P| {
            let device = FileDevice::open_writable(path.as_ref())?;
            Ok::<_, Error>(Arc::new(device) as Arc<dyn WritableDevice>)
        };
        let devices = devices.into_iter().map(open).collect::<Result<_, _>>()?;
        let opened = Filesystem::open_writable(devices, &self.open, &self.write_options);
        Pool::kept_up(opened.map_err(Error::of_pool)?, self.commit_interval)
    }

    fn open_to_read(&self, devices: Vec<Arc<dyn Device>>) -> Result<Filesystem, FsError> {
        let filesystem = Filesystem::open(devices.clone(), &self.open)?;
        if self.leaves_log || !filesystem.pool().has_log() {
            return Ok(filesystem);
        }
        drop(filesystem);
        Filesystem::open_replayed(devices, &self.open, &self.write_options)
    }
}
