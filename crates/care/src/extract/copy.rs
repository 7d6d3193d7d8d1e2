//! The contents of files.

use super::output_file::OutputFile;
use super::target::Directory;
use super::{Context, Failure, count};
use brindle_fs::{Attributes, FsError, OpenFile, Whence};
use brindle_ondisk::{to_u64, to_usize};
use rustix::io::Errno;
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

/// Files larger than this go out in segments of this size, in bytes.
pub(super) const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes that are read and written at once: few enough that they are still in the second-level cache of a core when
/// they are written.
const CHUNK_BYTES: u64 = 512 << 10;
/// Unit in bytes that is given up together where data can't be had.
const SECTOR_BYTES: usize = 4096;

/// A file that is filled, by one thread or by several. When it goes, which is after its last part, the file is finished.
pub(super) struct Filling<'c>(OutputFile<'c>);

impl<'c> Filling<'c> {
    /// Makes an empty file, to be filled in `parts` parts.
    pub(super) fn make(
        context: &'c Context<'c>,
        directory: Arc<Directory<'c>>,
        name: &[u8],
        attributes: Attributes,
        parts: u64,
    ) -> Result<Self, Errno> {
        OutputFile::make(context, directory, name, attributes, parts).map(Self)
    }

    /// Gives it one of the names that have been waiting.
    fn add_name(&self, directory: Arc<Directory<'c>>, name: &[u8]) {
        let Self(file) = self;
        match file.link(&directory, name) {
            Ok(true) => count(&file.context.counts.links),
            Ok(false) => {}
            Err(Errno::MLINK | Errno::XDEV) => whole(file.context, directory, name, file.attributes),
            Err(error) => file.context.fail(&directory.path_of(name), Failure::Link(error)),
        }
    }
}

impl<'c> Deref for Filling<'c> {
    type Target = OutputFile<'c>;

    fn deref(&self) -> &OutputFile<'c> {
        &self.0
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        let (is_published, names) = self.0.finish();
        for (directory, name) in names {
            if is_published {
                self.add_name(directory, &name);
            } else if !self.context.observer.is_stopped() {
                let first = String::from_utf8_lossy(&self.path);
                self.context.fail(&directory.path_of(&name), Failure::FirstLost(first.into_owned()));
            }
        }
    }
}

/// A piece of work.
pub(super) enum Job<'c> {
    /// A whole file, yet to be made.
    File {
        /// Directory.
        directory: Arc<Directory<'c>>,
        /// Its name there.
        name: Vec<u8>,
        /// Attributes of the file.
        attributes: Attributes,
    },
    /// Part of a file that has been made.
    Segment {
        /// The file.
        file: Arc<Filling<'c>>,
        /// The first byte.
        start: u64,
        /// The byte after the last.
        end: u64,
    },
}

/// Pieces of work that one thread does.
pub(super) type Batch<'c> = Vec<Job<'c>>;

/// Does jobs until there are no more.
pub(super) fn work<'c>(context: &'c Context<'c>, queue: &Mutex<Receiver<Batch<'c>>>) {
    loop {
        let batch = queue.lock().expect("no thread panics with it").recv();
        let Ok(batch) = batch else { return };
        for job in batch {
            if !context.observer.is_stopped() {
                act(context, job);
            }
        }
    }
}

fn act<'c>(context: &'c Context<'c>, job: Job<'c>) {
    match job {
        Job::File { directory, name, attributes } => whole(context, directory, &name, attributes),
        Job::Segment { file, start, end } => copy(context, &file, start..end),
    }
}

/// Makes and fills a file.
pub(super) fn whole<'c>(
    context: &'c Context<'c>,
    directory: Arc<Directory<'c>>,
    name: &[u8],
    attributes: Attributes,
) {
    let path = directory.path_of(name);
    match Filling::make(context, directory, name, attributes, 1) {
        Ok(file) => copy(context, &file, 0..file.attributes.size),
        Err(error) => context.fail(&path, Failure::Make(error)),
    }
}

/// Reason for which a range was not copied whole.
enum Cut {
    /// Part of it can't be read; the rest is right.
    Read(Failure),
    /// Output can't be written: the file is useless.
    Write(Failure),
    /// The observer has stopped it.
    Stopped,
}

