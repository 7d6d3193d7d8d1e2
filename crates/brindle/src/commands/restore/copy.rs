//! The contents of files.

use super::Context;
use super::target::{Directory, OutputFile};
use brindle_fs::{Attributes, FsError, OpenFile, Whence};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

/// Files larger than this go out in segments of this size, in bytes.
pub(super) const SEGMENT_BYTES: u64 = 64 << 20;
/// How much is read and written at once, in bytes.
const CHUNK_BYTES: usize = 4 << 20;
/// What is given up together where bytes can't be had.
const SECTOR_BYTES: usize = 4096;

/// A piece of work.
pub(super) enum Job<'c> {
    /// A whole file, yet to be made.
    File {
        /// Where.
        directory: Arc<Directory<'c>>,
        /// Its name there.
        name: Vec<u8>,
        /// Which file, and what it is to look like.
        attributes: Attributes,
    },
    /// Part of a file that has been made.
    Segment {
        /// The file.
        file: Arc<OutputFile<'c>>,
        /// The first byte.
        start: u64,
        /// The byte after the last.
        end: u64,
    },
}

/// Pieces of work that one thread does.
pub(super) type Batch<'c> = Vec<Job<'c>>;

/// Does jobs until there are no more.
pub(super) fn work<'c>(context: &'c Context, queue: &Mutex<Receiver<Batch<'c>>>) {
    let mut buffer = Vec::new();
    loop {
        let batch = queue.lock().expect("no thread panics with it").recv();
        let Ok(batch) = batch else { return };
        batch.into_iter().for_each(|job| act(context, job, &mut buffer));
    }
}

fn act<'c>(context: &'c Context, job: Job<'c>, buffer: &mut Vec<u8>) {
    match job {
        Job::File { directory, name, attributes } => {
            let path = directory.path_of(&name);
            match OutputFile::make(context, directory, &name, attributes) {
                Ok(file) => copy(context, &file, 0..file.attributes.size, buffer),
                Err(error) => context.report.fail(&path, &format_args!("cannot make it: {error}")),
            }
        }
        Job::Segment { file, start, end } => copy(context, &file, start..end, buffer),
    }
}

/// Copies a range; what goes wrong is reported, once for each kind of failure.
fn copy(context: &Context, file: &OutputFile<'_>, range: std::ops::Range<u64>, buffer: &mut Vec<u8>) {
    if range.is_empty() {
        return;
    }
    let source = match context.filesystem.open_file(file.attributes.id) {
        Ok(source) => source,
        Err(error) => return context.report.fail(&file.path, &error),
    };
    let length =
        usize::try_from(range.end - range.start).map_or(CHUNK_BYTES, |length| length.min(CHUNK_BYTES));
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    let mut copy = Copy { context, file, source, lost_bytes: 0, first_error: None };
    if let Err(error) = copy.data(range, &mut buffer[..]) {
        context.report.fail(&file.path, &error);
    }
    if let Some(error) = copy.first_error {
        let lost = copy.lost_bytes;
        context.report.fail(&file.path, &format_args!("{lost} bytes can't be read, first: {error}"));
    }
}

/// A range that is being copied.
struct Copy<'a, 'c> {
    context: &'a Context,
    file: &'a OutputFile<'c>,
    source: OpenFile,
    lost_bytes: u64,
    first_error: Option<FsError>,
}

impl Copy<'_, '_> {
    /// Copies the data of the range, and leaves out the holes.
    fn data(&mut self, range: std::ops::Range<u64>, buffer: &mut [u8]) -> Result<(), String> {
        let filesystem = &self.context.filesystem;
        if !self.file.may_have_holes() {
            return self.run(range, buffer);
        }
        let mut at = range.start;
        while at < range.end {
            let seek = |from, whence| filesystem.seek(&self.source, from, whence).map_err(|e| e.to_string());
            let Some(start) = seek(at, Whence::Data)?.filter(|start| *start < range.end) else {
                break;
            };
            let end = seek(start, Whence::Hole)?.unwrap_or(range.end).clamp(start, range.end);
            self.run(start..end, buffer)?;
            // A run of no length would never end.
            at = end.max(start + 1);
        }
        Ok(())
    }

    /// Copies a range without holes.
    fn run(&mut self, range: std::ops::Range<u64>, buffer: &mut [u8]) -> Result<(), String> {
        let mut at = range.start;
        while at < range.end {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let want = left.min(buffer.len());
            let read = self.context.filesystem.read(&self.source, at, &mut buffer[..want]);
            match read {
                Ok(0) => return Err(format!("ends at {at}, before its size")),
                Ok(read) => self.write(at, &buffer[..read])?,
                Err(error) => {
                    self.first_error.get_or_insert(error);
                    self.salvage(at, &mut buffer[..want])?;
                    at += brindle_ondisk::to_u64(want);
                    continue;
                }
            }
            at += read.map_or(0, brindle_ondisk::to_u64);
        }
        Ok(())
    }

    /// Copies what can be had of a range, sector by sector; the rest is left a hole.
    fn salvage(&mut self, start: u64, buffer: &mut [u8]) -> Result<(), String> {
        self.file.set_size().map_err(|error| format!("cannot set its size: {error}"))?;
        let mut at = start;
        for sector in buffer.chunks_mut(SECTOR_BYTES) {
            match self.context.filesystem.read(&self.source, at, sector) {
                Ok(read) => self.write(at, &sector[..read])?,
                Err(_) => self.lost_bytes += brindle_ondisk::to_u64(sector.len()),
            }
            at += brindle_ondisk::to_u64(sector.len());
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.file.file.write_all_at(bytes, at).map_err(|error| format!("cannot write: {error}"))?;
        self.context.report.add_bytes(brindle_ondisk::to_u64(bytes.len()));
        Ok(())
    }
}
