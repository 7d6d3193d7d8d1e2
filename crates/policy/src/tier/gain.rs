//! Time for which devices are busy when all metadata is read, as it lies and as a plan would have it: a plain model of drives, an
//! upper bound, which no cache and no readahead shortens.

use super::plan::Plan;
use super::{Content, TierChunk, TierPool};
use crate::placement::{Fit, PlacementClass};
use brindle_ondisk::Logical;
use std::collections::BTreeSet;
use std::time::Duration;

/// Size of a tree block as mkfs makes it.
const BLOCK_BYTES: u64 = 16 << 10;
/// Time of a read from a disk of 7200 revolutions a minute: a short seek and half a revolution.
const DISK_READ: Duration = Duration::from_millis(8);
/// Time of a read from flash.
const FLASH_READ: Duration = Duration::from_micros(100);

/// Times of reading all metadata once, block by block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataReads {
    /// Time before the plan is carried out.
    pub before: Duration,
    /// Time after it.
    pub after: Duration,
}

/// Times before and after a plan; `None` if that moves no metadata.
pub fn metadata_reads(pool: &TierPool, plan: &Plan) -> Option<MetadataReads> {
    let moves =
        plan.passes.iter().filter(|pass| pass.target == PlacementClass::Fast).flat_map(|pass| &pass.moves);
    let moved: BTreeSet<Logical> = moves.map(|moved| moved.logical).collect();
    let is_metadata = |chunk: &&TierChunk| matches!(chunk.content(), Content::Metadata | Content::System);
    let mut reads = MetadataReads::default();
    for chunk in pool.chunks.iter().filter(is_metadata) {
        let (blocks, slow) = (chunk.used_bytes / BLOCK_BYTES, slow_parts(pool, chunk));
        reads.before += time(blocks, slow);
        reads.after +=
            time(blocks, if moved.contains(&chunk.logical) { slow_parts_then(pool, chunk) } else { slow });
    }
    (!moved.is_empty()).then_some(reads)
}

/// Time of reads, of which this part of all goes to disks.
fn time(blocks: u64, (slow, all): (usize, usize)) -> Duration {
    let from_disk = blocks * brindle_ondisk::to_u64(slow) / brindle_ondisk::to_u64(all.max(1));
    let times = |count: u64, each: Duration| each.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    times(from_disk, DISK_READ) + times(blocks - from_disk, FLASH_READ)
}

/// Stripes of a chunk on bulk devices among those that are read, and the number of all of them. brindle reads a copy on flash where
/// there is one; the kernel chooses among copies without regard to that.
fn slow_parts(pool: &TierPool, chunk: &TierChunk) -> (usize, usize) {
    let is_slow = |devid| pool.class(devid) == PlacementClass::Bulk;
    let (slow, all) =
        (chunk.stripes.iter().filter(|stripe| is_slow(stripe.devid)).count(), chunk.stripes.len());
    let mirrored = usize::from(chunk.profile().attributes().ncopies) == all;
    if pool.is_ours && mirrored && slow < all { (0, all) } else { (slow, all) }
}

/// The same when the chunk lies as well as the devices allow.
fn slow_parts_then(pool: &TierPool, chunk: &TierChunk) -> (usize, usize) {
    let all = chunk.stripes.len();
    match pool.fit(chunk.content(), chunk.profile()) {
        Fit::Whole => (0, all),
        Fit::Copies(_) if pool.is_ours => (0, all),
        Fit::Copies(copies) => (all.saturating_sub(copies), all),
        Fit::Nothing => slow_parts(pool, chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Wanted, plan};
    use super::super::{TierDevice, TierStripe};
    use super::*;
    use brindle_ondisk::{BlockGroupType, DevId, Physical};

    const GIB: u64 = 1 << 30;

    /// Two disks and some flash, with 1,000 blocks of metadata on the first two devices.
    fn pool(fast: u64, profile: BlockGroupType, is_ours: bool) -> TierPool {
        let device = |devid| TierDevice {
            devid: DevId::new(devid),
            class: if devid > 2 { PlacementClass::Fast } else { PlacementClass::Bulk },
            rank: 0,
            total_bytes: 100 * GIB,
        };
        let stripe = |devid| TierStripe { devid: DevId::new(devid), physical: Physical::new(GIB) };
        let chunk = TierChunk {
            logical: Logical::new(GIB),
            length_bytes: GIB,
            used_bytes: 1000 * BLOCK_BYTES,
            kind: BlockGroupType::METADATA | profile,
            stripes: vec![stripe(1), stripe(2)],
            is_write_back: false,
        };
        TierPool {
            devices: (1..=2 + fast).map(device).collect(),
            chunks: vec![chunk],
            is_ours,
            ..TierPool::default()
        }
    }

    fn milliseconds(pool: &TierPool) -> Option<[u128; 2]> {
        let found = metadata_reads(pool, &plan(pool, Wanted { metadata: true, data: true }))?;
        Some([found.before.as_millis(), found.after.as_millis()])
    }

    #[test]
    fn reads_go_from_disks_to_flash_as_far_as_copies_do() {
        let raid1 = BlockGroupType::RAID1;
        assert_eq!(milliseconds(&pool(2, raid1, true)), Some([8000, 100]));
        assert_eq!(milliseconds(&pool(2, raid1, false)), Some([8000, 100]));
        // One copy on flash: brindle reads that one, the kernel the other one as often.
        assert_eq!(milliseconds(&pool(1, raid1, true)), Some([8000, 100]));
        assert_eq!(milliseconds(&pool(1, raid1, false)), Some([8000, 4050]));
        assert_eq!(milliseconds(&pool(0, raid1, true)), None, "nothing is moved");
        assert_eq!(milliseconds(&pool(1, BlockGroupType::RAID0, true)), Some([8000, 100]));
        // The kernel stripes, whatever is done.
        let striped = pool(1, BlockGroupType::RAID0, false);
        let found = plan(&striped, Wanted { metadata: true, data: true });
        assert!(found.is_empty() && found.refusals.is_empty());
        assert!(found.shortages[0].to_string().contains("stripes it over all devices"));
        assert_eq!(metadata_reads(&striped, &found), None);
    }
}
