//! Administration of a pool on devices.

use brindle_admin::balance::BalanceState;
use brindle_admin::pool::{BalanceJob, Change, OpenPool};
use brindle_admin::{AdminError, ControlError, PoolAdmin, PoolFacts, Reach};
use brindle_care::device::{AddOptions, Leaving, NewSize};
use brindle_care::job::{Control, Progress};
use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
use brindle_fs::{Filesystem, OpenOptions, WriteOptions};
use brindle_ondisk::{DevId, Uuid};
use brindle_policy::balance::Balance;
use brindle_policy::placement::PlacementClass;
use std::path::PathBuf;
use std::sync::Arc;

const FSID: Uuid = Uuid([0x5e; 16]);
const MIB: u64 = 1 << 20;

/// A new pool of two devices in memory, open to be written.
fn pool() -> OpenPool {
    let device = |name: &str| -> Arc<dyn WritableDevice> {
        Arc::new(SparseDevice::new(name.to_owned(), 512 * MIB, DeviceClass::Unknown))
    };
    let devices = [device("first"), device("second")];
    let given: Vec<NewDevice> = devices.iter().map(|device| NewDevice::new(Arc::clone(device))).collect();
    mkfs(&given, &MkfsOptions::new(FSID, [9; 16], 1_700_000_000)).expect("room");
    let write = WriteOptions::default();
    let filesystem = Filesystem::open_writable(devices.to_vec(), &OpenOptions::default(), &write);
    OpenPool(Box::new(filesystem.expect("a whole pool")))
}

fn continues(_: &Progress) -> Control {
    Control::Continue
}

#[test]
fn operands_are_one_mount_or_devices_and_no_mixture() {
    let scratch = tempfile::tempdir().expect("room");
    let (directory, image) = (scratch.path().to_owned(), scratch.path().join("disk.img"));
    let reached = Reach::of(std::slice::from_ref(&image)).expect("devices are not looked at");
    assert!(matches!(&reached, Reach::Devices(devices) if *devices == [image.clone()]));
    assert!(reached.mounted().is_none());
    for mixed in [[directory.clone(), image.clone()], [image, directory]] {
        assert!(matches!(Reach::of(&mixed), Err(AdminError::Mixed)));
    }
    let proc = Reach::of(&[PathBuf::from("/proc")]).expect_err("a mount of neither");
    assert!(matches!(proc, AdminError::Control(ControlError::NotBtrfs(_))), "{proc}");
}

#[test]
fn devices_answer_for_their_pool() {
    let pool = pool();
    assert_eq!(pool.fsid().expect("a pool has one"), FSID);
    let members = pool.members().expect("there");
    assert!(members.iter().map(|member| member.devid.get()).eq([1, 2]), "{members:?}");
    assert!(members.iter().all(|member| member.total_bytes == 512 * MIB && !member.is_missing));
    let inventory = pool.inventory().expect("whole");
    assert_eq!((inventory.fsid, inventory.devices.len()), (FSID, 2));
    let chunks = inventory.chunks.iter();
    assert!(chunks.clone().any(|chunk| chunk.used_bytes > 0 && !chunk.stripes.is_empty()));
    assert!(chunks.clone().all(|chunk| chunk.used_bytes <= chunk.length_bytes));
}

#[test]
fn a_balance_of_devices_is_paused_known_and_cancelled() {
    let pool = pool();
    let state = || pool.balance_status().expect("whole").state;
    assert_eq!(state(), BalanceState::None);
    assert!(!pool.cancel_balance().expect("whole"), "there is none");
    let job = BalanceJob { balance: Some(Balance::full()), force: false, rate: None };
    let ended = pool.balance(&job, &mut |_| Control::Pause).expect("nothing is wrong");
    assert_eq!((ended.control, state()), (Control::Pause, BalanceState::Paused));
    assert!(!pool.forget_misplaced().expect("whole"), "it is another one");
    let resumed = BalanceJob { balance: None, force: true, rate: Some(u64::MAX) };
    let ended = pool.balance(&resumed, &mut continues).expect("room");
    assert_eq!((ended.control, state()), (Control::Continue, BalanceState::None));
    assert!(ended.progress.done > 0 && ended.progress.done == ended.progress.expected);
    pool.balance(&job, &mut |_| Control::Pause).expect("nothing is wrong");
    assert!(pool.cancel_balance().expect("whole"));
    assert_eq!(state(), BalanceState::None);
    assert!(!pool.pause_balance().expect("none runs without a caller"));
    pool.close().expect("durable");
}

