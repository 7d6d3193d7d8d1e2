//! Space of a pool in its three guises: sums of the pool, by content and profile, and by device, as `btrfs filesystem usage`
//! counts them.

mod host;
mod sums;

pub use sums::{Overall, Ratios};

use crate::control::{ControlError, Mounted};
use crate::pool::{AdminError, inventory};
use crate::tier::{Inventory, classes_of_mount, classified};
use brindle_ondisk::{BlockGroupType, DevId, Uuid};
use brindle_policy::placement::PlacementClass;
use brindle_policy::tier::TierChunk;
use brindle_tree::{Pool, Spread};
use brindle_uapi::message::{SpaceReport, text};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Space of a pool.
#[derive(Clone, Debug)]
pub struct Usage {
    /// UUID of the pool.
    pub fsid: Uuid,
    /// Block groups by content and profile: data first, then metadata, then system.
    pub kinds: Vec<KindUsage>,
    /// Devices by their ids.
    pub devices: Vec<DeviceUsage>,
    /// False if the caller may not look into the trees of the mount: which contents lie on which device is then not known.
    pub is_detailed: bool,
    /// Metadata space that is kept back for deletions and commits: its size, and the use of it.
    pub reserve: Option<[u64; 2]>,
    /// Bytes that `statfs` tells to be free; `None` for a pool that is not mounted.
    pub free_statfs: Option<u64>,
    /// True if the pool has devices of both classes.
    pub has_tiers: bool,
    /// Rooms and settings that brindle knows; `None` for a mount of the kernel.
    pub report: Option<SpaceReport>,
}

/// Block groups of one content and profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindUsage {
    /// Content and profile.
    pub kind: BlockGroupType,
    /// Their logical length.
    pub total_bytes: u64,
    /// Used bytes of it.
    pub used_bytes: u64,
    /// Bytes that they take on devices.
    pub raw_bytes: u64,
    /// Bytes that are free in those on devices of a seed, and can't be used.
    pub sealed_bytes: u64,
    /// The same by the class of devices, with length and used bytes; empty where there is one class.
    pub classes: BTreeMap<Place, [u64; 2]>,
}

/// Devices that block groups lie on, by class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Fast ones alone.
    Fast,
    /// Bulk ones alone.
    Bulk,
    /// Both.
    Both,
}

/// Space of a device.
#[derive(Clone, Debug)]
pub struct DeviceUsage {
    /// Its id.
    pub devid: DevId,
    /// Its path; empty if it is missing.
    pub path: PathBuf,
    /// True if it is not there.
    pub is_missing: bool,
    /// True if it belongs to the seed that the pool has grown from: nothing is written there.
    pub is_seed: bool,
    /// Its size as the pool has it.
    pub total_bytes: u64,
    /// Bytes behind the part that the pool uses.
    pub slack_bytes: u64,
    /// Bytes that belong to chunks.
    pub allocated_bytes: u64,
    /// Its class.
    pub class: PlacementClass,
    /// Name and rank of its class among those that the owner has listed, if any are.
    pub listed_class: Option<(String, u8)>,
    /// Allocated bytes by content and profile, and the number of stripes of the chunks.
    pub pieces: BTreeMap<(u64, usize), u64>,
}

impl DeviceUsage {
    /// Bytes that belong to no chunk, and could; none of a device of a seed.
    pub fn unallocated_bytes(&self) -> u64 {
        if self.is_seed { 0 } else { self.total_bytes.saturating_sub(self.allocated_bytes) }
    }

    /// Allocated bytes of one content and profile.
    pub fn of_kind(&self, kind: BlockGroupType) -> u64 {
        self.pieces.iter().filter(|((found, _), _)| *found == kind.bits()).map(|(_, bytes)| bytes).sum()
    }
}

