//! Checksums by which the sectors of a file are verified.

use super::{Reader, Reading};
use crate::error::FsError;
use brindle_ondisk::item::InodeFlags;
use brindle_ondisk::{Logical, to_usize};
use brindle_volume::DataChecksums;

/// Checksums of whole sectors.
pub(super) enum Sums {
    /// None: the file has none, or the pool is read without.
    None,
    /// One a sector.
    All(Vec<u8>),
    /// Those of some sectors; the others are read without, one by one.
    Some,
}

impl Sums {
    /// The checksums of all sectors, or of none; `None` if some have one.
    pub(super) fn of_all(&self) -> Option<DataChecksums<'_>> {
        match self {
            Self::None => Some(DataChecksums::none()),
            Self::All(bytes) => Some(DataChecksums::all(bytes)),
            Self::Some => None,
        }
    }
}

impl Reader {
    /// The checksums of a range of whole sectors, which a file has from an offset on.
    ///
    /// # Errors
    /// A checksum tree that can't be read, sectors without a checksum; unless they may be read without.
    pub(super) fn sums(
        &self,
        file: Reading<'_>,
        offset: u64,
        address: Logical,
        length: u64,
    ) -> Result<Sums, FsError> {
        if !self.has_checksums(file)? {
            return Ok(Sums::None);
        }
        let checksums = match self.extents.checksums(address, length) {
            Ok(checksums) => checksums,
            Err(_) if self.goes_without_checksums() => return Ok(Sums::None),
            Err(error) => return Err(error),
        };
        let sectors = to_usize(length / self.core.sector());
        if checksums.found == sectors {
            return Ok(Sums::All(checksums.bytes));
        }
        if self.goes_without_checksums() {
            return Ok(Sums::Some);
        }
        Err(FsError::NoChecksum { file: file.id(), offset, at: address, sectors, found: checksums.found })
    }

    /// Returns true if a file has checksums: by its flags, which change while it is empty alone, so that its items have another version then.
    fn has_checksums(&self, file: Reading<'_>) -> Result<bool, FsError> {
        if let Some(known) = file.cache().has_checksums(file.version) {
            return Ok(known);
        }
        let has_checksums = !self.items.quick_attributes(file.id())?.flags.contains(InodeFlags::NODATASUM);
        file.cache().keep_has_checksums(file.version, has_checksums);
        Ok(has_checksums)
    }
}
