//! Devices that get the superblocks of a log, between two commits.
//!
//! A superblock that points to a log is that of the last commit but for the log, so those of the other devices are of the
//! same generation. A mount, the kernel's included, goes by the superblock of the highest generation, and among equals
//! by that of the lowest devid. So it is enough to write the devices of the lowest devids: all that are fast, if they
//! are as many as it takes to lose devices and keep the log, as the metadata is kept.

use std::fmt;

/// Device of a pool, as far as its superblock for a log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDevice {
    /// The id.
    pub devid: u64,
    /// True if the device is of the fast class.
    pub is_fast: bool,
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
            Self::TooFew { fast, needed } => write!(
                f,
                "of the lowest devids {fast} are fast devices, and with this metadata profile a log needs {needed}"
            ),
        }
    }
}

/// Fast devices that get the superblocks of a log, if they are enough for it. `devices` are those that are there;
/// `tolerated_failures` is the number of devices that metadata can lose.
pub fn log_devices(devices: &[LogDevice], tolerated_failures: u16) -> Result<Vec<u64>, LogEverywhere> {
    let mut sorted = devices.to_vec();
    sorted.sort_unstable_by_key(|device| device.devid);
    let fast: Vec<u64> =
        sorted.iter().take_while(|device| device.is_fast).map(|device| device.devid).collect();
    let needed = usize::from(tolerated_failures) + 1;
    match sorted.first() {
        _ if sorted.iter().all(|device| device.is_fast) || !sorted.iter().any(|device| device.is_fast) => {
            Err(LogEverywhere::OneClass)
        }
        Some(first) if !first.is_fast => Err(LogEverywhere::BulkFirst { devid: first.devid }),
        _ if fast.len() < needed => Err(LogEverywhere::TooFew { fast: fast.len(), needed }),
        _ => Ok(fast),
    }
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

    #[test]
    fn fast_devices_of_the_lowest_devids_hold_the_log() {
        assert_eq!(log_devices(&pool("fbb"), 0), Ok(vec![1]));
        assert_eq!(log_devices(&pool("ffbb"), 1), Ok(vec![1, 2]));
        assert_eq!(log_devices(&pool("fffb"), 1), Ok(vec![1, 2, 3]));
        // The third fast device comes behind a bulk device.
        assert_eq!(log_devices(&pool("ffbf"), 1), Ok(vec![1, 2]));
    }

    #[test]
    fn other_pools_write_every_superblock() {
        assert_eq!(log_devices(&pool("ff"), 0), Err(LogEverywhere::OneClass));
        assert_eq!(log_devices(&pool("bb"), 0), Err(LogEverywhere::OneClass));
        assert_eq!(log_devices(&[], 0), Err(LogEverywhere::OneClass));
        assert_eq!(log_devices(&pool("bff"), 0), Err(LogEverywhere::BulkFirst { devid: 1 }));
        assert_eq!(log_devices(&pool("fbb"), 1), Err(LogEverywhere::TooFew { fast: 1, needed: 2 }));
        assert_eq!(log_devices(&pool("ffbf"), 2), Err(LogEverywhere::TooFew { fast: 2, needed: 3 }));
    }
}
