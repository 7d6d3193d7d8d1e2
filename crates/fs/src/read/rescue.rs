//! Data of a damaged pool that is read without all of its checksums, where that was asked for.

use crate::read::Reader;
use brindle_ondisk::{Logical, RootId, to_u64, to_usize};
use brindle_tree::{Pool, TreeError};
use brindle_volume::{DataChecksums, ReadError};

/// Warnings of the assurances that a pool was opened without.
pub(crate) fn warnings(pool: &Pool) -> Vec<String> {
    let rescue = pool.volume().rescue();
    let mut warnings = Vec::new();
    if rescue.data_checksums {
        warnings.push(
            "rescue=idatacsums: data that matches its checksum in no copy is shown as it is, and may be wrong"
                .to_owned(),
        );
    }
    if rescue.tree_checksums {
        warnings.push(
            "rescue=imetacsums: names, sizes and places of data may be wrong where tree blocks match their checksum in \
             no copy"
                .to_owned(),
        );
    }
    if let Some(error) = checksum_tree_problem(pool) {
        warnings.push(format!(
            "rescue=ibadroots: without the checksum tree, data is not verified, and may be wrong: {error}"
        ));
    }
    warnings
}

/// The problem of a checksum tree that the pool goes without.
fn checksum_tree_problem(pool: &Pool) -> Option<TreeError> {
    pool.volume().rescue().bad_roots.then(|| pool.check_root(RootId::CSUM_TREE).err()).flatten()
}

impl Reader {
    /// Returns true if data is served whose checksums can't be had.
    pub(super) fn goes_without_checksums(&self) -> bool {
        let pool = self.core.pool();
        pool.volume().rescue().data_checksums || checksum_tree_problem(pool).is_some()
    }

    /// Reads whole sectors, and verifies those that have a checksum.
    pub(super) fn read_partly_verified(&self, address: Logical, buffer: &mut [u8]) -> Result<(), ReadError> {
        let volume = self.core.pool().volume();
        let sector_bytes = u64::from(volume.tree_context().sectorsize);
        let mut at = address;
        for sector in buffer.chunks_mut(to_usize(sector_bytes)) {
            let known = self
                .extents
                .checksums(at, to_u64(sector.len()))
                .ok()
                .filter(|checksums| checksums.found == 1);
            let checksums = known.as_ref().map(|checksums| DataChecksums::all(&checksums.bytes));
            volume.read_data(at, sector, &checksums.unwrap_or_default())?;
            at = at + sector_bytes;
        }
        Ok(())
    }
}
