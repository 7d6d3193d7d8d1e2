//! The library on any devices, as a target that says what goes wrong instead of panicking.

use super::layout::Layout;
use super::pool::Pool;
use crate::model::target::{System, errno};
use crate::walk::{Limits, Walk};
use brindle_care::balance::{self, BalanceError, LookEnded};
use brindle_care::job::Control;
use brindle_fs::{
    Compression, CompressionChoice, ContentsWish, DefragmentPlace, DefragmentScope, Destaged, FileType,
    Filesystem, FsError, InodeId, LogProfile, TreeError, WriteBackMode, WriteBackWish,
};
use brindle_ondisk::{BlockGroupType, Logical};
use brindle_policy::balance::Balance;
use brindle_policy::writeback::DataPlace;
use brindle_testing::manifest::{Manifest, escape};
use brindle_testing::model::{Errno, TreePath};
use brindle_testing::operations::{Operation, Target};
use brindle_tree::GroupStatus;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A pool in memory that is opened to write.
pub(crate) struct Library {
    pub(crate) pool: Pool,
    system: Option<System>,
    habits: Habits,
    /// Start of the next piece to be defragmented.
    defragments_from: Option<DefragmentPlace>,
    /// Number of operations.
    count: usize,
    /// Number of chunks that were made.
    new_chunks: u64,
    /// Address of the newest chunk.
    newest_chunk: Logical,
}

/// Acts beside the operations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Habits {
    /// The pool is examined whenever everything is durable.
    pub(crate) examines: bool,
    /// An fsync of one file, or a snapshot, writes all files back, so that it is a commit of all.
    pub(crate) syncs_all: bool,
    /// The devices may be full.
    pub(crate) may_be_full: bool,
    /// Number of operations after which a block group is emptied; 0 for never.
    pub(crate) relocates_every: usize,
    /// Number of operations after which a piece of the metadata is defragmented; 0 for never.
    pub(crate) defragments_every: usize,
    /// Number of operations after which the contents of all files are defragmented, and `autodefrag` is on; 0 for never.
    pub(crate) defragments_files_every: usize,
    /// Number of operations after which, and whenever the pool is opened, all misplaced data is moved, with another
    /// limit for small files each time; 0 for never.
    pub(crate) sorts_every: usize,
    /// Number of operations after which what waits in the write-back tier is destaged, in part every other time; 0 for never.
    /// All data goes there then.
    pub(crate) destages_every: usize,
    /// Data that lies in the write-back tier first, of a pool that is destaged.
    pub(crate) write_back: WriteBackMode,
    /// Number of operations after which the chunks of data are full but for little, so that a new one is made; 0 for never.
    pub(crate) outgrows_every: usize,
    /// Bytes of fast devices that are free for data whenever the pool is opened; 0 for all that there are.
    pub(crate) fast_bytes: u64,
    /// Profile of the log, and there are commits when the pool is opened, after which it counts.
    pub(crate) log_profile: Option<LogProfile>,
}

/// Number of extents that were destaged, in all runs.
pub(crate) static DESTAGED: AtomicU64 = AtomicU64::new(0);

/// Number of extents of files that were laid together by `autodefrag`, in all runs.
pub(crate) static LAID_TOGETHER: AtomicU64 = AtomicU64::new(0);

/// Number of extents of files that were defragmented, in all runs.
pub(crate) static DEFRAGMENTED: AtomicU64 = AtomicU64::new(0);

/// Parts of extents that are moved in parts.
pub(crate) const PART_BYTES: u64 = 8192;

/// Number of leaves that are defragmented at a time.
const LEAVES_PER_PIECE: usize = 16;

type Outcome = Result<(), Errno>;

/// Chooses a profile of the log, and commits until a log may have fewer copies than other metadata.
pub(crate) fn commit_until_logs_are_reduced(fs: &Filesystem, profile: LogProfile) -> Result<(), FsError> {
    (0..4).try_for_each(|_| fs.set_log_profile(profile).and_then(|()| fs.sync()))
}

/// Error for an unsound disk: `EUCLEAN`.
const UNSOUND: Errno = Errno::Other(117);

impl Library {
    /// A new pool of this layout, examined often.
    pub(crate) fn new(layout: &Layout) -> Self {
        let habits = Habits { examines: true, ..Habits::default() };
        Self::open(Pool::new(layout), habits).expect("the pool opens")
    }

    /// The same, with block groups that are emptied now and then.
    pub(crate) fn relocating(layout: &Layout) -> Self {
        let habits = Habits { examines: true, relocates_every: 5, ..Habits::default() };
        Self::open(Pool::new(layout), habits).expect("the pool opens")
    }

