//! The write-back tier: data chunks on fast devices alone, in which data lies until it is destaged to bulk devices.
//!
//! An item of the device tree says which chunks these are, since when data has waited in each, and what the owner has
//! chosen. Everything else about them is as of any data chunk.
//!
//! Nothing is promised against them: what waits is still to have its place on bulk devices. So a promise of data space is
//! given against the other data chunks, less what waits here, and destaging finds the room that was kept for it. When all
//! else is full, chunks in which nothing waits are given up: they become chunks of ordinary data on fast devices, or make
//! room for those.

use super::group::Content;
use crate::error::TreeError;
use crate::options::WriteBackWish;
use crate::store::Store;
use brindle_ondisk::item::{WriteBackChunk, WriteBackHeader};
use brindle_ondisk::{Item, Logical, Profile, RootId};
use brindle_policy::writeback::{WriteBackMode, WriteBackObstacle};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::IntoBytes;

/// The most chunks that the tier has: their list is one item.
pub(super) const CHUNKS_MAX: usize = 128;

/// Choices of the owner, as the pool stores them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBackSettings {
    /// Mode; the mount's own default if none is stored.
    pub mode: Option<WriteBackMode>,
    /// Profile of waiting data; that of other data if none is stored.
    pub profile: Option<Profile>,
}

impl WriteBackSettings {
    /// Numbers of mode and profile in the pool; 0 for what is not chosen.
    pub fn to_numbers(self) -> [u64; 2] {
        [self.mode.map_or(0, WriteBackMode::to_disk), WriteBackHeader::number_of(self.profile)]
    }

    /// Settings of these numbers; `None` if one of them is unknown.
    pub fn from_numbers([mode, profile]: [u64; 2]) -> Option<Self> {
        let settings =
            Self { mode: WriteBackMode::from_disk(mode), profile: WriteBackHeader::profile_of(profile) };
        (settings.to_numbers() == [mode, profile]).then_some(settings)
    }
}

/// The tier, in memory.
#[derive(Debug, Default)]
pub(crate) struct WriteBackTier {
    pub(super) mode: WriteBackMode,
    /// True if the pool stores the mode, or the mount was told.
    pub(super) is_chosen: bool,
    pub(super) stored: WriteBackSettings,
    /// Start of each chunk, and the time from which on data has waited in it, 0 if none does.
    pub(super) chunks: BTreeMap<u64, u64>,
    /// The item does not say so yet.
    pub(super) is_changed: bool,
    /// Bytes that wait, and have a place on bulk devices already.
    pub(super) in_transit: u64,
    /// Chunks that were given up, and that the item still names: a log can't point into them.
    pub(super) given_up: Vec<u64>,
    /// Time until which no data goes there, in seconds since 1970, for a device has refused some.
    pub(super) rests_until: u64,
    /// Obstacle, once it is known; forgotten when groups or devices change.
    pub(super) obstacle: Option<Option<WriteBackObstacle>>,
}

impl WriteBackTier {
    /// Chunks of the tier that the pool has stored.
    pub(crate) fn chunks(store: &Store) -> Result<BTreeSet<Logical>, TreeError> {
        Ok(Self::load(store)?.chunks.into_keys().map(Logical::new).collect())
    }

    fn load(store: &Store) -> Result<Self, TreeError> {
        let tree = store.tree(RootId::DEV_TREE)?;
        let key = WriteBackHeader::KEY;
        let found = store.with_item(&tree, &key, |data| match Item::parse(&key, data) {
            Ok(Item::WriteBack(item)) => Ok(Self {
                stored: WriteBackSettings {
                    mode: WriteBackMode::from_disk(item.header.mode.get()),
                    profile: WriteBackHeader::profile_of(item.header.profile.get()),
                },
                chunks: item.chunks.iter().map(|chunk| (chunk.start.get(), chunk.since.get())).collect(),
                ..Self::default()
            }),
            Ok(_) => Ok(Self::default()),
            Err(defect) => Err(TreeError::item(RootId::DEV_TREE, key, defect)),
        })?;
        Ok(found.transpose()?.unwrap_or_default())
    }

    /// The same, of chunks that are there, with the mode that is wished for.
    pub(super) fn open(store: &Store, wish: WriteBackWish) -> Result<Self, TreeError> {
        let mut tier = Self::load(store)?;
        tier.is_chosen =
            matches!(wish, WriteBackWish::Told(_)) || tier.stored != WriteBackSettings::default();
        tier.mode = match wish {
            WriteBackWish::Told(mode) => mode,
            WriteBackWish::Stored(otherwise) => tier.stored.mode.unwrap_or(otherwise),
        };
        let chunks = store.volume().chunks();
        let is_data = |start: &u64| {
            let found = chunks.iter().find(|chunk| chunk.start.get() == *start);
            found.is_some_and(|chunk| Content::of(chunk.kind) == Content::Data)
        };
        // A driver that does not know the item may have emptied some of them.
        tier.chunks.retain(|start, _| is_data(start));
        Ok(tier)
    }

    /// The item; `None` if it has nothing to say.
    pub(super) fn item(&self) -> Option<Vec<u8>> {
        if self.stored == WriteBackSettings::default() && self.chunks.is_empty() {
            return None;
        }
        let chunk = |(start, since): (&u64, &u64)| WriteBackChunk {
            start: Logical::new(*start),
            since: (*since).into(),
        };
        let chunks: Vec<WriteBackChunk> = self.chunks.iter().map(chunk).collect();
        let [mode, profile] = self.stored.to_numbers();
        let header = WriteBackHeader {
            version: WriteBackHeader::VERSION.into(),
            mode: mode.into(),
            profile: profile.into(),
            chunk_count: brindle_ondisk::to_u64(chunks.len()).into(),
        };
        Some([header.as_bytes(), chunks.as_bytes()].concat())
    }
}
