//! Map and decompressed extent that an open file keeps for its next lookup, of one version of its items.

use crate::error::FsError;
use crate::extent::Extents;
use crate::extent::map::ExtentMap;
use crate::open_file::OpenFile;
use brindle_ondisk::Logical;
use brindle_sync::{Rank, Ranked};
use std::sync::Arc;

/// Upper bound on the extents that an open file keeps, so that a file of millions costs no more memory than any other.
const CACHED_EXTENTS_MAX: usize = 512;

/// Version of cached lookups: of the file's items, and of the location of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) items: u64,
    pub(crate) moves: u64,
}

/// Cached lookups, all of one version.
#[derive(Debug, Default)]
pub(crate) struct ExtentCache {
    version: Version,
    map: Option<Arc<ExtentMap>>,
    /// Address and contents of the compressed extent that was read last: the next read often wants more of it.
    decompressed: Option<(Logical, Arc<[u8]>)>,
}

impl Ranked for ExtentCache {
    const RANK: Rank = Rank::OpenFile;
}

impl ExtentCache {
    /// Drops lookups of another version; returns the map that covers `offset`, if there is one.
    fn map(&mut self, version: Version, offset: u64) -> Option<Arc<ExtentMap>> {
        self.of(version).map.as_ref().filter(|map| map.covers(offset)).map(Arc::clone)
    }

    /// Contents of the compressed extent at an address.
    pub(crate) fn decompressed(&mut self, version: Version, at: Logical) -> Option<Arc<[u8]>> {
        let found = self.of(version).decompressed.as_ref().filter(|(address, _)| *address == at);
        found.map(|(_, whole)| Arc::clone(whole))
    }

    /// Keeps the contents of a compressed extent.
    pub(crate) fn keep_decompressed(&mut self, version: Version, at: Logical, whole: Arc<[u8]>) {
        self.of(version).decompressed = Some((at, whole));
    }

    fn of(&mut self, version: Version) -> &mut Self {
        if self.version != version {
            *self = Self { version, ..Self::default() };
        }
        self
    }
}

impl Extents {
    /// The version of a file's items for lookups, `None` while they are being changed; with what `look` sees of the
    /// file's memory at the same moment.
    pub(crate) fn versioned<T>(
        &self,
        file: &OpenFile,
        look: impl FnOnce(&crate::pages::state::Memory) -> T,
    ) -> (Option<Version>, T) {
        let moves = self.core.pool().moves();
        let memory = file.inode().data.memory();
        let version = memory.settled_version().map(|items| Version { items, moves });
        (version, look(&memory))
    }

    /// The map of the data of an open file that covers `offset`: the one that it keeps, or a new one. Without a version it
    /// is looked up, and not kept.
    pub(crate) fn data_map(
        &self,
        file: &OpenFile,
        version: Option<Version>,
        offset: u64,
    ) -> Result<Arc<ExtentMap>, FsError> {
        if let Some(map) = version.and_then(|version| file.cache().map(version, offset)) {
            return Ok(map);
        }
        let tree = self.core.tree(file.id().tree)?;
        let map = self.extent_map(&tree, file.id(), &(offset..u64::MAX), CACHED_EXTENTS_MAX)?;
        let map = Arc::new(map.for_reading(file.id())?);
        if let Some(version) = version {
            file.cache().of(version).map = Some(Arc::clone(&map));
        }
        Ok(map)
    }
}
