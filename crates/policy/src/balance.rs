//! Choice of block groups for a balance: filters in the words of `btrfs balance`, and one for those on devices of the
//! wrong class.

mod parse;
mod record;
#[cfg(test)]
mod tests;

pub use parse::ParseError;

use crate::tier::{TierChunk, TierPool};
use brindle_ondisk::{BlockGroupType, DevId, Profile};
use std::ops::{Range, RangeInclusive};

/// Selection of block groups of one content; a field that is not set does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Block groups of these profiles.
    pub profiles: Option<Vec<Profile>>,
    /// Block groups used to a percentage in this range: at least its start, less than its end.
    pub usage: Option<Range<u32>>,
    /// Block groups with a stripe on this device.
    pub devid: Option<DevId>,
    /// Block groups with a stripe in this range of bytes of a device ([`devid`](Self::devid), if it is set).
    pub physical: Option<Range<u64>>,
    /// Block groups that overlap this range of logical addresses.
    pub logical: Option<Range<u64>>,
    /// Block groups with a number of stripes in this range.
    pub stripes: Option<RangeInclusive<u32>>,
    /// Upper bound on their number, and none at all if there are fewer than the lower bound.
    pub limit: Option<RangeInclusive<u32>>,
    /// Profile to convert them to.
    pub convert: Option<Profile>,
    /// Leave block groups alone that have that profile already.
    pub soft: bool,
    /// Block groups on devices of the wrong class. Data on fast devices alone is not: it is that of the fast tier.
    pub misplaced: bool,
    /// With [`misplaced`](Self::misplaced): whole block groups alone, no extents of those that stay.
    pub groups_alone: bool,
}

/// Balance of a pool: a filter for each content that it covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Data block groups.
    pub data: Option<Filter>,
    /// Metadata block groups.
    pub metadata: Option<Filter>,
    /// System block groups.
    pub system: Option<Filter>,
}

/// Reason for refusing a balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalanceRefusal {
    /// Data and metadata lie in the same block groups.
    MixedNeedsBoth,
    /// There are fewer devices than the profile needs.
    TooFewDevices(Profile, u16),
    /// Metadata would have fewer copies than it has.
    LessRedundancy(Profile),
    /// Data placement has nothing to do with the class of devices.
    NoTiers,
}

impl std::fmt::Display for BalanceRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MixedNeedsBoth => {
                f.write_str("data and metadata share block groups: the same filters are needed for both")
            }
            Self::NoTiers => f.write_str(
                "the class of devices makes no difference here (no_ssd_metadata, or mixed block groups): what is moved could \
                 lie anywhere",
            ),
            Self::TooFewDevices(profile, needed) => write!(f, "{profile} needs {needed} devices"),
            Self::LessRedundancy(profile) => write!(
                f,
                "as {profile}, metadata would stand fewer failures than now; it is done with --force"
            ),
        }
    }
}

impl Balance {
    /// Everything.
    pub fn full() -> Self {
        let all = Some(Filter::default());
        Self { data: all.clone(), metadata: all.clone(), system: all }
    }

    /// All that lies on devices of the wrong class.
    pub fn of_misplaced() -> Self {
        let all = Some(Filter { misplaced: true, ..Filter::default() });
        Self { data: all.clone(), metadata: all.clone(), system: all }
    }

    /// Returns true if it covers block groups on devices of the wrong class.
    pub fn is_for_misplaced(&self) -> bool {
        self.filters().any(|(_, filter)| filter.misplaced)
    }

    /// Returns true if it covers nothing else.
    pub fn is_for_misplaced_alone(&self) -> bool {
        self.is_for_misplaced() && self.filters().all(|(_, filter)| filter.misplaced)
    }

    /// Returns true if it is for the block group at one address, as `tier apply` has the kernel empty one.
    pub fn is_for_one_chunk(&self) -> bool {
        let is_of_one = |filter: &Filter| {
            let is_byte = |range: &Range<u64>| range.start.checked_add(1) == Some(range.end);
            filter.logical.as_ref().is_some_and(is_byte)
                && *filter == Filter { logical: filter.logical.clone(), ..Filter::default() }
        };
        self.filters().count() > 0 && self.filters().all(|(_, filter)| is_of_one(filter))
    }

    /// Returns true if it covers all data that lies in the wrong tier by the wishes of files.
    pub fn is_for_files(&self) -> bool {
        self.data.as_ref().is_some_and(|filter| *filter == Filter { misplaced: true, ..Filter::default() })
    }

    /// The filter for block groups of a kind.
    pub fn filter(&self, kind: BlockGroupType) -> Option<&Filter> {
        if kind.contains(BlockGroupType::DATA) {
            self.data.as_ref()
        } else if kind.contains(BlockGroupType::SYSTEM) {
            self.system.as_ref()
        } else {
            self.metadata.as_ref()
        }
    }

