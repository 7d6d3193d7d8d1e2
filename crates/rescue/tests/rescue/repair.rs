//! Repairs by the examiner's findings, and their undoing.

use crate::damages::DAMAGES;
use crate::support::{assert_contents, devices, examine, findings, images, rehearsed, writable};
use brindle_device::Device;
use brindle_ondisk::{RootId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use brindle_rescue::RescueError;
use brindle_rescue::undo::UndoFile;
use brindle_sim::ImageDevice;
use brindle_testing::damage::Victim;

#[test]
fn provable_facts_are_repaired_and_undone() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut wrong = Vec::new();
    for image in ["dup", "raid1"] {
        for (number, damage) in DAMAGES.iter().enumerate() {
            let what = format!("{} ({image})", damage.name);
            let mut victim = Victim::load(image);
            (damage.make)(&mut victim);
            let before = images(&victim);
            let held = devices(&before);
            let devices = writable(&held);
            let found = findings(&examine(&devices));
            if !found.iter().any(|finding| finding.contains(damage.says)) {
                wrong.push(format!("{what}: found {found:#?}"));
                continue;
            }
            let (patient, rehearsal) = rehearsed(&devices);
            assert_contents(&held, &before, &what);
            let file = directory.path().join(format!("{image}{number}"));
            let written = patient.carry_out(&file).unwrap_or_else(|error| panic!("{what}: {error}"));
            let left = findings(&examine(&devices));
            if written.pages == 0 || !left.is_empty() || !rehearsal.left.is_empty() {
                wrong.push(format!("{what}: {written:?}, left {left:#?}, {:#?}", rehearsal.left));
            }
            let undo = UndoFile::read(&file).expect("it is whole");
            let mixed: Vec<_> = devices.iter().rev().cloned().collect();
            undo.undo(&mixed).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_contents(&held, &before, &what);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_sound_pool_is_left_alone() {
    for image in ["dup", "raid10", "snapshots", "no-free-space-tree", "block-group-tree"] {
        let before = images(&Victim::load(image));
        let held = devices(&before);
        let (patient, rehearsal) = rehearsed(&writable(&held));
        assert_eq!(rehearsal.steps, [], "{image}");
        assert!(patient.patches().expect("readable").is_empty(), "{image}");
    }
}

#[test]
fn nothing_is_proved_where_a_tree_is_lost() {
    let mut victim = Victim::load("dup");
    let leaf = victim.leaves(RootId::FS_TREE).nth(1).expect("a large tree").at;
    victim.edit_block_raw(leaf, |bytes| bytes.fill(0));
    victim.edit_superblocks(|superblock| superblock.bytes_used += 4096);
    let held = devices(&images(&victim));
    let (patient, rehearsal) = rehearsed(&writable(&held));
    assert_eq!(rehearsal.steps, []);
    assert!(patient.patches().expect("readable").is_empty());
    let reasons: Vec<_> = rehearsal.left.iter().map(|step| step.reason.as_str()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("nothing proves the right value")), "{reasons:#?}");
}

#[test]
fn a_log_outlives_a_repair() {
    let log_root = |device: &ImageDevice| {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(SUPERBLOCK_OFFSETS[0], &mut bytes).expect("in memory");
        Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[0]).expect("sound").log_root
    };
    let mut victim = Victim::load("log-tree");
    victim.edit_superblocks(|superblock| superblock.bytes_used += 4096);
    let mut damaged = images(&victim);
    damaged[0].write(SUPERBLOCK_OFFSETS[1], &[0; SUPERBLOCK_SIZE]);
    let held = devices(&damaged);
    let before = log_root(&held[0]);
    assert_ne!(before.get(), 0);
    let (patient, rehearsal) = rehearsed(&writable(&held));
    assert!(rehearsal.before.has_log && rehearsal.after.has_log);
    let [step] = rehearsal.steps.as_slice() else { panic!("{:#?}", rehearsal.steps) };
    assert!(step.change.contains("superblock at offset 67108864 is written anew"), "{step:?}");
    let left = rehearsal.left.iter().find(|step| step.change.contains("bytes_used")).expect("it is left");
    assert!(left.reason.contains("`brindle rescue zero-log`"), "{left:?}");
    let directory = tempfile::tempdir().expect("temporary directory");
    patient.carry_out(&directory.path().join("undo")).expect("works");
    assert_eq!(log_root(&held[0]), before);
}

#[test]
fn a_pool_that_was_written_since_is_not_undone() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut victim = Victim::load("raid1");
    (DAMAGES[0].make)(&mut victim);
    let held = devices(&images(&victim));
    let devices = writable(&held);
    let (patient, _) = rehearsed(&devices);
    let page =
        patient.patches().expect("readable").into_iter().find(|patch| patch.device == 1).expect("both");
    let file = directory.path().join("undo");
    patient.carry_out(&file).expect("works");
    assert!(matches!(patient.carry_out(&file), Ok(written) if written.pages == 0), "it is written already");
    let undo = UndoFile::read(&file).expect("whole");
    devices[1].write_at(page.offset + 100, &[1, 2, 3]).expect("memory");
    let after: Vec<_> = held.iter().map(|device| device.image()).collect();
    assert!(matches!(undo.undo(&devices), Err(RescueError::Changed { offset, .. }) if offset == page.offset));
    let written = devices.len();
    let alone = undo.undo(&devices[..1]);
    assert!(matches!(alone, Err(RescueError::TooFewDevices { given: 1, needed }) if needed == written));
    assert_contents(&held, &after, "nothing was undone");
    let mut bytes = std::fs::read(&file).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).expect("room");
    assert!(matches!(UndoFile::read(&file), Err(RescueError::UndoDamaged { .. })));
}
