//! A cache as one device of a program that uses it for itself: a pool, say. It is loaded and veiled when it is opened; when
//! the last user lets go of it, or the process ends in order ([`close_all`]), all dirty blocks are written to the disk, the veil is
//! lifted, and the cache is closed.
//!
//! Reads that are submitted, durable writes and flushes are made by a few threads, for both devices have to be waited for in turn.

use crate::files::{load_files, ssds};
use crate::guard::guard_disk;
use crate::load::{load_mirrored_to_read, load_to_read};
use crate::word::CacheWord;
use crate::workers::{Answer, Workers};
use crate::{Cache, CacheError, CacheKeeper, HostClock, Mode};
use brindle_device::{
    Batch, Buffer, Device, DeviceClass, DeviceError, FileDevice, PendingRead, ReadRequest, ReconnectGuard,
    WritableDevice, WriteRequest, open_device, write_now,
};
use brindle_sync::{Mutex, Rank};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Caches that this process has in use.
static IN_USE: Mutex<Vec<Weak<CachedDevice>>> = Mutex::new(Rank::CachesInUse, Vec::new());

/// True once one of them could not be closed, and has blocks that its disk lacks.
static IS_LEFT_OPEN: AtomicBool = AtomicBool::new(false);

/// Longest durable write that is copied for a thread; longer ones are made by the caller.
const COPIED_BYTES_MAX: usize = 256 << 10;

/// User of a cached disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// A pool. Its superblock lies in the samples of the disk, and each commit writes it: where no sample differs, the disk was not
    /// used without the cache.
    Pool,
    /// Any program, which may write the disk where no sample is.
    Any,
    /// A command that looks at it for a moment, even while another process writes it.
    Look,
}

/// A cache in use by this process.
#[derive(Debug)]
pub(crate) struct CachedDevice {
    cache: Arc<Cache>,
    workers: Workers,
    /// True if another process may begin to write the cache, which makes what is known of it here old.
    is_watched: bool,
    /// Present if it may be written, until it is closed.
    keeper: Mutex<Option<CacheKeeper>>,
}

impl CachedDevice {
    /// Loads a cache to read and write it.
    ///
    /// # Errors
    /// Those of [`load_files`] and of the devices.
    pub(crate) fn open_writable(word: &CacheWord, user: User) -> Result<Arc<Self>, DeviceError> {
        let name = &word.name();
        let mut cache = load_files(word, false).map_err(|error| refusal(name, error))?;
        cache.name.clone_from(name);
        if user == User::Pool {
            cache.trust_samples();
        }
        let device = Arc::new(Self::start(cache)?);
        let mut in_use = IN_USE.lock();
        in_use.retain(|other| other.strong_count() > 0);
        in_use.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// Loads a cache to read it.
    ///
    /// # Errors
    /// Those of [`load_to_read`] and of the devices; [`DeviceError::Busy`] while another process has the cache in use, unless
    /// the user only looks at it.
    pub(crate) fn open(word: &CacheWord, user: User) -> Result<Arc<Self>, DeviceError> {
        let name = &word.name();
        let disk: Arc<dyn WritableDevice> = Arc::new(ReadOnlyDevice(open_device(&word.disk)?));
        let clock = Arc::new(HostClock::new());
        let open = |path: &Path| {
            let device = FileDevice::open(path)?;
            if user != User::Look {
                device.check_unclaimed()?;
            }
            Ok(device)
        };
        let cache = match ssds(word, open)? {
            (one, None) => load_to_read(&one, &disk, clock),
            (one, Some(other)) => load_mirrored_to_read([&one, &other], &disk, clock),
        };
        let mut cache = cache.map_err(|error| refusal(name, error))?;
        cache.name.clone_from(name);
        if user == User::Pool {
            cache.trust_samples();
        }
        Ok(Arc::new(Self::new(Arc::new(cache), None, user != User::Look)))
    }

    /// Begins the use of a loaded cache; it is closed again if that fails.
    fn start(cache: Cache) -> Result<Self, DeviceError> {
        let cache = Arc::new(cache);
        let begin = || {
            cache.veil().map_err(|error| refusal(&cache.name, error))?;
            guard_disk(&cache);
            let failed = |source| DeviceError::Open { device: cache.name.clone(), source };
            CacheKeeper::start(&cache).map_err(failed)
        };
        match begin() {
            Ok(keeper) => Ok(Self::new(cache, Some(keeper), false)),
            Err(error) => {
                end_use(&cache);
                Err(error)
            }
        }
    }

    fn new(cache: Arc<Cache>, keeper: Option<CacheKeeper>, is_watched: bool) -> Self {
        let keeper = Mutex::new(Rank::CachesInUse, keeper);
        Self { cache, workers: Workers::default(), is_watched, keeper }
    }

    /// Ends the use of the cache: writes all dirty blocks to the disk. Refuses all writes from then on.
    pub(crate) fn close(&self) {
        let keeper = self.keeper.lock_after_panic().take();
        self.workers.end();
        if keeper.is_none() {
            return;
        }
        drop(keeper);
        end_use(&self.cache);
    }

    fn submit_now(&self, answer: Answer<Result<(), DeviceError>>, batch: &mut Batch<'_>) {
        batch.under_way(move || answer.wait());
    }
}

impl Drop for CachedDevice {
    fn drop(&mut self) {
        self.close();
    }
}

/// Closes all caches that this process still has in use, at its end. Returns false if one of those that it had in use has blocks that
/// its disk lacks, against its settings; the log tells of them.
#[must_use]
pub fn close_all() -> bool {
    let in_use = std::mem::take(&mut *IN_USE.lock_after_panic());
    for device in in_use.iter().filter_map(Weak::upgrade) {
        device.close();
    }
    !IS_LEFT_OPEN.load(Ordering::Acquire)
}

/// Writes all dirty blocks of a cache to its disk, and closes it.
fn end_use(cache: &Cache) {
    let before = cache.status();
    tracing::info!("{}: {} blocks are written to the disk", cache.name, before.dirty_blocks);
    match cache.close() {
        Ok(()) => tracing::info!("{}: the cache is closed", cache.name),
        Err(error) if cache.mode == Mode::Back => {
            IS_LEFT_OPEN.store(true, Ordering::Release);
            let after = cache.status();
            tracing::error!(
                "{}: the cache is not closed: {error}; {} bytes wait on {} for {}, which can't be used alone: use both once more \
                 when they work, or give these bytes up with `brindle cache destroy --force`",
                cache.name,
                after.dirty_blocks * after.block_bytes,
                after.flash,
                after.disk
            );
        }
        // The disk has everything, and what is cached is forgotten as after a crash.
        Err(error) => tracing::warn!("{}: the cache is not closed: {error}", cache.name),
    }
}

/// An error of a cache as one of the device that it is.
fn refusal(name: &str, error: CacheError) -> DeviceError {
    match error {
        CacheError::Device(error) => error,
        error @ CacheError::Setting { .. } => {
            DeviceError::Setting { device: name.to_owned(), why: error.to_string() }
        }
        error => DeviceError::Open { device: name.to_owned(), source: io::Error::other(error.to_string()) },
    }
}

impl Device for CachedDevice {
    fn name(&self) -> &str {
        self.cache.name()
    }

