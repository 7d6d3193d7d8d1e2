//! Report of a new pool.

use super::plan::{Plan, PlannedChunk, PlannedDevice, SECTORSIZE};
use super::{FEATURES, MkfsOptions, NewDevice};
use brindle_ondisk::{BlockGroupType, ChecksumType, CompatRo, DevId, Incompat, Profile, Superblock, Uuid};
use brindle_policy::placement::{AllocationHint, PlacementClass};

/// A pool that was made.
#[derive(Clone, Debug)]
pub struct MkfsReport {
    /// Its label.
    pub label: String,
    /// Its UUID.
    pub fsid: Uuid,
    /// The size of a tree block in bytes.
    pub nodesize: u32,
    /// The least unit of data in bytes.
    pub sectorsize: u32,
    /// The size of all devices in bytes.
    pub total_bytes: u64,
    /// Checksum algorithm.
    pub checksum: ChecksumType,
    /// The features that are on, by the names that `-O` takes.
    pub features: Vec<&'static str>,
    /// Features without which it can't be read.
    pub incompat: Incompat,
    /// Features without which it can't be written.
    pub compat_ro: CompatRo,
    /// The first block groups.
    pub block_groups: Vec<NewBlockGroup>,
    /// The devices, by devid.
    pub devices: Vec<PoolMember>,
    /// Warnings to the owner.
    pub warnings: Vec<String>,
}

/// A block group that was made.
#[derive(Clone, Debug)]
pub struct NewBlockGroup {
    /// Content and profile.
    pub kind: BlockGroupType,
    /// Profile.
    pub profile: Profile,
    /// The length of its logical range in bytes.
    pub length_bytes: u64,
    /// The devices it lies on, in the order of its stripes.
    pub devices: Vec<DevId>,
}

/// A device of the pool.
#[derive(Clone, Debug)]
pub struct PoolMember {
    /// Its id.
    pub devid: DevId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name, the path where there is one.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Side that it is on.
    pub class: PlacementClass,
    /// Name of its class; that of the side if it has none.
    pub class_name: String,
    /// Hint that the pool stores.
    pub hint: AllocationHint,
}

impl MkfsReport {
    pub(super) fn new(
        given: &[NewDevice],
        plan: &Plan,
        superblock: &Superblock,
        options: &MkfsOptions,
    ) -> Self {
        let member = |device: &PlannedDevice| PoolMember {
            devid: device.devid,
            uuid: device.uuid,
            name: given[device.given].device.name().to_owned(),
            size_bytes: device.total_bytes,
            class: device.class,
            class_name: given[device.given].class_name.clone().unwrap_or_else(|| device.class.to_string()),
            hint: device.hint,
        };
        let block_group = |chunk: &PlannedChunk| NewBlockGroup {
            kind: chunk.kind,
            profile: chunk.profile,
            length_bytes: chunk.length,
            devices: chunk.stripes.iter().map(|stripe| stripe.devid).collect(),
        };
        Self {
            label: options.label.clone(),
            fsid: options.fsid,
            nodesize: plan.nodesize,
            sectorsize: SECTORSIZE,
            total_bytes: superblock.total_bytes.get(),
            checksum: options.checksum,
            features: feature_names(superblock.incompat(), options),
            incompat: superblock.incompat(),
            compat_ro: superblock.compat_ro(),
            block_groups: plan.chunks.iter().map(block_group).collect(),
            devices: plan.devices.iter().map(member).collect(),
            warnings: warnings(plan),
        }
    }
}

/// Names of the chosen features, and of those that a profile brings with it.
fn feature_names(incompat: Incompat, options: &MkfsOptions) -> Vec<&'static str> {
    let chosen = FEATURES.iter().filter(|row| options.features.contains(row.feature)).map(|row| row.name);
    let brought = [(Incompat::RAID56, "raid56"), (Incompat::RAID1C34, "raid1c34")];
    let brought = brought.into_iter().filter(|(bit, _)| incompat.contains(*bit)).map(|(_, name)| name);
    chosen.chain(brought).collect()
}

fn warnings(plan: &Plan) -> Vec<String> {
    let mut warnings = Vec::new();
    let (data, metadata) = (plan.data_profile, plan.metadata_profile);
    if data.has_parity() || metadata.has_parity() {
        warnings.push(
            "raid5 and raid6 have the write hole: a crash while a device is missing can damage what was not \
             being written"
                .to_owned(),
        );
    }
    if metadata.attributes().tolerated_failures < data.attributes().tolerated_failures {
        warnings.push(format!("metadata ({metadata}) survives the loss of fewer devices than data ({data})"));
    }
    warnings
}
