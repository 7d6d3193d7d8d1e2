//! Devices that hold the log between two commits.
//!
//! A superblock that points to a log is that of the last commit but for the log, so those of the other devices are of the
//! same generation. A mount, the kernel's included, goes by the superblock of the highest generation, and among equals
//! by that of the lowest devid. So it is enough to write the devices of the lowest devids: all that are fast, if they
//! are as many as it takes to lose devices and keep the log, as the metadata is kept.
//!
//! Where they are fewer, the owner may choose fewer copies of the log than of other metadata ([`LogProfile`]). Then as many
//! devices as there are copies to be hold the log, no more: each of them has all of it, or a device that outlives another
//! one would point to a log that is lost.

use std::fmt;
use std::str::FromStr;

/// Copies of the log, as the owner has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogProfile {
    /// The number of other metadata.
    #[default]
    Metadata,
    /// One is enough, on one fast device: what is only in the log is lost if that device is.
    Single,
    /// Two are enough, on two fast devices.
    Raid1,
    /// Three are enough, on three fast devices.
    Raid1c3,
}

impl LogProfile {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Metadata, Self::Single, Self::Raid1, Self::Raid1c3];

    /// Its name, in options and properties.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Single => "single",
            Self::Raid1 => "raid1",
            Self::Raid1c3 => "raid1c3",
        }
    }

    /// Number of copies, which is its number in the pool; 0 for as many as of other metadata.
    pub const fn copies(self) -> u64 {
        match self {
            Self::Metadata => 0,
            Self::Single => 1,
            Self::Raid1 => 2,
            Self::Raid1c3 => 3,
        }
    }

    /// Profile of a number in the pool; `None` for one that is not known.
    pub fn from_disk(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.copies() == number)
    }
}

impl fmt::Display for LogProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no profile of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLogProfile(String);

impl fmt::Display for UnknownLogProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no profile of a log (metadata, single, raid1 or raid1c3)", self.0)
    }
}

impl std::error::Error for UnknownLogProfile {}

impl FromStr for LogProfile {
    type Err = UnknownLogProfile;

    fn from_str(word: &str) -> Result<Self, UnknownLogProfile> {
        let named = Self::ALL.into_iter().find(|profile| profile.name() == word);
        named.ok_or_else(|| UnknownLogProfile(word.to_owned()))
    }
}

/// Device of a pool, as far as its superblock for a log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDevice {
    /// The id.
    pub devid: u64,
    /// True if the device is of the fast class.
    pub is_fast: bool,
}

/// Fast devices that hold the log alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlacement {
    /// Their ids: they get the superblocks of a log.
    pub devices: Vec<u64>,
    /// True if the log has fewer copies than other metadata, because the owner has chosen so: one on each of these devices.
    pub is_reduced: bool,
}

/// Reason for which the superblocks of a log go to every device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEverywhere {
    /// The pool does not distinguish fast and bulk devices.
    OneClass,
    /// A bulk device has the lowest devid, so a mount would go by its superblock.
    BulkFirst {
        /// The id of the bulk device.
        devid: u64,
    },
    /// The fast devices of the lowest devids are too few to keep the log where the metadata is kept.
    TooFew {
        /// Number of these devices.
        fast: usize,
        /// Number of devices that keep the log as well as the metadata profile keeps a block.
        needed: usize,
    },
}

impl fmt::Display for LogEverywhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneClass => write!(f, "the devices are of one class"),
            Self::BulkFirst { devid } => {
                write!(
                    f,
                    "devid {devid} is a bulk device, and mounts go by the superblock of the lowest devid"
                )
            }
            Self::TooFew { fast, needed } => {
                let are = if *fast == 1 { "is" } else { "are" };
                write!(
                    f,
                    "a log with as many copies as asked for needs {needed} fast devices that have the lowest devids, and \
                     there {are} {fast}"
                )
            }
        }
    }
}

/// Fast devices that hold the log alone, if they are enough for it. `devices` are those that are there;
/// `tolerated_failures` is the number of devices that metadata can lose, `chosen` the owner's choice, which counts where the
/// log can't have as many copies as metadata.
pub fn log_placement(
    devices: &[LogDevice],
    tolerated_failures: u16,
    chosen: LogProfile,
) -> Result<LogPlacement, LogEverywhere> {
    let mut sorted = devices.to_vec();
    sorted.sort_unstable_by_key(|device| device.devid);
    let mut fast: Vec<u64> =
        sorted.iter().take_while(|device| device.is_fast).map(|device| device.devid).collect();
    let needed = usize::from(tolerated_failures) + 1;
    let least = match usize::try_from(chosen.copies()) {
        Ok(copies) if copies > 0 => copies.min(needed),
        _ => needed,
    };
    match sorted.first() {
        _ if sorted.iter().all(|device| device.is_fast) || !sorted.iter().any(|device| device.is_fast) => {
            Err(LogEverywhere::OneClass)
        }
        Some(first) if !first.is_fast => Err(LogEverywhere::BulkFirst { devid: first.devid }),
        _ if fast.len() < least => Err(LogEverywhere::TooFew { fast: fast.len(), needed: least }),
        _ if fast.len() < needed => {
            fast.truncate(least);
            Ok(LogPlacement { devices: fast, is_reduced: true })
        }
        _ => Ok(LogPlacement { devices: fast, is_reduced: false }),
    }
}

