//! Write-back: data that a sync makes durable lies on fast devices at first, and is *destaged* to bulk devices later, in
//! long runs. The decisions: which pools can have it, and when to destage.

use crate::placement::{DataTier, PlacementClass};
use brindle_ondisk::Profile;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Data that goes to the write-back tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WriteBackMode {
    /// None.
    #[default]
    Off,
    /// Data that a sync makes durable.
    Sync,
    /// All new data.
    All,
}

impl WriteBackMode {
    /// Mode of mounts, unless the pool or its user says otherwise.
    pub const OF_MOUNTS: Self = Self::Sync;

    /// All of them, in order of what goes there.
    pub const ALL: [Self; 3] = [Self::Off, Self::Sync, Self::All];

    /// Its name, in options and properties.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Sync => "sync",
            Self::All => "all",
        }
    }

    /// Number of it in the pool; 0 stands for none stored.
    pub const fn to_disk(self) -> u64 {
        match self {
            Self::Off => 1,
            Self::Sync => 2,
            Self::All => 3,
        }
    }

    /// Mode of a number in the pool; `None` if none is stored, or one that is not known.
    pub fn from_disk(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.to_disk() == number)
    }
}

impl fmt::Display for WriteBackMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMode(String);

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no mode of write-back (off, sync or all)", self.0)
    }
}

impl std::error::Error for UnknownMode {}

impl FromStr for WriteBackMode {
    type Err = UnknownMode;

    fn from_str(word: &str) -> Result<Self, UnknownMode> {
        Self::ALL.into_iter().find(|mode| mode.name() == word).ok_or_else(|| UnknownMode(word.to_owned()))
    }
}

/// Reason for which a pool has no write-back tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBackObstacle {
    /// The pool does not distinguish fast and bulk devices.
    OneClass,
    /// In strict mode data keeps off fast devices.
    Strict,
    /// The fast devices are too few for the profile: redundancy is not traded for speed unless that is asked for.
    TooFew {
        /// The profile that waiting data is to have.
        profile: Profile,
        /// Number of fast devices.
        fast: usize,
        /// Number that the profile needs.
        needed: usize,
    },
    /// A device has refused data that was to wait on it, not long ago.
    Refused,
}

impl fmt::Display for WriteBackObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneClass => write!(f, "the pool does not distinguish fast and bulk devices"),
            Self::Strict => write!(f, "with ssd_metadata=strict data keeps off fast devices"),
            Self::TooFew { profile, fast, needed } => {
                let are = if *fast == 1 { "is" } else { "are" };
                write!(
                    f,
                    "data is {profile}, which needs {needed} fast devices, and there {are} {fast}; the property \
                     writeback_profile=single allows it, and data that waits is lost then if its fast device is"
                )
            }
            Self::Refused => write!(
                f,
                "a fast device has refused data; for some minutes data goes to its last place at once, and what waits is moved"
            ),
        }
    }
}

/// Obstacle to a write-back tier in a pool of `fast` fast devices, in which waiting data is to have a profile.
pub fn obstacle(
    has_tiers: bool,
    is_strict: bool,
    fast: usize,
    profile: Profile,
) -> Option<WriteBackObstacle> {
    let needed = usize::from(profile.attributes().devs_min);
    match (has_tiers, is_strict) {
        (false, _) => Some(WriteBackObstacle::OneClass),
        (true, true) => Some(WriteBackObstacle::Strict),
        (true, false) if fast < needed => Some(WriteBackObstacle::TooFew { profile, fast, needed }),
        (true, false) => None,
    }
}

/// Place of new data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DataPlace {
    /// Data chunks on bulk devices.
    #[default]
    Bulk,
    /// Data chunks on fast devices: small and marked files.
    Fast,
    /// Data chunks on devices of a class, which are of this side and rank.
    Class(PlacementClass, u8),
    /// Data chunks on fast devices, until it is destaged.
    WriteBack,
}

impl From<DataTier> for DataPlace {
    fn from(DataTier { side, rank }: DataTier) -> Self {
        match (side, rank) {
            (side, Some(rank)) => Self::Class(side, rank),
            (PlacementClass::Fast, None) => Self::Fast,
            (PlacementClass::Bulk, None) => Self::Bulk,
        }
    }
}

/// State of the write-back tier, as far as the time to destage depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingData {
    /// True if no more is to wait.
    pub is_off: bool,
    /// True if a device is missing.
    pub is_degraded: bool,
    /// Bytes that wait.
    pub bytes: u64,
    /// Bytes that could wait, those that do included.
    pub capacity_bytes: u64,
    /// Age of the oldest.
    pub oldest: Duration,
    /// Time since the last write of a file's contents, anywhere in the pool.
    pub quiet: Duration,
    /// Time since the last time that it was destaged.
    pub since_last: Duration,
}

/// Settings of destaging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DestageSettings {
    /// Age at which data is destaged.
    pub age: Duration,
    /// Time between two times that bulk devices are woken for it.
    pub interval: Duration,
}

impl DestageSettings {
    /// Age at which data is destaged unless told otherwise.
    pub const AGE: Duration = Duration::from_secs(600);
    /// Interval of destaging unless told otherwise.
    pub const INTERVAL: Duration = Duration::from_secs(60);
}

