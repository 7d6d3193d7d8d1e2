//! Repairs of trees: one transaction on the overlays.

use crate::error::RescueError;
use crate::patient::Patient;
use brindle_ondisk::RootId;
use brindle_tree::{Editor, OpenOptions, Pool, Recount, Roots, TreeError, WriterOptions};
use brindle_volume::LeaseMode;

/// Memory for nodes, in bytes: a transaction that fills it would be committed in two.
const CACHE_BYTES: usize = 4 << 30;

/// Opens the pool in memory, counts anew what is asked for, makes a change, and commits all of it as one transaction. Every copy of
/// every superblock is written.
///
/// # Errors
/// A pool that can't be opened to be written: devices are missing, it has a log, a relocation or a replacement is under way. More than
/// one transaction.
pub fn change<T>(
    patient: &Patient,
    recount: Recount,
    act: impl FnOnce(&Editor<'_>) -> Result<T, TreeError>,
) -> Result<T, RescueError> {
    change_as(patient, OpenOptions::default(), recount, act)
}

/// The same of a pool that has a device which is shorter than the pool has it: the caller has seen that no chunk lies there.
pub(crate) fn change_sizes(patient: &Patient) -> Result<(), RescueError> {
    let mut options = OpenOptions::default();
    options.volume.allows_short = true;
    change_as(patient, options, Recount { space: false, devices: true }, |_| Ok(()))
}

fn change_as<T>(
    patient: &Patient,
    mut options: OpenOptions,
    recount: Recount,
    act: impl FnOnce(&Editor<'_>) -> Result<T, TreeError>,
) -> Result<T, RescueError> {
    options.cache_bytes = CACHE_BYTES;
    // That of the devices was looked at, and what is written here is written to memory.
    options.volume.lease.mode = LeaseMode::Ignored;
    let writer = WriterOptions { recount, ..WriterOptions::default() };
    let pool = Pool::open_writable(patient.writable(), &options, &writer)?;
    let before = pool.superblock().generation;
    let done = pool.exclusively(|editor| {
        let done = act(editor)?;
        // Totals of the superblock are corrected by a commit, and there is none without a change.
        Roots::of(editor).change_item(RootId::FS_TREE, |_| ())?;
        Ok(done)
    })?;
    pool.commit()?;
    pool.wake_devices()?;
    let after = pool.superblock().generation;
    if after.get() > before.get() + 1 {
        return Err(RescueError::Transactions { before, after });
    }
    Ok(done)
}
