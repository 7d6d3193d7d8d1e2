//! Context common to all files: settings for writing contents, and the queue of files with dirty contents.

use crate::attributes::{InodeId, Timestamp};
use crate::compression::choice::CompressionChoice;
use crate::core::Core;
use crate::core::inodes::Inode;
use crate::data::torn::TornFiles;
use crate::error::FsError;
use crate::pages::state::{Memory, WritingPiece};
use crate::write_options::{Host, WriteOptions};
use brindle_ondisk::RootId;
use brindle_sync::{Mutex, MutexGuard, Rank, Ranked};
use brindle_tree::QuotaClaim;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Upper bound on the files that stay in memory for a failure that no handle has reported.
const UNREPORTED_MAX: usize = 1024;

/// Context common to all files.
#[derive(Debug)]
pub(crate) struct DataContext {
    core: Arc<Core>,
    /// Settings for writing contents.
    pub(crate) settings: Settings,
    host: Arc<dyn Host>,
    dirty_bytes: AtomicU64,
    /// Time of the last writeback of contents, in milliseconds since `opened`.
    last_write: AtomicU64,
    opened: Instant,
    queue: Mutex<Queue>,
    /// Held by the thread that writes back for all.
    pub(crate) flusher: Mutex<()>,
    losses: Mutex<Losses>,
    /// Files that small writes have torn.
    pub(crate) torn: TornFiles,
}

/// Contents that were lost, and why.
type Loss = (InodeId, Arc<FsError>);

/// Contents that were lost since the filesystem was opened.
#[derive(Debug, Default)]
struct Losses {
    /// The first of which no sync of everything has told yet.
    untold: Option<Loss>,
    /// The first of each subvolume.
    first: BTreeMap<RootId, Loss>,
    /// Files whose last failure no handle has reported, the oldest first: they stay in memory for one that is opened later.
    unreported: VecDeque<Arc<Inode>>,
}

/// Files with dirty data, the one that has had some for the longest time first.
#[derive(Debug, Default)]
struct Queue {
    files: BTreeMap<u64, Arc<Inode>>,
    next: u64,
}

/// Settings for writing contents, unless the inode has its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Compression of files (`compress=`, `compress-force=`); `None` for files without a setting of their own.
    pub(crate) compression: Option<CompressionChoice>,
    /// The longest contents that are kept in the item (`max_inline=`), in bytes; 0 for none.
    pub(crate) max_inline_bytes: u32,
    /// Dirty data in memory, of all files, that writers have to wait at, in bytes. At half of it one of them
    /// begins to write back.
    pub(crate) dirty_bytes_max: u64,
}

impl Ranked for Queue {
    const RANK: Rank = Rank::DirtyFiles;
}

impl Ranked for Losses {
    const RANK: Rank = Rank::LostContents;
}

fn told(loss: Option<Loss>) -> Result<(), FsError> {
    loss.map_or(Ok(()), |(file, why)| Err(FsError::WriteBack { file, why }))
}

impl DataContext {
    pub(crate) fn new(core: Arc<Core>, options: &WriteOptions) -> Self {
        let settings = Settings {
            compression: options.compression,
            max_inline_bytes: options.max_inline_bytes,
            dirty_bytes_max: options.dirty_bytes_max,
        };
        Self {
            core,
            settings,
            host: Arc::clone(&options.host),
            dirty_bytes: AtomicU64::new(0),
            last_write: AtomicU64::new(0),
            opened: Instant::now(),
            queue: Mutex::default(),
            flusher: Mutex::new(Rank::Flusher, ()),
            losses: Mutex::default(),
            torn: TornFiles::default(),
        }
    }

    /// The dirty data of all files, in bytes; what is being written counts until it is.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Contents are about to be written.
    pub(crate) fn note_writing(&self, pieces: &[WritingPiece]) {
        if !pieces.is_empty() {
            self.last_write.store(self.milliseconds(), Ordering::Relaxed);
        }
    }

