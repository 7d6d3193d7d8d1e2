//! An image file or a block device, through the host's page cache but for large writes.

use crate::claim::{Claim, check_unclaimed, claim_image, refusal};
use crate::class::{
    can_discard, in_flight, is_write_protected, parse_in_flight, prefetch_bytes, queue_depth,
};
use crate::direct::{DirectFile, UncachedReader};
use crate::durable::{DurableKind, DurableRequests};
use crate::engine::{self, FileRequest, Target};
use crate::pieces::write_all_vectored;
use crate::residency::cached_bytes;
use crate::{
    Batch, Device, DeviceClass, DeviceError, Extent, Meter, Operation, PendingRead, ReadRequest,
    WritableDevice, WriteRequest, wait, zero_by_writing,
};
use rustix::fs::{
    Advice, FallocateFlags, FileType, OFlags, SeekFrom, fadvise, fallocate, fstat, fstatfs, seek,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// An image file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    name: Arc<str>,
    file: Arc<File>,
    /// For large writes, if it is a block device that is written, or an image for which that was asked.
    direct: OnceLock<Option<DirectFile>>,
    /// Number of those that asked for it; a block device needs none.
    bypasses: AtomicUsize,
    /// For reads past the host's cache, once there was one.
    uncached: OnceLock<Option<UncachedReader>>,
    size_bytes: AtomicU64,
    is_block_device: bool,
    can_discard: bool,
    class: DeviceClass,
    queue_depth: u32,
    /// The file in which the host counts waiting requests, once it was asked for.
    in_flight: OnceLock<Option<File>>,
    /// Bytes that one hint fetches; the kernel cuts longer ones short.
    prefetch_bytes: u64,
    meter: Arc<Meter>,
    durable: DurableRequests,
}

impl FileDevice {
    /// Opens `path` for reading.
    pub fn open(path: &Path) -> Result<Self, DeviceError> {
        let device = Self::open_with(path, OpenOptions::new().read(true))?;
        // The pool's own readahead knows what comes next; the host's would fetch what does not.
        let _ = fadvise(&device.file, 0, None, Advice::Random);
        Ok(device)
    }

    /// Opens `path` for reading and writing, and keeps others out: a block device that is claimed (by a
    /// mount, say) is refused, and so is an image behind a loop device or open for writing here twice.
    pub fn open_writable(path: &Path) -> Result<Self, DeviceError> {
        // Of a block device, O_EXCL asks whether it is claimed; of a file it means nothing here.
        Self::open_to_write(path, OFlags::EXCL)
    }

    /// Opens `path` as [`open_writable`](Self::open_writable) does, with the claim on a block device apart.
    ///
    /// # Errors
    /// As [`open_writable`](Self::open_writable).
    pub fn open_with_claim(path: &Path) -> Result<(Self, Option<Claim>), DeviceError> {
        let is_block_device = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
        if !is_block_device {
            return Ok((Self::open_writable(path)?, None));
        }
        let claim = Claim::new(path)?;
        Ok((Self::open_to_write(path, OFlags::empty())?, Some(claim)))
    }

