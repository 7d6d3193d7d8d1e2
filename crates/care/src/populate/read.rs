//! Reading ahead: threads read and encode what the writer will want next, and it comes out in order.

use super::PopulateError;
use super::layout::Layout;
use super::scan::{Source, SourceEntry};
use brindle_fs::{BulkFormat, BulkPiece, FileType, InodeFlags, Xattr};
use brindle_ondisk::{to_u64, to_usize};
use rustix::fs::{OFlags, SeekFrom, lgetxattr, llistxattr};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Files are read in parts of this size, in bytes, and small ones together up to it.
const PART_BYTES: u64 = 4 << 20;
/// Upper bound on inodes that are read together.
const PART_INODES: usize = 64;
/// Upper bound on data that is read ahead of the writer, in bytes.
const AHEAD_BYTES: u64 = 64 << 20;
/// Weight of an inode beside its contents, in bytes.
const INODE_BYTES: u64 = 1024;

/// The longest list of names, and the longest value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`), in bytes.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Unit of work of a reading thread: parts of files, or whole ones, in order.
#[derive(Debug, Default)]
struct Job {
    parts: Vec<Part>,
    /// Weight of this job and those before it, in bytes.
    bytes_to_here: u64,
}

/// A part of a file, or another inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) entry: usize,
    /// Range in the file: start and end, in bytes.
    pub(super) from: u64,
    pub(super) to: u64,
}

/// A part that has been read.
#[derive(Debug)]
pub(super) struct ReadPart {
    pub(super) part: Part,
    /// Extended attributes; only of the first part.
    pub(super) xattrs: Vec<Xattr>,
    /// Target of a symbolic link.
    pub(super) target: Vec<u8>,
    pub(super) pieces: Vec<BulkPiece>,
    /// True if it has become shorter since it was looked at.
    pub(super) is_cut: bool,
}

impl ReadPart {
    /// Returns true if the inode begins here.
    pub(super) fn is_first(&self) -> bool {
        self.part.from == 0
    }
}