    /// Time since contents were last written.
    pub(crate) fn quiet_time(&self) -> Duration {
        Duration::from_millis(self.milliseconds().saturating_sub(self.last_write.load(Ordering::Relaxed)))
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Adjusts the count of dirty bytes, and that of a file's subvolume.
    pub(crate) fn count(&self, file: InodeId, more: u64, less: u64) {
        self.core.pool().count_in_memory(file.tree, more, less);
        self.dirty_bytes.fetch_add(more, Ordering::Relaxed);
        self.dirty_bytes.fetch_sub(less, Ordering::Relaxed);
    }

    /// Counts dirty bytes of a file, and of its subvolume in place of what was claimed for them.
    pub(crate) fn count_claimed(&self, file: InodeId, more: u64, claim: Option<QuotaClaim<'_>>) {
        match claim {
            Some(claim) => claim.count(more),
            None => self.core.pool().count_in_memory(file.tree, more, 0),
        }
        self.dirty_bytes.fetch_add(more, Ordering::Relaxed);
    }

    /// Forgets what has been written back of a file, all of it that ends until `behind`.
    pub(crate) fn forget_written(&self, file: InodeId, memory: &mut Memory, behind: Option<u64>) {
        self.count(file, 0, memory.forget_written(behind));
    }

    /// Forgets what is dirty of a range of a file, of whole sectors; returns what of the promised space is not needed any
    /// more.
    #[must_use = "the space has to be given back"]
    pub(crate) fn discard(&self, file: InodeId, memory: &mut Memory, range: &Range<u64>) -> u64 {
        let (removed, surplus) = memory.discard(range);
        self.count(file, 0, removed);
        surplus
    }

    /// The file has dirty data, if it has; keeps it in memory for as long.
    pub(crate) fn note(&self, inode: &Arc<Inode>, memory: &mut Memory) {
        if memory.is_dirty() == memory.queued.is_some() {
            return;
        }
        let mut queue = self.queue();
        match memory.queued.take() {
            Some(number) => {
                queue.files.remove(&number);
            }
            None => {
                let number = queue.next;
                queue.next += 1;
                queue.files.insert(number, Arc::clone(inode));
                memory.queued = Some(number);
            }
        }
    }

    /// The file that has been dirty for the longest time; the next time it is another one's turn.
    pub(crate) fn oldest(&self) -> Option<Arc<Inode>> {
        let queue = self.queue();
        queue.files.first_key_value().map(|(_, inode)| Arc::clone(inode))
    }

    /// Number that the next file with dirty data gets.
    pub(crate) fn next_number(&self) -> u64 {
        self.queue().next
    }

    /// Files of a subvolume with dirty data, at most `max`: those that have had some for a shorter time than the one of this number,
    /// then those that have had some for longer.
    pub(crate) fn dirty_beside(&self, number: u64, tree: RootId, max: usize) -> Vec<Arc<Inode>> {
        let queue = self.queue();
        let files = queue.files.range(number.saturating_add(1)..).chain(queue.files.range(..number));
        let files = files.map(|(_, inode)| inode).filter(|inode| inode.id().tree == tree);
        files.take(max).map(Arc::clone).collect()
    }

    /// Every file with dirty data.
    pub(crate) fn dirty_files(&self) -> Vec<Arc<Inode>> {
        self.queue().files.values().map(Arc::clone).collect()
    }

    /// Contents of a file were lost.
    pub(crate) fn note_loss(&self, inode: &Arc<Inode>, why: &Arc<FsError>) {
        let mut losses = self.losses.lock();
        let loss = || (inode.id(), Arc::clone(why));
        losses.untold.get_or_insert_with(loss);
        losses.first.entry(inode.id().tree).or_insert_with(loss);
        losses.unreported.retain(|kept| !Arc::ptr_eq(kept, inode));
        if losses.unreported.len() == UNREPORTED_MAX {
            losses.unreported.pop_front();
        }
        losses.unreported.push_back(Arc::clone(inode));
    }

    /// A handle has reported the last failure of a file.
    pub(crate) fn forget_unreported(&self, inode: &Arc<Inode>) {
        self.losses.lock().unreported.retain(|kept| !Arc::ptr_eq(kept, inode));
    }

    /// The first loss since the last call.
    pub(crate) fn take_loss(&self) -> Result<(), FsError> {
        told(self.losses.lock().untold.take())
    }

    /// The first loss of a subvolume.
    pub(crate) fn check_losses(&self, tree: RootId) -> Result<(), FsError> {
        told(self.losses.lock().first.get(&tree).cloned())
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.host.now()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }
}