/// Bulk devices with lower devids than a fast one, in order.
pub fn bulk_before_fast(devices: &[LogDevice]) -> Vec<u64> {
    let last = devices.iter().filter(|device| device.is_fast).map(|device| device.devid).max().unwrap_or(0);
    let before = devices.iter().filter(|device| !device.is_fast && device.devid < last);
    let mut before: Vec<u64> = before.map(|device| device.devid).collect();
    before.sort_unstable();
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(classes: &str) -> Vec<LogDevice> {
        let device = |(devid, class)| LogDevice { devid, is_fast: class == 'f' };
        let mut devices: Vec<LogDevice> = (1..).zip(classes.chars()).map(device).collect();
        // The order in which they are given does not count.
        devices.reverse();
        devices
    }

    fn whole(classes: &str, tolerated: u16) -> Result<Vec<u64>, LogEverywhere> {
        let placement = log_placement(&pool(classes), tolerated, LogProfile::Metadata)?;
        assert!(!placement.is_reduced);
        Ok(placement.devices)
    }

    #[test]
    fn fast_devices_of_the_lowest_devids_hold_the_log() {
        assert_eq!(whole("fbb", 0), Ok(vec![1]));
        assert_eq!(whole("ffbb", 1), Ok(vec![1, 2]));
        assert_eq!(whole("fffb", 1), Ok(vec![1, 2, 3]));
        // The third fast device comes behind a bulk device.
        assert_eq!(whole("ffbf", 1), Ok(vec![1, 2]));
    }

    #[test]
    fn other_pools_write_every_superblock() {
        assert_eq!(whole("ff", 0), Err(LogEverywhere::OneClass));
        assert_eq!(whole("bb", 0), Err(LogEverywhere::OneClass));
        assert_eq!(whole("", 0), Err(LogEverywhere::OneClass));
        assert_eq!(whole("bff", 0), Err(LogEverywhere::BulkFirst { devid: 1 }));
        assert_eq!(whole("fbb", 1), Err(LogEverywhere::TooFew { fast: 1, needed: 2 }));
        assert_eq!(whole("ffbf", 2), Err(LogEverywhere::TooFew { fast: 2, needed: 3 }));
    }

    #[test]
    fn fewer_copies_are_the_choice_of_the_owner_and_each_device_has_all_of_the_log() {
        let chosen = |classes, tolerated, profile| log_placement(&pool(classes), tolerated, profile);
        let reduced = |devices: &[u64]| Ok(LogPlacement { devices: devices.to_vec(), is_reduced: true });
        assert_eq!(chosen("fbb", 1, LogProfile::Single), reduced(&[1]));
        assert_eq!(chosen("ffbb", 2, LogProfile::Single), reduced(&[1]));
        assert_eq!(chosen("ffbb", 2, LogProfile::Raid1), reduced(&[1, 2]));
        assert_eq!(chosen("fbb", 2, LogProfile::Raid1), Err(LogEverywhere::TooFew { fast: 1, needed: 2 }));
        assert_eq!(chosen("bbf", 1, LogProfile::Single), Err(LogEverywhere::BulkFirst { devid: 1 }));
        // What can have as many copies as metadata has them.
        let whole = Ok(LogPlacement { devices: vec![1, 2], is_reduced: false });
        assert_eq!(chosen("ffb", 1, LogProfile::Single), whole);
        assert_eq!(chosen("ffb", 1, LogProfile::Raid1c3), whole);
    }

    #[test]
    fn bulk_devices_before_fast_ones_are_in_the_way() {
        assert_eq!(bulk_before_fast(&pool("bbf")), [1, 2]);
        assert_eq!(bulk_before_fast(&pool("fbfb")), [2]);
        assert!(bulk_before_fast(&pool("ffb")).is_empty() && bulk_before_fast(&pool("bb")).is_empty());
    }

    #[test]
    fn names_and_numbers_of_profiles_are_read_back() {
        for profile in LogProfile::ALL {
            assert_eq!(profile.to_string().parse(), Ok(profile));
            assert_eq!(LogProfile::from_disk(profile.copies()), Some(profile));
        }
        assert!("raid5".parse::<LogProfile>().is_err());
        assert_eq!(LogProfile::from_disk(9), None);
    }
}
