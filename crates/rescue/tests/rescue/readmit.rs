//! Devices with older superblocks that get that of the last commit.

use crate::support::{assert_contents, devices, examine, findings, images, writable};
use brindle_check::NoProgress;
use brindle_device::{Device, WritableDevice};
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{Generation, Item, Key, KeyType, Logical, ObjectId, RootId};
use brindle_rescue::readmit::readmit;
use brindle_rescue::{Patient, RescueError, Step};
use brindle_testing::damage::Victim;
use brindle_tree::{OpenOptions, Pool, Readahead, WriterOptions};
use std::sync::Arc;

/// Pools of which no device can be done without.
const POOLS: [&str; 2] = ["raid1-metadata-raid0-data", "raid0"];

/// Lets the superblocks of the second device be those of an older commit.
fn left_behind(victim: &mut Victim) {
    victim.edit_superblocks_of(2, |superblock| {
        superblock.generation = Generation::new(superblock.generation.get() - 5);
        superblock.super_roots = zerocopy::FromZeros::new_zeroed();
    });
}

fn readmitted(
    devices: &[Arc<dyn WritableDevice>],
    trusts: bool,
) -> Result<(Patient, Vec<Step>), RescueError> {
    let patient = Patient::new(devices.to_vec()).expect("no lease");
    let steps = readmit(&patient, trusts, &NoProgress)?;
    Ok((patient, steps))
}

/// Error of opening a pool to write it.
fn refused(devices: &[Arc<dyn WritableDevice>]) -> Option<String> {
    let opened = Pool::open_writable(devices.to_vec(), &OpenOptions::default(), &WriterOptions::default());
    opened.err().map(|error| error.to_string())
}

/// A sector of data with a checksum on the second device.
fn sector_of_second(victim: &Victim) -> Logical {
    let readable: Vec<Arc<dyn Device>> = victim.devices();
    let pool = Pool::open(readable, &OpenOptions::default()).expect("healthy");
    let second = pool.volume().devices().into_iter().find(|device| device.devid.get() == 2);
    let second = second.expect("a member").name;
    let mut cursor = pool.cursor(&pool.tree(RootId::CSUM_TREE).expect("there"), Readahead::None);
    cursor.seek(&Key::MIN).expect("readable");
    while let Some((key, data)) = cursor.item() {
        if key.item_type == KeyType::EXTENT_CSUM && matches!(Item::parse(&key, data), Ok(Item::Csums(_))) {
            let count = data.len() as u64 / 4;
            let mut sectors = (0..count).map(|number| Logical::new(key.offset() + number * 4096));
            let is_there =
                |at: &Logical| pool.volume().mirror_place(*at, 0).is_some_and(|(device, _)| device == second);
            if let Some(found) = sectors.find(is_there) {
                return found;
            }
        }
        cursor.next().expect("readable");
    }
    panic!("no data lies there");
}

#[test]
fn a_device_that_lacks_nothing_gets_the_superblock_of_the_last_commit() {
    let directory = tempfile::tempdir().expect("temporary directory");
    for name in POOLS {
        let mut victim = Victim::load(name);
        left_behind(&mut victim);
        let before = images(&victim);
        let held = devices(&before);
        let devices = writable(&held);
        let error = refused(&devices).expect("a device is stale");
        assert!(error.contains("is stale"), "{name}: {error}");
        let (patient, steps) = readmitted(&devices, true).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(steps.len(), 1, "{name}");
        assert!(steps[0].change.starts_with("memory1: superblocks are written anew"), "{steps:?}");
        assert_contents(&held, &before, name);
        patient.carry_out(&directory.path().join(name)).expect("written");
        assert_eq!(findings(&examine(&devices)), [""; 0], "{name}");
        assert_eq!(refused(&devices), None, "{name}");
        let (patient, steps) = readmitted(&devices, true).expect("nothing is to be done");
        assert!(steps.is_empty() && patient.patches().expect("readable").is_empty(), "{name}");
    }
}

#[test]
fn a_device_that_lacks_something_is_refused() {
    let says = |devices: &[Arc<dyn WritableDevice>], trusts: bool, words: &str| {
        let error = readmitted(devices, trusts).map(|(_, steps)| steps).expect_err(words).to_string();
        assert!(error.contains(words), "{words}: {error}");
    };
    for name in POOLS {
        let mut healthy = Victim::load(name);
        left_behind(&mut healthy);
        // Data.
        let mut victim = healthy.clone();
        victim.edit_data_raw(sector_of_second(&Victim::load(name)), |bytes| bytes[7] ^= 1);
        says(&writable(&devices(&images(&victim))), true, "not all is as the last commit says");
        // A copy of a tree block.
        if name == POOLS[0] {
            let held = devices(&images(&healthy));
            let leaf = healthy.leaves(RootId::FS_TREE).next().expect("a tree").at;
            let place = healthy.copies(leaf).into_iter().find(|place| place.devid == 2).expect("a copy");
            held[1].write_at(place.physical + 500, &[0x5a; 8]).expect("memory");
            says(&writable(&held), true, "not all is as the last commit says");
        }
        // A device.
        let held = devices(&images(&healthy));
        if held.len() > 2 {
            says(&writable(&held[..2]), true, "missing devid 3");
        }
        // A mark.
        let mut victim = healthy.clone();
        let generation = victim.superblock().generation;
        let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, 2);
        victim.edit_item(RootId::CHUNK_TREE, &key, |item: &mut DevItem| item.generation = generation);
        says(&writable(&devices(&images(&victim))), true, "by its mark");
        // A log.
        let mut victim = healthy.clone();
        victim.edit_superblocks_of(1, |superblock| superblock.log_root = superblock.root);
        says(&writable(&devices(&images(&victim))), true, "names a log");
    }
}