    /// Reason for which a pool cannot be balanced, or `None`.
    pub fn refusal(&self, pool: &TierPool, force: bool) -> Option<BalanceRefusal> {
        let is_mixed = pool
            .chunks
            .iter()
            .any(|chunk| chunk.kind.contains(BlockGroupType::DATA | BlockGroupType::METADATA));
        if is_mixed && self.data != self.metadata {
            return Some(BalanceRefusal::MixedNeedsBoth);
        }
        for (content, filter) in self.filters() {
            let Some(target) = filter.convert else { continue };
            let needed = target.attributes().devs_min;
            if pool.devices.len() < usize::from(needed) {
                return Some(BalanceRefusal::TooFewDevices(target, needed));
            }
            let copies = |profile: Profile| {
                let row = profile.attributes();
                (row.tolerated_failures, row.ncopies)
            };
            let mut of_content = pool.chunks.iter().filter(|chunk| chunk.kind.contains(content));
            let is_less = of_content.any(|chunk| copies(chunk.profile()) > copies(target));
            if is_less && content != BlockGroupType::DATA && !force {
                return Some(BalanceRefusal::LessRedundancy(target));
            }
        }
        None
    }

    /// Contents with their filters.
    pub fn filters(&self) -> impl Iterator<Item = (BlockGroupType, &Filter)> {
        [
            (BlockGroupType::DATA, &self.data),
            (BlockGroupType::METADATA, &self.metadata),
            (BlockGroupType::SYSTEM, &self.system),
        ]
        .into_iter()
        .filter_map(|(content, filter)| filter.as_ref().map(|filter| (content, filter)))
    }

    /// The chunks that it is for, the last ones first.
    pub fn chosen<'p>(&self, pool: &'p TierPool) -> Vec<&'p TierChunk> {
        let mut chosen: Vec<&TierChunk> = Vec::new();
        for (content, filter) in self.filters() {
            let is_mixed = |chunk: &&TierChunk| {
                chunk.kind.contains(BlockGroupType::DATA) && content == BlockGroupType::METADATA
            };
            let of_content = pool.chunks.iter().filter(|chunk| chunk.kind.contains(content));
            let mut found: Vec<&TierChunk> = of_content
                .filter(|chunk| !is_mixed(chunk))
                .filter(|chunk| filter.is_for(chunk, pool))
                .collect();
            found.sort_by_key(|chunk| std::cmp::Reverse(chunk.logical));
            if let Some(limit) = &filter.limit {
                let least = usize::try_from(*limit.start()).unwrap_or(usize::MAX);
                if found.len() < least {
                    found.clear();
                }
                found.truncate(usize::try_from(*limit.end()).unwrap_or(usize::MAX));
            }
            chosen.extend(found);
        }
        chosen
    }
}

impl Filter {
    /// Returns true if a chunk of the right content is selected, before the limit.
    pub fn is_for(&self, chunk: &TierChunk, pool: &TierPool) -> bool {
        let has_profile = self.profiles.as_ref().is_none_or(|profiles| profiles.contains(&chunk.profile()));
        let is_done = self.soft && self.convert == Some(chunk.profile());
        let has_stripes = self.stripes.as_ref().is_none_or(|stripes| {
            u32::try_from(chunk.stripes.len()).is_ok_and(|count| stripes.contains(&count))
        });
        let overlaps = self.logical.as_ref().is_none_or(|range| {
            let start = chunk.logical.get();
            start < range.end && start.saturating_add(chunk.length_bytes) > range.start
        });
        has_profile
            && !is_done
            && has_stripes
            && overlaps
            && self.is_on_device(chunk)
            && self.usage.as_ref().is_none_or(|usage| is_used(chunk, usage))
            && (!self.misplaced || pool.is_misplaced(chunk))
    }

    fn is_on_device(&self, chunk: &TierChunk) -> bool {
        if self.devid.is_none() && self.physical.is_none() {
            return true;
        }
        let length = chunk.stripe_bytes();
        chunk.stripes.iter().any(|stripe| {
            let start = stripe.physical.get();
            self.devid.is_none_or(|devid| devid == stripe.devid)
                && self
                    .physical
                    .as_ref()
                    .is_none_or(|range| start < range.end && start.saturating_add(length) > range.start)
        })
    }

    /// Returns true if no space is to be taken from the selected block groups during the balance: where that would
    /// move the same data twice, or where it is not wanted.
    pub fn avoids_chosen(&self) -> bool {
        self.misplaced || self.convert.is_some() || self.devid.is_some() || self.physical.is_some()
    }
}

/// Returns true if a chunk is used to a percentage in the range. An upper bound of 0 selects empty chunks.
fn is_used(chunk: &TierChunk, usage: &Range<u32>) -> bool {
    let bytes = |percent: u32| match percent {
        0 => 0,
        100.. => chunk.length_bytes,
        percent => {
            u64::try_from(u128::from(chunk.length_bytes) * u128::from(percent) / 100).unwrap_or(u64::MAX)
        }
    };
    let below = if usage.end == 0 { 1 } else { bytes(usage.end) };
    // Everything is no more than a hundred percent.
    let is_below = chunk.used_bytes < below || usage.end > 100;
    chunk.used_bytes >= bytes(usage.start) && is_below
}
