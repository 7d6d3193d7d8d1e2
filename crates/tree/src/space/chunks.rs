//! New chunks: placed, and usable at once; their items are written by the next commit. And chunks that nothing is
//! in any more, which go back.

use super::group::{Content, Group, Role};
use super::load::new_group;
use super::state::State;
use super::{FreeRanges, Space};
use crate::error::TreeError;
use crate::store::Store;
use brindle_interval::Interval;
use brindle_ondisk::item::{ChunkHeader, Stripe};
use brindle_ondisk::{
    BlockGroupType, Item, ItemHeader, Key, KeyType, Logical, NodeHeader, ObjectId, Profile, RootId,
    SYS_CHUNK_ARRAY_SIZE, to_usize,
};
use brindle_policy::placement::{
    ChunkLimits, ChunkPlan, ChunkRequest, PlacementClass, PlacementMode, Ranks, STRIP_BYTES, place_chunk,
};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

/// Stripes shorter than this are not worth having, in bytes.
const MIN_STRIPE_BYTES: u64 = 1 << 20;
/// Profiles from the most to the least protecting, which is the order in which the kernel prefers them where block
/// groups of several are there.
const PREFERENCE: [Profile; 9] = [
    Profile::Raid1c4,
    Profile::Raid6,
    Profile::Raid1c3,
    Profile::Raid5,
    Profile::Raid10,
    Profile::Raid1,
    Profile::Dup,
    Profile::Raid0,
    Profile::Single,
];

/// The profile of new chunks: of those that the pool uses, the first by preference for which there are devices
/// enough; `single` if there is none.
pub(super) fn profile_for(used: &[BlockGroupType], devices: usize) -> Profile {
    let is_possible = |profile: &Profile| {
        let enough = usize::from(profile.attributes().devs_min) <= devices;
        enough && used.iter().any(|kind| kind.profile() == Some(*profile))
    };
    PREFERENCE.into_iter().find(is_possible).unwrap_or(Profile::Single)
}

impl State {
    /// The profile of new chunks of a content.
    pub(super) fn profile(&self, content: Content) -> Profile {
        if let Some(chosen) = self.write_back.stored.profile.filter(|_| content == Content::WriteBack) {
            return chosen;
        }
        let count = self.usable_devices();
        let enough = |profile: &Profile| usize::from(profile.attributes().devs_min) <= count;
        if let Some(target) = self.targets[content].filter(enough) {
            return target;
        }
        profile_for(&self.kinds(content), count)
    }

    /// Number of devices that chunks may lie on: one that is about to leave does not count.
    fn usable_devices(&self) -> usize {
        self.devices.iter().filter(|device| device.takes_chunks()).count()
    }

    /// The kinds of groups of a content that there are.
    fn kinds(&self, content: Content) -> Vec<BlockGroupType> {
        let mut kinds = Vec::new();
        let content = Content::of(content.flags());
        // What waits may have a profile of its own.
        let counts = |group: &&Group| Content::of(group.kind) == content && !group.is_write_back;
        for group in self.groups().filter(counts) {
            if !kinds.contains(&group.kind) {
                kinds.push(group.kind);
            }
        }
        kinds
    }
}

impl Space {
    /// Makes a chunk, and before it one for the chunk tree if that may run out of room.
    pub(super) fn make_chunk(
        &self,
        store: &Store,
        state: &mut State,
        content: Content,
    ) -> Result<(), TreeError> {
        let mode = self.mode(state);
        self.make_chunk_as(store, state, content, mode, Ranks::ALL)
    }

    /// The same, on devices of these ranks, where the class of devices weighs as much as is said.
    pub(super) fn make_chunk_as(
        &self,
        store: &Store,
        state: &mut State,
        content: Content,
        mode: PlacementMode,
        ranks: Ranks,
    ) -> Result<(), TreeError> {
        if content != Content::System {
            let pending = state.unwritten_chunks.len() + state.to_remove.len() + state.devices.len();
            let blocks = 2 * (u64::try_from(pending).unwrap_or(u64::MAX) + SYSTEM_BLOCKS);
            if state.totals(Content::System).available < blocks * u64::from(store.nodesize()) {
                // If there is no room for another one, this one may still do.
                let mode = self.mode(state);
                if let Err(error) = self.place(store, state, Content::System, mode, Ranks::ALL) {
                    tracing::debug!("no further system chunk: {error}");
                }
            }
        }
        self.place(store, state, content, mode, ranks)
    }

    /// Returns true if a new chunk of data on devices of these ranks would be one of the fast tier, for the bulk devices are full.
    pub(super) fn would_spill(&self, store: &Store, state: &State, ranks: Ranks) -> bool {
        let request = ChunkRequest { ranks, ..self.request(store, state, Content::Data) };
        let Ok(plan) = place_chunk(&state.summaries_for(Content::Data), &request) else { return false };
        state.is_of_fast_tier(&plan.stripes.iter().copied().collect(), request.profile)
    }

