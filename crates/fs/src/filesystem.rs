//! An opened filesystem: a pool, and the subvolume that it is entered by.

use crate::attributes::InodeId;
use crate::data::context::DataContext;
use crate::destage::DestageCounters;
use crate::error::FsError;
use crate::inodes::InodeTable;
use crate::log::book::LogBook;
use crate::neighbours::Neighbours;
use crate::orphan::Orphans;
use crate::subvolume::{SubvolumeState, Subvolumes};
use crate::write_options::WriteOptions;
use brindle_device::{Device, OverlayDevice, WritableDevice};
use brindle_ondisk::RootId;
use brindle_sync::{Mutex, Rank};
use brindle_tree::{Pool, StopOnPanic, Tree, TreeError, WriterOptions};
use std::ops::Deref;
use std::sync::Arc;

/// The most that the replay of a log in memory writes to a device, in bytes.
const REPLAYED_BYTES_MAX: usize = 1 << 30;

/// Options of opening a filesystem.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Options of the pool.
    pub pool: brindle_tree::OpenOptions,
    /// Subvolume that becomes the root.
    pub subvolume: SubvolumeChoice,
}

/// Choice of the subvolume that becomes the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SubvolumeChoice {
    /// The one set as default; the top level unless someone set another.
    #[default]
    Default,
    /// The one at this path from the top level (`subvol=`).
    Path(Vec<u8>),
    /// The one of this id (`subvolid=`); 0 for the top level.
    Id(RootId),
}

/// A filesystem, read and (if it was opened for that) written by many threads at once.
#[derive(Debug)]
pub struct Filesystem {
    pool: Pool,
    pub(crate) subvolumes: Subvolumes,
    root: InodeId,
    warnings: Vec<String>,
    /// Locations of small files read last.
    pub(crate) neighbours: Neighbours,
    /// The inodes in use.
    pub(crate) inodes: InodeTable,
    /// Context for writing contents.
    pub(crate) data: DataContext,
    /// Changes of files that the log does not have.
    pub(crate) log_book: LogBook,
    /// Counters of destaging.
    pub(crate) destaged: DestageCounters,
    /// State needed for changes; `None` if the filesystem is only read.
    write: Option<WriteState>,
}

/// State needed for changes.
#[derive(Debug)]
pub(crate) struct WriteState {
    pub(crate) options: WriteOptions,
    /// Held while something moves from one directory to another.
    pub(crate) renames: Mutex<()>,
    /// Held while a deleted subvolume is dropped, or blocks are moved that could be part of one.
    pub(crate) drops: Mutex<()>,
    /// Places where orphans are still to be looked for.
    pub(crate) orphans: Arc<Orphans>,
    /// The id of the next subvolume, once it has been looked up.
    pub(crate) next_subvolume: Mutex<Option<u64>>,
}

/// Operation that changes something. A panic in its course ends all writing: what it has changed in memory would not
/// agree with the trees.
#[derive(Debug)]
#[must_use = "a panic stops the pool as long as it lives"]
pub(crate) struct Writing<'f> {
    state: &'f WriteState,
    _stops: StopOnPanic<'f>,
}

impl Deref for Writing<'_> {
    type Target = WriteState;

    fn deref(&self) -> &WriteState {
        self.state
    }
}

