//! Plan of a pool: devices with their ids, and the first chunks with their places.

use super::{Contents, Features, MkfsError, MkfsOptions, NewDevice};
use brindle_device::DeviceClass;
use brindle_ondisk::item::Stripe;
use brindle_ondisk::{
    BlockGroupType, ChecksumType, DevId, Generation, Logical, NodeHeader, Physical, Profile,
    SUPERBLOCK_OFFSETS, SYS_CHUNK_ARRAY_SIZE, Uuid,
};
use brindle_policy::class::{ClassesProblem, DeviceClasses};
use brindle_policy::placement::{
    AllocationHint, ChunkRequest, DeviceSummary, NoSpace, PlacementClass, PlacementMode, Ranks, STRIP_BYTES,
    place_chunk,
};

/// The least unit of data, in bytes.
pub(crate) const SECTORSIZE: u32 = 4096;
/// The one transaction in which everything is written.
pub(super) const GENERATION: Generation = Generation::new(1);

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Bytes at the beginning of each device that are never allocated (`BTRFS_DEVICE_RANGE_RESERVED`).
const RESERVED_BYTES: u64 = MIB;
/// Start of the logical space in use; address 0 stands for "nowhere" in places.
const FIRST_LOGICAL: u64 = MIB;
/// The longest chunk.
const CHUNK_MAX_BYTES: u64 = 10 * GIB;
/// Length in bytes of the system chunk, and minimum of other chunks, in a pool that is to be no larger than it has
/// to.
const TIGHT_SYSTEM_BYTES: u64 = 4 * MIB;
const TIGHT_CHUNK_BYTES: u64 = 8 * MIB;
/// Number of tree blocks for which its metadata chunks have room at least.
const TIGHT_METADATA_BLOCKS: u64 = 1024;
/// Pools larger than this have larger metadata chunks.
const LARGE_POOL_BYTES: u64 = 50 * GIB;

/// Plan of a pool.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodesize: u32,
    pub(super) chunk_tree_uuid: Uuid,
    /// UUID of the top-level subvolume.
    pub(super) subvolume_uuid: Uuid,
    pub(super) data_profile: Profile,
    pub(super) metadata_profile: Profile,
    /// Devices by devid, which counts from 1.
    pub(super) devices: Vec<PlannedDevice>,
    /// Classes of the devices.
    pub(super) classes: DeviceClasses,
    /// Chunks by logical address.
    pub(super) chunks: Vec<PlannedChunk>,
    /// Room that they are to have, if that is known.
    contents: Option<Contents>,
}

/// A device of the pool.
#[derive(Clone, Debug)]
pub(super) struct PlannedDevice {
    pub(super) devid: DevId,
    pub(super) uuid: Uuid,
    /// Index among the given devices.
    pub(super) given: usize,
    pub(super) class: PlacementClass,
    pub(super) hint: AllocationHint,
    /// Rank of its class; 0 where no classes are listed.
    rank: u8,
    /// Bytes that the pool uses: whole sectors.
    pub(super) total_bytes: u64,
    /// Bytes of it that belong to chunks.
    pub(super) used_bytes: u64,
    /// Bytes of it that may be allocated: ranges, in order.
    free: Vec<(u64, u64)>,
}

/// A chunk of the pool.
#[derive(Clone, Debug)]
pub(super) struct PlannedChunk {
    pub(super) start: Logical,
    pub(super) length: u64,
    pub(super) kind: BlockGroupType,
    pub(super) profile: Profile,
    pub(super) stripe_bytes: u64,
    pub(super) stripes: Vec<Stripe>,
}

impl Plan {
    /// Makes the plan, or says why there is none. Nothing is written.
    pub(super) fn new(given: &[NewDevice], options: &MkfsOptions) -> Result<Self, MkfsError> {
        check_options(options)?;
        let (data_profile, metadata_profile) = profiles(given.len(), options)?;
        let nodesize = nodesize(options)?;
        let sizes: Vec<u64> = given.iter().map(NewDevice::size_bytes).collect();
        let (devices, classes) = devices(given, options)?;
        let mut plan = Self {
            nodesize,
            chunk_tree_uuid: derive_uuid(&options.seed, "chunk tree", 0),
            subvolume_uuid: derive_uuid(&options.seed, "top-level subvolume", 0),
            data_profile,
            metadata_profile,
            devices,
            classes,
            chunks: Vec::new(),
            contents: options.contents,
        };
        plan.place(options.features).map_err(|no_space| {
            let minimum_bytes = plan.minimum_bytes(options.features);
            let smallest = (0..sizes.len()).min_by_key(|index| sizes[*index]);
            match (smallest, minimum_bytes) {
                (Some(index), Some(minimum_bytes)) if sizes[index] < minimum_bytes => {
                    let device = given[index].device.name().to_owned();
                    MkfsError::TooSmall { device, size_bytes: sizes[index], minimum_bytes }
                }
                _ => no_space.into(),
            }
        })?;
        Ok(plan)
    }

