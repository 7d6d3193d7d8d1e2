//! Space of a mount of ours: pages of what one ioctl has room for, and all of them together.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The block groups of one content and profile (ours).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GroupSpace {
    /// Content and profile, as on disk; 0 for an entry that is not used.
    pub kind: u64,
    /// Their logical length.
    pub total_bytes: u64,
    /// Used bytes of it.
    pub used_bytes: u64,
    /// Over which devices: 0 both classes or no difference, 1 fast ones alone, 2 others alone.
    pub spread: u64,
}

/// A device (ours).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceSpace {
    /// Its id; 0 for an entry that is not used.
    pub devid: u64,
    /// Bytes of it that the pool uses.
    pub total_bytes: u64,
    /// Bytes that belong to no chunk.
    pub unallocated_bytes: u64,
    /// The class that it counts as: 1 fast, 2 bulk; 0 if it takes no chunks.
    pub class: u64,
    /// Hint that the pool stores for it (`dev_item.type`).
    pub stored_type: u64,
    /// [`DEVICE_MISSING`](super::DEVICE_MISSING) and the like; 0 if nothing is wrong with it.
    pub state: u64,
}

/// A page of the space of a mount (ours).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SpacePage {
    /// Asked for: groups from this one on, counted from 0.
    pub first_group: u64,
    /// Asked for: devices of a greater id.
    pub after_device: u64,
    /// Metadata space that is kept back so that files can be deleted on a full pool.
    pub kept_back_bytes: u64,
    /// Data space that is promised for contents in memory.
    pub waiting_bytes: u64,
    /// Weight of the class of a device: 0 none, 1 it is preferred, 2 strictly.
    pub placement: u64,
    /// 1 if there are devices of two classes, and it makes a difference.
    pub has_tiers: u64,
    /// Files up to this size have their data on fast devices.
    pub small_file_bytes: u64,
    /// Room for data where it belongs, and anywhere it may lie.
    pub data_room: [u64; 2],
    /// Room on fast devices for data that belongs there.
    pub fast_data_room: u64,
    /// Room for metadata where it belongs, and anywhere it may lie.
    pub metadata_room: [u64; 2],
    /// By content and profile; there may be more if all entries are used.
    pub groups: [GroupSpace; 40],
    /// By device id; there may be more if all entries are used.
    pub devices: [DeviceSpace; 256],
}

/// Sums of the kernel by content and profile (`btrfs_ioctl_space_args`), with room for the answers behind it.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SpaceList {
    /// Asked for: number of entries that have room.
    pub slots: u64,
    /// Answered: number of entries.
    pub total: u64,
    /// The entries: three contents and the reserve, a profile or, after a conversion, some of each.
    pub entries: [SpaceEntry; 64],
}

/// Sums for one content and profile (`btrfs_ioctl_space_info`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SpaceEntry {
    /// Content and profile; [`SPACE_RESERVE`].
    pub kind: u64,
    /// Logical length of the block groups.
    pub total_bytes: u64,
    /// Used bytes of it.
    pub used_bytes: u64,
}

/// The entry is the global reserve (`BTRFS_SPACE_INFO_GLOBAL_RSV`).
pub const SPACE_RESERVE: u64 = 1 << 49;

/// The space of a mount of ours, put together from its pages.
#[derive(Clone, Debug)]
pub struct SpaceReport {
    /// Metadata space that is kept back so that files can be deleted on a full pool.
    pub kept_back_bytes: u64,
    /// Data space that is promised for contents in memory.
    pub waiting_bytes: u64,
    /// Weight of the class of a device: 0 none, 1 it is preferred, 2 strictly.
    pub placement: u64,
    /// There are devices of two classes, and it makes a difference.
    pub has_tiers: bool,
    /// Files up to this size have their data on fast devices.
    pub small_file_bytes: u64,
    /// Room for data where it belongs, and anywhere it may lie.
    pub data_room: [u64; 2],
    /// Room on fast devices for data that belongs there.
    pub fast_data_room: u64,
    /// Room for metadata where it belongs, and anywhere it may lie.
    pub metadata_room: [u64; 2],
    /// By content and profile.
    pub groups: Vec<GroupSpace>,
    /// By device id.
    pub devices: Vec<DeviceSpace>,
}

