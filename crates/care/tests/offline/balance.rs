//! Balance of pools in memory.

use crate::support::files::{assert_filled, fill};
use crate::support::{MIB, MadePool, assert_clean, options};
use brindle_care::balance::{self, BalanceError};
use brindle_care::job::{Control, Progress};
use brindle_device::{DeviceClass, WritableDevice};
use brindle_fs::{Filesystem, NewInode, OpenOptions, WriteOptions};
use brindle_ondisk::{BlockGroupType, DevId, Profile};
use brindle_policy::balance::Balance;
use brindle_policy::placement::AllocationHint;
use std::sync::Arc;

fn open(pool: &MadePool) -> Filesystem {
    let devices = pool.devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>).collect();
    Filesystem::open_writable(devices, &OpenOptions::default(), &WriteOptions::default()).expect("opens")
}

fn on_and_on(_: &Progress) -> Control {
    Control::Continue
}

/// Four devices, of which two are said to be fast only when there is something on all of them.
fn pool_with_late_hints() -> (MadePool, Filesystem) {
    let mut options = options();
    (options.data, options.metadata) = (Some(Profile::Raid1), Some(Profile::Raid1));
    let pool = MadePool::make_of(&[(512 * MIB, DeviceClass::Unknown); 4], &options).expect("made");
    let filesystem = open(&pool);
    fill(&filesystem, 20, 300_000);
    for devid in [1, 2] {
        let hint = AllocationHint::MetadataPreferred;
        filesystem.pool().set_allocation_hint(DevId::new(devid), hint).expect("writable");
    }
    filesystem.sync().expect("works");
    (pool, filesystem)
}

#[test]
fn misplaced_block_groups_move_and_no_others() {
    let (pool, filesystem) = pool_with_late_hints();
    let wrong = Balance::of_misplaced();
    let before = balance::facts(filesystem.pool()).expect("readable");
    let chosen = wrong.chosen(&before).len();
    assert!(chosen > 0, "metadata lies on the last devices");
    let ended = balance::start(&filesystem, &wrong, false, &mut on_and_on).expect("there is room");
    assert_eq!((ended.progress.done, ended.control), (ended.progress.expected, Control::Continue));
    let after = balance::facts(filesystem.pool()).expect("readable");
    assert!(wrong.chosen(&after).is_empty());
    for chunk in after.chunks.iter().filter(|chunk| !chunk.kind.contains(BlockGroupType::DATA)) {
        assert!(chunk.stripes.iter().all(|stripe| stripe.devid.get() <= 2), "{chunk:?}");
    }
    // There is no limit for small files, so none of the data on fast devices alone is wanted there.
    for chunk in &before.chunks {
        let is_there = after.chunks.iter().any(|other| other.logical == chunk.logical);
        let must_go =
            wrong.chosen(&before).contains(&chunk) || (before.is_of_fast_tier(chunk) && chunk.used_bytes > 0);
        assert_eq!(is_there, !must_go, "{chunk:?}");
    }
    assert_filled(&filesystem, 20, 300_000);
    assert_eq!(balance::interrupted(filesystem.pool()).expect("readable"), None);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    assert_clean("moved", &pool.examine());
    assert_filled(&open(&pool), 20, 300_000);
}

#[test]
fn a_paused_balance_goes_on_after_a_remount() {
    let (pool, filesystem) = pool_with_late_hints();
    let all = Balance::full();
    let pause =
        &mut |progress: &Progress| if progress.moved_bytes > 0 { Control::Pause } else { Control::Continue };
    let ended = balance::start(&filesystem, &all, false, pause).expect("there is room");
    assert_eq!(ended.control, Control::Pause);
    let again = balance::start(&filesystem, &all, false, &mut on_and_on);
    assert!(matches!(again, Err(BalanceError::UnderWay)));
    filesystem.shutdown().expect("works");
    drop(filesystem);
    assert_clean("paused", &pool.examine());
    let filesystem = open(&pool);
    assert_eq!(balance::interrupted(filesystem.pool()).expect("readable"), Some(all));
    let ended = balance::resume(&filesystem, &mut on_and_on).expect("there is room");
    assert_eq!((ended.progress.left, ended.control), (0, Control::Continue));
    assert_filled(&filesystem, 20, 300_000);
    assert!(matches!(balance::resume(&filesystem, &mut on_and_on), Err(BalanceError::None)));
    filesystem.shutdown().expect("works");
    drop(filesystem);
    assert_clean("resumed", &pool.examine());
}

#[test]
fn profiles_are_converted() {
    let (pool, filesystem) = pool_with_late_hints();
    let convert = |filter: &str| Some(filter.parse().expect("a filter"));
    let balance = Balance {
        data: convert("convert=raid5"),
        metadata: convert("convert=raid1c3"),
        system: convert("convert=raid1c3,soft"),
    };
    balance::start(&filesystem, &balance, false, &mut on_and_on).expect("there is room");
    for group in filesystem.pool().block_groups().expect("writable") {
        let wanted = balance.filter(group.kind).and_then(|filter| filter.convert);
        assert_eq!(group.kind.profile(), wanted, "{group:?}");
    }
    assert_filled(&filesystem, 20, 300_000);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    assert_clean("converted", &pool.examine());
}

#[test]
fn a_full_pool_says_that_there_is_no_room_and_stays_sound() {
    let mut options = options();
    (options.data, options.metadata) = (Some(Profile::Single), Some(Profile::Dup));
    let pool = MadePool::make_of(&[(256 * MIB, DeviceClass::Unknown)], &options).expect("made");
    let filesystem = open(&pool);
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let made = filesystem.create(filesystem.root(), b"large", &new).expect("room");
    let file = filesystem.open_file(made.id).expect("there");
    let megabyte = vec![5; 1 << 20];
    let mut size = 0;
    while filesystem.write(&file, size, &megabyte).is_ok() {
        size += 1 << 20;
    }
    filesystem.sync().expect("what was taken has room");
    let refused = balance::start(&filesystem, &Balance::full(), false, &mut on_and_on);
    assert!(matches!(refused, Err(BalanceError::NoSpace { .. })), "{refused:?}");
    assert!(filesystem.is_writable());
    assert_eq!(balance::interrupted(filesystem.pool()).expect("readable"), None);
    let mut found = vec![0; 1 << 20];
    assert_eq!(filesystem.read(&file, size - (1 << 20), &mut found).expect("read"), 1 << 20);
    assert!(found == megabyte);
    drop(file);
    filesystem.shutdown().expect("works");
    drop(filesystem);
    assert_clean("full", &pool.examine());
}