    /// Places the first chunks: as they are preferred, or, where they then don't all fit, as they fit.
    fn place(&mut self, features: Features) -> Result<(), NoSpace> {
        let before = self.clone();
        self.place_all(features, PlacementMode::Preferred).or_else(|_| {
            *self = before;
            self.place_all(features, PlacementMode::Classic)
        })
    }

    fn place_all(&mut self, features: Features, mode: PlacementMode) -> Result<(), NoSpace> {
        const DATA: BlockGroupType = BlockGroupType::DATA;
        const METADATA: BlockGroupType = BlockGroupType::METADATA;
        if let Some(contents) = self.contents {
            return self.place_tightly(features, mode, contents);
        }
        let (data_profile, metadata_profile) = (self.data_profile, self.metadata_profile);
        let total: u64 = self.devices.iter().map(|device| device.total_bytes).sum();
        let smallest = self.devices.iter().map(|device| device.total_bytes).min().unwrap_or(0);
        // A tenth of the smallest device, so that no device is filled by the first chunks.
        let stripe = |least: u64, most: u64| (smallest / 10 / MIB * MIB).clamp(least, most);
        let metadata = stripe(16 * MIB, if total > LARGE_POOL_BYTES { GIB } else { 256 * MIB });
        let data = stripe(8 * MIB, GIB);
        let mut add =
            |content, profile, bounds| self.add_chunk(content, profile, mode, bounds, CHUNK_MAX_BYTES);
        add(BlockGroupType::SYSTEM, metadata_profile, (8 * MIB, 8 * MIB))?;
        if features.contains(Features::MIXED_BG) {
            return add(DATA | METADATA, metadata_profile, (16 * MIB, metadata));
        }
        add(METADATA, metadata_profile, (16 * MIB, metadata))?;
        add(DATA, data_profile, (8 * MIB, data))
    }

    /// Places chunks that have room for what is to come, and for little more.
    fn place_tightly(
        &mut self,
        features: Features,
        mode: PlacementMode,
        contents: Contents,
    ) -> Result<(), NoSpace> {
        let (data, metadata) = (BlockGroupType::DATA, BlockGroupType::METADATA);
        let Contents { data_bytes, metadata_bytes } = contents;
        let of_system = (TIGHT_SYSTEM_BYTES, TIGHT_SYSTEM_BYTES);
        self.add_chunk(BlockGroupType::SYSTEM, self.metadata_profile, mode, of_system, CHUNK_MAX_BYTES)?;
        if features.contains(Features::MIXED_BG) {
            return self.add_chunks(
                data | metadata,
                self.metadata_profile,
                mode,
                data_bytes + metadata_bytes,
            );
        }
        // With less, the kernel has no room to write anything.
        let metadata_bytes = metadata_bytes.max(TIGHT_METADATA_BLOCKS * u64::from(self.nodesize));
        self.add_chunks(metadata, self.metadata_profile, mode, metadata_bytes)?;
        self.add_chunks(data, self.data_profile, mode, data_bytes)
    }

    /// Places chunks for a number of bytes, one after the other where places of superblocks lie between.
    fn add_chunks(
        &mut self,
        content: BlockGroupType,
        profile: Profile,
        mode: PlacementMode,
        bytes: u64,
    ) -> Result<(), NoSpace> {
        let mut left = bytes.next_multiple_of(MIB).max(TIGHT_CHUNK_BYTES);
        while left > 0 {
            let first_range = |device: &PlannedDevice| {
                device.free.iter().map(|(start, end)| end - start).find(|length| *length >= TIGHT_CHUNK_BYTES)
            };
            let room = self.devices.iter().filter_map(first_range).min().unwrap_or(GIB);
            let most = left.min(GIB).min(room);
            self.add_chunk(content, profile, mode, (most.min(TIGHT_CHUNK_BYTES), most), left)?;
            left = left.saturating_sub(self.chunks.last().map_or(left, |chunk| chunk.length));
        }
        Ok(())
    }

