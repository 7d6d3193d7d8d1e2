//! Devices that commits may leave alone as long as nothing is written to them.
//!
//! A commit writes its superblock to fast devices and to those that it has written. Whatever devices are lost then, of a
//! pool that can do without them: a device that holds the new root of roots has the new superblock. In addition, more
//! devices get it than the metadata profile can lose.

use crate::log::LogDevice;

/// Bulk devices that a commit may leave alone, of those of a pool that distinguishes classes; `tolerated_failures` is
/// the number of devices that metadata can lose.
pub fn sleepers(devices: &[LogDevice], tolerated_failures: u16) -> Vec<u64> {
    let (fast, bulk): (Vec<LogDevice>, Vec<LogDevice>) = devices.iter().partition(|device| device.is_fast);
    let mut bulk: Vec<u64> = bulk.iter().map(|device| device.devid).collect();
    bulk.sort_unstable();
    let needed = (usize::from(tolerated_failures) + 1).saturating_sub(fast.len());
    bulk.split_off(needed.min(bulk.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeping(classes: &str, tolerated_failures: u16) -> Vec<u64> {
        let device = |(devid, class)| LogDevice { devid, is_fast: class == 'f' };
        let mut devices: Vec<LogDevice> = (1..).zip(classes.chars()).map(device).collect();
        devices.reverse();
        sleepers(&devices, tolerated_failures)
    }

    #[test]
    fn bulk_devices_sleep_when_the_others_are_enough_for_the_superblock() {
        assert_eq!(sleeping("fb", 0), [2]);
        assert_eq!(sleeping("bfbf", 1), [1, 3]);
        assert_eq!(sleeping("fbbb", 0), [2, 3, 4]);
        // One fast device is not enough for metadata of two copies, or three.
        assert_eq!(sleeping("fbbb", 1), [3, 4]);
        assert_eq!(sleeping("bbfb", 2), [4]);
        assert_eq!(sleeping("fb", 1), []);
        assert_eq!(sleeping("fb", 3), []);
        assert_eq!(sleeping("", 1), []);
    }
}