impl Usage {
    /// Space of a mounted pool. Callers without the permission to look into its trees get sums alone.
    ///
    /// # Errors
    /// A mount that does not answer.
    pub fn of_mount(mounted: &Mounted) -> Result<Self, AdminError> {
        let found = match mounted.inventory() {
            Ok(inventory) => Some(inventory),
            Err(ControlError::Refused { source: Errno::PERM | Errno::ACCESS, .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let served = classes_of_mount(mounted)?;
        let report = (!mounted.is_of_kernel()).then(|| mounted.space()).transpose()?;
        let fsid = Uuid(mounted.filesystem()?.fsid);
        let is_detailed = found.is_some();
        let mut usage = match found {
            Some(inventory) => Self::of_inventory(inventory, mounted.is_of_kernel(), &served),
            None => Self { devices: plain_devices(mounted)?, ..Self::empty(fsid) },
        };
        usage.is_detailed = is_detailed;
        usage.free_statfs = mounted.free_bytes()?;
        match report {
            Some(report) => usage.take_report(report),
            None => usage.take_spaces(&mounted.spaces()?),
        }
        Ok(usage)
    }

    /// Space of a pool on devices that are not mounted, as of its last commit.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn of_pool(pool: &Pool) -> Result<Self, AdminError> {
        let mut usage = Self::of_inventory(inventory(pool)?, false, &HashMap::new());
        match pool.space_summary() {
            Ok(summary) => {
                let small_file_bytes = pool.settings()?.small_file_bytes;
                usage.take_report(SpaceReport { small_file_bytes, ..report_of(&summary) });
            }
            // A degraded pool may lack what the estimate of its room needs.
            Err(error) => tracing::warn!("the room that is left is not known: {error}"),
        }
        Ok(usage)
    }

    fn empty(fsid: Uuid) -> Self {
        Self {
            fsid,
            kinds: Vec::new(),
            devices: Vec::new(),
            is_detailed: true,
            reserve: None,
            free_statfs: None,
            has_tiers: false,
            report: None,
        }
    }

    fn of_inventory(
        inventory: Inventory,
        is_of_kernel: bool,
        served: &HashMap<DevId, PlacementClass>,
    ) -> Self {
        let mut usage = Self::empty(inventory.fsid);
        let known =
            inventory.devices.iter().map(|device| (device.devid, (device.is_missing, device.is_seed)));
        let known: BTreeMap<DevId, (bool, bool)> = known.collect();
        let (devices, pool) = classified(inventory, is_of_kernel, &HashMap::new(), served);
        let mut classes = devices.iter().map(|device| device.class.0);
        usage.has_tiers = classes.next().is_some_and(|first| classes.any(|class| class != first));
        usage.devices = devices
            .into_iter()
            .map(|device| DeviceUsage {
                devid: device.devid,
                is_missing: known.get(&device.devid).is_some_and(|(is_missing, _)| *is_missing),
                is_seed: known.get(&device.devid).is_some_and(|(_, is_seed)| *is_seed),
                total_bytes: device.total_bytes,
                slack_bytes: host::slack_bytes(&device.path, device.total_bytes),
                allocated_bytes: 0,
                class: device.class.0,
                listed_class: (!pool.classes.is_empty()).then_some((device.class_name, device.rank)),
                pieces: BTreeMap::new(),
                path: device.path,
            })
            .collect();
        usage.devices.sort_by_key(|device| device.devid);
        for chunk in &pool.chunks {
            let mut classes = chunk.stripes.iter().map(|stripe| pool.known_class(stripe.devid).0);
            let place = match classes.next() {
                Some(first) if classes.any(|class| class != first) => Place::Both,
                Some(PlacementClass::Fast) => Place::Fast,
                _ => Place::Bulk,
            };
            usage.add(chunk, place);
        }
        usage.kinds.sort_by_key(|sum| order(sum.kind));
        usage
    }

    fn add(&mut self, chunk: &TierChunk, place: Place) {
        let stripe_bytes = chunk.stripe_bytes();
        for stripe in &chunk.stripes {
            if let Some(device) = self.devices.iter_mut().find(|device| device.devid == stripe.devid) {
                device.allocated_bytes += stripe_bytes;
                *device.pieces.entry((chunk.kind.bits(), chunk.stripes.len())).or_default() += stripe_bytes;
            }
        }
        let is_of_seed =
            |devid: DevId| self.devices.iter().any(|device| device.devid == devid && device.is_seed);
        let is_sealed = chunk.stripes.iter().any(|stripe| is_of_seed(stripe.devid));
        let has_tiers = self.has_tiers;
        let sum = self.kind_mut(chunk.kind);
        if is_sealed {
            sum.sealed_bytes += chunk.length_bytes.saturating_sub(chunk.used_bytes);
        }
        sum.total_bytes += chunk.length_bytes;
        sum.used_bytes += chunk.used_bytes;
        sum.raw_bytes += stripe_bytes * chunk.stripes.len() as u64;
        if has_tiers {
            let [total, used] = sum.classes.entry(place).or_default();
            *total += chunk.length_bytes;
            *used += chunk.used_bytes;
        }
    }

    fn kind_mut(&mut self, kind: BlockGroupType) -> &mut KindUsage {
        let at = self.kinds.iter().position(|sum| sum.kind == kind).unwrap_or_else(|| {
            let classes = BTreeMap::new();
            self.kinds.push(KindUsage {
                kind,
                total_bytes: 0,
                used_bytes: 0,
                raw_bytes: 0,
                sealed_bytes: 0,
                classes,
            });
            self.kinds.len() - 1
        });
        &mut self.kinds[at]
    }

    /// Takes the kernel's sums, which are those of this moment.
    fn take_spaces(&mut self, spaces: &[Space]) {
        for space in spaces {
            if space.is_reserve {
                self.reserve = Some([space.total_bytes, space.used_bytes]);
                continue;
            }
            self.take_sum(space.kind, space.total_bytes, space.used_bytes);
        }
        self.kinds.sort_by_key(|sum| order(sum.kind));
    }

    /// Takes the sums of brindle.
    fn take_report(&mut self, report: SpaceReport) {
        self.reserve = Some([report.kept_back_bytes, 0]);
        self.has_tiers = report.has_tiers;
        let mut sums: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
        for group in &report.groups {
            let [total, used] = sums.entry(group.kind).or_default();
            *total += group.total_bytes;
            *used += group.used_bytes;
        }
        for (kind, [total, used]) in sums {
            self.take_sum(BlockGroupType::from_bits_retain(kind), total, used);
        }
        for sum in &mut self.kinds {
            sum.classes.clear();
            let groups = report.groups.iter().filter(|group| group.kind == sum.kind.bits());
            for group in groups.filter(|_| report.has_tiers) {
                let place = match group.spread {
                    1 => Place::Fast,
                    2 => Place::Bulk,
                    _ => Place::Both,
                };
                sum.classes.insert(place, [group.total_bytes, group.used_bytes]);
            }
        }
        self.kinds.sort_by_key(|sum| order(sum.kind));
        self.report = Some(report);
    }

    fn take_sum(&mut self, kind: BlockGroupType, total_bytes: u64, used_bytes: u64) {
        let sum = self.kind_mut(kind);
        // Without chunks, the bytes on devices follow from the number of copies.
        if sum.raw_bytes == 0 {
            let copies = kind.profile().map_or(1, |profile| profile.attributes().ncopies);
            sum.raw_bytes = total_bytes * u64::from(copies);
        }
        (sum.total_bytes, sum.used_bytes) = (total_bytes, used_bytes);
    }
}

/// Order of contents: data, metadata, system; of one content the order of the profiles' bits.
fn order(kind: BlockGroupType) -> (u8, u64) {
    let rank = if kind.contains(BlockGroupType::DATA) {
        0
    } else if kind.contains(BlockGroupType::METADATA) {
        1
    } else {
        2
    };
    (rank, kind.bits())
}

/// Devices of a mount whose trees are closed to the caller.
fn plain_devices(mounted: &Mounted) -> Result<Vec<DeviceUsage>, AdminError> {
    let device = |info: brindle_uapi::message::DeviceInfo| {
        let path = PathBuf::from(OsStr::from_bytes(text(&info.path)));
        DeviceUsage {
            devid: DevId::new(info.devid),
            is_missing: path.as_os_str().is_empty(),
            // Which ones do belong to a seed is not known.
            is_seed: false,
            total_bytes: info.total_bytes,
            slack_bytes: host::slack_bytes(&path, info.total_bytes),
            allocated_bytes: info.used_bytes,
            class: PlacementClass::default(),
            listed_class: None,
            pieces: BTreeMap::new(),
            path,
        }
    };
    Ok(mounted.device_infos()?.into_iter().map(device).collect())
}

/// Sums of the kernel for one content and profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Content and profile.
    pub(crate) kind: BlockGroupType,
    /// True if it is the global reserve.
    pub(crate) is_reserve: bool,
    /// Size.
    pub(crate) total_bytes: u64,
    /// Use of it.
    pub(crate) used_bytes: u64,
}

/// The report of a mount, for a pool that is not mounted.
fn report_of(summary: &brindle_tree::SpaceSummary) -> SpaceReport {
    use brindle_policy::placement::PlacementMode;
    use brindle_uapi::message::{DeviceSpace, GroupSpace};
    let room = |room: brindle_tree::Room| [room.preferred_bytes, room.bytes];
    let group = |group: &brindle_tree::GroupSummary| GroupSpace {
        kind: group.kind.bits(),
        total_bytes: group.total_bytes,
        used_bytes: group.used_bytes,
        spread: match group.spread {
            Spread::Both => 0,
            Spread::Fast => 1,
            Spread::Bulk => 2,
        },
    };
    let device = |device: &brindle_tree::DeviceSpace| DeviceSpace {
        devid: device.devid.get(),
        total_bytes: device.total_bytes,
        unallocated_bytes: device.unallocated_bytes,
        class: match device.class {
            PlacementClass::Fast => 1,
            PlacementClass::Bulk => 2,
        },
        stored_type: device.stored_type,
        state: 0,
    };
    SpaceReport {
        kept_back_bytes: summary.kept_back_bytes,
        waiting_bytes: 0,
        placement: match summary.placement {
            PlacementMode::Classic => 0,
            PlacementMode::Preferred => 1,
            PlacementMode::Strict => 2,
        },
        has_tiers: summary.has_tiers,
        small_file_bytes: 0,
        data_room: room(summary.data_room),
        fast_data_room: summary.fast_data_room.bytes,
        metadata_room: room(summary.metadata_room),
        groups: summary.groups.iter().map(group).collect(),
        devices: summary.devices.iter().map(device).collect(),
    }
}