    fn open_to_write(path: &Path, flags: OFlags) -> Result<Self, DeviceError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags.bits() as i32);
        let mut device = Self::open_with(path, &options)?;
        if !device.is_block_device {
            claim_image(&device.file, path)?;
        } else if fstat(&device.file).is_ok_and(|stat| is_write_protected(&stat)) {
            return Err(DeviceError::Open { device: device.name.to_string(), source: Errno::ROFS.into() });
        } else {
            device.direct = OnceLock::from(DirectFile::of(path, &device.file));
        }
        Ok(device)
    }

    /// Refuses a device that another user writes, as [`open_writable`](Self::open_writable) does, and claims nothing.
    ///
    /// # Errors
    /// [`DeviceError::Busy`].
    pub fn check_unclaimed(&self) -> Result<(), DeviceError> {
        check_unclaimed(&self.file, Path::new(&*self.name), self.is_block_device)
    }

    /// Makes an image file of this size, all zeros, and opens it as [`FileDevice::open_writable`] does. A file
    /// that is there already is refused.
    pub fn create(path: &Path, size_bytes: u64) -> Result<Self, DeviceError> {
        let device = path.display().to_string();
        let created = OpenOptions::new().write(true).create_new(true).open(path);
        created.map_err(|source| DeviceError::Open { device, source })?;
        let device = Self::open_writable(path)?;
        device.set_size(size_bytes)?;
        Ok(device)
    }

    /// Returns true for a block device, false for an image file.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Returns true if short writes are a copy into memory of the host, as a rule; of a file that another program serves (FUSE), each
    /// may be a wait for that program.
    pub fn is_host_cached(&self) -> bool {
        const FUSE: i64 = 0x6573_5546;
        self.is_block_device || fstatfs(&self.file).is_ok_and(|found| found.f_type != FUSE)
    }

    /// Returns true if other machines may write the file beside this one.
    fn is_of_network(&self) -> bool {
        if self.is_block_device {
            return false;
        }
        // NFS, SMB (two numbers), Ceph, 9P, FUSE.
        const KINDS: [u32; 6] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400, 0x0102_1997, 0x6573_5546];
        fstatfs(&self.file).is_ok_and(|found| KINDS.iter().any(|kind| i64::from(*kind) == found.f_type))
    }

    fn open_with(path: &Path, options: &OpenOptions) -> Result<Self, DeviceError> {
        let name = path.display().to_string();
        let failed = |source: io::Error| refusal(path, source);
        // A fifo would block in open(2), so look before opening.
        let found = std::fs::metadata(path).map_err(failed)?;
        if !is_supported(FileType::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&found))) {
            return Err(DeviceError::NotADevice { device: name });
        }
        let file = options.open(path).map_err(failed)?;
        let stat = fstat(&file).map_err(|errno| failed(errno.into()))?;
        let is_block_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
        // A block device's stat says 0, its end says its size.
        let size_bytes = seek(&file, SeekFrom::End(0)).map_err(|errno| failed(errno.into()))?;
        let class = DeviceClass::of(&stat, is_block_device);
        let queue_depth = queue_depth(&stat, is_block_device);
        let prefetch_bytes = prefetch_bytes(&stat, is_block_device);
        let can_discard = !is_block_device || can_discard(&stat);
        let size_bytes = AtomicU64::new(size_bytes);
        let direct = OnceLock::new();
        Ok(Self {
            name: name.into(),
            file: Arc::new(file),
            direct,
            bypasses: AtomicUsize::new(0),
            uncached: OnceLock::new(),
            size_bytes,
            is_block_device,
            can_discard,
            class,
            queue_depth,
            in_flight: OnceLock::new(),
            prefetch_bytes,
            meter: Arc::default(),
            durable: DurableRequests::default(),
        })
    }

    /// Fills as much of `buffer` as the host has in memory; how much.
    fn read_at_hand(&self, offset: u64, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        preadv2(&self.file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT)
    }

    /// The file as it was opened first.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Counters of its requests.
    pub(crate) fn meter_of_requests(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Failures that its durable requests were told.
    pub(crate) fn durable_requests(&self) -> &DurableRequests {
        &self.durable
    }

    fn flush_as(&self, kind: DurableKind) -> Result<(), DeviceError> {
        let arrival = self.durable.arrive();
        let mut turn = self.durable.turn();
        let flush = || {
            let _metered = self.meter.begin(Operation::Flush, 0, 0);
            self.file.sync_all()
        };
        let answer = match kind {
            DurableKind::Flush => turn.flush(arrival, flush),
            DurableKind::Write => turn.judge(kind, arrival, flush()),
        };
        answer.map_err(|source| DeviceError::Flush { device: self.name.to_string(), source })
    }

    /// The way around the host's cache, if adjacent pieces are to take it.
    pub(crate) fn direct_for(&self, offset: u64, pieces: &[&[u8]]) -> Option<&DirectFile> {
        if !self.is_block_device && self.bypasses.load(Relaxed) == 0 {
            return None;
        }
        self.direct.get().and_then(Option::as_ref).filter(|direct| direct.wants(offset, pieces))
    }

    /// Submits reads that lie within the device; of neighbours that take the same way, all together.
    fn submit_inside(&self, cached: &Target, requests: &[ReadRequest]) -> Vec<PendingRead> {
        let bypasses = |read: &ReadRequest| {
            read.bypasses_cache
                && UncachedReader::takes(read.offset, read.length)
                && self.uncached().is_some()
        };
        let same_way = requests.chunk_by(|one, next| bypasses(one) == bypasses(next));
        let submit = |group: &[ReadRequest]| match self.uncached().filter(|_| bypasses(&group[0])) {
            Some(reader) => {
                engine::submit(&Target { file: Arc::clone(reader.file()), ..cached.clone() }, group)
            }
            None => engine::submit(cached, group),
        };
        same_way.flat_map(submit).collect()
    }

    /// The way past the host's cache, if there is one. Of a file that another program or machine serves, the cache is all that is
    /// near.
    fn uncached(&self) -> Option<&UncachedReader> {
        let open = || if self.is_of_network() { None } else { UncachedReader::of(&self.file) };
        self.uncached.get_or_init(open).as_ref()
    }

    fn check_range(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        let size_bytes = self.size_bytes();
        if fits(offset, length, size_bytes) {
            return Ok(());
        }
        Err(DeviceError::BeyondEnd { device: self.name.to_string(), offset, length, size_bytes })
    }
}