    /// The same, with metadata that is defragmented now and then.
    pub(crate) fn defragmenting(layout: &Layout) -> Self {
        let habits = Habits { examines: true, defragments_every: 5, ..Habits::default() };
        Self::open(Pool::new(layout), habits).expect("the pool opens")
    }

    /// The same, with contents of files that are defragmented now and then.
    pub(crate) fn defragmenting_files(layout: &Layout) -> Self {
        let habits = Habits { examines: true, defragments_files_every: 7, ..Habits::default() };
        Self::open(Pool::new(layout), habits).expect("the pool opens")
    }

    /// The same, with data that is moved between tiers now and then.
    pub(crate) fn sorting(layout: &Layout) -> Self {
        let habits = Habits { examines: true, sorts_every: 5, ..Habits::default() };
        Self::open(Pool::new(layout), habits).expect("the pool opens")
    }

    /// The same, with data that lies in the write-back tier first.
    pub(crate) fn writing_back(layout: &Layout) -> Self {
        let write_back = WriteBackMode::All;
        let habits = Habits { examines: true, destages_every: 7, write_back, ..Habits::default() };
        Self::open(Pool::new(layout), habits).expect("the pool opens")
    }

    /// This one, with extents that come to lie in parts of a sector or two where they are moved.
    pub(crate) fn in_parts(mut self) -> Result<Self, FsError> {
        self.close()?;
        self.pool.write.moved_extent_bytes_max = PART_BYTES;
        Self::open(self.pool, self.habits)
    }

    /// A pool that is there.
    pub(crate) fn open(mut pool: Pool, habits: Habits) -> Result<Self, FsError> {
        if habits.destages_every > 0 {
            pool.write.write_back = WriteBackWish::Told(habits.write_back);
        }
        let fs = pool.open()?;
        if habits.fast_bytes > 0 {
            crowd(&fs, habits.fast_bytes)?;
        }
        if habits.sorts_every > 0 {
            sort(&fs, &pool, habits).map_err(|error| match error {
                BalanceError::Tree(error) => FsError::from(error),
                error => panic!("misplaced data stays there after a crash: {error}"),
            })?;
        }
        if let Some(profile) = habits.log_profile {
            commit_until_logs_are_reduced(&fs, profile)?;
        }
        let newest_chunk = newest_chunk(&fs);
        let system = Some(System::over(fs));
        Ok(Self { pool, system, habits, defragments_from: None, count: 0, new_chunks: 0, newest_chunk })
    }

    fn system(&self) -> &System {
        self.system.as_ref().expect("open but for the moment of a remount")
    }

    /// Makes everything durable, and does what is left to do.
    pub(crate) fn close(&mut self) -> Result<(), FsError> {
        self.system.take().expect("open").close()
    }

    /// Closes the pool, looks at what is on disk, and opens it again.
    fn remount(&mut self) -> Outcome {
        self.close().map_err(errno)?;
        self.examine()?;
        self.system = Some(System::over(self.pool.open().map_err(errno)?));
        Ok(())
    }

    fn examine(&self) -> Outcome {
        if !self.habits.examines {
            return Ok(());
        }
        self.pool.check().map_err(|findings| {
            eprintln!("{findings}");
            UNSOUND
        })
    }

    /// Returns true if a crash now would leave a log.
    pub(crate) fn has_log(&self) -> bool {
        self.system().fs().pool().superblock().log_root.get() != 0
    }

    fn write_back(&self) -> Outcome {
        if self.habits.syncs_all { self.system().fs().write_back_all(None).map_err(errno) } else { Ok(()) }
    }

