//! The first superblock of a device, as it is known: what another writer leaves there is told by it.

use brindle_ondisk::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use brindle_sync::{Mutex, Rank, Ranked};
use zerocopy::IntoBytes;

/// Contents of the place of a first superblock.
pub(crate) type SuperblockBytes = [u8; SUPERBLOCK_SIZE];

/// The first superblock of a device as it was written here, or found.
#[derive(Debug, Default)]
pub(crate) struct FirstSuperblock(Mutex<KnownBytes>);

/// The bytes; `None` if they are not known.
#[derive(Debug, Default)]
struct KnownBytes(Option<Box<SuperblockBytes>>);

impl Ranked for KnownBytes {
    const RANK: Rank = Rank::FirstSuperblock;
}

impl FirstSuperblock {
    /// One that was found.
    pub(crate) fn found(bytes: Option<Box<SuperblockBytes>>) -> Self {
        Self(Mutex::new(Rank::FirstSuperblock, KnownBytes(bytes)))
    }

    /// Notes one that was written.
    pub(crate) fn is(&self, superblock: &Superblock) {
        let mut bytes = Box::new([0; SUPERBLOCK_SIZE]);
        bytes.copy_from_slice(superblock.as_bytes());
        self.0.lock().0 = Some(bytes);
    }

    /// Notes that a write or a flush has failed.
    pub(crate) fn is_in_doubt(&self) {
        self.0.lock().0 = None;
    }

    /// Returns true if the bytes are known.
    pub(crate) fn is_known(&self) -> bool {
        self.0.lock().0.is_some()
    }

    /// Returns the proof that another writer has left these bytes.
    pub(crate) fn compare(&self, bytes: &SuperblockBytes) -> Option<Trace> {
        let known = self.0.lock();
        let expected = known.0.as_deref().filter(|expected| *expected != bytes)?;
        let found = match Superblock::parse(bytes, SUPERBLOCK_OFFSETS[0]) {
            Ok(found) => describe(&found),
            Err(_) if !Superblock::from_bytes(bytes).has_magic() => "no superblock of btrfs".to_owned(),
            Err(_) => return None,
        };
        Some(Trace { found, expected: describe(&Superblock::from_bytes(expected)) })
    }
}

/// Trace of another writer.
pub(crate) struct Trace {
    /// The superblock that is there.
    pub(crate) found: String,
    /// The one that was written here, or found before.
    pub(crate) expected: String,
}

fn describe(superblock: &Superblock) -> String {
    let checksum = superblock.compute_checksum(superblock.checksum_type());
    format!("generation {} (checksum {checksum})", superblock.generation)
}
