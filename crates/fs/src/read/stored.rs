//! Extents as they lie on the devices: for senders that pass compressed ones on as they are.

use crate::attributes::InodeId;
use crate::error::FsError;
use crate::read::Reader;
use brindle_ondisk::{Logical, to_u64, to_usize};
use brindle_tree::Committed;
use brindle_volume::DataChecksums;

/// An extent of a file on the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredExtent {
    /// The file.
    pub file: InodeId,
    /// Offset in the file, in bytes; for messages.
    pub offset: u64,
    /// Its address.
    pub address: Logical,
    /// Its length on disk, in bytes.
    pub length: u64,
    /// True if its sectors have checksums.
    pub has_checksums: bool,
}

impl Reader {
    pub(crate) fn read_stored(
        &self,
        _committed: &Committed<'_>,
        extent: &StoredExtent,
    ) -> Result<Vec<u8>, FsError> {
        let StoredExtent { file, offset, address: at, length, has_checksums } = *extent;
        let _stops = self.core.pool().stop_on_panic();
        let volume = self.core.pool().volume();
        let failed = |source| FsError::Data { file, offset, source };
        let mut bytes = vec![0; to_usize(length)];
        if !has_checksums {
            volume.read_data(at, &mut bytes, &DataChecksums::none()).map_err(failed)?;
            return Ok(bytes);
        }
        let checksums = self.extents.checksums(at, to_u64(bytes.len()))?;
        let sectors = bytes.len() / to_usize(volume.tree_context().sectorsize.into());
        if checksums.found != sectors {
            return Err(FsError::NoChecksum { file, offset, at, sectors, found: checksums.found });
        }
        volume.read_data(at, &mut bytes, &DataChecksums::all(&checksums.bytes)).map_err(failed)?;
        Ok(bytes)
    }
}