#[test]
fn devices_are_added_resized_and_removed() {
    let (pool, scratch) = (pool(), tempfile::tempdir().expect("room"));
    let path = scratch.path().join("third.img");
    std::fs::File::create(&path).and_then(|file| file.set_len(600 * MIB)).expect("sparse");
    let options = AddOptions { force: false, discard: false };
    let added =
        pool.change_devices(&Change::Add { path, class: None, class_name: None, options }, &mut continues);
    assert_eq!(added.expect("room").devid, Some(3));
    let resize = Change::Resize(DevId::new(3), NewSize::To(520 * MIB));
    assert_eq!(pool.change_devices(&resize, &mut continues).expect("room").devid, Some(3));
    let third = pool.members().expect("there").into_iter().find(|member| member.devid.get() == 3);
    assert_eq!(third.expect("it was added").total_bytes, 520 * MIB);
    let gone = pool.change_devices(&Change::Remove(Leaving::Id(DevId::new(3))), &mut continues);
    assert_eq!(gone.expect("two are enough").control, Control::Continue);
    assert_eq!(pool.members().expect("there").len(), 2);
    let refused = pool.change_devices(&Change::Remove(Leaving::Missing), &mut continues);
    assert!(matches!(refused, Err(AdminError::Change(_))), "{refused:?}");
}

#[test]
fn a_device_joins_with_the_class_of_its_name_or_not_at_all() {
    let (pool, scratch) = (pool(), tempfile::tempdir().expect("room"));
    let path = scratch.path().join("third.img");
    std::fs::File::create(&path).and_then(|file| file.set_len(600 * MIB)).expect("sparse");
    let options = AddOptions { force: false, discard: false };
    let named = |name: &str| Change::Add {
        path: path.clone(),
        class: None,
        class_name: Some(name.to_owned()),
        options,
    };
    let refused = pool.change_devices(&named("smr"), &mut continues);
    assert!(matches!(refused, Err(AdminError::Classes(_))), "{refused:?}");
    assert_eq!(pool.members().expect("there").len(), 2);
    let mut classes = pool.classes().expect("none are listed");
    classes.list(PlacementClass::Bulk, &["disk", "smr"]).expect("names");
    pool.set_classes(&classes).expect("writable");
    pool.change_devices(&named("smr"), &mut continues).expect("it is listed now");
    let members = pool.members().expect("there");
    let third = members.iter().find(|member| member.devid.get() == 3).expect("it was added");
    assert_eq!(pool.classes().expect("readable").class_of(&third.uuid), Some("smr"));
    let gone = pool.set_class(7, "smr");
    assert!(matches!(gone, Err(AdminError::NoDevice(7))), "{gone:?}");
}

#[test]
fn a_new_pool_has_nothing_to_defragment_and_an_observer_ends_the_rest() {
    let pool = pool();
    let (mut pieces, mut all_moved) = (0, 0);
    let ended = pool.defragment(true, &mut |progress| {
        (pieces, all_moved) = (pieces + 1, progress.moved);
        Control::Continue
    });
    assert_eq!(ended.expect("readable"), Control::Continue);
    assert!(pieces > 1 && all_moved == 0, "{pieces} pieces, {all_moved} leaves moved");
    let ended = pool.defragment(true, &mut |_| Control::Cancel);
    assert_eq!(ended.expect("readable"), Control::Cancel, "it was ended after one piece");
    pool.close().expect("durable");
}

#[test]
fn error_counters_of_a_new_pool_are_zero_before_and_after_they_are_reset() {
    let pool = pool();
    let errors = pool.device_errors().expect("readable");
    let members = pool.members().expect("known");
    assert!(errors.iter().map(|device| device.devid).eq(members.iter().map(|member| member.devid)));
    assert!(errors.iter().all(|device| device.counters == [0; 5] && !device.name.is_empty()), "{errors:?}");
    assert_eq!(pool.reset_device_errors().expect("writable"), errors);
    assert_eq!(pool.device_errors().expect("readable"), errors);
    pool.close().expect("durable");
}
