//! Copies of the superblock.

use crate::device::{PoolDevice, count};
use crate::{DeviceSet, SuperblockCopies, Volume};
use brindle_device::Device;
use brindle_ondisk::{DevId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, to_u64};

/// Number of transactions by which a copy may be older than the best one of its device: a crash comes between the copies,
/// and transactions may be passed over.
const LAG_MAX: u64 = 3;

/// Copies of the superblock of one device that are wrong: their numbers, and the problems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuperblockScrub {
    /// Wrong copies.
    pub wrong: Vec<(usize, String)>,
}

impl Volume {
    /// Reads all copies of the superblock of a device that is there. One that is written meanwhile may look wrong.
    pub fn scrub_superblocks(&self, devid: DevId) -> SuperblockScrub {
        let (pool, superblock) = (self.snapshot(), self.superblock());
        let is_it = |device: &&PoolDevice| device.devid == devid && !device.is_intruder;
        let mut scrub = SuperblockScrub::default();
        let Some(member) = pool.devices.iter().find(is_it) else { return scrub };
        let Some(device) = member.device.as_ref().filter(|_| !member.is_seed) else { return scrub };
        let size_bytes = member.total_bytes().min(device.size_bytes());
        let fits = |offset: &u64| offset + to_u64(SUPERBLOCK_SIZE) <= size_bytes;
        let copies = SUPERBLOCK_OFFSETS.into_iter().filter(fits).enumerate();
        let read: Vec<_> = copies.map(|(copy, at)| (copy, self.copy(device.as_ref(), devid, at))).collect();
        let best =
            read.iter().filter_map(|(_, found)| found.as_ref().ok()).map(|found| found.generation.get());
        let best = best.max().unwrap_or(0);
        for (copy, found) in read {
            let problem = match found {
                Err(problem) => problem,
                Ok(found) if found.generation > superblock.generation => {
                    format!("generation {} is that of no commit", found.generation)
                }
                Ok(found) if found.generation.get() + LAG_MAX < best => {
                    format!("generation {}, that of another copy is {best}", found.generation)
                }
                Ok(_) => continue,
            };
            scrub.wrong.push((copy, problem));
        }
        scrub
    }

    /// Counts wrong copies against their device.
    pub fn count_superblocks(&self, devid: DevId, wrong: &SuperblockScrub) {
        let pool = self.snapshot();
        let is_it = |device: &&PoolDevice| device.devid == devid && !device.is_intruder;
        if let Some(member) = pool.devices.iter().find(is_it) {
            wrong.wrong.iter().for_each(|_| count(&member.counters.checksum_errors));
        }
    }

    fn copy(&self, device: &dyn Device, devid: DevId, offset: u64) -> Result<Box<Superblock>, String> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.forget_cached(offset, to_u64(SUPERBLOCK_SIZE));
        device.read_at(offset, &mut bytes).map_err(|error| error.to_string())?;
        let found = Superblock::parse(&bytes, offset).map_err(|defect| defect.to_string())?;
        let is_ours = found.fsid == self.superblock().fsid && found.dev_item.devid == devid;
        if is_ours { Ok(found) } else { Err("it is that of another device".to_owned()) }
    }

    /// Writes copies of the superblock of the last commit anew, and makes them durable; returns false if that failed. A
    /// good copy is not written before another one is durable: no crash leaves the device without any. The caller sees to
    /// it that none is written meanwhile.
    pub fn rewrite_superblocks(&self, devid: DevId, wrong: &SuperblockScrub) -> bool {
        let (superblock, set) = (self.superblock(), DeviceSet::from_iter([devid]));
        let is_first_wrong = wrong.wrong.iter().any(|(copy, _)| *copy == 0);
        let are_others_wrong = wrong.wrong.iter().any(|(copy, _)| *copy != 0);
        // Those of a device that slept are older, and the record of the next commit demands what the first one is then.
        let are_others_due = are_others_wrong || is_first_wrong;
        let steps = [(is_first_wrong, SuperblockCopies::First), (are_others_due, SuperblockCopies::Others)];
        let mut writes = steps.into_iter().filter(|(is_wrong, _)| *is_wrong);
        let written = writes.try_for_each(|(_, copies)| {
            self.write_superblocks(&superblock, &[], copies, &set)?;
            self.flush(&set)
        });
        written.inspect_err(|error| tracing::warn!("scrub: {error}")).is_ok()
    }
}