fn is_supported(kind: FileType) -> bool {
    matches!(kind, FileType::RegularFile | FileType::BlockDevice)
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Relaxed)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let length = buffer.len();
        self.check_range(offset, length)?;
        let failed = |source| DeviceError::Read { device: self.name.to_string(), offset, length, source };
        let _metered = self.meter.begin(Operation::Read, offset, length as u64);
        let mut at_hand = 0;
        if wait::is_awaited() {
            at_hand = self.read_at_hand(offset, buffer).unwrap_or(0);
            if at_hand == length {
                return Ok(());
            }
            wait::announce();
        }
        self.file.read_exact_at(&mut buffer[at_hand..], offset + at_hand as u64).map_err(failed)
    }

    fn submit_reads(&self, requests: &[ReadRequest]) -> Vec<PendingRead> {
        let beyond = requests.iter().position(|read| self.check_range(read.offset, read.length).is_err());
        let (inside, outside) = requests.split_at(beyond.unwrap_or(requests.len()));
        let target = Target {
            file: Arc::clone(&self.file),
            name: Arc::clone(&self.name),
            meter: Arc::clone(&self.meter),
        };
        let mut pending = self.submit_inside(&target, inside);
        // A request beyond the end ends the batch; the rest is answered by itself.
        if let Some((beyond, rest)) = outside.split_first() {
            let refused = self.check_range(beyond.offset, beyond.length).map(|()| crate::Buffer::new(0));
            pending.push(PendingRead::answered(refused));
            pending.extend(self.submit_reads(rest));
        }
        pending
    }

    fn prefetch(&self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length).min(self.size_bytes());
        let mut at = offset;
        while at < end {
            let piece = self.prefetch_bytes.min(end - at);
            if fadvise(&self.file, at, NonZeroU64::new(piece), Advice::WillNeed).is_err() {
                return false;
            }
            at += piece;
        }
        true
    }

    fn cached_bytes(&self, offset: u64, length: u64) -> Option<u64> {
        self.uncached()?;
        cached_bytes(&self.file, offset, length)
    }

    fn extent_at(&self, offset: u64, length: u64) -> Result<Extent, DeviceError> {
        let data = Extent { length, is_hole: false };
        self.check_range(offset, usize::try_from(length).unwrap_or(usize::MAX))?;
        if self.is_block_device {
            return Ok(data);
        }
        let failed = |errno: Errno| {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            DeviceError::Read { device: self.name.to_string(), offset, length, source: errno.into() }
        };
        match seek(&self.file, SeekFrom::Data(offset)) {
            // Data begins later, or nowhere.
            Ok(at) if at > offset => Ok(Extent { length: length.min(at - offset), is_hole: true }),
            Err(Errno::NXIO) => Ok(Extent { length, is_hole: true }),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(data),
            Err(errno) => Err(failed(errno)),
            // The file may be cut short meanwhile; its end is a hole.
            Ok(_) => match seek(&self.file, SeekFrom::Hole(offset)) {
                Ok(at) if at > offset => Ok(Extent { length: length.min(at - offset), is_hole: false }),
                Ok(_) | Err(Errno::NXIO) => Ok(data),
                Err(errno) => Err(failed(errno)),
            },
        }
    }

    fn forget_cached(&self, offset: u64, length: u64) {
        // Whole pages alone are forgotten.
        const PAGE: u64 = 4096;
        let start = offset / PAGE * PAGE;
        let length = (offset + length).next_multiple_of(PAGE) - start;
        let _ = fadvise(&self.file, start, NonZeroU64::new(length), Advice::DontNeed);
    }

    fn read_uncached(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let length = buffer.len();
        self.check_range(offset, length)?;
        if !self.is_block_device {
            // Processes of this host see each other's writes of a file; those of another one may not be in its cache.
            if self.is_of_network() {
                self.forget_cached(offset, length as u64);
            }
            return self.read_at(offset, buffer);
        }
        let metered = self.meter.begin(Operation::Read, offset, length as u64);
        match self.uncached().map(|reader| reader.read(offset, buffer)) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) if error.raw_os_error() != Some(Errno::INVAL.raw_os_error()) => {
                Err(DeviceError::Read { device: self.name.to_string(), offset, length, source: error })
            }
            _ => {
                drop(metered);
                self.forget_cached(offset, length as u64);
                self.read_at(offset, buffer)
            }
        }
    }

    fn meter(&self) -> Option<&Meter> {
        Some(&self.meter)
    }

    fn class(&self) -> DeviceClass {
        self.class
    }

    fn host_in_flight(&self) -> Option<u32> {
        let open = || in_flight(&fstat(&self.file).ok().filter(|_| self.is_block_device)?);
        let file = self.in_flight.get_or_init(open).as_ref()?;
        let mut text = [0; 64];
        let length = file.read_at(&mut text, 0).ok()?;
        parse_in_flight(std::str::from_utf8(text.get(..length)?).ok()?)
    }

    fn queue_depth(&self) -> u32 {
        self.queue_depth
    }
}

