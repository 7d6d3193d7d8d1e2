//! Block groups that are to be emptied: closed to allocation, avoided, or converted to another profile.
//!
//! A closed group counts for nothing, so before one is closed there must be room for what was promised, and for what
//! lies in it, elsewhere; chunks are made for that as long as there is room for them.

use super::Space;
use super::group::{Content, Group, Role};
use super::state::State;
use crate::error::TreeError;
use crate::space::metadata::Load;
use crate::store::Store;
use brindle_ondisk::{BlockGroupType, DevId, Logical, Profile};
use brindle_policy::placement::{DataTier, PlacementClass};
use brindle_policy::writeback::DataPlace;

/// Blocks of the chunk tree that must fit elsewhere before a group with some of them is closed, besides these.
const SYSTEM_BLOCKS: u64 = 16;

/// A block group as of now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Start address.
    pub start: Logical,
    /// Its length in bytes.
    pub length: u64,
    /// Content and profile.
    pub kind: BlockGroupType,
    /// Bytes of extents that have an item in the extent tree.
    pub used_bytes: u64,
    /// Bytes that are taken and have no item yet.
    pub reserved_bytes: u64,
    /// Bytes that were freed, and can be used again when that is durable.
    pub pinned_bytes: u64,
    /// True if its devices can be written.
    pub writable: bool,
    /// True for a group of the fast tier of data.
    pub is_fast: bool,
    /// True for a group of the write-back tier.
    pub is_write_back: bool,
    /// Rank of its slowest device (of the fast tier: of its slowest fast one), where the owner has listed classes.
    pub rank: Option<u8>,
    /// Device and start of each stripe.
    pub stripes: Vec<(DevId, u64)>,
    /// Bytes that each stripe takes.
    pub stripe_bytes: u64,
}

impl Space {
    /// The block groups that there are, by their addresses.
    pub(crate) fn block_groups(&self) -> Vec<GroupStatus> {
        let state = self.lock();
        state.groups().map(|group| GroupStatus::of(&state, group)).collect()
    }

    /// The block group that begins at an address, if there is one (any more).
    pub(crate) fn block_group(&self, start: Logical) -> Option<GroupStatus> {
        let state = self.lock();
        state.group(start.get()).map(|group| GroupStatus::of(&state, group))
    }

    /// From these block groups space is taken only where no chunk can be made instead; no others are avoided then.
    pub(crate) fn avoid_groups(&self, groups: &[Logical]) {
        let mut state = self.lock();
        let open: Vec<u64> =
            state.groups().filter(|group| group.role != Role::Closed).map(|group| group.start).collect();
        for start in open {
            let is_avoided = groups.contains(&Logical::new(start));
            state.change(start, |group| group.role = if is_avoided { Role::Avoided } else { Role::Open });
        }
    }

    /// The profile that new chunks of a content (its bit, or those of mixed groups) are to have instead of the one
    /// that the pool has; it is forgotten when the pool is closed.
    pub(crate) fn set_target_profile(&self, content: BlockGroupType, profile: Option<Profile>) {
        let mut state = self.lock();
        let content = Content::of(content);
        state.targets[content] = profile;
        if content == Content::Data {
            state.targets[Content::FastData] = profile;
        }
    }

    /// Closes a block group to allocation; it goes when it is empty. [`TreeError::NoSpace`] if there is not enough
    /// elsewhere for its contents, or for `moving_bytes` of them.
    pub(crate) fn close_group(
        &self,
        store: &Store,
        load: Load,
        start: Logical,
        moving_bytes: Option<u64>,
    ) -> Result<(), TreeError> {
        let Some(known) = self.block_group(start) else { return Ok(()) };
        let made_as = match Content::of(known.kind) {
            Content::Data => self.data_contents(known.place_elsewhere()).to_vec(),
            content => vec![content],
        };
        let mut state = self.lock();
        let Some(group) = state.group(start.get()) else { return Ok(()) };
        let (content, used) = (Content::of(group.kind), moving_bytes.unwrap_or(group.used + group.reserved));
        if !group.writable {
            let why = format!("block group at logical {start} lies on devices that can't be written");
            return Err(TreeError::NoSpace(why));
        }
        state.change(start.get(), |group| group.role = Role::Closed);
        let metadata = self.needed(&state, load, 0) + self.kept_back(&state, load.trees).bytes();
        let needed = used
            + match content {
                Content::Data | Content::FastData | Content::WriteBack => {
                    state.promised_data + state.kept_for_destaging()
                }
                Content::Metadata => metadata,
                Content::Mixed => metadata + state.promised_data,
                Content::System => SYSTEM_BLOCKS * self.nodesize,
            };
        while !state.has_other(content) || self.available_for(&state, content) < needed {
            let mut made = Ok(());
            for content in &made_as {
                made = self.make_chunk(store, &mut state, *content);
                if made.is_ok() {
                    break;
                }
            }
            if let Err(error) = made {
                state.change(start.get(), |group| group.role = Role::Open);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Opens a block group that was to be emptied.
    pub(crate) fn reopen_group(&self, start: Logical) {
        self.lock().change(start.get(), |group| group.role = Role::Open);
    }
}

impl Space {
    /// Bytes available for a content; data may lie in either tier.
    fn available_for(&self, state: &State, content: Content) -> u64 {
        match content {
            Content::Data | Content::FastData | Content::WriteBack => self.data_totals(state).available,
            content => state.totals(content).available,
        }
    }

    /// Returns true if the group of an address is being emptied.
    pub(crate) fn is_closed_at(&self, at: Logical) -> bool {
        self.lock().group_of(at.get()).is_some_and(|group| group.role == Role::Closed)
    }
}

impl State {
    /// Returns true if a closed group is empty.
    pub(super) fn has_drained(&self) -> bool {
        self.groups().any(|group| group.role == Role::Closed && group.is_empty())
    }

    /// Returns true if there is an open group of the profile that new chunks have.
    fn has_other(&self, content: Content) -> bool {
        let profile = self.profile(content);
        let mut others = self.groups().filter(|group| group.is_open() && Content::of(group.kind) == content);
        others.any(|group| group.role == Role::Open && group.kind.profile() == Some(profile))
    }
}

impl GroupStatus {
    /// Place that the group's data belongs to, were the group not there.
    pub(crate) fn place_elsewhere(&self) -> DataPlace {
        // What waits is destaged.
        let side = if self.is_fast { PlacementClass::Fast } else { PlacementClass::Bulk };
        DataTier { side, rank: self.rank.filter(|_| !self.is_write_back) }.into()
    }

    fn of(state: &State, group: &Group) -> Self {
        Self {
            start: Logical::new(group.start),
            length: group.length,
            kind: group.kind,
            used_bytes: group.used,
            reserved_bytes: group.reserved,
            pinned_bytes: group.pinned,
            writable: group.writable,
            is_fast: group.content() == Content::FastData,
            is_write_back: group.content() == Content::WriteBack,
            rank: state.has_classes().then_some(group.rank),
            stripes: group.stripes.clone(),
            stripe_bytes: group.stripe_bytes,
        }
    }
}
