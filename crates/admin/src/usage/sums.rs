//! Sums over the pool, by the reckoning of btrfs-progs, so that both tell the same numbers.

use super::{DeviceUsage, KindUsage, Usage};
use brindle_ondisk::BlockGroupType;

/// Sums over the pool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overall {
    /// Size of all devices.
    pub size: u64,
    /// Bytes that belong to chunks.
    pub allocated: u64,
    /// Bytes that belong to none, and could.
    pub unallocated: u64,
    /// Size of the devices that are missing.
    pub missing: u64,
    /// Bytes behind the parts of devices that the pool uses.
    pub slack: u64,
    /// Used bytes on devices, every copy counted.
    pub used: u64,
    /// Data that could still be written in the present profile.
    pub free: u64,
    /// The same, if unallocated space went to the most redundant of the present profiles.
    pub free_min: u64,
    /// Bytes on devices for a byte of data, and of metadata.
    pub ratios: Ratios,
}

/// Bytes on devices for one byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// Of data.
    pub data: f64,
    /// Of metadata.
    pub metadata: f64,
}

/// Unallocated bytes below which no chunk is expected to come of them.
const UNALLOCATED_MIN: u64 = 16 << 20;

impl Usage {
    /// Sums over the pool.
    pub fn overall(&self) -> Overall {
        let (data, metadata) = (self.sum(is_data), self.sum(is_metadata));
        let ratios = Ratios { data: data.ratio(), metadata: metadata.ratio() };
        let size: u64 = self.devices.iter().map(|device| device.total_bytes).sum();
        let allocated: u64 = self.devices.iter().map(|device| device.allocated_bytes).sum();
        let unallocated: u64 = self.devices.iter().map(DeviceUsage::unallocated_bytes).sum();
        let used: f64 = self.kinds.iter().map(KindUsage::raw_used).sum();
        let room = (data.raw - data.raw_used).max(0.0) / ratios.data;
        let room = (room - data.sealed).max(0.0);
        let greatest = self.kinds.iter().map(KindUsage::ratio).fold(1.0, f64::max);
        let (mut free, mut free_min) = (room, room);
        if unallocated >= UNALLOCATED_MIN {
            free += number(unallocated) / ratios.data;
            free_min += number(unallocated) / greatest;
        }
        let missing = self.devices.iter().filter(|device| device.is_missing);
        Overall {
            size,
            allocated,
            unallocated,
            missing: missing.map(|device| device.total_bytes).sum(),
            slack: self.devices.iter().map(|device| device.slack_bytes).sum(),
            used: whole(used),
            free: whole(free),
            free_min: whole(free_min),
            ratios,
        }
    }

    /// Contents of which there is more than one profile, in small letters.
    pub fn contents_of_several_profiles(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for sum in &self.kinds {
            let content = sum.kind & BlockGroupType::CONTENT;
            let same = self.kinds.iter().filter(|other| other.kind & BlockGroupType::CONTENT == content);
            let name = sum.kind.content_name().to_lowercase();
            if same.count() > 1 && !found.contains(&name) {
                found.push(name);
            }
        }
        found
    }

    fn sum(&self, is_meant: fn(BlockGroupType) -> bool) -> Sum {
        let kinds = self.kinds.iter().filter(|sum| is_meant(sum.kind));
        kinds.fold(Sum::default(), |sum, kind| Sum {
            total: sum.total + number(kind.total_bytes),
            raw: sum.raw + number(kind.raw_bytes),
            raw_used: sum.raw_used + kind.raw_used(),
            sealed: sum.sealed + number(kind.sealed_bytes),
        })
    }
}

impl KindUsage {
    fn ratio(&self) -> f64 {
        match self.total_bytes {
            0 => 1.0,
            total => number(self.raw_bytes) / number(total),
        }
    }

    fn raw_used(&self) -> f64 {
        number(self.used_bytes) * self.ratio()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    total: f64,
    raw: f64,
    raw_used: f64,
    sealed: f64,
}

impl Sum {
    fn ratio(&self) -> f64 {
        if self.total > 0.0 { self.raw / self.total } else { 1.0 }
    }
}

fn is_data(kind: BlockGroupType) -> bool {
    kind.contains(BlockGroupType::DATA)
}

fn is_metadata(kind: BlockGroupType) -> bool {
    kind.contains(BlockGroupType::METADATA)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate; sizes of real pools are exact")]
fn number(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sums of sizes, none negative")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::{DevId, Uuid};
    use std::collections::BTreeMap;

    fn kind(kind: BlockGroupType, total_bytes: u64, used_bytes: u64, raw_bytes: u64) -> KindUsage {
        KindUsage { kind, total_bytes, used_bytes, raw_bytes, sealed_bytes: 0, classes: BTreeMap::new() }
    }

    /// Numbers that btrfs-progs 6.2 told of a pool of the kernel.
    #[test]
    fn sums_are_those_of_btrfs_progs() {
        let mut usage = Usage::empty(Uuid([1; 16]));
        let (data, raid0, raid5) = (BlockGroupType::DATA, BlockGroupType::RAID0, BlockGroupType::RAID5);
        usage.kinds = vec![
            kind(data | raid0, 352_321_536, 201_326_592, 352_321_536),
            kind(data | raid5, 1_006_632_960, 742_391_808, 1_509_949_440),
            kind(BlockGroupType::METADATA | BlockGroupType::RAID1C3, 16_777_216, 1_097_728, 50_331_648),
            kind(BlockGroupType::SYSTEM | BlockGroupType::RAID1C3, 33_554_432, 16_384, 100_663_296),
        ];
        let device = |devid| DeviceUsage {
            devid: DevId::new(devid),
            path: "x".into(),
            is_missing: devid == 3,
            is_seed: false,
            total_bytes: 1 << 30,
            slack_bytes: 0,
            allocated_bytes: 671_088_640,
            class: Default::default(),
            listed_class: None,
            pieces: BTreeMap::new(),
        };
        usage.devices = vec![device(1), device(2), device(3)];
        let overall = usage.overall();
        assert_eq!((overall.allocated, overall.unallocated), (2_013_265_920, 1_207_959_552));
        assert_eq!((overall.size, overall.missing), (3 << 30, 1 << 30));
        assert_eq!(overall.used, 1_318_256_640);
        assert_eq!((overall.free, overall.free_min), (1_280_906_433, 802_075_620));
        assert_eq!(format!("{:.2}", overall.ratios.data), "1.37");
        assert_eq!(usage.contents_of_several_profiles(), ["data"]);
    }
}
