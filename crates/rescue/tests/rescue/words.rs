//! The words of `brindle rescue`.

use crate::damages::DAMAGES;
use crate::support::{assert_contents, devices, examine, findings, images, writable};
use brindle_rescue::superblocks::{super_recover, zero_log};
use brindle_rescue::trees::{SpaceCache, clear_space_cache, clear_uuid_tree, fix_device_size};
use brindle_rescue::{Patient, RescueError, Step};
use brindle_testing::damage::Victim;

/// Treats a pool of an image after a damage, and returns what is left of findings.
fn treated(
    image: &str,
    damage: impl Fn(&mut Victim),
    treat: impl Fn(&Patient) -> Result<Vec<Step>, RescueError>,
) -> Vec<String> {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut victim = Victim::load(image);
    damage(&mut victim);
    let before = images(&victim);
    let held = devices(&before);
    let devices = writable(&held);
    let patient = Patient::new(devices.clone()).expect("no lease");
    let steps = treat(&patient).unwrap_or_else(|error| panic!("{image}: {error}"));
    assert!(!steps.is_empty(), "{image}");
    assert_contents(&held, &before, "only memory was written");
    assert!(patient.carry_out(&directory.path().join("undo")).expect("works").pages > 0);
    findings(&examine(&devices))
}

fn damage_of(name: &str) -> fn(&mut Victim) {
    DAMAGES.iter().find(|damage| damage.name == name).expect("it is in the table").make
}

#[test]
fn a_log_is_given_up() {
    assert_eq!(treated("log-tree", |_| {}, zero_log), [""; 0]);
}

#[test]
fn superblocks_are_written_anew() {
    for name in ["copies of a superblock", "first copies of a superblock"] {
        assert_eq!(treated("raid1", damage_of(name), super_recover), [""; 0], "{name}");
    }
    let held = devices(&images(&Victim::load("raid1")));
    let patient = Patient::new(writable(&held)).expect("no lease");
    assert_eq!(super_recover(&patient).expect("works"), []);
    for device in writable(&held) {
        for offset in [64 << 10, 64 << 20] {
            device.write_at(offset, &[0; 4096]).expect("memory");
        }
    }
    let patient = Patient::new(writable(&held)).expect("no lease");
    assert!(matches!(super_recover(&patient), Err(RescueError::Refused(_))));
}

#[test]
fn sizes_of_devices_are_set_right() {
    for name in ["used bytes of a device", "totals of the superblock"] {
        // What is used of block groups is another thing.
        let left = treated("dup", damage_of(name), fix_device_size);
        assert!(left.iter().all(|finding| finding.contains("superblock: bytes_used")), "{name}: {left:#?}");
    }
}

#[test]
fn a_device_that_has_shrunk_ends_where_it_ends_now() {
    let mut victim = Victim::load("dup");
    let size_bytes = victim.images()[0].size_bytes();
    victim.images_mut()[0].truncate(size_bytes - (8 << 20) - 100);
    let held = devices(&images(&victim));
    let patient = Patient::new(writable(&held)).expect("no lease");
    let treated = fix_device_size(&patient);
    match treated {
        Ok(steps) => assert!(steps.iter().any(|step| step.change.contains("total_bytes")), "{steps:#?}"),
        Err(RescueError::Refused(why)) => assert!(why.contains("a chunk ends at"), "{why}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn free_space_is_found_anew() {
    for image in ["dup", "raid1", "block-group-tree", "node-4k", "raid5"] {
        let treat = |patient: &Patient| clear_space_cache(patient, SpaceCache::V2);
        assert_eq!(treated(image, |_| {}, treat), [""; 0], "{image}");
    }
    let treat = |patient: &Patient| clear_space_cache(patient, SpaceCache::V2);
    assert_eq!(treated("dup", damage_of("a free space tree that is lost"), treat), [""; 0]);
    let held = devices(&images(&Victim::load("no-free-space-tree")));
    let patient = Patient::new(writable(&held)).expect("no lease");
    assert!(matches!(clear_space_cache(&patient, SpaceCache::V2), Err(RescueError::Refused(_))));
    let treat = |patient: &Patient| clear_space_cache(patient, SpaceCache::V1);
    assert_eq!(treated("no-free-space-tree", |_| {}, treat), [""; 0]);
}

#[test]
fn uuids_are_filed_anew() {
    for image in ["dup", "snapshots"] {
        assert_eq!(treated(image, |_| {}, clear_uuid_tree), [""; 0], "{image}");
    }
    assert_eq!(treated("dup", damage_of("a UUID tree that is lost"), clear_uuid_tree), [""; 0]);
}