    fn size_bytes(&self) -> u64 {
        self.cache.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.cache.read_at(offset, buffer)?;
        if self.is_watched { self.cache.check_unused_by_others(offset, buffer.len()) } else { Ok(()) }
    }

    fn submit_reads(&self, requests: &[ReadRequest]) -> Vec<PendingRead> {
        let submit = |request: &ReadRequest| {
            let (cache, ReadRequest { offset, length, .. }) = (Arc::clone(&self.cache), *request);
            let is_watched = self.is_watched;
            let answer = self.workers.submit(move || {
                let mut buffer = Buffer::new(length);
                cache.read_at(offset, &mut buffer)?;
                if is_watched {
                    cache.check_unused_by_others(offset, length)?;
                }
                Ok(buffer)
            });
            PendingRead::under_way(answer)
        };
        requests.iter().map(submit).collect()
    }

    fn forget_cached(&self, offset: u64, length: u64) {
        self.cache.disk.forget_cached(offset, length);
    }

    fn host_in_flight(&self) -> Option<u32> {
        self.cache.disk.host_in_flight()
    }

    fn class(&self) -> DeviceClass {
        self.cache.class()
    }

    fn queue_depth(&self) -> u32 {
        self.cache.queue_depth()
    }

    fn report(&self) -> Vec<(String, String)> {
        self.cache.status().lines()
    }

    fn change(&self, name: &str, value: &str) -> Result<(), DeviceError> {
        self.cache.change(name, value).map_err(|error| refusal(&self.cache.name, error))
    }
}

impl WritableDevice for CachedDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.cache.write_at(offset, bytes)
    }

    fn submit_write<'a>(&'a self, write: WriteRequest<'a>, batch: &mut Batch<'a>) {
        let length: usize = write.pieces.iter().map(|piece| piece.len()).sum();
        if length > COPIED_BYTES_MAX {
            return batch.answer(write_now(self, &write));
        }
        let (cache, bytes) = (Arc::clone(&self.cache), write.pieces.concat());
        let WriteRequest { offset, is_durable, .. } = write;
        let answer = self.workers.submit(move || {
            cache.write_at(offset, &bytes)?;
            if is_durable { cache.flush() } else { Ok(()) }
        });
        self.submit_now(answer, batch);
    }

    fn submit_flush<'a>(&'a self, batch: &mut Batch<'a>) {
        let cache = Arc::clone(&self.cache);
        let answer = self.workers.submit(move || cache.flush());
        self.submit_now(answer, batch);
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.cache.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.cache.discard(offset, length)
    }

    fn guard_reconnects(&self, guard: Arc<dyn ReconnectGuard>) {
        self.cache.lock().guard = Some(guard);
    }

    fn refresh_size(&self) -> Result<u64, DeviceError> {
        self.cache.refresh_size()
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.cache.set_size(size_bytes)
    }
}

/// A device that was opened to be read, in the place of a disk.
#[derive(Debug)]
struct ReadOnlyDevice(Arc<dyn Device>);

impl ReadOnlyDevice {
    fn refused(&self) -> DeviceError {
        let source = io::ErrorKind::ReadOnlyFilesystem.into();
        DeviceError::Flush { device: self.0.name().to_owned(), source }
    }
}

impl Device for ReadOnlyDevice {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read_at(offset, buffer)
    }

    fn submit_reads(&self, requests: &[ReadRequest]) -> Vec<PendingRead> {
        self.0.submit_reads(requests)
    }

    fn class(&self) -> DeviceClass {
        self.0.class()
    }

    fn queue_depth(&self) -> u32 {
        self.0.queue_depth()
    }
}

impl WritableDevice for ReadOnlyDevice {
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<(), DeviceError> {
        Err(self.refused())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Err(self.refused())
    }

    fn discard(&self, _offset: u64, _length: u64) -> Result<bool, DeviceError> {
        Ok(false)
    }

    fn set_size(&self, _size_bytes: u64) -> Result<(), DeviceError> {
        Err(self.refused())
    }
}