    fn place(
        &self,
        store: &Store,
        state: &mut State,
        content: Content,
        mode: PlacementMode,
        ranks: Ranks,
    ) -> Result<(), TreeError> {
        if content == Content::WriteBack && !state.has_room_for_write_back_chunk() {
            return Err(TreeError::NoSpace("the write-back tier has as many chunks as it may".to_owned()));
        }
        let profile = state.profile(content);
        self.warn_if_reduced(state, content, profile);
        let request = ChunkRequest { mode, ranks, ..self.request(store, state, content) };
        let plan = place_chunk(&state.summaries_for(content), &request)
            .map_err(|error| TreeError::NoSpace(error.to_string()))?;
        if content == Content::System && !fits_superblock(state, plan.stripes.len()) {
            return Err(TreeError::NoSpace("the superblock has no room for another system chunk".into()));
        }
        let kind = content.flags() | profile.attributes().flag;
        let start = Logical::new(state.next_chunk);
        let stripes = take_stripes(state, &plan);
        let item = chunk_item(&plan, kind, profile, &stripes, self.sectorsize);
        state.set_write_back_chunk(start.get(), content == Content::WriteBack);
        let added = self.register(store, state, start, &item);
        if added.is_err() {
            state.set_write_back_chunk(start.get(), false);
            for stripe in &stripes {
                give_back(state, stripe, plan.stripe_bytes);
            }
            return added;
        }
        if content == Content::System {
            state.system_chunks.insert(start.get(), item.clone());
            state.system_chunks_changed = true;
        }
        state.unwritten_chunks.insert(start.get(), item);
        state.tell_expendable(store);
        tracing::debug!("new chunk at logical {start}, {} bytes, {kind}", plan.chunk_bytes);
        Ok(())
    }

    /// Request to placement.
    pub(super) fn request(&self, store: &Store, state: &State, content: Content) -> ChunkRequest {
        let limits = ChunkLimits::new(content.flags(), state.bytes_for(content));
        let profile = state.profile(content);
        ChunkRequest {
            content: content.flags(),
            profile,
            mode: self.mode(state),
            tier: match content {
                Content::FastData | Content::WriteBack => PlacementClass::Fast,
                _ => PlacementClass::Bulk,
            },
            copies_on_fast: match content {
                Content::FastData => state.copies_on_fast(profile),
                _ => None,
            },
            ranks: Ranks::ALL,
            max_stripe_bytes: limits.max_stripe_bytes,
            max_chunk_bytes: limits.max_chunk_bytes,
            min_stripe_bytes: MIN_STRIPE_BYTES,
            max_stripes: max_stripes(store.nodesize()),
        }
    }

    /// Makes the chunk known: to readers and writers, and as a group that is all free.
    fn register(
        &self,
        store: &Store,
        state: &mut State,
        start: Logical,
        item: &[u8],
    ) -> Result<(), TreeError> {
        let key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, start.get());
        let Ok(Item::Chunk(chunk)) = Item::parse(&key, item) else {
            unreachable!("the item was made as one of a chunk");
        };
        store.volume().add_chunk(start, &chunk)?;
        let status = store.volume().chunks().into_iter().find(|status| status.start == start);
        let mut group = new_group(&status.expect("it was added just now"));
        group.is_fresh = true;
        let mut free = FreeRanges::of(group.interval());
        for span in group.excluded.iter() {
            free.remove(span);
        }
        group.free = Some(free);
        state.add(group);
        Ok(())
    }

    /// Redundancy that the pool had so far, and a new chunk does not get, is said once.
    fn warn_if_reduced(&self, state: &mut State, content: Content, profile: Profile) {
        if state.targets[content].is_some() || content == Content::WriteBack {
            return;
        }
        let wanted = profile_for(&state.kinds(content), usize::MAX);
        if wanted != profile && !state.has_warned {
            state.has_warned = true;
            tracing::warn!(
                "{} is {wanted} so far, but for that there are too few writable devices ({}): new chunks are \
                 {profile}; balance them when the devices are back",
                content.flags().content_name(),
                state.usable_devices(),
            );
        }
    }

    /// Takes away groups that nothing is in any more. One of each kind stays, so that its profile is remembered, and
    /// so does what is promised. `needed` is how much metadata space must stay available.
    pub(super) fn remove_empty(&self, state: &mut State, needed: u64) {
        let candidates: Vec<u64> = state
            .groups()
            .filter(|group| group.is_empty() && group.writable)
            .map(|group| group.start)
            .collect();
        for start in candidates {
            let group = state.group(start).expect("it was there just now");
            let (kind, length, content) = (group.kind, group.available(), group.content());
            let is_settled = group.is_settled();
            if group.role == Role::Closed {
                if is_settled {
                    remove(state, start);
                }
                continue;
            }
            // The fast tier is no place that other data goes to as long as there is one for it.
            let is_like = |other: &&Group| {
                other.kind == kind && !other.is_write_back && (content != Content::Data || !other.is_fast)
            };
            let is_last = match content {
                Content::WriteBack => state.is_write_back_spare(group),
                _ => state.groups().filter(is_like).nth(1).is_none(),
            };
            let needed = match content {
                Content::System => continue,
                Content::Data | Content::FastData => state.promised_data + state.kept_for_destaging(),
                Content::WriteBack => 0,
                Content::Metadata => 2 * needed,
                Content::Mixed => state.promised_data.saturating_add(2 * needed),
            };
            let available = match content {
                Content::Data | Content::FastData => self.data_totals(state).available,
                content => state.totals(content).available,
            };
            let is_needed = available.saturating_sub(length) < needed;
            if !is_settled || is_last || is_needed {
                continue;
            }
            remove(state, start);
        }
    }
}