    /// Places a chunk whose stripes are of a length within these bounds, and that is not much longer than so.
    fn add_chunk(
        &mut self,
        content: BlockGroupType,
        profile: Profile,
        mode: PlacementMode,
        (min_stripe_bytes, max_stripe_bytes): (u64, u64),
        max_chunk_bytes: u64,
    ) -> Result<(), NoSpace> {
        let summaries: Vec<DeviceSummary> = self.devices.iter().map(PlannedDevice::summary).collect();
        let request = ChunkRequest {
            content,
            profile,
            mode,
            tier: PlacementClass::Bulk,
            copies_on_fast: None,
            ranks: Ranks::ALL,
            max_stripe_bytes,
            max_chunk_bytes,
            min_stripe_bytes,
            max_stripes: max_stripes(self.nodesize),
        };
        let place = place_chunk(&summaries, &request)?;
        let stripes = place.stripes.iter().map(|devid| {
            let device = self.devices.iter_mut().find(|device| device.devid == *devid);
            let device = device.expect("placement answers with devices it was given");
            let offset = device.take(place.stripe_bytes);
            Stripe { devid: *devid, offset: Physical::new(offset), dev_uuid: device.uuid }
        });
        let stripes = stripes.collect();
        self.chunks.push(PlannedChunk {
            start: self.chunks.last().map_or(Logical::new(FIRST_LOGICAL), PlannedChunk::end),
            length: place.chunk_bytes,
            kind: content | profile.attributes().flag,
            profile,
            stripe_bytes: place.stripe_bytes,
            stripes,
        });
        Ok(())
    }

    /// The least size of a device with which this plan, on devices all of that size, works out.
    fn minimum_bytes(&self, features: Features) -> Option<u64> {
        let works = |size: &u64| {
            let mut plan = self.clone();
            plan.chunks.clear();
            for device in &mut plan.devices {
                (device.total_bytes, device.used_bytes, device.free) = (*size, 0, free_ranges(*size));
            }
            plan.place(features).is_ok()
        };
        (1..=1024).map(|mebibytes| mebibytes * MIB).find(works)
    }
}

impl PlannedChunk {
    /// The address behind it.
    pub(super) fn end(&self) -> Logical {
        self.start + self.length
    }

    /// Returns true if an address lies in it.
    pub(super) fn contains(&self, at: Logical) -> bool {
        at >= self.start && at < self.end()
    }
}

impl PlannedDevice {
    fn summary(&self) -> DeviceSummary {
        let lengths = || self.free.iter().map(|(start, end)| end - start);
        DeviceSummary {
            devid: self.devid,
            class: self.class,
            hint: self.hint,
            rank: self.rank,
            max_available_bytes: lengths().max().unwrap_or(0),
            total_available_bytes: lengths().sum(),
        }
    }

    /// Takes `length` bytes from the first free range that has them.
    fn take(&mut self, length: u64) -> u64 {
        let range = self.free.iter_mut().find(|(start, end)| end - start >= length);
        let (start, _) = range.expect("placement has seen a free range of this length");
        let taken = *start;
        *start += length;
        self.used_bytes += length;
        taken
    }
}

/// Ranges that may be allocated on a device of this size: not its beginning, and not the places of superblocks, so
/// that no first chunk has a hole.
fn free_ranges(total_bytes: u64) -> Vec<(u64, u64)> {
    let mut free = Vec::new();
    let mut start = RESERVED_BYTES;
    for superblock in SUPERBLOCK_OFFSETS.into_iter().filter(|at| *at > RESERVED_BYTES) {
        free.push((start, superblock.min(total_bytes)));
        start = superblock + MIB;
    }
    free.push((start, total_bytes));
    let whole = free.into_iter().map(|(start, end)| (start, end - end % STRIP_BYTES));
    whole.filter(|(start, end)| start < end).collect()
}

/// Upper bound on the stripes of a chunk item: it must fit a leaf, and two of them the superblock.
fn max_stripes(nodesize: u32) -> u16 {
    let chunk = size_of::<brindle_ondisk::item::ChunkHeader>();
    let leaf = brindle_ondisk::to_usize(nodesize.into())
        - size_of::<NodeHeader>()
        - size_of::<brindle_ondisk::ItemHeader>()
        - chunk;
    let array = SYS_CHUNK_ARRAY_SIZE / 2 - size_of::<brindle_ondisk::Key>() - chunk;
    u16::try_from(leaf.min(array) / size_of::<Stripe>()).expect("bounded by the superblock")
}

fn check_options(options: &MkfsOptions) -> Result<(), MkfsError> {
    options.features.check()?;
    if options.label.len() > 255 {
        return Err(MkfsError::Label("it may have at most 255 bytes"));
    }
    if options.label.contains(['\n', '\0']) {
        return Err(MkfsError::Label("it must not contain a line break or a zero byte"));
    }
    if options.fsid.is_nil() || options.device_uuid.is_some_and(|uuid| uuid.is_nil()) {
        return Err(MkfsError::Uuid);
    }
    Ok(())
}

