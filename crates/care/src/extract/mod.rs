//! Extraction: files out of a pool that is not mounted, into a directory of the host.
//!
//! One thread walks the tree ([`walk`]), makes directories and hands each file to a pool of threads
//! ([`copy`]) through a bounded queue; big files go out in segments, so that no single one keeps the others
//! waiting. Owner, mode and times of a directory are set when the last piece of work
//! below it is done, which is when the last reference to it goes ([`target::Directory`]).
//!
//! A file gets its name when it is whole ([`unfinished`]); the observer can end the work between two reads, which
//! leaves whole files only. It gets its times when it is durable ([`durable`]), so that a later extraction knows by size and
//! time of modification which files are whole ([`standing`]), whatever ended this one: a signal, or the loss of power. A failure is
//! told, and the rest goes on.
//!
//! [`survey`] goes the same way and writes nothing.
//!
//! Everything in the destination is reached by descriptor and name, never by path, and without following
//! symbolic links: a hostile pool cannot write outside it.

mod copy;
mod durable;
mod error;
mod listing;
mod metadata;
mod output_file;
mod standing;
mod survey;
mod target;
mod unfinished;
mod walk;

pub use error::{ExtractError, Failure, Note};
pub use survey::survey;

use brindle_fs::{FileType, Filesystem, InodeId};
use copy::Batch;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use target::{Directory, LastMessage};
use walk::Walk;

/// Options of an extraction.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExtractOptions {
    /// Files that exist are replaced; otherwise they are failures, and stay.
    pub overwrite: bool,
    /// The destination has part of the same tree: what is whole there stays, and what differs is replaced by its like.
    pub resume: bool,
    /// Subvolumes below are left out.
    pub one_subvolume: bool,
    /// True if owners, set-id bits and device nodes can be made.
    pub is_root: bool,
    /// Number of copying threads; `None` for the number of processors, at least 4.
    pub threads: Option<usize>,
}

impl ExtractOptions {
    /// Returns true if what is in the way may be replaced: anything but a directory, or its like.
    fn replaces(&self) -> bool {
        self.overwrite || self.resume
    }
}

/// Receiver of progress, notes and failures, by any thread. Paths are those from the destination on.
pub trait ExtractObserver: Sync {
    /// Returns true if the work is to stop.
    fn is_stopped(&self) -> bool;
    /// A directory was made, and is entered.
    fn entered(&self, path: &[u8]);
    /// Bytes of a file were written.
    fn wrote(&self, bytes: u64);
    /// Something is left out, at this place and others.
    fn noted(&self, note: &Note);
    /// Something could not be extracted.
    fn failed(&self, path: &[u8], failure: &Failure);
}

/// Amounts that were extracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extracted {
    /// Regular files, whole but for parts that were told as failures.
    pub files: u64,
    /// Directories, without the destination.
    pub directories: u64,
    /// Further names of files.
    pub links: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Sockets, pipes and device nodes.
    pub specials: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Regular files that were whole already, with `resume`.
    pub kept_files: u64,
    /// Sizes of those.
    pub kept_bytes: u64,
}

/// The same, while it is counted by all threads.
#[derive(Debug, Default)]
struct Counts {
    files: AtomicU64,
    directories: AtomicU64,
    links: AtomicU64,
    symlinks: AtomicU64,
    specials: AtomicU64,
    bytes: AtomicU64,
    kept_files: AtomicU64,
    kept_bytes: AtomicU64,
}

impl Counts {
    fn sum(self) -> Extracted {
        Extracted {
            files: self.files.into_inner(),
            directories: self.directories.into_inner(),
            links: self.links.into_inner(),
            symlinks: self.symlinks.into_inner(),
            specials: self.specials.into_inner(),
            bytes: self.bytes.into_inner(),
            kept_files: self.kept_files.into_inner(),
            kept_bytes: self.kept_bytes.into_inner(),
        }
    }
}