impl SpacePage {
    /// Enters the groups and devices that are asked for, as many as have room. Devices are sorted by id.
    pub fn fill(&mut self, groups: &[GroupSpace], devices: &[DeviceSpace]) {
        let first = usize::try_from(self.first_group).unwrap_or(usize::MAX);
        for (entry, group) in self.groups.iter_mut().zip(groups.iter().skip(first)) {
            *entry = *group;
        }
        let wanted = devices.iter().filter(|device| device.devid > self.after_device);
        for (entry, device) in self.devices.iter_mut().zip(wanted) {
            *entry = *device;
        }
    }
}

impl SpaceReport {
    /// Asks for page after page, until one has room left for groups and for devices. The totals are those of the first.
    pub fn collect<E>(mut ask: impl FnMut(&mut SpacePage) -> Result<(), E>) -> Result<Self, E> {
        let mut page = SpacePage::new_zeroed();
        ask(&mut page)?;
        let mut report = Self {
            kept_back_bytes: page.kept_back_bytes,
            waiting_bytes: page.waiting_bytes,
            placement: page.placement,
            has_tiers: page.has_tiers != 0,
            small_file_bytes: page.small_file_bytes,
            data_room: page.data_room,
            fast_data_room: page.fast_data_room,
            metadata_room: page.metadata_room,
            groups: Vec::new(),
            devices: Vec::new(),
        };
        loop {
            let after = page.after_device;
            let groups: Vec<_> = page.groups.iter().filter(|group| group.kind != 0).copied().collect();
            let devices: Vec<_> =
                page.devices.iter().filter(|device| device.devid > after).copied().collect();
            let is_last = groups.len() < page.groups.len() && devices.len() < page.devices.len();
            report.groups.extend(groups);
            report.devices.extend(devices);
            if is_last {
                return Ok(report);
            }
            page = SpacePage::new_zeroed();
            page.first_group = u64::try_from(report.groups.len()).unwrap_or(u64::MAX);
            page.after_device = report.devices.last().map_or(0, |device| device.devid);
            ask(&mut page)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn collected(groups: u64, devices: u64) -> (SpaceReport, usize) {
        let group = |kind| GroupSpace { kind, ..GroupSpace::new_zeroed() };
        let device = |index| DeviceSpace { devid: index * 3, ..DeviceSpace::new_zeroed() };
        let all_groups: Vec<_> = (1..=groups).map(group).collect();
        let all_devices: Vec<_> = (1..=devices).map(device).collect();
        let mut pages = 0;
        let report = SpaceReport::collect(|page| {
            pages += 1;
            page.kept_back_bytes = 7;
            page.fill(&all_groups, &all_devices);
            Ok::<(), Infallible>(())
        });
        let Ok(report) = report;
        (report, pages)
    }

    #[test]
    fn more_groups_and_devices_than_a_page_holds_are_all_reported_once() {
        for (groups, devices, expected) in
            [(1, 1, 1), (39, 255, 1), (40, 1, 2), (1, 256, 2), (100, 3, 3), (2, 700, 3), (130, 600, 4)]
        {
            let (report, pages) = collected(groups, devices);
            assert_eq!(report.kept_back_bytes, 7);
            assert!(report.groups.iter().map(|group| group.kind).eq(1..=groups), "{groups} groups");
            assert!(
                report.devices.iter().map(|device| device.devid).eq((1..=devices).map(|index| index * 3)),
                "{devices} devices"
            );
            assert_eq!(pages, expected, "{groups} groups, {devices} devices");
        }
    }

    #[test]
    fn an_answer_that_ignores_the_request_comes_to_an_end() {
        let mut pages = 0;
        let report = SpaceReport::collect(|page| {
            pages += 1;
            page.devices.fill(DeviceSpace { devid: 5, ..DeviceSpace::new_zeroed() });
            Ok::<(), Infallible>(())
        });
        let Ok(report) = report;
        assert_eq!((pages, report.devices.len()), (2, 256));
    }
}