impl Filesystem {
    /// Opens the pool that lies on `devices`, given in any order.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self, FsError> {
        Self::new(Pool::open(devices, &options.pool)?, options, None)
    }

    /// Opens the pool that lies on `devices`, given in any order, to read and write it.
    pub fn open_writable(
        devices: Vec<Arc<dyn WritableDevice>>,
        options: &OpenOptions,
        write: &WriteOptions,
    ) -> Result<Self, FsError> {
        Self::open_to_write(devices, options, write, &write.for_pool())
    }

    /// Opens the pool that lies on `devices`, given in any order, to read it with what its log says. Nothing is
    /// written to the devices: the log is replayed in memory. For pools that can't be written, such as one with a
    /// replacement that the kernel has to end.
    pub fn open_replayed(
        devices: Vec<Arc<dyn Device>>,
        options: &OpenOptions,
        write: &WriteOptions,
    ) -> Result<Self, FsError> {
        let overlay = |device| Arc::new(OverlayDevice::new(device, REPLAYED_BYTES_MAX));
        let overlays: Vec<Arc<OverlayDevice>> = devices.into_iter().map(overlay).collect();
        let write = WriteOptions { discard: false, ..write.clone() };
        let transient = WriterOptions { is_transient: true, ..write.for_pool() };
        let writable = overlays.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
        // The replay is a commit of its own.
        drop(Self::open_to_write(writable.collect(), options, &write, &transient)?);
        Self::open(overlays.into_iter().map(|device| device as Arc<dyn Device>).collect(), options)
    }

    fn open_to_write(
        devices: Vec<Arc<dyn WritableDevice>>,
        options: &OpenOptions,
        write: &WriteOptions,
        writer: &WriterOptions,
    ) -> Result<Self, FsError> {
        let pool = Pool::open_writable(devices, &options.pool, writer)?;
        let mut write = write.clone();
        if write.small_file_bytes.is_none() {
            write.small_file_bytes = Some(pool.settings()?.small_file_bytes);
        }
        let state = WriteState {
            options: write,
            renames: Mutex::new(Rank::Renames, ()),
            drops: Mutex::new(Rank::SubvolumeDrop, ()),
            orphans: Arc::default(),
            next_subvolume: Mutex::new(Rank::NextSubvolume, None),
        };
        Self::new(pool, options, Some(state))
    }

    fn new(pool: Pool, options: &OpenOptions, write: Option<WriteState>) -> Result<Self, FsError> {
        let mut warnings: Vec<String> = pool.volume().warnings().iter().map(ToString::to_string).collect();
        if write.is_none() && pool.has_log() {
            warnings.push(
                "the pool has a log, which is replayed when the pool is mounted and can be written: until then, what \
                 was fsynced after the last commit is not shown"
                    .to_owned(),
            );
        }
        let root = InodeId::root_of(RootId::FS_TREE);
        let (subvolumes, neighbours) = (Subvolumes::default(), Neighbours::default());
        let write_options = write.as_ref().map(|write| write.options.clone()).unwrap_or_default();
        let (inodes, data) = (InodeTable::default(), DataContext::new(&write_options));
        let (log_book, destaged) = (LogBook::default(), DestageCounters::default());
        let mut filesystem =
            Self { pool, subvolumes, root, warnings, neighbours, inodes, data, log_book, destaged, write };
        if filesystem.write.is_some() {
            filesystem.replay_log().map_err(|error| FsError::Log(Box::new(error)))?;
            if !filesystem.pool.is_transient() {
                filesystem.end_relocations().map_err(|error| FsError::Relocation(Box::new(error)))?;
            }
        }
        filesystem.root = filesystem.choose_root(&options.subvolume)?;
        Ok(filesystem)
    }

    /// The root directory.
    pub fn root(&self) -> InodeId {
        self.root
    }

    /// Makes another subvolume the root.
    ///
    /// # Errors
    /// [`FsError::NoSubvolume`] and trees that can't be read.
    pub fn choose_subvolume(&mut self, choice: &SubvolumeChoice) -> Result<(), FsError> {
        self.root = self.choose_root(choice)?;
        Ok(())
    }

    /// The trees below.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns true if anything can be changed; false from the first error on that left a commit undone.
    pub fn is_writable(&self) -> bool {
        self.write.is_some() && self.pool.read_only_reason().is_none()
    }

    /// Returns true if it was opened to be read.
    pub(crate) fn is_only_read(&self) -> bool {
        self.write.is_none()
    }

    /// Places where orphans are still to be looked for, also once writing has ended; `None` if the filesystem is only
    /// read.
    pub(crate) fn orphans(&self) -> Option<&Arc<Orphans>> {
        self.write.as_ref().map(|write| &write.orphans)
    }

    /// Guard of an operation that may join a transaction or wait for a commit. The caller has no part in a transaction
    /// and no lock of a tree; builds with debug assertions panic if it has, whether or not the
    /// operation comes to wait.
    #[track_caller]
    pub(crate) fn may_wait_for_commits(&self) -> StopOnPanic<'_> {
        Rank::Commit.assert_free();
        self.pool.stop_on_panic()
    }

    /// State needed for changes, or a refusal.
    #[track_caller]
    pub(crate) fn writing(&self) -> Result<Writing<'_>, FsError> {
        let stops = self.may_wait_for_commits();
        let read_only = |why| FsError::Tree(TreeError::ReadOnly(why));
        match (self.pool.read_only_reason(), &self.write) {
            (Some(why), _) => Err(read_only(why)),
            (None, None) => Err(read_only("it was opened to be read only".into())),
            (None, Some(state)) => Ok(Writing { state, _stops: stops }),
        }
    }

    /// Warnings for users: damaged superblocks, missing devices, a log that is not replayed.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The tree of a subvolume.
    pub(crate) fn tree(&self, id: RootId) -> Result<Arc<Tree>, FsError> {
        Ok(Arc::clone(self.subvolume_state(id)?.tree()))
    }

    /// State shared by all users of a subvolume.
    pub(crate) fn subvolume_state(&self, id: RootId) -> Result<Arc<SubvolumeState>, FsError> {
        self.subvolumes.get(&self.pool, id)
    }
}
