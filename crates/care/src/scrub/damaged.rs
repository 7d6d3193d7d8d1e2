//! Files that bad copies of data belong to, and whether a good one is left.

use super::ScrubError;
use super::names::files_of_data;
use brindle_fs::{Filesystem, FsError};
use brindle_ondisk::Logical;
use std::collections::{BTreeMap, BTreeSet};

/// The part of a file that is read to see whether it is lost, in bytes.
const SECTOR_BYTES: usize = 4096;

/// A file with a bad copy of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// Path from the top level.
    pub path: Vec<u8>,
    /// Offsets of the bad sectors in it.
    pub offsets: BTreeSet<u64>,
    /// True if no copy of one of these sectors is right.
    pub is_lost: bool,
}

/// The files that data at these addresses belongs to, by path; of an extent that many share, the first ones. Also the first
/// reason for which others can't be named. The filesystem is entered by its top level.
pub fn damaged_files(
    filesystem: &Filesystem,
    addresses: &BTreeSet<Logical>,
) -> (Vec<DamagedFile>, Option<ScrubError>) {
    let mut files: BTreeMap<Vec<u8>, BTreeSet<u64>> = BTreeMap::new();
    let mut failed: Option<ScrubError> = None;
    for at in addresses {
        match files_of_data(filesystem, *at) {
            Ok(found) => {
                for (path, offset) in found {
                    files.entry(path).or_default().insert(offset);
                }
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let damaged = |(path, offsets): (Vec<u8>, BTreeSet<u64>)| {
        let is_lost = offsets.iter().any(|offset| read(filesystem, &path, *offset).is_err());
        DamagedFile { path, offsets, is_lost }
    };
    (files.into_iter().map(damaged).collect(), failed)
}

/// Reads a sector of a file from any copy that is right.
fn read(filesystem: &Filesystem, path: &[u8], offset: u64) -> Result<(), FsError> {
    let file = filesystem.open_file(filesystem.resolve(filesystem.root(), path)?)?;
    filesystem.read(&file, offset, &mut [0; SECTOR_BYTES]).map(|_| ())
}
