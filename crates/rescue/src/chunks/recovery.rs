//! A recovery: the search for the map, and the tree that is made of it.

use super::blocks::Blocks;
use super::evidence::Evidence;
use super::gather::Facts;
use super::image::{Addresses, Image};
use super::members::Members;
use super::proved::{Proof, ProvedChunk};
use super::scan::Scan;
use crate::Step;
use crate::error::RescueError;
use crate::superblocks::put;
use brindle_check::Progress;
use brindle_device::{Device, OverlayDevice, WritableDevice};
use brindle_ondisk::item::{Chunk, DevItem, ExtentFlags};
use brindle_ondisk::{
    BlockGroupType, CompatRo, DevId, Generation, Item, Key, KeyType, Logical, Node, NodeExpectation,
    NodeHeader, ObjectId, RootId, SYS_CHUNK_ARRAY_SIZE, Superblock, TreeContext, Uuid, to_u64, to_usize,
};
use brindle_tree::{OpenOptions, Pool};
use brindle_volume::{ParityStripes, parity_stripes, stripe_places, syndromes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// Upper bound on what an overlay of a device holds, in bytes.
const OVERLAY_BYTES_MAX: usize = 256 << 20;

/// A chunk map that was searched for.
#[derive(Debug)]
pub struct ChunkRecovery {
    members: Members,
    scan: Scan,
    context: TreeContext,
    facts: Facts,
    chunks: BTreeMap<Logical, ProvedChunk>,
    unproved: Vec<(Logical, String)>,
}

/// Searches the devices of a pool for its chunk map. They are only read.
///
/// # Errors
/// Devices of several pools; trees of the last commit that can't be entered.
pub fn search(devices: Vec<Arc<dyn Device>>, progress: &dyn Progress) -> Result<ChunkRecovery, RescueError> {
    let mut members = Members::find(devices)?;
    let context = TreeContext::new(&members.superblock);
    let mut scan = Scan::of(&members, &context, progress);
    for (key, chunk) in members.superblock.system_chunks().flatten() {
        let bytes = [chunk.header.as_bytes(), chunk.stripes.as_bytes()].concat();
        scan.candidates.add_chunk(Logical::new(key.offset()), bytes, members.superblock.generation);
    }
    let has_group_tree = members.superblock.compat_ro().contains(CompatRo::BLOCK_GROUP_TREE);
    let nothing = BTreeMap::new();
    let facts = Facts::gather(&Blocks::new(&members, &scan, &context, &nothing), has_group_tree)?;
    let used: BTreeSet<DevId> = facts.extents.values().flatten().map(|extent| extent.devid).collect();
    members.leave_out_removed(|devid| used.contains(&devid));
    let mut recovery =
        ChunkRecovery { members, scan, context, facts, chunks: BTreeMap::new(), unproved: Vec::new() };
    recovery.prove(progress);
    Ok(recovery)
}

/// Devices of a pool as they would be with its chunk tree made anew in memory, and the recovery.
///
/// # Errors
/// Those of [`search`]; a map without the chunks that hold the tree itself.
pub fn overlaid(
    devices: Vec<Arc<dyn Device>>,
    progress: &dyn Progress,
) -> Result<(Vec<Arc<dyn Device>>, ChunkRecovery), RescueError> {
    let recovery = search(devices.clone(), progress)?;
    let overlay = |device| Arc::new(OverlayDevice::new(device, OVERLAY_BYTES_MAX));
    let overlays: Vec<Arc<OverlayDevice>> = devices.into_iter().map(overlay).collect();
    let writable: Vec<Arc<dyn WritableDevice>> =
        overlays.iter().map(|overlay| Arc::clone(overlay) as Arc<dyn WritableDevice>).collect();
    recovery.put_in_memory(&writable)?;
    Ok((overlays.into_iter().map(|overlay| overlay as Arc<dyn Device>).collect(), recovery))
}

impl ChunkRecovery {
    fn prove(&mut self, progress: &dyn Progress) {
        let starts: BTreeSet<Logical> =
            self.facts.extents.keys().chain(self.facts.groups.keys()).copied().collect();
        progress.begin("proof");
        progress.total(to_u64(starts.len()));
        let is_of_data = |start: &Logical| {
            let group = self.facts.groups.get(start);
            group.is_some_and(|group| {
                !group.kind.intersects(BlockGroupType::METADATA | BlockGroupType::SYSTEM)
            })
        };
        // Checksums of data are read by the chunks of metadata.
        let (data, metadata): (Vec<Logical>, Vec<Logical>) =
            starts.iter().partition(|start| is_of_data(start));
        let evidence =
            Evidence { members: &self.members, scan: &self.scan, facts: &self.facts, context: &self.context };
        for part in [metadata, data] {
            let known = self.chunks.clone();
            for start in part {
                match evidence.prove(start, &known) {
                    Ok(chunk) => _ = self.chunks.insert(start, chunk),
                    Err(reason) => self.unproved.push((start, reason)),
                }
                progress.advance(1);
            }
        }
        self.unproved.sort();
    }

    /// UUID of the pool.
    pub fn fsid(&self) -> Uuid {
        self.members.superblock.fsid
    }

    /// Chunks that are proved, by address.
    pub fn chunks(&self) -> impl Iterator<Item = (Logical, &ProvedChunk)> {
        self.chunks.iter().map(|(start, chunk)| (*start, chunk))
    }

    /// Chunks that are not proved and blocks that can't be read, with reasons.
    pub fn left(&self) -> Vec<Step> {
        let chunk = |(start, reason): &(Logical, String)| {
            let kind = self.facts.groups.get(start).map_or(String::new(), |group| describe(group.kind));
            Step::new(format!("chunk at logical {start}{kind}"), reason.clone())
        };
        let mut left: Vec<Step> = self.unproved.iter().map(chunk).collect();
        left.extend(
            self.facts
                .lost
                .iter()
                .map(|lost| Step::new(lost.clone(), "chunks that it tells of may be missing")),
        );
        for devid in self.missing() {
            left.push(Step::new(format!("devid {devid} is missing"), "chunks lie on it"));
        }
        if self.scan.unreadable_bytes > 0 {
            let bytes = self.scan.unreadable_bytes;
            left.push(Step::new(format!("{bytes} bytes of the devices can't be read"), "devices failed"));
        }
        left
    }

    /// Devices that chunks lie on, and that were not given.
    pub fn missing(&self) -> BTreeSet<DevId> {
        let used = self.facts.extents.values().flatten().map(|extent| extent.devid);
        used.filter(|devid| self.members.number_of(*devid).is_none()).collect()
    }

    /// Returns the reason for which the map is not to be written.
    fn obstacle(&self) -> Option<String> {
        if let Some(devid) = self.missing().first() {
            return Some(format!("devid {devid} is missing, and would come back with the old chunk tree"));
        }
        let (given, all) = (self.members.items().count(), self.members.superblock.num_devices.get());
        if to_u64(given) != all {
            return Some(format!("{given} devices of {all} are given"));
        }
        if let Some((start, reason)) = self.unproved.first() {
            return Some(format!("the chunk at logical {start} is not proved: {reason}"));
        }
        self.facts.lost.first().cloned()
    }

    /// Makes the chunk tree anew on devices in the order in which they were given, which are overlays: nothing but what they hold
    /// changes. No step is returned if the tree is whole.
    ///
    /// # Errors
    /// [`RescueError::Refused`] for a map that is not complete, or blocks of the old tree that are not known.
    pub fn put(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<Vec<Step>, RescueError> {
        if let Some(obstacle) = self.obstacle() {
            if self.opens() {
                return Ok(Vec::new());
            }
            let advice = "files can be read with -o rescue=chunks";
            return Err(RescueError::Refused(format!("{obstacle}; {advice}")));
        }
        let items = self.items();
        let system_chunks = self.system_chunk_array().map_err(RescueError::Refused)?;
        let mut steps = Vec::new();
        let mut superblock = Superblock::clone(&self.members.superblock);
        if let Err(reason) = self.check_old(&items) {
            let image = self.image_over_old(&items).map_err(RescueError::Refused)?;
            self.write_blocks(&image, devices)?;
            self.enter(&mut superblock, &image);
            steps.push(Step::new(
                format!(
                    "the chunk tree is made anew: {} chunks and {} devices in {}, generation {}",
                    self.chunks.len(),
                    items.len() - self.chunks.len(),
                    if image.blocks.len() == 1 {
                        "one block".to_owned()
                    } else {
                        format!("{} blocks", image.blocks.len())
                    },
                    superblock.chunk_root_generation
                ),
                reason,
            ));
        }
        if self.set_system_chunks(&mut superblock, &system_chunks) {
            let count = self.system_chunks().count();
            let change = format!("superblocks: system chunks are the {count} of the chunk tree");
            steps.push(Step::new(change, "they are others"));
        }
        if !steps.is_empty() {
            self.write_superblocks(&superblock, devices)?;
            self.judge(devices)?;
        }
        Ok(steps)
    }

    /// Makes a chunk tree of what is proved, in blocks that hold nothing but the old one.
    fn put_in_memory(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<(), RescueError> {
        let items = self.items();
        let nodesize = self.context.nodesize;
        let image = self.image_over_old(&items).or_else(|_| {
            let places = self.system_chunks().flat_map(|(start, chunk)| {
                let count = chunk.length() / u64::from(nodesize);
                (0..count).map(move |number| start + number * u64::from(nodesize))
            });
            let addresses = Addresses::packed(&items, nodesize, places);
            let addresses =
                addresses.ok_or("no chunk is proved that the chunk tree could lie in".to_owned())?;
            self.image(&items, &addresses)
        });
        let image = image.map_err(RescueError::Refused)?;
        self.write_blocks(&image, devices)?;
        let mut superblock = Superblock::clone(&self.members.superblock);
        self.enter(&mut superblock, &image);
        let system_chunks = self.system_chunk_array().map_err(RescueError::Refused)?;
        self.set_system_chunks(&mut superblock, &system_chunks);
        self.write_superblocks(&superblock, devices)
    }

    fn system_chunks(&self) -> impl Iterator<Item = (Logical, &ProvedChunk)> {
        self.chunks().filter(|(_, chunk)| chunk.kind().contains(BlockGroupType::SYSTEM))
    }

    /// The items of the chunk tree, in order.
    fn items(&self) -> Vec<(Key, Vec<u8>)> {
        let mut devids: BTreeSet<DevId> = self.missing();
        devids.extend(self.members.items().map(|(_, item)| item.devid));
        let device = |devid: &DevId| {
            let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, devid.get());
            (key, self.device_item(*devid).as_bytes().to_vec())
        };
        let chunk = |(start, chunk): (&Logical, &ProvedChunk)| {
            let key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, start.get());
            (key, chunk.chunk.to_bytes())
        };
        devids.iter().map(device).chain(self.chunks.iter().map(chunk)).collect()
    }

    /// The item of a device: as its superblock has it, with the marks that only the chunk tree has.
    fn device_item(&self, devid: DevId) -> DevItem {
        let known = self.scan.candidates.device(devid);
        let extents = self.facts.extents.values().flatten().filter(|extent| extent.devid == devid);
        let (used, end) = extents.fold((0_u64, 0), |(used, end), extent| {
            (used.saturating_add(extent.length), end.max(extent.offset.saturating_add(extent.length)))
        });
        let Some((_, mut item)) = self.members.items().find(|(_, item)| item.devid == devid) else {
            return known.copied().unwrap_or_else(|| {
                let mut item = DevItem::new_zeroed();
                (item.devid, item.fsid) = (devid, self.members.superblock.tree_uuid());
                (item.total_bytes, item.bytes_used) =
                    (self.rest_of_total().unwrap_or(end).max(end).into(), used.into());
                item.sector_size = self.context.sectorsize.into();
                item.uuid = self.scan.candidates.uuid_of(devid).unwrap_or(Uuid::NIL);
                item
            });
        };
        if let Some(known) = known.filter(|known| known.uuid == item.uuid) {
            (item.generation, item.start_offset) = (known.generation, known.start_offset);
        }
        if self.facts.lost.is_empty() {
            item.bytes_used.set(used);
        }
        item
    }

    /// Bytes of the pool that no known device has, if one device alone is not known: its size.
    fn rest_of_total(&self) -> Option<u64> {
        let missing = self.missing();
        let mut unknown = missing.iter().filter(|devid| self.scan.candidates.device(**devid).is_none());
        if unknown.next().is_none() || unknown.next().is_some() {
            return None;
        }
        let of_missing = missing.iter().filter_map(|devid| self.scan.candidates.device(*devid).copied());
        let known = self.members.items().map(|(_, item)| item).chain(of_missing);
        let sum = known.map(|item| item.total_bytes.get()).try_fold(0, u64::checked_add)?;
        self.members.superblock.total_bytes.get().checked_sub(sum)
    }

    /// Sees whether the old tree is whole where the map has it, and says the same.
    fn check_old(&self, items: &[(Key, Vec<u8>)]) -> Result<(), String> {
        let nothing = Scan::default();
        let blocks = Blocks::new(&self.members, &nothing, &self.context, &self.chunks);
        let Superblock { chunk_root, chunk_root_generation, chunk_root_level, .. } =
            &*self.members.superblock;
        let root = NodeExpectation::root(*chunk_root, *chunk_root_generation, *chunk_root_level);
        let found = blocks.items(&root, &(Key::MIN..=Key::MAX));
        if let Some(lost) = found.lost.first() {
            return Err(lost.clone());
        }
        // Sizes of devices are the business of others.
        let is_same = |(key, data): &(Key, Vec<u8>)| {
            key.item_type != KeyType::CHUNK_ITEM
                || found.items.iter().any(|other| other == &(*key, data.clone()))
        };
        let chunks = found.items.iter().filter(|(key, _)| key.item_type == KeyType::CHUNK_ITEM).count();
        match items.iter().find(|item| !is_same(item)) {
            Some((key, _)) => Err(format!("it has another chunk at logical {}", key.offset())),
            None if chunks != self.chunks.len() => Err("it has chunks that there are not".to_owned()),
            None => Ok(()),
        }
    }

    /// Addresses of the old tree's blocks, by the extent tree: nothing else lies in system chunks.
    fn old_addresses(&self) -> Result<(Addresses, BTreeMap<Logical, Generation>), String> {
        let blocks = Blocks::new(&self.members, &self.scan, &self.context, &self.chunks);
        let (mut found, mut generations) = (Vec::new(), BTreeMap::new());
        for (start, chunk) in self.system_chunks() {
            let last = ObjectId::new(start.get() + (chunk.length() - 1));
            let range = Key::new(ObjectId::new(start.get()), KeyType(0), 0)
                ..=Key::last_of(last, KeyType::METADATA_ITEM);
            let extents = blocks.items(&self.facts.extent_tree, &range);
            if let Some(lost) = extents.lost.into_iter().next() {
                return Err(lost);
            }
            for (key, data) in &extents.items {
                let Ok(Item::Extent(item)) = Item::parse(key, data) else { continue };
                let is_block =
                    ExtentFlags::from_bits_retain(item.header.flags.get()).contains(ExtentFlags::TREE_BLOCK);
                let level = item
                    .tree_block
                    .map_or_else(|| u8::try_from(key.offset()).ok(), |block| Some(block.level));
                let Some(level) = level.filter(|_| is_block) else {
                    return Err(format!(
                        "an extent at logical {} is no block of the chunk tree",
                        key.objectid
                    ));
                };
                let at = Logical::new(key.objectid.get());
                found.push((at, level));
                generations.insert(at, item.header.generation);
            }
        }
        let superblock = &self.members.superblock;
        let addresses = Addresses::of_old(&found, superblock.chunk_root, superblock.chunk_root_level)?;
        Ok((addresses, generations))
    }

    /// A tree over the blocks of the old one. If none of these is left, each keeps its generation, which the extent tree has as well.
    fn image_over_old(&self, items: &[(Key, Vec<u8>)]) -> Result<Image, String> {
        let (addresses, old) = self.old_addresses()?;
        let is_left = |(at, generation): (&Logical, &Generation)| {
            self.scan.within(*at, 1).iter().any(|sighting| sighting.generation == *generation)
        };
        let root = self.members.superblock.chunk_root;
        let is_lost = !old.iter().any(is_left);
        if is_lost && old.get(&root) == Some(&self.members.superblock.chunk_root_generation) {
            let generation =
                |at| old.get(&at).copied().unwrap_or(self.members.superblock.chunk_root_generation);
            // Another shape of the tree may have a child that is younger than its parent.
            if let Ok(image) = Image::make(items, &addresses, &self.header()?, generation, &self.context) {
                return Ok(image);
            }
        }
        self.image(items, &addresses)
    }

    /// A tree of a generation that no block at these addresses has.
    fn image(&self, items: &[(Key, Vec<u8>)], addresses: &Addresses) -> Result<Image, String> {
        let generation = self.new_generation(addresses)?;
        Image::make(items, addresses, &self.header()?, |_| generation, &self.context)
    }

    /// Header of the tree's blocks.
    fn header(&self) -> Result<NodeHeader, String> {
        let known = self.facts.chunk_tree_uuid.or(self.scan.candidates.chunk_tree_uuid);
        let mut header = NodeHeader::new_zeroed();
        header.fsid = self.members.superblock.tree_uuid();
        header.chunk_tree_uuid = known.ok_or("the UUID of the chunk tree is not known")?;
        header.owner = RootId::CHUNK_TREE;
        Ok(header)
    }

    /// The latest generation that no block at these addresses has.
    fn new_generation(&self, addresses: &Addresses) -> Result<Generation, String> {
        let superblock = &self.members.superblock;
        let mut taken: BTreeSet<u64> = BTreeSet::from([superblock.chunk_root_generation.get()]);
        for at in addresses.all() {
            taken.extend(self.scan.within(at, 1).iter().map(|sighting| sighting.generation.get()));
        }
        let free = (1..=superblock.generation.get()).rev().find(|generation| !taken.contains(generation));
        free.map(Generation::new).ok_or_else(|| "each generation has a block of the old tree".to_owned())
    }

    fn write_blocks(&self, image: &Image, devices: &[Arc<dyn WritableDevice>]) -> Result<(), RescueError> {
        let piece_bytes = to_usize(self.context.sectorsize.into());
        for node in &image.blocks {
            for (number, piece) in node.as_bytes().chunks(piece_bytes).enumerate() {
                let at = node.header().bytenr + to_u64(number * piece_bytes);
                let chunk = self.chunks.range(..=at).next_back();
                let Some((start, chunk)) = chunk else { continue };
                for (device, physical) in chunk.places(&self.members, at.get() - start.get()) {
                    devices[device].write_at(physical, piece)?;
                }
                self.write_parity(chunk, at.get() - start.get(), piece_bytes, devices)?;
            }
        }
        Ok(())
    }

    /// Makes the parity of a row right, after a sector of it was written.
    fn write_parity(
        &self,
        chunk: &ProvedChunk,
        offset: u64,
        length: usize,
        devices: &[Arc<dyn WritableDevice>],
    ) -> Result<(), RescueError> {
        let item = chunk.chunk.as_item();
        let (Ok(Some(row)), Ok(places)) = (parity_stripes(&item, offset), stripe_places(&item, offset))
        else {
            return Ok(());
        };
        let place = |number: usize| {
            let stripe = item.stripes.get(number)?;
            let device = self.members.number_of(stripe.devid)?;
            Some((&devices[device], stripe.offset.get() + places.stripe_offset))
        };
        let ParityStripes { data, parity } = row;
        let mut columns = Vec::new();
        for number in data {
            let mut bytes = vec![0; length];
            // In memory, with a device missing, data is read where it lies.
            let Some((device, physical)) = place(number) else { return Ok(()) };
            device.read_at(physical, &mut bytes)?;
            columns.push(bytes);
        }
        let columns: Vec<&[u8]> = columns.iter().map(|column| &column[..]).collect();
        let (p, q) = syndromes(&columns);
        for (number, bytes) in parity.into_iter().zip([p, q]) {
            if let Some((device, physical)) = place(number) {
                device.write_at(physical, &bytes)?;
            }
        }
        Ok(())
    }

    /// Makes a tree the one that a superblock names.
    fn enter(&self, superblock: &mut Superblock, image: &Image) {
        let generation = image.blocks.last().map_or(Generation::new(0), Node::generation);
        let old = &self.members.superblock;
        for backup in &mut superblock.super_roots {
            if backup.chunk_root == old.chunk_root && backup.chunk_root_gen == old.chunk_root_generation {
                (backup.chunk_root, backup.chunk_root_gen, backup.chunk_root_level) =
                    (image.root, generation, image.level);
            }
        }
        (superblock.chunk_root, superblock.chunk_root_level) = (image.root, image.level);
        superblock.chunk_root_generation = generation;
    }

    /// The contents of the superblock's array of system chunks.
    fn system_chunk_array(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        for (start, chunk) in self.system_chunks() {
            let key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, start.get());
            bytes.extend_from_slice(key.as_bytes());
            bytes.extend(chunk.chunk.to_bytes());
        }
        match bytes.len() {
            0 => Err("no system chunk is proved".to_owned()),
            length if length > SYS_CHUNK_ARRAY_SIZE => {
                Err("system chunks do not fit the superblock".to_owned())
            }
            _ => Ok(bytes),
        }
    }

    /// Puts system chunks into a superblock; returns false if they are there.
    fn set_system_chunks(&self, superblock: &mut Superblock, bytes: &[u8]) -> bool {
        let name =
            |(key, chunk): (Key, Chunk<'_>)| (key, chunk.header.as_bytes().to_vec(), chunk.stripes.to_vec());
        let old: Result<Vec<_>, _> = superblock.system_chunks().map(|entry| entry.map(name)).collect();
        let mut changed = Superblock::clone(superblock);
        changed.sys_chunk_array.fill(0);
        changed.sys_chunk_array[..bytes.len()].copy_from_slice(bytes);
        changed.sys_chunk_array_size.set(u32::try_from(bytes.len()).unwrap_or(0));
        let new: Result<Vec<_>, _> = changed.system_chunks().map(|entry| entry.map(name)).collect();
        let is_same = match (old, new) {
            (Ok(mut old), Ok(mut new)) => {
                old.sort_by_key(|entry| entry.0.offset());
                new.sort_by_key(|entry| entry.0.offset());
                old == new
            }
            _ => false,
        };
        if !is_same {
            *superblock = changed;
        }
        !is_same
    }

    /// Writes the superblocks of the last commit anew, each with what is its own.
    fn write_superblocks(
        &self,
        new: &Superblock,
        devices: &[Arc<dyn WritableDevice>],
    ) -> Result<(), RescueError> {
        for (device, copies) in devices.iter().zip(&self.members.copies) {
            for copy in copies.iter().filter(|copy| copy.superblock.generation == new.generation) {
                let mut superblock = Superblock::clone(&copy.superblock);
                (superblock.chunk_root, superblock.chunk_root_level) = (new.chunk_root, new.chunk_root_level);
                superblock.chunk_root_generation = new.chunk_root_generation;
                (superblock.sys_chunk_array, superblock.sys_chunk_array_size) =
                    (new.sys_chunk_array, new.sys_chunk_array_size);
                superblock.super_roots = new.super_roots;
                put(device.as_ref(), copy.offset, &superblock)?;
            }
        }
        Ok(())
    }

    /// Returns true if the pool can be opened as it is, and has these chunks.
    fn opens(&self) -> bool {
        self.judge_readable(self.members.devices.clone()).is_ok()
    }

    /// Opens the pool with the new tree, and sees whether it has the chunks.
    fn judge(&self, devices: &[Arc<dyn WritableDevice>]) -> Result<(), RescueError> {
        let devices = devices.iter().map(|device| Arc::clone(device).share_device());
        self.judge_readable(devices.collect())
    }

    fn judge_readable(&self, devices: Vec<Arc<dyn Device>>) -> Result<(), RescueError> {
        let pool = Pool::open(devices, &OpenOptions::default())?;
        let sorted = |mut places: Vec<(DevId, u64)>| {
            places.sort_unstable();
            places
        };
        let places = |stripes: &[brindle_volume::StripeStatus]| {
            sorted(stripes.iter().map(|stripe| (stripe.devid, stripe.physical.get())).collect())
        };
        let chunks = pool.volume().chunks();
        let found: Vec<_> =
            chunks.iter().map(|chunk| (chunk.start, chunk.length, places(&chunk.stripes))).collect();
        let expected: Vec<_> =
            self.chunks().map(|(start, chunk)| (start, chunk.length(), chunk.chunk.places())).collect();
        match found == expected {
            true => Ok(()),
            false => Err(RescueError::Worse("the new chunk tree has other chunks".to_owned())),
        }
    }

    /// Numbers of chunks by proof, for people.
    pub fn summary(&self) -> Vec<String> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for chunk in self.chunks.values() {
            let proof = match chunk.proof {
                Proof::Item(_) => "a chunk item".to_owned(),
                other => other.to_string(),
            };
            *counts.entry(proof).or_default() += 1;
        }
        counts.into_iter().map(|(proof, count)| format!("{count} by {proof}")).collect()
    }
}

/// Content and profile, for people.
fn describe(kind: BlockGroupType) -> String {
    let profile = kind.profile().map_or("unknown profile", |profile| profile.attributes().name);
    format!(" ({}, {profile})", kind.content_name())
}
