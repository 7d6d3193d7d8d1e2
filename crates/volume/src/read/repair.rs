//! Repair: a copy that was bad is written over with what was right elsewhere.

use crate::chunk::Chunk;
use crate::device::count;
use crate::layout::Way;
use crate::locks::Locks;
use crate::pool::Pool;
use brindle_ondisk::to_u64;

impl Pool {
    /// Writes verified bytes over the copies that some ways have found bad. Best effort: what fails is
    /// counted, the bytes are known anyhow.
    pub(super) fn repair(
        &self,
        locks: &Locks,
        chunk: &Chunk,
        offset: u64,
        good: usize,
        bad: &[usize],
        bytes: &[u8],
    ) {
        let mut run = chunk.layout.run_at(offset);
        if bad.is_empty() || run.length < to_u64(bytes.len()) {
            return;
        }
        run.length = to_u64(bytes.len());
        let stripes: Vec<usize> = bad
            .iter()
            .filter_map(|way| match chunk.layout.way(&run, *way) {
                Way::Direct(stripe) => Some(stripe),
                Way::Rebuild(_) => None,
            })
            .collect();
        if stripes.is_empty() {
            return;
        }
        let _no_writers = locks.repair();
        // The place may have been given up and written anew since it was read.
        let mut again = vec![0; bytes.len()];
        if self.read_run(chunk, &run, good, &mut again).is_err() || again != bytes {
            return;
        }
        for stripe in stripes {
            let place = &chunk.stripes[stripe];
            let member = &self.devices[place.device];
            let Some(device) = &member.writable else { continue };
            let physical = place.physical.get() + run.stripe_offset;
            let begun = member.begin_write();
            match device.write_at(physical, bytes) {
                Ok(()) if !member.has_taken(begun, physical, run.length) => {}
                Ok(()) => {
                    count(&member.counters.repaired);
                    tracing::info!("{}: repaired {} bytes at offset {physical}", device.name(), run.length);
                }
                Err(error) => {
                    tracing::warn!("{error}");
                    count(&member.counters.write_errors);
                }
            }
        }
    }
}