    fn apply_unverified(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Sync => {
                self.system().fs().sync().map_err(errno)?;
                self.examine()
            }
            Operation::SyncFile { path } => {
                self.write_back()?;
                self.system().sync_file(path)?;
                self.examine()
            }
            Operation::Remount => self.remount(),
            Operation::Snapshot { .. } => {
                self.write_back()?;
                self.work(operation)
            }
            _ => self.work(operation),
        }
    }

    /// Does an operation, and a step of the background work.
    fn work(&mut self, operation: &Operation) -> Outcome {
        let answer = self.system().names(operation);
        self.count += 1;
        if self.habits.relocates_every > 0 && self.count % self.habits.relocates_every == 0 {
            self.relocate()?;
        }
        if self.habits.defragments_every > 0 && self.count % self.habits.defragments_every == 0 {
            let fs = self.system().fs();
            let done = fs.defragment(DefragmentScope::Pool, self.defragments_from, LEAVES_PER_PIECE);
            self.defragments_from = done.map_err(errno)?.next;
        }
        let files_every = self.habits.defragments_files_every;
        if files_every > 0 {
            self.keep_files_up().map_err(errno)?;
        }
        if files_every > 0 && self.count % files_every == 0 {
            self.defragment_files(self.count / files_every).map_err(errno)?;
        }
        if self.habits.outgrows_every > 0 && self.count % self.habits.outgrows_every == 0 {
            fill_chunks(self.system().fs()).map_err(errno)?;
        }
        if self.habits.destages_every > 0 && self.count % self.habits.destages_every == 0 {
            self.destage()?;
        }
        if self.habits.sorts_every > 0 && self.count % self.habits.sorts_every == 0 {
            let fs = self.system().fs();
            let limits = [0, 16 << 10, 1 << 30];
            let limit = limits[self.count / self.habits.sorts_every % limits.len()];
            fs.set_small_file_bytes(limit).map_err(errno)?;
            sort(fs, &self.pool, self.habits).map_err(|error| {
                eprintln!("{error}");
                Errno::Other(5)
            })?;
        }
        self.system().fs().background_step().map_err(errno)?;
        answer
    }

    /// Lays a part of a file together that small writes have torn, as a mount with `autodefrag` does in time.
    fn keep_files_up(&self) -> Result<(), FsError> {
        let fs = self.system().fs();
        fs.set_autodefrag(true);
        let before = fs.autodefrag_statistics().moved_extents;
        fs.autodefrag_step(Instant::now() + Duration::from_secs(3600), &|| true)?;
        let moved = fs.autodefrag_statistics().moved_extents - before;
        LAID_TOGETHER.fetch_add(moved, Ordering::Relaxed);
        Ok(())
    }

    /// Defragments the contents of all files that can be written, each time with other wishes.
    fn defragment_files(&self, number: usize) -> Result<(), FsError> {
        let fs = self.system().fs();
        let compression = (number % 3 == 2).then_some(CompressionChoice {
            algorithm: Compression::Zstd,
            level: None,
            force: false,
        });
        let run_bytes = [8 << 10, 64 << 10][number % 2];
        let wish = ContentsWish { run_bytes, compression, unshares: number % 2 == 0 };
        for id in files_of(fs)? {
            let file = fs.open_file(id)?;
            let mut from = Some(0);
            let defragmented = loop {
                let Some(at) = from else { break Ok(()) };
                match fs.defragment_contents(&file, at, &wish) {
                    Ok(done) => {
                        DEFRAGMENTED.fetch_add(done.moved, Ordering::Relaxed);
                        from = done.next;
                    }
                    Err(FsError::ReadOnlySubvolume(_)) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            fs.close_file(file)?;
            defragmented?;
        }
        Ok(())
    }

    /// Destages all that waits, or a batch of it.
    fn destage(&self) -> Outcome {
        let is_whole = (self.count / self.habits.destages_every) % 2 == 0;
        let batches = AtomicUsize::new(0);
        let may_go_on = || is_whole || batches.fetch_add(1, Ordering::Relaxed) < 1;
        let ended = self.system().fs().destage(&may_go_on).map_err(|error| {
            eprintln!("destaging: {error}");
            errno(error)
        })?;
        if let Destaged::All(moved) | Destaged::Stopped(moved) = ended {
            DESTAGED.fetch_add(moved.extents, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Empties a block group, one after the other in the order of time.
    fn relocate(&self) -> Outcome {
        let pool = self.system().fs().pool();
        let groups = pool.block_groups().expect("writable");
        let group = &groups[self.count / self.habits.relocates_every % groups.len()];
        let alone = pool.begin_exclusive("a test").expect("nothing else runs");
        match pool.relocate(&alone, group.start, &mut |_| ControlFlow::Continue(())) {
            Ok(_) => Ok(()),
            Err(TreeError::NoSpace(_)) if self.habits.may_be_full => Ok(()),
            Err(error) => {
                eprintln!("block group at {}: {error}", group.start);
                Err(errno(error.into()))
            }
        }
    }
}

/// Number of times fast devices had no room, of all pools.
pub(crate) static REFUSALS: AtomicUsize = AtomicUsize::new(0);

/// Takes space of fast devices until `left` bytes are left; it comes back when the pool is closed, or has crashed.
fn crowd(fs: &Filesystem, left: u64) -> Result<(), FsError> {
    const SECTOR: u64 = 4096;
    let pool = fs.pool();
    let room = || pool.space_summary().map(|summary| summary.fast_data_room.preferred_bytes);
    loop {
        let before = room()?;
        let most = before.saturating_sub(left) / SECTOR * SECTOR;
        if most == 0 {
            return Ok(());
        }
        pool.reserve_data(most)?;
        let taken = pool.reserve_extent_on(DataPlace::Fast, SECTOR, most, None)?;
        pool.release_data(most - taken.length);
        std::mem::forget(taken);
        assert!(room()? < before, "fast devices have no more room than they say");
    }
}

/// All regular files, those of subvolumes included.
fn files_of(fs: &Filesystem) -> Result<Vec<InodeId>, FsError> {
    let (mut files, mut directories) = (Vec::new(), vec![fs.root()]);
    while let Some(directory) = directories.pop() {
        for entry in fs.read_directory(directory, 0, usize::MAX)? {
            match entry.kind {
                FileType::Directory => directories.push(entry.inode),
                FileType::Regular => files.push(entry.inode),
                _ => {}
            }
        }
    }
    Ok(files)
}

/// Address of the newest chunk.
fn newest_chunk(fs: &Filesystem) -> Logical {
    let groups = fs.pool().block_groups().expect("writable");
    groups.iter().map(|group| group.start).max().expect("there is one")
}

/// Takes the free space of chunks of data but for a little, until the pool is closed or has crashed, so that a new chunk is made.
fn fill_chunks(fs: &Filesystem) -> Result<(), FsError> {
    const SECTOR: u64 = 4096;
    const LEFT: u64 = 32 << 10;
    const CHUNKS_MAX: usize = 4;
    let pool = fs.pool();
    let groups = pool.block_groups()?;
    let is_data = |group: &&GroupStatus| {
        group.kind.contains(BlockGroupType::DATA) && !group.is_fast && !group.is_write_back
    };
    let data: Vec<&GroupStatus> = groups.iter().filter(is_data).collect();
    let taken = |group: &&GroupStatus| group.used_bytes + group.reserved_bytes + group.pinned_bytes;
    let free: u64 = data.iter().map(|group| group.length - taken(group)).sum();
    let mut left = free.saturating_sub(LEFT) / SECTOR * SECTOR;
    if data.len() >= CHUNKS_MAX || left == 0 {
        return Ok(());
    }
    pool.reserve_data(left)?;
    while left > 0 {
        let taken = pool.reserve_extent(SECTOR, left, None)?;
        left -= taken.length;
        std::mem::forget(taken);
    }
    Ok(())
}

/// Moves misplaced data, whatever was interrupted before, and makes sure that nothing is misplaced then, unless fast devices
/// are full.
fn sort(fs: &Filesystem, pool: &Pool, habits: Habits) -> Result<(), BalanceError> {
    balance::forget(fs.pool())?;
    // The parts of an extent that files of both tiers share may belong elsewhere than all of it did.
    let rounds = if pool.write.moved_extent_bytes_max == u64::MAX { 1 } else { 2 };
    let mut is_refused = false;
    for _ in 0..rounds {
        match balance::start(fs, &Balance::of_misplaced(), false, &mut |_| Control::Continue) {
            Err(BalanceError::NoSpace { count, .. }) if habits.fast_bytes > 0 => is_refused = count > 0,
            ended => is_refused = ended?.progress.left > 0,
        }
    }
    let facts = balance::facts(fs.pool())?;
    assert_eq!(Balance::of_misplaced().chosen(&facts).len(), 0, "{facts:?}");
    let found = balance::look_at_files(fs.pool(), &facts, fs.small_file_bytes(), &mut || true)?;
    let LookEnded::Whole(tiers) = found else { unreachable!("nobody stopped it") };
    assert_eq!(tiers.bulk_on_fast.extents, 0, "{tiers:?}");
    assert_eq!(tiers.fast_on_bulk.extents > 0, is_refused, "it says so if something stays: {tiers:?}");
    REFUSALS.fetch_add(usize::from(is_refused), Ordering::Relaxed);
    Ok(())
}

impl Target for Library {
    fn apply(&mut self, operation: &Operation) -> Outcome {
        let outcome = self.apply_unverified(operation);
        if let Some(system) = &self.system {
            system.fs().verify();
            let newest = newest_chunk(system.fs());
            self.new_chunks += u64::from(newest > self.newest_chunk);
            self.newest_chunk = newest;
        }
        outcome
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let Some(system) = &self.system else { return Vec::new() };
        let log = system.fs().pool().commit_statistics().log;
        let commits = log.commits.iter().sum();
        vec![("logs", log.syncs), ("fsyncs that were commits", commits), ("new chunks", self.new_chunks)]
    }

    fn manifest(&mut self) -> Result<Manifest, String> {
        let walk = Walk::of(self.system().fs(), Limits::NONE);
        match walk.troubles.first() {
            None => Ok(walk.manifest),
            Some(trouble) => Err(format!("{}: {:?}", escape(&trouble.path), trouble.why)),
        }
    }

    fn may_be_full(&self) -> bool {
        self.habits.may_be_full
    }

    fn contents(&mut self, path: &TreePath) -> Option<Vec<u8>> {
        self.system().contents(path)
    }
}
