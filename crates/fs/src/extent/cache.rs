//! Map and decompressed extent that an open file keeps for its next lookup, of one version of its items.

use crate::extent::map::ExtentMap;
use brindle_ondisk::Logical;
use brindle_sync::{Rank, Ranked};
use std::sync::Arc;

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
    /// True if the file has checksums.
    has_checksums: Option<bool>,
}

impl Ranked for ExtentCache {
    const RANK: Rank = Rank::OpenFile;
}

impl ExtentCache {
    /// Drops lookups of another version; returns the map that covers `offset`, if there is one.
    pub(crate) fn map(&mut self, version: Version, offset: u64) -> Option<Arc<ExtentMap>> {
        self.of(version).map.as_ref().filter(|map| map.covers(offset)).map(Arc::clone)
    }

    /// Keeps a map.
    pub(crate) fn keep_map(&mut self, version: Version, map: Arc<ExtentMap>) {
        self.of(version).map = Some(map);
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

    /// True if the file has checksums; `None` if that is to be looked up.
    pub(crate) fn has_checksums(&mut self, version: Version) -> Option<bool> {
        self.of(version).has_checksums
    }

    /// Keeps whether the file has checksums.
    pub(crate) fn keep_has_checksums(&mut self, version: Version, has_checksums: bool) {
        self.of(version).has_checksums = Some(has_checksums);
    }

    fn of(&mut self, version: Version) -> &mut Self {
        if self.version != version {
            *self = Self { version, ..Self::default() };
        }
        self
    }
}
