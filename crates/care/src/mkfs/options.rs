//! Options of mkfs.

use super::MkfsError;
use bitflags::bitflags;
use brindle_device::WritableDevice;
use brindle_ondisk::{ChecksumType, CompatRo, Incompat, Profile, Uuid};
use brindle_policy::class::DeviceClasses;
use brindle_policy::placement::PlacementClass;
use std::sync::Arc;

/// A device that is to be part of the pool.
#[derive(Clone, Debug)]
pub struct NewDevice {
    /// The device.
    pub device: Arc<dyn WritableDevice>,
    /// Class given by the owner; that reported by the host if `None`.
    pub class: Option<PlacementClass>,
    /// Name of its class, one of [`MkfsOptions::classes`], which also tells its side; `None` for none of its own.
    pub class_name: Option<String>,
    /// The size to give it, in bytes, if it is an image; as it is if `None`.
    pub resize_bytes: Option<u64>,
    /// Upper bound on the bytes of it that the pool uses; all if `None`.
    pub limit_bytes: Option<u64>,
}

impl NewDevice {
    /// A device as it is.
    pub fn new(device: Arc<dyn WritableDevice>) -> Self {
        Self { device, class: None, class_name: None, resize_bytes: None, limit_bytes: None }
    }

    /// The size that it will have, in bytes.
    pub(super) fn size_bytes(&self) -> u64 {
        let size_bytes = self.resize_bytes.unwrap_or_else(|| self.device.size_bytes());
        self.limit_bytes.map_or(size_bytes, |limit| limit.min(size_bytes))
    }
}

/// Options of a new pool.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Profile of data; `single` if `None`.
    pub data: Option<Profile>,
    /// Profile of metadata and system chunks; if `None`, `dup` on one device and `raid1` on several.
    pub metadata: Option<Profile>,
    /// The label, at most 255 bytes.
    pub label: String,
    /// UUID of the pool.
    pub fsid: Uuid,
    /// UUID of the device of a pool that has one.
    pub device_uuid: Option<Uuid>,
    /// Seed of all other UUIDs: random, or fixed for an image that can be made again.
    pub seed: [u8; 16],
    /// Now, in seconds since 1970.
    pub time_sec: i64,
    /// The size of a tree block in bytes; if `None`, 16384, and the sector size where data and metadata are
    /// mixed.
    pub nodesize: Option<u32>,
    /// Checksum algorithm.
    pub checksum: ChecksumType,
    /// Features of the format.
    pub features: Features,
    /// Owner of the root directory: user and group.
    pub root_owner: (u32, u32),
    /// Classes within the fast and the bulk side.
    pub classes: DeviceClasses,
    /// Overwrite a known format found on the device.
    pub force: bool,
    /// Give back the space of the devices first.
    pub discard: bool,
    /// Room that the first chunks are to have, if that is known; else they are a share of the devices.
    pub contents: Option<Contents>,
}

/// Approximate contents of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Data, in bytes.
    pub data_bytes: u64,
    /// Tree blocks, in bytes.
    pub metadata_bytes: u64,
}

impl MkfsOptions {
    /// The defaults, for a pool of this UUID.
    pub fn new(fsid: Uuid, seed: [u8; 16], time_sec: i64) -> Self {
        Self {
            data: None,
            metadata: None,
            label: String::new(),
            fsid,
            device_uuid: None,
            seed,
            time_sec,
            nodesize: None,
            checksum: ChecksumType::Crc32c,
            features: Features::default(),
            root_owner: (0, 0),
            classes: DeviceClasses::default(),
            force: false,
            discard: true,
            contents: None,
        }
    }
}

bitflags! {
    /// Features of the format that can be chosen.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Features: u32 {
        /// Data and metadata share block groups.
        const MIXED_BG = 1 << 0;
        /// Extended inode references: more hard links to a file.
        const EXTREF = 1 << 1;
        /// Smaller references to metadata.
        const SKINNY_METADATA = 1 << 2;
        /// Holes have no file extent.
        const NO_HOLES = 1 << 3;
        /// Free space tree.
        const FREE_SPACE_TREE = 1 << 4;
        /// Block group items in a tree of their own.
        const BLOCK_GROUP_TREE = 1 << 5;
        /// Simple quotas, which are on from the beginning.
        const SIMPLE_QUOTA = 1 << 6;
    }
}

/// Features that are on by default.
impl Default for Features {
    fn default() -> Self {
        Self::all().difference(Self::MIXED_BG | Self::SIMPLE_QUOTA)
    }
}

/// A feature as the command line names it.
#[derive(Clone, Copy, Debug)]
pub struct FeatureName {
    /// The feature.
    pub feature: Features,
    /// Its name.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
}

