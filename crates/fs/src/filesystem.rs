//! An opened filesystem: a pool, and the subvolume that it is entered by.

use crate::data::DataContext;
use crate::inodes::InodeTable;
use crate::neighbours::Neighbours;
use crate::subvolume::SubvolumeTrees;
use crate::{FsError, InodeId};
use brindle_device::Device;
use brindle_ondisk::RootId;
use brindle_tree::{Pool, Tree, TreeRoot};
use std::sync::Arc;

/// How a filesystem is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// What concerns the pool.
    pub pool: brindle_tree::OpenOptions,
    /// Which subvolume is the root.
    pub subvolume: SubvolumeChoice,
}

/// Which subvolume is the root.
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

/// A filesystem, to be read by many threads at once.
#[derive(Debug)]
pub struct Filesystem {
    pool: Pool,
    trees: SubvolumeTrees,
    root: InodeId,
    warnings: Vec<String>,
    /// Where small files were read last.
    pub(crate) neighbours: Neighbours,
    /// The inodes in use.
    pub(crate) inodes: InodeTable,
    /// What writing contents takes.
    pub(crate) data: DataContext,
}

impl Filesystem {
    /// Opens the pool that lies on `devices`, given in any order.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self, FsError> {
        let pool = Pool::open(devices, &options.pool)?;
        let mut warnings: Vec<String> = pool.volume().warnings().iter().map(ToString::to_string).collect();
        if TreeRoot::log_root_tree(&pool.superblock()).is_some() {
            warnings.push(
                "the pool has a log tree: what was fsynced after the last commit is not shown, for the log is \
                 not replayed"
                    .to_owned(),
            );
        }
        let root = InodeId::root_of(RootId::FS_TREE);
        let (trees, neighbours) = (SubvolumeTrees::default(), Neighbours::default());
        let (inodes, data) = (InodeTable::default(), DataContext::default());
        let mut filesystem = Self { pool, trees, root, warnings, neighbours, inodes, data };
        filesystem.root = filesystem.choose_root(&options.subvolume)?;
        Ok(filesystem)
    }

    /// The root directory.
    pub fn root(&self) -> InodeId {
        self.root
    }

    /// The trees below.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What a user should know: damaged superblocks, missing devices, a log that is not replayed.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The tree of a subvolume.
    pub(crate) fn tree(&self, id: RootId) -> Result<Arc<Tree>, FsError> {
        self.trees.get(&self.pool, id)
    }
}
