//! Contents with fewer copies than others of their kind.

use super::{GroupHealth, PoolHealth, PoolServer};
use brindle_ondisk::{BlockGroupType, Profile};
use brindle_policy::placement::PlacementClass;
use brindle_policy::tier::Content;

/// Block groups of a content that can lose less than others of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LessRedundant {
    /// The content.
    pub content: Content,
    /// Its profile there.
    pub profile: Profile,
    /// Its profile elsewhere: that of new block groups.
    pub promised: Profile,
    /// Used bytes of the block groups.
    pub used_bytes: u64,
}

impl LessRedundant {
    /// Returns true if the loss of one device may lose some of it, and none of the rest.
    pub fn is_at_risk(&self) -> bool {
        self.profile.attributes().tolerated_failures == 0 && self.promised.attributes().tolerated_failures > 0
    }
}

/// The contents of a pool that have fewer copies than its profile has, as block groups that were made while a device was missing,
/// or a conversion that did not come to its end, leave them.
///
/// The profile of a content is the one that can lose most: new block groups get it. The write-back tier has a profile of its own.
pub fn less_redundant(pool: &PoolHealth) -> Vec<LessRedundant> {
    let is_moving = pool.jobs.iter().any(|job| job.name == "balance" && job.is_running);
    if is_moving {
        return Vec::new();
    }
    let groups: Vec<GroupHealth> =
        pool.space.groups.iter().filter(|group| !is_write_back(group, pool)).copied().collect();
    let mut found: Vec<LessRedundant> = Vec::new();
    for group in groups.iter().filter(|group| group.used_bytes > 0) {
        let content = group.kind & BlockGroupType::CONTENT;
        let alike = groups.iter().filter(|other| other.kind & BlockGroupType::CONTENT == content);
        let promised = alike.filter_map(|other| other.kind.profile()).max_by_key(|it| strength(*it));
        let (Some(profile), Some(promised)) = (group.kind.profile(), promised) else { continue };
        if strength(profile) >= strength(promised) {
            continue;
        }
        let content = Content::of(group.kind);
        match found.iter_mut().find(|it| (it.content, it.profile) == (content, profile)) {
            // Of another class.
            Some(known) => known.used_bytes += group.used_bytes,
            None => found.push(LessRedundant { content, profile, promised, used_bytes: group.used_bytes }),
        }
    }
    found
}

/// Devices that may be lost; and where that is none, copies.
fn strength(profile: Profile) -> (u16, bool) {
    let attributes = profile.attributes();
    (attributes.tolerated_failures, attributes.tolerated_failures > 0 || attributes.ncopies > 1)
}

/// Returns true for block groups in which data waits to be destaged.
fn is_write_back(group: &GroupHealth, pool: &PoolHealth) -> bool {
    let is_fast_data = group.kind.contains(BlockGroupType::DATA) && group.class == Some(PlacementClass::Fast);
    is_fast_data
        && match &pool.write_back {
            Some(tier) => group.kind.profile() == Some(tier.profile),
            None => pool.server == PoolServer::Brindle,
        }
}
