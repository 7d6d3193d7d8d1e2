//! Space: block groups, what of them is free, reserved or pinned, and chunks made and returned.

use crate::{Editor, Pool, TreeError, WriterOptions};
use brindle_ondisk::{BlockGroupType, DevId, Logical};
use std::ops::Range;

/// The space of the pool.
#[derive(Debug)]
pub(crate) struct Space {}

/// Data space that is taken and not referred to yet: it goes back if this is dropped, unless [`keep`](Self::keep)
/// was called when the extent's first reference was queued.
#[derive(Debug)]
pub struct ReservedExtent<'p> {
    /// Where it begins.
    pub start: Logical,
    /// Its length in bytes.
    pub length: u64,
    pub(crate) pool: &'p Pool,
}

impl ReservedExtent<'_> {
    /// The extent is referred to now.
    pub fn keep(self) {
        todo!()
    }
}

/// What is freed in a transaction, to be used again only when it is durable.
#[derive(Debug, Default)]
pub(crate) struct Pinned {}

/// A promise of metadata space, for one operation.
#[derive(Debug, Default)]
pub(crate) struct MetadataReservation {
    pub(crate) bytes: u64,
}

/// How badly metadata space is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// Like any operation.
    #[default]
    Normal,
    /// It frees space: it may have what is kept back for that.
    Freeing,
}

/// Whether freed space is given back to the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiscardMode {
    /// Never.
    #[default]
    None,
    /// In the background, some time after the commit.
    Async,
}

impl Space {
    /// Reads the block groups.
    pub(crate) fn load(pool: &Pool, options: &WriterOptions) -> Result<Self, TreeError> {
        let _ = (pool, options);
        todo!()
    }

    /// Whether there is anything to write back.
    pub(crate) fn has_changes(&self) -> bool {
        todo!()
    }

    /// What the superblock's array of system chunks must hold, if that has changed since the pool was opened.
    pub(crate) fn system_chunk_array(&self, pool: &Pool) -> Result<Option<Vec<u8>>, TreeError> {
        let _ = pool;
        todo!()
    }

    /// Looks up free space until [`allocate_blocks`](Self::allocate_blocks) can serve everything that is changed so
    /// far: call it before each round of a commit, with no tree locked, for it reads trees.
    pub(crate) fn prepare(&self, pool: &Pool) -> Result<(), TreeError> {
        let _ = pool;
        todo!()
    }

    /// Places for so many tree blocks, in as few and as long runs as there are, near `hint` if possible. Reads no
    /// tree, so that it may be called with trees locked.
    pub(crate) fn allocate_blocks(
        &self,
        pool: &Pool,
        content: BlockGroupType,
        count: usize,
        hint: Option<Logical>,
    ) -> Result<Vec<Logical>, TreeError> {
        let _ = (pool, content, count, hint);
        todo!()
    }

    /// An extent got its item in the extent tree; it was allocated by [`allocate_blocks`](Self::allocate_blocks) or
    /// [`Pool::reserve_extent`].
    pub(crate) fn extent_recorded(&self, start: Logical, length: u64) {
        let _ = (start, length);
        todo!()
    }

    /// An extent is about to lose its item in the extent tree (`was_recorded`; call it before the item is removed, so
    /// that who looks for free space never takes it for free), or is given up without ever having had one. Either
    /// way its space is pinned.
    pub(crate) fn extent_freed(&self, start: Logical, length: u64, was_recorded: bool) {
        let _ = (start, length, was_recorded);
        todo!()
    }

    /// Brings free space tree, block group items, chunks and device items up to date; whether anything was to do.
    pub(crate) fn write_back(&self, editor: &Editor<'_>) -> Result<bool, TreeError> {
        let _ = editor;
        todo!()
    }

    /// The transaction is frozen: what it has freed.
    pub(crate) fn freeze(&self) -> Pinned {
        todo!()
    }