/// Counts one.
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// State shared by all threads.
struct Context<'e> {
    filesystem: &'e Filesystem,
    options: ExtractOptions,
    observer: &'e dyn ExtractObserver,
    counts: Counts,
    /// True if files can do without a name until they are whole.
    unnamed_files: AtomicBool,
    /// True if only fsync(2) of each file makes it durable.
    syncs_each: AtomicBool,
}

impl<'e> Context<'e> {
    fn new(filesystem: &'e Filesystem, options: ExtractOptions, observer: &'e dyn ExtractObserver) -> Self {
        let (unnamed_files, syncs_each) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { filesystem, options, observer, counts: Counts::default(), unnamed_files, syncs_each }
    }

    /// Tells of something that could not be extracted.
    fn fail(&self, path: &[u8], failure: impl Into<Failure>) {
        self.observer.failed(path, &failure.into());
    }
}

/// Batches of jobs that wait at the most; each job may keep a directory open.
const QUEUE_BATCHES: usize = 8;
const THREADS_MIN: usize = 4;
/// Files that may wait for the thread that makes them durable; each may keep a directory open.
const FINISHED_FILES: usize = 256;

/// Extracts a directory with everything below it into the directory `destination`, which is made if it is not there; or a single
/// file as `destination`, or into it, by its own `name`, if it is a directory. Each level of a tree keeps a directory open.
pub fn extract(
    filesystem: &Filesystem,
    inode: InodeId,
    name: Option<&[u8]>,
    destination: &Path,
    options: ExtractOptions,
    observer: &dyn ExtractObserver,
) -> Result<Extracted, ExtractError> {
    let context = Context::new(filesystem, options, observer);
    run(&context, inode, name, destination)?;
    Ok(context.counts.sum())
}

fn run(
    context: &Context<'_>,
    inode: InodeId,
    name: Option<&[u8]>,
    destination: &Path,
) -> Result<(), ExtractError> {
    let attributes = context.filesystem.attributes(inode)?;
    let is_directory = attributes.kind == FileType::Directory;
    let (finished, messages) = sync_channel(FINISHED_FILES);
    let (target, name) = if is_directory {
        (Directory::open_destination(context, finished.clone(), destination, &attributes)?, Vec::new())
    } else {
        let (parent, name) = file_destination(name, destination)?;
        (Directory::open_existing(context, finished.clone(), &parent)?, name)
    };
    let is_unnamed = unfinished::supports_unnamed(&target);
    context.unnamed_files.store(is_unnamed, Ordering::Relaxed);
    context.syncs_each.store(durable::needs_each(&target), Ordering::Relaxed);
    let target = Arc::new(target);
    let (queue, jobs) = sync_channel::<Batch<'_>>(QUEUE_BATCHES);
    let jobs = Arc::new(Mutex::new(jobs));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = context.options.threads.unwrap_or_else(|| cores.max(THREADS_MIN));
    std::thread::scope(|scope| {
        scope.spawn(move || durable::complete(context, &messages));
        // Sent when all files are done, also by a panic.
        let _end = LastMessage(finished);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let jobs = Arc::clone(&jobs);
                scope.spawn(move || copy::work(context, &jobs));
            }
            // If all workers have panicked, the queue is closed, and the walk ends.
            drop(jobs);
            let mut walk = Walk::new(context, queue);
            if is_directory {
                walk.tree(inode, target);
            } else {
                walk.single(target, &name, attributes);
            }
        });
    });
    Ok(())
}

/// The directory and the name that a single file goes to.
fn file_destination(name: Option<&[u8]>, destination: &Path) -> Result<(PathBuf, Vec<u8>), ExtractError> {
    if destination.is_dir() {
        let name = name.ok_or(ExtractError::NoName)?;
        return Ok((destination.to_owned(), name.to_vec()));
    }
    let Some(name) = destination.file_name() else {
        return Err(ExtractError::NotAName(destination.to_owned()));
    };
    let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_owned(), name.as_bytes().to_vec()))
}