/// The names of all features.
pub const FEATURES: [FeatureName; 7] = [
    named(Features::MIXED_BG, "mixed-bg", "mixed data and metadata block groups"),
    named(Features::EXTREF, "extref", "increased hardlink limit per file"),
    named(Features::SKINNY_METADATA, "skinny-metadata", "reduced-size metadata extent references"),
    named(Features::NO_HOLES, "no-holes", "no explicit hole extents for files"),
    named(Features::FREE_SPACE_TREE, "free-space-tree", "free space tree (space_cache=v2)"),
    named(
        Features::BLOCK_GROUP_TREE,
        "block-group-tree",
        "block groups in a tree of their own, for quick mounts",
    ),
    named(
        Features::SIMPLE_QUOTA,
        "squota",
        "simple quotas, by the subvolume that wrote an extent first; Linux 6.7",
    ),
];

/// Names that mkfs.btrfs knows, and why they are refused.
const REFUSED: [(&str, &str); 8] = [
    ("quota", "quotas are not supported by brindle mkfs; `brindle quota enable` turns them on later"),
    ("zoned", "zoned devices are not supported"),
    ("extent-tree-v2", "the format is not settled, and not supported"),
    ("raid-stripe-tree", "not supported"),
    ("remap-tree", "not supported"),
    ("metadata_uuid", "not supported"),
    ("raid56", "it is on when a profile needs it, and cannot be chosen"),
    ("raid1c34", "it is on when a profile needs it, and cannot be chosen"),
];

const fn named(feature: Features, name: &'static str, about: &'static str) -> FeatureName {
    FeatureName { feature, name, about }
}

impl Features {
    /// These features, changed by a comma-separated list as `-O` takes it: a name turns a feature on, one behind
    /// `^` off.
    pub fn with_list(mut self, list: &str) -> Result<Self, MkfsError> {
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (is_on, name) = word.strip_prefix('^').map_or((true, word), |name| (false, name));
            let known = match name {
                "fst" => "free-space-tree",
                "bgt" => "block-group-tree",
                name => name,
            };
            if let Some((name, why)) = REFUSED.iter().find(|(refused, _)| *refused == known) {
                return Err(MkfsError::Feature { name: (*name).to_owned(), why });
            }
            let Some(row) = FEATURES.iter().find(|row| row.name == known) else {
                return Err(MkfsError::Feature { name: name.to_owned(), why: "there is no such feature" });
            };
            self.set(row.feature, is_on);
        }
        Ok(self)
    }

    /// Refuses what does not go together.
    pub(super) fn check(self) -> Result<(), MkfsError> {
        let needed = Self::FREE_SPACE_TREE | Self::NO_HOLES;
        if self.contains(Self::BLOCK_GROUP_TREE) && !self.contains(needed) {
            let why = "it needs free-space-tree and no-holes; turn it off too, with -O ^block-group-tree";
            return Err(MkfsError::Feature { name: "block-group-tree".to_owned(), why });
        }
        Ok(())
    }

    /// The bits without which the pool can't be read.
    pub(super) fn incompat(self, profiles: &[Profile]) -> Incompat {
        let mut bits = Incompat::MIXED_BACKREF;
        bits.set(Incompat::MIXED_GROUPS, self.contains(Self::MIXED_BG));
        bits.set(Incompat::EXTENDED_IREF, self.contains(Self::EXTREF));
        bits.set(Incompat::SKINNY_METADATA, self.contains(Self::SKINNY_METADATA));
        bits.set(Incompat::NO_HOLES, self.contains(Self::NO_HOLES));
        bits.set(Incompat::SIMPLE_QUOTA, self.contains(Self::SIMPLE_QUOTA));
        bits.set(Incompat::RAID56, profiles.iter().any(|profile| profile.has_parity()));
        let has_copies = |profile: &Profile| matches!(profile, Profile::Raid1c3 | Profile::Raid1c4);
        bits.set(Incompat::RAID1C34, profiles.iter().any(has_copies));
        bits
    }

    /// The bits without which the pool can't be written.
    pub(super) fn compat_ro(self) -> CompatRo {
        let mut bits = CompatRo::empty();
        let free_space_tree = CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID;
        bits.set(free_space_tree, self.contains(Self::FREE_SPACE_TREE));
        bits.set(CompatRo::BLOCK_GROUP_TREE, self.contains(Self::BLOCK_GROUP_TREE));
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_change_the_defaults() {
        let of = |list| Features::default().with_list(list).expect("known words");
        assert_eq!(of(""), Features::default());
        assert_eq!(
            of("^block-group-tree,^fst"),
            Features::default() - Features::BLOCK_GROUP_TREE - Features::FREE_SPACE_TREE
        );
        assert_eq!(of("mixed-bg, bgt,squota"), Features::all());
    }

    #[test]
    fn unsupported_features_are_refused_by_name() {
        let of = |list| Features::default().with_list(list).expect_err("refused").to_string();
        assert!(of("no-holes,zoned").starts_with("feature zoned: "), "{}", of("zoned"));
        assert!(of("^quota").contains("quota enable"));
        assert!(of("no-hole").contains("no such feature"));
        let alone = Features::default() - Features::FREE_SPACE_TREE;
        assert!(alone.check().is_err() && (alone - Features::BLOCK_GROUP_TREE).check().is_ok());
    }
}