/// Profiles of data and of metadata.
fn profiles(devices: usize, options: &MkfsOptions) -> Result<(Profile, Profile), MkfsError> {
    if devices == 0 {
        return Err(MkfsError::NoDevices);
    }
    let is_mixed = options.features.contains(Features::MIXED_BG);
    let default = if devices == 1 { Profile::Dup } else { Profile::Raid1 };
    let (data, metadata) = match (options.data, options.metadata) {
        (None, None) if is_mixed => (Profile::Single, Profile::Single),
        (Some(one), None) | (None, Some(one)) if is_mixed => (one, one),
        (data, metadata) => (data.unwrap_or(Profile::Single), metadata.unwrap_or(default)),
    };
    if is_mixed && data != metadata {
        return Err(MkfsError::MixedProfiles { data, metadata });
    }
    for (content, profile) in [("data", data), ("metadata", metadata)] {
        let needed = profile.attributes().devs_min;
        if devices < usize::from(needed) {
            let given = if devices == 1 { "1 is".to_owned() } else { format!("{devices} are") };
            return Err(MkfsError::Profile { content, profile, needed, given });
        }
    }
    Ok((data, metadata))
}

fn nodesize(options: &MkfsOptions) -> Result<u32, MkfsError> {
    let is_mixed = options.features.contains(Features::MIXED_BG);
    let nodesize = options.nodesize.unwrap_or(if is_mixed { SECTORSIZE } else { 16384 });
    if !nodesize.is_power_of_two() || !(SECTORSIZE..=65536).contains(&nodesize) {
        return Err(MkfsError::NodeSize(nodesize));
    }
    if is_mixed && nodesize != SECTORSIZE {
        return Err(MkfsError::MixedNodeSize(nodesize));
    }
    Ok(nodesize)
}

/// The devices with their ids, and their classes. Fast devices get the lowest devids, those of the fastest class first; else the
/// order in which they were given is kept. Hints are stored if the owner has said a class of any device, else the pool is as stock tools
/// make it.
fn devices(
    given: &[NewDevice],
    options: &MkfsOptions,
) -> Result<(Vec<PlannedDevice>, DeviceClasses), ClassesProblem> {
    let sides: Vec<(PlacementClass, u8)> =
        given.iter().map(|new| side_and_rank(new, &options.classes)).collect::<Result<_, _>>()?;
    let has_hints = given.iter().any(|new| new.class.is_some() || new.class_name.is_some());
    let mut order: Vec<usize> = (0..given.len()).collect();
    order.sort_by_key(|index| (sides[*index].0 != PlacementClass::Fast, sides[*index].1));
    let device = |(number, given_index): (u64, usize)| {
        let size_bytes = given[given_index].size_bytes();
        let total_bytes = size_bytes - size_bytes % u64::from(SECTORSIZE);
        let (class, rank) = sides[given_index];
        let is_hinted = has_hints && class == PlacementClass::Fast;
        PlannedDevice {
            devid: DevId::new(number),
            uuid: match options.device_uuid {
                Some(uuid) if given.len() == 1 => uuid,
                _ => derive_uuid(&options.seed, "device", number),
            },
            given: given_index,
            class,
            hint: if is_hinted { AllocationHint::MetadataPreferred } else { AllocationHint::default() },
            rank,
            total_bytes,
            used_bytes: 0,
            free: free_ranges(total_bytes),
        }
    };
    let devices: Vec<PlannedDevice> = (1..).zip(order).map(device).collect();
    let mut classes = options.classes.clone();
    for device in &devices {
        if let Some(name) = &given[device.given].class_name {
            classes.assign(device.uuid, name)?;
        }
    }
    Ok((devices, classes))
}

/// Side of a device: as its owner says, else as its host does. Rank of its class: that next to the border, if it has none of its own.
fn side_and_rank(new: &NewDevice, classes: &DeviceClasses) -> Result<(PlacementClass, u8), ClassesProblem> {
    if let Some(name) = &new.class_name {
        let tier = classes.named(name.as_bytes()).filter(|tier| tier.rank.is_some());
        let tier = tier.ok_or_else(|| ClassesProblem::Unknown(name.clone()))?;
        return Ok((tier.side, tier.rank.unwrap_or(0)));
    }
    let side = new.class.unwrap_or(match new.device.class() {
        DeviceClass::Solid => PlacementClass::Fast,
        DeviceClass::Rotating | DeviceClass::Unknown => PlacementClass::Bulk,
    });
    let rank = if classes.is_empty() { 0 } else { classes.rank(&Uuid([0; 16]), side) };
    Ok((side, rank))
}

/// A UUID of its own for everything that needs one, from one seed (version 8, RFC 9562).
fn derive_uuid(seed: &[u8; 16], what: &str, number: u64) -> Uuid {
    let input = [&seed[..], what.as_bytes(), &number.to_le_bytes()].concat();
    let hash = ChecksumType::Blake2b.compute(&input);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid(bytes)
}
