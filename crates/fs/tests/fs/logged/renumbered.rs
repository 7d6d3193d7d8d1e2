//! Devices that get other ids, so that an SSD that joined last can hold the log: crashed at each write and flush.

use super::tiers::{Attached, TWO_OF_EACH, mail, prepare, recorded};
use crate::contents::patterns::Program;
use crate::kernel::can_make;
use crate::simulated::{Layout, Pool, commit_until_logs_are_reduced, findings};
use brindle_check::CheckOptions;
use brindle_device::WritableDevice;
use brindle_fs::LogProfile;
use brindle_ondisk::DevId;
use brindle_sim::{CrashState, Image, ImageDevice, LossMode, Random};
use brindle_testing::referee::btrfs_check;
use std::sync::Arc;

/// An SSD and two disks.
const SSD_AND_DISKS: Layout = Layout { devices: 3, device_mib: 256, fast: 1, ..TWO_OF_EACH };

const MAILS: u32 = 12;

/// Ids that devices get, in order: the last one moves the SSD.
const CHANGES: [(u64, u64); 3] = [(2, 4), (3, 5), (1, 6)];

fn devices(images: &[Image]) -> Vec<Arc<dyn WritableDevice>> {
    let device = |(number, image): (usize, &Image)| {
        let name = format!("memory{number}");
        Arc::new(ImageDevice::new(name, image.clone(), SSD_AND_DISKS.class(number)))
            as Arc<dyn WritableDevice>
    };
    images.iter().enumerate().map(device).collect()
}

/// Id and generation in the first superblock of each device.
fn superblocks(images: &[Image]) -> Vec<(u64, u64)> {
    let field = |image: &Image, offset: u64| {
        let mut bytes = [0; 8];
        image.read((64 << 10) + offset, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    // `dev_item.devid`, `generation`.
    images.iter().map(|image| (field(image, 0xc9), field(image, 0x48))).collect()
}

/// States at every crash point from the first change of an id on, in the given modes.
fn states(uuid: u8, modes: &[LossMode]) -> (Vec<CrashState>, Vec<String>) {
    let (recorder, filesystem) = recorded(&SSD_AND_DISKS, uuid);
    prepare(&filesystem);
    let program = Program::new(&filesystem);
    (0..MAILS).for_each(|round| mail(&program, round));
    filesystem.sync().expect("commits");
    let mut names = program.names("mail");
    names.sort();
    let begin = recorder.position();
    for (devid, new) in CHANGES {
        filesystem.pool().renumber_device(DevId::new(devid), DevId::new(new)).expect("renumbered");
    }
    // In the same mount all goes on.
    filesystem.pool().renumber_device(DevId::new(6), DevId::new(1)).expect("renumbered");
    commit_until_logs_are_reduced(&filesystem, LogProfile::Single).expect("commits");
    program.put("last", b"logged");
    let placement = filesystem.pool().log_placement().expect("written").expect("on the SSD");
    assert_eq!(placement.devices, [1]);
    let recording = recorder.recording();
    let points = recording.crash_points().filter(|point| *point >= begin);
    let state =
        |(point, mode)| recording.state_at(point, mode, &mut Random::new(u64::from(uuid)).fork(point as u64));
    let states = points.zip(modes.iter().copied().cycle()).map(state);
    (states.collect(), names)
}

#[test]
fn a_crash_while_a_device_gets_another_id_leaves_a_whole_pool() {
    let (states, names) = states(0x71, &LossMode::ALL);
    let options = CheckOptions { check_data_csum: true, threads: Some(1), ..CheckOptions::default() };
    let mut found: Vec<Vec<u64>> = Vec::new();
    for (number, state) in states.into_iter().enumerate() {
        let images = state.images();
        // A superblock may be torn; another copy is enough to open the pool.
        let examined = findings(&devices(&images), &options, |pass, _| pass != "superblocks");
        examined.unwrap_or_else(|said| panic!("state {number}: {said}"));
        let filesystem = Pool::on(devices(&images), &SSD_AND_DISKS).open();
        let filesystem = filesystem.unwrap_or_else(|error| panic!("state {number}: {error}"));
        let program = Program::new(&filesystem);
        let mut there = program.names("mail");
        there.sort();
        assert_eq!(there, names, "state {number}");
        program.put("after", b"the crash");
        filesystem.sync().expect("commits");
        found.push(superblocks(&images).iter().map(|(devid, _)| *devid).collect());
    }
    for expected in [[1, 2, 3], [1, 4, 3], [1, 4, 5], [6, 4, 5]] {
        assert!(found.iter().any(|ids| ids[..] == expected), "{expected:?} among {found:?}");
    }
}

#[test]
fn the_kernel_mounts_a_pool_whose_devices_are_getting_other_ids() {
    if !can_make() {
        return;
    }
    // The kernel goes by no other copy of a torn superblock, whatever was being written.
    let (states, names) = states(0x72, &[LossMode::Everything, LossMode::Nothing]);
    let mut seen: Vec<Vec<(u64, u64)>> = Vec::new();
    for state in states {
        let images = state.images();
        let superblocks = superblocks(&images);
        if seen.contains(&superblocks) {
            continue;
        }
        let attached = Attached::new(&images);
        assert_eq!(attached.names(&[0, 1, 2], seen.len() % 3, "mail"), names, "{superblocks:?}");
        let checked = btrfs_check(&attached.loops[0]).expect("btrfs-progs");
        checked.unwrap_or_else(|said| panic!("{superblocks:?}: {said}"));
        seen.push(superblocks);
    }
    // Before each change, after the first superblock of the device, and after all of them.
    assert!(seen.len() > 2 * CHANGES.len(), "{seen:?}");
}