    /// The transaction is durable: what it has freed is free.
    pub(crate) fn unpin(&self, pool: &Pool, pinned: Pinned) {
        let _ = (pool, pinned);
        todo!()
    }

    /// Promises metadata space for `bytes` of changed blocks on top of everything promised and dirty so far.
    /// `Ok(None)`: not now; a commit may help.
    pub(crate) fn reserve_metadata(
        &self,
        pool: &Pool,
        bytes: u64,
        urgency: Urgency,
    ) -> Result<Option<MetadataReservation>, TreeError> {
        let _ = (pool, bytes, urgency);
        todo!()
    }

    /// Takes a promise back.
    pub(crate) fn release_metadata(&self, reservation: MetadataReservation) {
        let _ = reservation;
        todo!()
    }

    /// Bytes in use, for the superblock.
    pub(crate) fn bytes_used(&self) -> u64 {
        todo!()
    }
}

/// How much space there is, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceSummary {
    /// By content and profile.
    pub groups: Vec<GroupSummary>,
    /// By devid.
    pub devices: Vec<DeviceSpace>,
    /// Data space that was promised and not taken yet, in bytes.
    pub promised_data_bytes: u64,
    /// Metadata space that running operations were promised, in bytes.
    pub promised_metadata_bytes: u64,
    /// Metadata space that is kept back so that files can be deleted on a full pool, in bytes.
    pub kept_back_bytes: u64,
}

/// All block groups of one content and profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// Content and profile.
    pub kind: BlockGroupType,
    /// Their logical length, in bytes.
    pub total_bytes: u64,
    /// What has an item in the extent tree, in bytes.
    pub used_bytes: u64,
    /// What is taken and has no item yet, in bytes.
    pub reserved_bytes: u64,
    /// What was freed, and can be used again when that is durable, in bytes.
    pub pinned_bytes: u64,
    /// What is free and can't be used, because its devices can't be written or superblocks lie there, in bytes.
    pub read_only_bytes: u64,
}

/// A device's unallocated space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpace {
    /// Its id in the pool.
    pub devid: DevId,
    /// What of it the pool uses, in bytes.
    pub total_bytes: u64,
    /// What belongs to no chunk, in bytes.
    pub unallocated_bytes: u64,
}

impl Pool {
    /// How much space there is as of now.
    pub fn space_summary(&self) -> Result<SpaceSummary, TreeError> {
        todo!()
    }

    /// Tells devices of what was freed ([`DiscardMode::Async`]), at most about so many bytes; how many it were. To be
    /// called from time to time, with no tree locked and outside of a transaction.
    pub fn discard_step(&self, budget_bytes: u64) -> Result<u64, TreeError> {
        let _ = budget_bytes;
        todo!()
    }

    /// Tells devices of every free range of at least so many bytes, within a range of logical addresses, and of what
    /// belongs to no chunk (`fstrim`); how many bytes it were.
    pub fn trim(&self, range: Range<Logical>, min_bytes: u64) -> Result<u64, TreeError> {
        let _ = (range, min_bytes);
        todo!()
    }

    /// Promises so many bytes of data space; [`TreeError::NoSpace`] if there are not. May commit if that helps: not to
    /// be called within a transaction.
    pub fn reserve_data(&self, bytes: u64) -> Result<(), TreeError> {
        let _ = bytes;
        todo!()
    }

    /// Takes back what was promised and is not needed (any more).
    pub fn release_data(&self, bytes: u64) {
        let _ = bytes;
        todo!()
    }

    /// Takes data space that was promised: one extent of `min` to `max` bytes, multiples of the sector size, as
    /// long as there is, near `hint` if possible. The promise shrinks by what is taken.
    pub fn reserve_extent(
        &self,
        min: u64,
        max: u64,
        hint: Option<Logical>,
    ) -> Result<ReservedExtent<'_>, TreeError> {
        let _ = (min, max, hint);
        todo!()
    }
}