impl From<FsError> for Cut {
    fn from(error: FsError) -> Self {
        Self::Read(error.into())
    }
}

/// Copies a range; what goes wrong is reported, once for each kind of failure.
fn copy(context: &Context<'_>, file: &OutputFile<'_>, range: Range<u64>) {
    match copy_range(context, file, range) {
        Ok(()) => file.part_is_done(),
        Err(Cut::Read(failure)) => {
            context.fail(&file.path, failure);
            file.is_damaged();
            match file.set_size() {
                Ok(()) => file.part_is_done(),
                Err(error) => context.fail(&file.path, Failure::Size(error)),
            }
        }
        Err(Cut::Write(failure)) => context.fail(&file.path, failure),
        Err(Cut::Stopped) => {}
    }
}

fn copy_range(context: &Context<'_>, file: &OutputFile<'_>, range: Range<u64>) -> Result<(), Cut> {
    if range.is_empty() {
        return Ok(());
    }
    let source = context.filesystem.open_file(file.attributes.id)?;
    let mut copy = Copy { context, file, source, lost_bytes: 0, first_error: None };
    let result = copy.data(range);
    if let Some(first) = copy.first_error {
        file.is_damaged();
        context.fail(&file.path, Failure::Unreadable { bytes: copy.lost_bytes, first });
    }
    result
}

/// A range that is being copied.
struct Copy<'a, 'c> {
    context: &'a Context<'a>,
    file: &'a OutputFile<'c>,
    source: OpenFile,
    lost_bytes: u64,
    first_error: Option<FsError>,
}

impl Copy<'_, '_> {
    /// Copies the data of the range, and leaves out the holes.
    fn data(&mut self, range: Range<u64>) -> Result<(), Cut> {
        let filesystem = self.context.filesystem;
        if !self.file.may_have_holes() {
            return self.run(range);
        }
        let mut at = range.start;
        while at < range.end {
            let seek = |from, whence| filesystem.seek(&self.source, from, whence);
            let Some(start) = seek(at, Whence::Data)?.filter(|start| *start < range.end) else {
                break;
            };
            let end = seek(start, Whence::Hole)?.unwrap_or(range.end).clamp(start, range.end);
            self.run(start..end)?;
            // A run of no length would never end.
            at = end.max(start + 1);
        }
        Ok(())
    }

    /// Copies a range without holes.
    fn run(&mut self, range: Range<u64>) -> Result<(), Cut> {
        let mut at = range.start;
        while at < range.end {
            if self.context.observer.is_stopped() {
                return Err(Cut::Stopped);
            }
            let end = range.end.min(at + CHUNK_BYTES);
            match self.context.filesystem.read_bytes(&self.source, at, to_usize(end - at)) {
                Ok(bytes) => {
                    let start = at;
                    for part in bytes.parts().filter(|part| !part.is_empty()) {
                        self.write(at, part)?;
                        at += to_u64(part.len());
                    }
                    if at == start {
                        return Err(Cut::Read(Failure::Short(at)));
                    }
                }
                Err(error) => {
                    self.first_error.get_or_insert(error);
                    self.salvage(at..end)?;
                    at = end;
                }
            }
        }
        Ok(())
    }

    /// Copies what can be had of a range, sector by sector; the rest is left a hole.
    fn salvage(&mut self, range: Range<u64>) -> Result<(), Cut> {
        self.file.set_size().map_err(|error| Cut::Write(Failure::SizeLost(error)))?;
        let (mut at, mut buffer) = (range.start, [0; SECTOR_BYTES]);
        while at < range.end {
            let sector = &mut buffer[..SECTOR_BYTES.min(to_usize(range.end - at))];
            match self.context.filesystem.read(&self.source, at, sector) {
                Ok(read) => self.write(at, &sector[..read])?,
                Err(_) => self.lost_bytes += to_u64(sector.len()),
            }
            at += to_u64(sector.len());
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Cut> {
        let written = self.file.file().write_all_at(bytes, at);
        written.map_err(|error| Cut::Write(Failure::Write(error)))?;
        let bytes = to_u64(bytes.len());
        self.context.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.context.observer.wrote(bytes);
        Ok(())
    }
}
