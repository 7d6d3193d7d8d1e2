//! Warning to users that want small or marked files on fast devices, of a pool where that makes no difference.

use brindle_admin::Mounted;
use brindle_care::balance;
use brindle_care::mkfs::{MkfsReport, NewBlockGroup};
use brindle_fs::{Filesystem, PlacementMode};
use brindle_ondisk::{BlockGroupType, Profile};
use brindle_policy::placement::PlacementClass;
use brindle_policy::tier::Content;
use brindle_policy::tier::files::no_tiers_reason;
use brindle_policy::tier::shortage::Shortage;

/// Facts that decide if data has tiers.
struct DataFacts {
    /// The kinds of block groups that there are.
    kinds: Vec<BlockGroupType>,
    fast: usize,
    bulk: usize,
    /// The class of devices weighs nothing (`no_ssd_metadata`).
    is_classic: bool,
}

impl DataFacts {
    /// Reason for which it has none, or `None` if it has.
    fn reason(&self) -> Option<String> {
        let data = self.kinds.iter().filter(|kind| kind.contains(BlockGroupType::DATA));
        if data.clone().any(|kind| kind.contains(BlockGroupType::METADATA)) {
            return Some("data and metadata share block groups".to_owned());
        }
        let profiles = data.map(|kind| kind.profile().unwrap_or(Profile::Single));
        let why = no_tiers_reason(profiles, self.fast, self.bulk).map(|why| why.to_string());
        why.or_else(|| self.is_classic.then(|| "it is mounted with no_ssd_metadata".to_owned()))
    }

    fn warn(&self, what: &str) {
        if let Some(reason) = self.reason() {
            tracing::warn!("{what} makes no difference in this pool as it is now: {reason}");
        }
    }
}

/// Warns of the mount that a path is on. A failure to ask it does not matter: the command has done its work.
pub(crate) fn of_mount(mounted: &Mounted, what: &str) {
    if mounted.is_of_kernel() {
        tracing::warn!(
            "{what} makes no difference on a mount of the kernel, which keeps it and does not know it: it counts once brindle \
             mounts the pool, and `brindle tier apply` then moves what is written until then"
        );
        return;
    }
    let Ok(space) = mounted.space() else { return };
    let class = |wanted: u64| space.devices.iter().filter(|device| device.class == wanted).count();
    let facts = DataFacts {
        kinds: space.groups.iter().map(|group| BlockGroupType::from_bits_retain(group.kind)).collect(),
        fast: class(1),
        bulk: class(2),
        is_classic: space.placement == 0,
    };
    facts.warn(what);
}

/// Warns of a pool that is about to be mounted with this placement.
pub(crate) fn of_pool(filesystem: &Filesystem, placement: PlacementMode, what: &str) {
    // A pool that can't be written makes no new chunks.
    let Ok(pool) = balance::facts(filesystem.pool()) else { return };
    let facts = DataFacts {
        kinds: pool.chunks.iter().map(|chunk| chunk.kind).collect(),
        fast: pool.count(PlacementClass::Fast),
        bulk: pool.count(PlacementClass::Bulk),
        is_classic: placement == PlacementMode::Classic,
    };
    facts.warn(what);
}

/// Warns of a new pool.
pub(crate) fn of_new(report: &MkfsReport, what: &str) {
    let count = |class| report.devices.iter().filter(|device| device.class == class).count();
    let (fast, bulk) = (count(PlacementClass::Fast), count(PlacementClass::Bulk));
    let kinds =
        report.block_groups.iter().map(|group| group.kind | group.profile.attributes().flag).collect();
    DataFacts { kinds, fast, bulk, is_classic: false }.warn(what);
}

/// Notes on the metadata of a pool that was made: gains by more fast devices, and by a log with fewer copies.
pub(crate) fn notes_of_new(report: &MkfsReport) -> Vec<String> {
    let count = |class| report.devices.iter().filter(|device| device.class == class).count();
    let (found, class) = (count(PlacementClass::Fast), PlacementClass::Fast);
    let metadata = report.block_groups.iter().filter(|group| Content::of(group.kind) == Content::Metadata);
    let shortage = |group: &NewBlockGroup| Shortage::TooFewDevices {
        content: Content::Metadata,
        profile: group.profile,
        class,
        found,
    };
    let of_copies = metadata.map(shortage).filter(|shortage| shortage.copies().is_some());
    let mut notes: Vec<String> = of_copies.map(|shortage| shortage.to_string()).collect();
    if !notes.is_empty() {
        let on_flash = "an fsync writes to a disk too, for the log has as many copies as other metadata; fsyncs at the speed of \
                        flash: `brindle property set MOUNTPOINT log_profile single`, which `brindle tier status` explains";
        notes.push(on_flash.to_owned());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_why_tiers_make_no_difference() {
        let facts =
            |kind, fast, bulk, is_classic| DataFacts { kinds: vec![kind], fast, bulk, is_classic }.reason();
        let (data, raid1) = (BlockGroupType::DATA, BlockGroupType::DATA | BlockGroupType::RAID1);
        assert_eq!(facts(data, 1, 1, false), None);
        let says = |reason: Option<String>, word: &str| reason.expect("it makes none").contains(word);
        assert!(says(facts(data, 1, 1, true), "no_ssd_metadata"));
        assert!(says(facts(data, 0, 3, false), "no fast devices"));
        assert_eq!(facts(raid1, 1, 2, false), None, "one copy lies on the fast device");
        assert!(says(facts(raid1, 1, 1, false), "needs 2 fast devices, and there is 1"));
        let raid10 = BlockGroupType::DATA | BlockGroupType::RAID10;
        assert!(says(facts(raid10, 1, 4, false), "needs 2 fast devices, and there is 1"));
        assert!(says(facts(data | BlockGroupType::METADATA, 1, 1, false), "share block groups"));
    }
}