/// Takes a group away that nothing is in.
fn remove(state: &mut State, start: u64) {
    let group = state.take_away(start).expect("it was there just now");
    for (devid, _) in &group.stripes {
        match state.devices.iter_mut().find(|device| device.devid == *devid) {
            Some(device) => device.give_up(group.stripe_bytes),
            None => state.absent.entry(*devid).or_default().given_up += group.stripe_bytes,
        }
    }
    state.set_write_back_chunk(start, false);
    if state.system_chunks.remove(&start).is_some() {
        state.system_chunks_changed = true;
    }
    tracing::debug!("chunk at logical {start} is empty and goes");
    state.to_remove.push(group);
}

/// The blocks of the chunk tree that one change of it may copy.
const SYSTEM_BLOCKS: u64 = 4;

/// Takes the plan's room on the devices.
fn take_stripes(state: &mut State, plan: &ChunkPlan) -> Vec<Stripe> {
    let stripe = |devid: &brindle_ondisk::DevId| {
        let device = state.devices.iter_mut().find(|device| device.devid == *devid);
        let device = device.expect("placement chooses among the devices given");
        let offset = device.take(plan.stripe_bytes).expect("placement has seen room for it");
        Stripe { devid: *devid, offset, dev_uuid: device.uuid }
    };
    plan.stripes.iter().map(stripe).collect()
}

fn give_back(state: &mut State, stripe: &Stripe, length: u64) {
    if let Some(device) = state.devices.iter_mut().find(|device| device.devid == stripe.devid) {
        device.give_up(length);
        device.release(Interval::new(stripe.offset, length));
    }
}

fn chunk_item(
    plan: &ChunkPlan,
    kind: BlockGroupType,
    profile: Profile,
    stripes: &[Stripe],
    sectorsize: u64,
) -> Vec<u8> {
    let strip = u32::try_from(STRIP_BYTES).expect("64 KiB");
    let header = ChunkHeader {
        length: U64::new(plan.chunk_bytes),
        owner: RootId::EXTENT_TREE,
        stripe_len: U64::new(STRIP_BYTES),
        chunk_type: U64::new(kind.bits()),
        io_align: U32::new(strip),
        io_width: U32::new(strip),
        sector_size: U32::new(u32::try_from(sectorsize).expect("it was 32 bits on disk")),
        num_stripes: U16::new(u16::try_from(stripes.len()).expect("as many as the request allows")),
        sub_stripes: U16::new(profile.attributes().sub_stripes),
    };
    [header.as_bytes(), stripes.as_bytes()].concat()
}

/// Returns true if the superblock's array can take one more system chunk.
fn fits_superblock(state: &State, stripes: usize) -> bool {
    let size = |item: usize| size_of::<Key>() + item;
    let taken: usize = state.system_chunks.values().map(|item| size(item.len())).sum();
    taken + size(size_of::<ChunkHeader>() + stripes * size_of::<Stripe>()) <= SYS_CHUNK_ARRAY_SIZE
}

/// Upper bound on the stripes of a chunk item: it must fit a leaf, and two of them the superblock.
fn max_stripes(nodesize: u32) -> u16 {
    let chunk = size_of::<ChunkHeader>();
    let leaf = to_usize(nodesize.into()) - size_of::<NodeHeader>() - size_of::<ItemHeader>() - chunk;
    let array = SYS_CHUNK_ARRAY_SIZE / 2 - size_of::<Key>() - chunk;
    u16::try_from(leaf.min(array) / size_of::<Stripe>()).expect("bounded by the superblock")
}

/// A group that is to be written about, without its free ranges.
pub(crate) fn describe(group: &Group) -> (Key, BlockGroupType) {
    (Key::new(ObjectId::new(group.start), KeyType::BLOCK_GROUP_ITEM, group.length), group.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_that_of_the_pool_while_there_are_devices_for_it() {
        let used = [BlockGroupType::DATA, BlockGroupType::DATA | BlockGroupType::RAID1];
        assert_eq!(profile_for(&used, 2), Profile::Raid1);
        assert_eq!(profile_for(&used, 1), Profile::Single);
        assert_eq!(profile_for(&[BlockGroupType::METADATA | BlockGroupType::DUP], 9), Profile::Dup);
        assert_eq!(profile_for(&[], 9), Profile::Single);
    }
}