impl WritableDevice for FileDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check_range(offset, bytes.len())?;
        let _metered = self.meter.begin(Operation::Write, offset, bytes.len() as u64);
        let (device, length) = (self.name.to_string(), bytes.len() as u64);
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|source| DeviceError::Write { device, offset, length, source })
    }

    fn write_pieces_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.check_range(offset, length)?;
        let _metered = self.meter.begin(Operation::Write, offset, length as u64);
        let device = self.name.to_string();
        let written = match self.direct_for(offset, pieces).map(|direct| direct.write(offset, pieces)) {
            Some(Ok(true)) => return Ok(()),
            Some(Err(source)) => Err(source),
            None | Some(Ok(false)) => write_all_vectored(&self.file, offset, pieces),
        };
        written.map_err(|source| DeviceError::Write { device, offset, length: length as u64, source })
    }

    fn submit_write<'a>(&'a self, write: WriteRequest<'a>, batch: &mut Batch<'a>) {
        let length = write.pieces.iter().map(|piece| piece.len()).sum();
        match self.check_range(write.offset, length) {
            Ok(()) => batch.plan(FileRequest::write(self, write)),
            Err(error) => batch.answer(Err(error)),
        }
    }

    fn submit_flush<'a>(&'a self, batch: &mut Batch<'a>) {
        batch.plan(FileRequest::flush(self));
    }

    fn bypass_cache(&self) {
        // By its descriptor: whatever its name stands for by now, this is the same file.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        self.direct.get_or_init(|| DirectFile::of(Path::new(&path), &self.file));
        self.bypasses.fetch_add(1, Relaxed);
    }

    fn return_to_cache(&self) {
        let before = self.bypasses.fetch_sub(1, Relaxed);
        assert!(before > 0, "{}: the cache is returned to as often as it is bypassed", self.name);
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flush_as(DurableKind::Flush)
    }

    fn flush_for_write(&self) -> Result<(), DeviceError> {
        self.flush_as(DurableKind::Write)
    }

    fn submit_write_out<'a>(&'a self, batch: &mut Batch<'a>) {
        // The same file, opened once more: the host tells a failure of its writes once to each that was open then.
        match File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd())) {
            Ok(again) => batch.plan(FileRequest::write_out(self, again)),
            Err(_) => batch.answer(Ok(())),
        }
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let end = offset.saturating_add(length).min(self.size_bytes());
        if offset >= end {
            return Ok(true);
        }
        if !self.can_discard {
            return Ok(false);
        }
        let _metered = self.meter.begin(Operation::Discard, offset, end - offset);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, offset, end - offset) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(errno) => {
                let (device, length) = (self.name.to_string(), end - offset);
                Err(DeviceError::Write { device, offset, length, source: errno.into() })
            }
        }
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.check_range(offset, usize::try_from(length).unwrap_or(usize::MAX))?;
        if length == 0 {
            return Ok(());
        }
        let _metered = self.meter.begin(Operation::Write, offset, length);
        match fallocate(&self.file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, length) {
            Ok(()) => Ok(()),
            // Filesystems without it, and hosts that cut it short: zeros are bytes as others.
            Err(_) => zero_by_writing(self, offset, length),
        }
    }

    fn refresh_size(&self) -> Result<u64, DeviceError> {
        let failed = |errno: Errno| DeviceError::Open { device: self.name.to_string(), source: errno.into() };
        let size_bytes = seek(&self.file, SeekFrom::End(0)).map_err(failed)?;
        self.size_bytes.store(size_bytes, Relaxed);
        Ok(size_bytes)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        let device = self.name.to_string();
        if self.is_block_device {
            return Err(DeviceError::FixedSize { device });
        }
        let set = self.file.set_len(size_bytes);
        set.map_err(|source| DeviceError::SetSize { device, size_bytes, source })?;
        self.size_bytes.store(size_bytes, Relaxed);
        Ok(())
    }
}

/// Returns true if `length` bytes at `offset` lie within `size_bytes`.
pub(crate) fn fits(offset: u64, length: usize, size_bytes: u64) -> bool {
    offset.checked_add(length as u64).is_some_and(|end| end <= size_bytes)
}

#[cfg(test)]
mod tests;