impl Default for DestageSettings {
    fn default() -> Self {
        Self { age: Self::AGE, interval: Self::INTERVAL }
    }
}

/// Reason to destage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestageReason {
    /// No data goes there any more.
    Off,
    /// The tier is nearly full.
    Full,
    /// Data has waited for long.
    Old,
    /// Nothing is written at present.
    Quiet,
}

impl fmt::Display for DestageReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "no data goes to the write-back tier any more",
            Self::Full => "the write-back tier is nearly full",
            Self::Old => "data has waited for long",
            Self::Quiet => "nothing is being written",
        })
    }
}

/// Time without writes after which the pool counts as quiet.
const QUIET: Duration = Duration::from_secs(10);
/// Part of the capacity, in percent, from which on data is destaged whatever else is going on.
const FULL_PERCENT: u64 = 70;
/// Part of the capacity, in percent, from which on a quiet pool destages data that is not old.
const WORTHWHILE_PERCENT: u64 = 10;

/// Reason to destage now, if there is one. A quiet pool destages when a good deal waits, and lets its disks sleep else. While
/// a device is missing there is none: copies that have no device to lie on would be lost, and the fast devices hold all.
pub fn destage_reason(waiting: &WaitingData, settings: &DestageSettings) -> Option<DestageReason> {
    let part = |percent: u64| waiting.capacity_bytes / 100 * percent;
    if waiting.bytes == 0 || waiting.is_degraded {
        return None;
    }
    if waiting.is_off {
        return Some(DestageReason::Off);
    }
    if waiting.bytes > part(FULL_PERCENT) {
        return Some(DestageReason::Full);
    }
    if waiting.since_last < settings.interval {
        return None;
    }
    if waiting.oldest >= settings.age {
        return Some(DestageReason::Old);
    }
    let is_quiet = waiting.quiet >= QUIET && waiting.bytes >= part(WORTHWHILE_PERCENT);
    is_quiet.then_some(DestageReason::Quiet)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const WAITING: WaitingData = WaitingData {
        is_off: false,
        is_degraded: false,
        bytes: 100 * MIB,
        capacity_bytes: 1000 * MIB,
        oldest: Duration::from_secs(60),
        quiet: Duration::from_secs(1),
        since_last: Duration::from_secs(3600),
    };

    fn reason(waiting: WaitingData) -> Option<DestageReason> {
        destage_reason(&waiting, &DestageSettings::default())
    }

    #[test]
    fn names_and_numbers_of_modes_are_read_back() {
        for mode in WriteBackMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(WriteBackMode::from_disk(mode.to_disk()), Some(mode));
        }
        assert_eq!(WriteBackMode::from_disk(0), None);
        assert!("async".parse::<WriteBackMode>().is_err());
    }

    #[test]
    fn data_is_destaged_when_it_is_old_or_the_tier_nearly_full() {
        assert_eq!(reason(WAITING), None);
        assert_eq!(reason(WaitingData { oldest: DestageSettings::AGE, ..WAITING }), Some(DestageReason::Old));
        assert_eq!(reason(WaitingData { bytes: 701 * MIB, ..WAITING }), Some(DestageReason::Full));
        assert_eq!(reason(WaitingData { is_off: true, ..WAITING }), Some(DestageReason::Off));
        assert_eq!(reason(WaitingData { bytes: 0, oldest: Duration::MAX, ..WAITING }), None);
        assert_eq!(reason(WaitingData { bytes: 1, capacity_bytes: 0, ..WAITING }), Some(DestageReason::Full));
    }

    #[test]
    fn a_quiet_pool_destages_a_good_deal_and_lets_its_disks_sleep_else() {
        let quiet = WaitingData { quiet: QUIET, ..WAITING };
        assert_eq!(reason(quiet), Some(DestageReason::Quiet));
        assert_eq!(reason(WaitingData { bytes: 99 * MIB, ..quiet }), None);
    }

    #[test]
    fn disks_are_woken_no_more_often_than_is_allowed_unless_the_tier_is_nearly_full() {
        let early = WaitingData { since_last: Duration::from_secs(59), oldest: Duration::MAX, ..WAITING };
        assert_eq!(reason(early), None);
        assert_eq!(reason(WaitingData { bytes: 800 * MIB, ..early }), Some(DestageReason::Full));
    }

    #[test]
    fn nothing_is_destaged_while_a_device_is_missing() {
        let degraded = WaitingData { is_degraded: true, ..WAITING };
        assert_eq!(reason(WaitingData { is_off: true, ..degraded }), None);
        assert_eq!(reason(WaitingData { bytes: 999 * MIB, oldest: Duration::MAX, ..degraded }), None);
    }

    #[test]
    fn redundancy_is_not_traded_for_speed() {
        assert_eq!(obstacle(true, false, 1, Profile::Single), None);
        let too_few = WriteBackObstacle::TooFew { profile: Profile::Raid1, fast: 1, needed: 2 };
        assert_eq!(obstacle(true, false, 1, Profile::Raid1), Some(too_few));
        assert!(too_few.to_string().contains("writeback_profile=single"));
        assert_eq!(obstacle(false, false, 0, Profile::Single), Some(WriteBackObstacle::OneClass));
        assert_eq!(obstacle(true, true, 2, Profile::Raid1), Some(WriteBackObstacle::Strict));
    }
}
