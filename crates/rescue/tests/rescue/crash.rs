//! Crashes at every write and flush of a repair.

use crate::damages::DAMAGES;
use crate::support::{assert_contents, examine, findings, images, rehearsed};
use brindle_device::{DeviceClass, WritableDevice};
use brindle_rescue::undo::UndoFile;
use brindle_sim::{LossMode, Random, Recorder};
use brindle_testing::damage::Victim;
use std::sync::Arc;

#[test]
fn a_crash_leaves_the_old_or_the_new_state_and_both_are_undone() {
    let names = ["used bytes of a block group", "a free space tree that is lost", "number of links"];
    for (number, damage) in DAMAGES.iter().filter(|damage| names.contains(&damage.name)).enumerate() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut victim = Victim::load("raid1");
        (damage.make)(&mut victim);
        let before = images(&victim);
        let recorder = Recorder::new();
        let device = |(number, image): (usize, &brindle_sim::Image)| {
            let device = recorder.device(&format!("memory{number}"), image.clone(), DeviceClass::Unknown);
            device as Arc<dyn WritableDevice>
        };
        let devices: Vec<_> = before.iter().enumerate().map(device).collect();
        let sick = findings(&examine(&devices));
        let (patient, _) = rehearsed(&devices);
        let file = directory.path().join("undo");
        patient.carry_out(&file).expect("works");
        let undo = UndoFile::read(&file).expect("whole");
        // A superblock goes to a device whole, or not at all: four KiB are what devices write at once.
        let recording = recorder.recording().with_sectors_of(4096);
        let mut replay = recording.replay();
        let (mut old, mut new) = (0, 0);
        for point in recording.crash_points() {
            replay.advance_to(point);
            for mode in LossMode::ALL {
                let mut random = Random::new(number as u64).fork(point as u64);
                let state = replay.state(mode, &mut random);
                let devices = state.writable();
                let what = format!("{}, point {point}, {mode:?}", damage.name);
                let found = findings(&examine(&devices));
                match found.is_empty() {
                    true => new += 1,
                    false => {
                        assert_eq!(found, sick, "{what}");
                        old += 1;
                    }
                }
                undo.undo(&devices).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_contents(&state.devices, &before, &what);
            }
        }
        assert!(old > 0 && new > 0, "{}: {old} old and {new} new states", damage.name);
    }
}
