//! Places of superblocks inside of chunks: free space there must not be used.

use brindle_interval::Interval;
use brindle_ondisk::{BlockGroupType, Profile, SUPERBLOCK_OFFSETS};
use brindle_policy::placement::STRIP_BYTES;

/// The logical ranges of a chunk that lie on a superblock, a strip each (a row of strips with parity): what the
/// kernel leaves out too. `stripes` are offsets on devices, all of `stripe_bytes`.
pub(super) fn excluded(
    chunk: Interval,
    kind: BlockGroupType,
    stripes: &[u64],
    stripe_bytes: u64,
) -> Vec<Interval> {
    let profile = kind.profile().unwrap_or(Profile::Single);
    let attributes = profile.attributes();
    let count = stripes.len() as u64;
    let parity = u64::from(attributes.nparity);
    let columns = (count / u64::from(attributes.ncopies)).saturating_sub(parity).max(1);
    let mut spans = Vec::new();
    for (number, physical) in (0..).zip(stripes) {
        for superblock in SUPERBLOCK_OFFSETS {
            let Some(offset) = superblock.checked_sub(*physical).filter(|offset| *offset < stripe_bytes)
            else {
                continue;
            };
            let row = offset / STRIP_BYTES;
            let (first, strips) = match profile {
                Profile::Raid0 => (row * count + number, 1),
                Profile::Raid10 => (row * columns + number / u64::from(attributes.sub_stripes), 1),
                Profile::Raid5 | Profile::Raid6 => (row * columns, columns),
                _ => (row, 1),
            };
            let (from, to) = (first * STRIP_BYTES, ((first + strips) * STRIP_BYTES).min(chunk.length()));
            if from < to {
                spans.push(Interval { start: chunk.start + from, end: chunk.start + to });
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn strips(start: u64, count: u64) -> Interval {
        Interval::new(start, count * STRIP_BYTES)
    }

    #[test]
    fn both_copies_of_dup_are_regarded() {
        let kind = BlockGroupType::METADATA | BlockGroupType::DUP;
        let spans = excluded(Interval::new(1000 * MIB, 256 * MIB), kind, &[37 * MIB, 300 * MIB], 256 * MIB);
        assert_eq!(spans, [strips(1027 * MIB, 1)]);
        let spans = excluded(Interval::new(1000 * MIB, 32 * MIB), kind, &[37 * MIB, 60 * MIB], 32 * MIB);
        assert_eq!(spans, [strips(1027 * MIB, 1), strips(1004 * MIB, 1)]);
    }

    #[test]
    fn stripes_are_dealt() {
        let raid0 = BlockGroupType::DATA | BlockGroupType::RAID0;
        let spans = excluded(Interval::new(0, 128 * MIB), raid0, &[60 * MIB, 200 * MIB], 64 * MIB);
        // Row 64 of the first of two stripes.
        assert_eq!(spans, [strips(128 * STRIP_BYTES, 1)]);
        let raid10 = BlockGroupType::DATA | BlockGroupType::RAID10;
        let stripes = [200 * MIB, 200 * MIB, 200 * MIB, 60 * MIB];
        assert_eq!(
            excluded(Interval::new(0, 128 * MIB), raid10, &stripes, 64 * MIB),
            [strips(129 * STRIP_BYTES, 1)]
        );
        let raid6 = BlockGroupType::DATA | BlockGroupType::RAID6;
        assert_eq!(
            excluded(Interval::new(0, 128 * MIB), raid6, &stripes, 64 * MIB),
            [strips(128 * STRIP_BYTES, 2)]
        );
    }

    #[test]
    fn a_chunk_beside_superblocks_has_no_hole() {
        assert_eq!(excluded(Interval::new(0, 63 * MIB), BlockGroupType::DATA, &[MIB], 63 * MIB), []);
    }
}