/// State shared by all threads.
pub(super) struct Reading<'a> {
    source: &'a Source,
    layout: &'a Layout,
    format: BulkFormat,
    jobs: Vec<Job>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The next job to be begun.
    next: usize,
    /// The job that the writer waits for.
    wanted: usize,
    is_over: bool,
    done: BTreeMap<usize, Result<Vec<ReadPart>, PopulateError>>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(source: &'a Source, layout: &'a Layout, format: BulkFormat) -> Self {
        let inodes = layout.subvolumes.iter().flat_map(|subvolume| &subvolume.inodes);
        let jobs = jobs(source, inodes.copied());
        Self { source, layout, format, jobs, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Loop of a thread until there is nothing more to read.
    pub(super) fn work(&self) {
        loop {
            let mut state = self.state();
            let at = loop {
                let at = state.next;
                if state.is_over || at >= self.jobs.len() {
                    return;
                }
                let consumed = state.wanted.checked_sub(1).map_or(0, |last| self.jobs[last].bytes_to_here);
                if at == state.wanted || self.jobs[at].bytes_to_here - consumed <= AHEAD_BYTES {
                    break at;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            state.next += 1;
            drop(state);
            let read = self.read_job(&self.jobs[at]);
            let mut state = self.state();
            state.done.insert(at, read);
            let is_wanted = state.wanted == at;
            drop(state);
            if is_wanted {
                self.changed.notify_all();
            }
        }
    }

    /// A bug that shows here is an error of the pool that is made: the writer waits for an answer.
    fn read_job(&self, job: &Job) -> Result<Vec<ReadPart>, PopulateError> {
        let read = AssertUnwindSafe(|| job.parts.iter().map(|part| self.read(*part)).collect());
        catch_unwind(read).unwrap_or_else(|_| {
            let path = job.parts.first().map(|part| self.source.path(part.entry)).unwrap_or_default();
            Err(PopulateError::Panic { path })
        })
    }

    /// The next parts, in order; `None` after the last.
    pub(super) fn next(&self) -> Option<Result<Vec<ReadPart>, PopulateError>> {
        let mut state = self.state();
        if state.wanted == self.jobs.len() {
            return None;
        }
        loop {
            let wanted = state.wanted;
            if let Some(read) = state.done.remove(&wanted) {
                state.wanted += 1;
                drop(state);
                self.changed.notify_all();
                return Some(read);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the work of all threads.
    pub(super) fn stop(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, part: Part) -> Result<ReadPart, PopulateError> {
        let path = self.source.path(part.entry);
        self.read_at(part, &path).map_err(|source| PopulateError::Source { path, source })
    }

    fn read_at(&self, part: Part, path: &Path) -> io::Result<ReadPart> {
        let entry = &self.source.entries[part.entry];
        let xattrs = if part.from == 0 { xattrs(path)? } else { Vec::new() };
        let mut read = ReadPart { part, xattrs, target: Vec::new(), pieces: Vec::new(), is_cut: false };
        match entry.kind {
            FileType::Symlink => read.target = fs::read_link(path)?.into_os_string().into_vec(),
            FileType::Regular if part.to > 0 => self.read_file(entry, path, &mut read)?,
            _ => {}
        }
        Ok(read)
    }

    fn read_file(&self, entry: &SourceEntry, path: &Path, read: &mut ReadPart) -> io::Result<()> {
        let file = open(path)?;
        let (from, to) = (read.part.from, read.part.to);
        let flags = self.layout.seats[read.part.entry].flags;
        let has_checksums = !flags.contains(InodeFlags::NODATASUM);
        let format = if has_checksums { self.format } else { self.format.without_compression() };
        if !entry.may_have_holes() {
            let contents = contents(&file, from, to, &mut read.is_cut)?;
            read.pieces = match format.is_inline(entry.size) {
                true => vec![format.encode_inline(contents)],
                false => format.encode(from, contents, has_checksums),
            };
            return Ok(());
        }
        // Ranges of contents, in whole sectors.
        let sector = format.sector();
        let mut at = from;
        while at < to {
            let begin = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(begin) => begin / sector * sector,
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            if begin >= to {
                break;
            }
            let begin = begin.max(at);
            let end = match rustix::fs::seek(&file, SeekFrom::Hole(begin.max(at))) {
                Ok(end) => end.next_multiple_of(sector).min(to),
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            let end = end.max(begin + sector.min(to - begin));
            let contents = contents(&file, begin, end, &mut read.is_cut)?;
            if begin == 0 && end == entry.size && format.is_inline(entry.size) {
                read.pieces.push(format.encode_inline(contents));
            } else {
                read.pieces.extend(format.encode(begin, contents, has_checksums));
            }
            at = end;
        }
        Ok(())
    }
}

/// Cuts the work: inodes in order, long files in parts.
fn jobs(source: &Source, inodes: impl Iterator<Item = usize>) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let (mut job, mut bytes, mut total) = (Job::default(), 0, 0);
    for entry in inodes {
        let size = source.entries[entry].size;
        let mut from = 0;
        loop {
            let to = size.min(from + PART_BYTES);
            job.parts.push(Part { entry, from, to });
            bytes += to - from + INODE_BYTES;
            if bytes >= PART_BYTES || job.parts.len() >= PART_INODES {
                total += bytes;
                bytes = 0;
                job.bytes_to_here = total;
                jobs.push(std::mem::take(&mut job));
            }
            from = to;
            if to == size {
                break;
            }
        }
    }
    if !job.parts.is_empty() {
        job.bytes_to_here = total + bytes;
        jobs.push(job);
    }
    jobs
}

/// Opens a file, without its time of access being changed if that can be had. What is a link by now is not followed,
/// a pipe not waited for.
fn open(path: &Path) -> io::Result<File> {
    let open = |flags: OFlags| {
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK | flags).bits())
            .expect("flags of open are of its width");
        OpenOptions::new().read(true).custom_flags(flags).open(path)
    };
    match open(OFlags::NOATIME) {
        // Only its owner may read it without an access time.
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => open(OFlags::empty()),
        opened => opened,
    }
}

fn contents(file: &File, from: u64, to: u64, is_cut: &mut bool) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; to_usize(to - from)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], from + to_u64(filled)) {
            Ok(0) => {
                *is_cut = true;
                break;
            }
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// The extended attributes of a file, a link itself, or whatever it is.
fn xattrs(path: &Path) -> io::Result<Vec<Xattr>> {
    let names = match with_room(|buffer| llistxattr(path, buffer)) {
        Ok(names) => names,
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        match with_room(|buffer| lgetxattr(path, name, buffer)) {
            Ok(value) => found.push(Xattr { name: name.to_vec(), value }),
            // It has gone meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Calls with a small buffer, and with the largest that is ever needed if that does not do.
fn with_room(call: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut small = [0; 512];
    match call(&mut small) {
        Ok(length) => Ok(small[..length].to_vec()),
        Err(Errno::RANGE) => {
            let mut large = vec![0; XATTR_BYTES_MAX];
            let length = call(&mut large)?;
            large.truncate(length);
            Ok(large)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::{MkfsOptions, NewDevice, mkfs};
    use crate::populate::PopulateOptions;
    use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
    use brindle_fs::Filesystem;
    use brindle_ondisk::Uuid;
    use std::sync::Arc;

    #[test]
    fn reader_that_panics_leaves_no_thread_waiting() {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::write(directory.path().join("file"), "contents").expect("room");
        let source = Source::scan(directory.path()).expect("it can be read");
        let mut layout = Layout::new(&source, &PopulateOptions::default()).expect("nothing is asked for");
        // Now the file is nowhere in the pool.
        layout.seats.truncate(1);
        let device = Arc::new(SparseDevice::new("x", 200 << 20, DeviceClass::Solid));
        let options = MkfsOptions::new(Uuid([1; 16]), [1; 16], 7);
        mkfs(&[NewDevice::new(Arc::clone(&device) as Arc<dyn WritableDevice>)], &options).expect("room");
        let filesystem = Filesystem::open(vec![device], &brindle_fs::OpenOptions::default()).expect("a pool");
        let reading = Reading::new(&source, &layout, filesystem.bulk_format());
        std::thread::scope(|scope| {
            scope.spawn(|| reading.work());
            let read = reading.next().expect("there is a file");
            assert!(matches!(read, Err(PopulateError::Panic { .. })), "{read:?}");
            reading.stop();
        });
    }
}
