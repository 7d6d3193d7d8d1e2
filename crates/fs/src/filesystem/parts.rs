//! The parts of a filesystem, each with those below it that it needs.

use crate::autodefrag::Autodefrag;
use crate::background::Background;
use crate::change::InodeChanges;
use crate::core::Core;
use crate::data::FileData;
use crate::data::context::DataContext;
use crate::defragment::Defragmentation;
use crate::destage::WriteBackTier;
use crate::directory::Directories;
use crate::extent::Extents;
use crate::hold::Holds;
use crate::items::InodeItems;
use crate::log::FsLog;
use crate::namespace::Namespace;
use crate::orphan::Orphans;
use crate::read::Reader;
use crate::statfs::Space;
use crate::subvolume::Subvolumes;
use crate::tier::Tiers;
use crate::write_options::WriteOptions;
use std::sync::Arc;

/// The parts of a filesystem, from the lowest to the highest: none knows one that comes after it.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) core: Arc<Core>,
    pub(super) extents: Arc<Extents>,
    pub(super) items: Arc<InodeItems>,
    pub(super) directories: Arc<Directories>,
    pub(super) reader: Arc<Reader>,
    pub(super) tiers: Arc<Tiers>,
    pub(super) data: Arc<FileData>,
    pub(super) orphans: Arc<Orphans>,
    pub(super) holds: Arc<Holds>,
    pub(super) log: Arc<FsLog>,
    pub(super) changes: InodeChanges,
    pub(super) subvolumes: Arc<Subvolumes>,
    pub(super) namespace: Namespace,
    pub(super) background: Background,
    pub(super) write_back_tier: WriteBackTier,
    pub(super) defragmentation: Defragmentation,
    pub(super) autodefrag: Autodefrag,
    pub(super) space: Space,
}

impl Parts {
    /// The parts of a filesystem that is written with `options`, if it is written.
    pub(super) fn new(core: Core, options: &WriteOptions) -> Self {
        let core = Arc::new(core);
        let extents = Arc::new(Extents::new(core.clone()));
        let items = Arc::new(InodeItems::new(core.clone(), extents.clone()));
        let directories = Arc::new(Directories::new(core.clone(), items.clone()));
        let reader = Arc::new(Reader::new(core.clone(), extents.clone(), items.clone()));
        let tiers = Arc::new(Tiers::new(core.clone(), items.clone(), options.small_file_bytes.unwrap_or(0)));
        let data = Arc::new(FileData {
            core: core.clone(),
            extents: extents.clone(),
            items: items.clone(),
            reader: reader.clone(),
            tiers: tiers.clone(),
            context: DataContext::new(core.clone(), options),
        });
        let orphans = Arc::new(Orphans::new(core.clone(), items.clone(), data.clone()));
        let holds = Arc::new(Holds::new(core.clone(), items.clone(), data.clone(), orphans.clone()));
        let log = Arc::new(FsLog::new(core.clone(), extents.clone(), data.clone()));
        let subvolumes = Arc::new(Subvolumes {
            core: core.clone(),
            items: items.clone(),
            directories: directories.clone(),
            data: data.clone(),
            orphans: orphans.clone(),
            log: log.clone(),
        });
        let namespace = Namespace {
            core: core.clone(),
            items: items.clone(),
            directories: directories.clone(),
            reader: reader.clone(),
            data: data.clone(),
            orphans: orphans.clone(),
            holds: holds.clone(),
            subvolumes: subvolumes.clone(),
        };
        Self {
            changes: InodeChanges::new(core.clone(), items.clone(), data.clone(), holds.clone()),
            background: Background::new(core.clone(), orphans.clone(), subvolumes.clone()),
            write_back_tier: WriteBackTier::new(core.clone(), extents.clone(), data.clone(), holds.clone()),
            defragmentation: Defragmentation::new(core.clone()),
            autodefrag: Autodefrag::new(core.clone(), data.clone(), holds.clone()),
            space: Space::new(core.clone()),
            core,
            extents,
            items,
            directories,
            reader,
            tiers,
            data,
            orphans,
            holds,
            log,
            subvolumes,
            namespace,
        }
    }
}
