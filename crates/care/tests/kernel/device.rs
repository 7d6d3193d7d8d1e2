//! Kernel's view of pools whose devices brindle has changed, and of hints when the kernel replaces a device.

use super::host::{LoopPool, assert_btrfs_check, can_mount, options, run};
use super::{read_back, scrub, use_pool};
use crate::support::MIB;
use brindle_care::balance;
use brindle_care::device::{
    AddOptions, Leaving, NewSize, Newcomer, ReplaceOptions, add, open_device, remove, replace, resize,
};
use brindle_care::job::{Control, Progress};
use brindle_care::mkfs::{NewDevice, PlacementClass, mkfs};
use brindle_device::{FileDevice, WritableDevice};
use brindle_fs::{Filesystem, OpenOptions, WriteOptions};
use brindle_ondisk::{DevId, Profile, Uuid};
use brindle_policy::balance::Balance;
use brindle_policy::placement::AllocationHint;
use brindle_tree::Pool;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

fn on_and_on(_: &Progress) -> Control {
    Control::Continue
}

fn open(devices: &[PathBuf]) -> Filesystem {
    let open = |path: &PathBuf| {
        Arc::new(FileDevice::open_writable(path).expect("nobody has it")) as Arc<dyn WritableDevice>
    };
    let devices = devices.iter().map(open).collect();
    Filesystem::open_writable(devices, &OpenOptions::default(), &WriteOptions::default()).expect("opens")
}

/// A pool on all devices but the last, which is a spare one.
fn with_a_spare(sizes: &[u64], profile: Profile, fast: usize) -> LoopPool {
    let mut pool = LoopPool::files(sizes);
    let mut options = options();
    (options.data, options.metadata) = (Some(profile), Some(profile));
    let mut given: Vec<NewDevice> = pool.writable();
    given.pop();
    given[..fast].iter_mut().for_each(|new| new.class = Some(PlacementClass::Fast));
    mkfs(&given, &options).expect("made");
    drop(given);
    pool.attach();
    let spare = pool.loops.pop().expect("the last one");
    pool.spares.push(spare);
    pool
}

fn forget(pool: &LoopPool) {
    for device in pool.loops.iter().chain(&pool.spares) {
        let _ = Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device).output();
    }
}

/// End of the last chunk on a device.
fn last_end(pool: &Pool, devid: DevId) -> u64 {
    let groups = pool.block_groups().expect("writable");
    let ends = groups.iter().flat_map(|group| {
        let here = group.stripes.iter().filter(|(device, _)| *device == devid);
        here.map(|(_, at)| at + group.stripe_bytes)
    });
    ends.max().expect("something lies there")
}

#[test]
fn the_kernel_takes_what_devices_were_changed() {
    if !can_mount() {
        return;
    }
    let profiles =
        [Profile::Single, Profile::Raid0, Profile::Raid1, Profile::Raid1c3, Profile::Raid10, Profile::Raid6];
    for profile in profiles {
        let row = profile.attributes();
        let count = usize::from(row.devs_min.max(row.nparity * 2));
        let what = row.name;
        let mut pool = with_a_spare(&vec![1024 * MIB; count + 1], profile, 0);
        pool.mount("rw");
        use_pool(&pool.mount_point());
        pool.unmount();
        forget(&pool);
        {
            let filesystem = open(&pool.loops);
            let tree = filesystem.pool();
            let new = Newcomer::open(&pool.spares[0], Uuid([count.to_le_bytes()[0]; 16]), None);
            add(tree, &[new.expect("nobody has it")], &AddOptions::default()).expect("it is empty");
            remove(tree, Leaving::Id(DevId::new(1)), &mut on_and_on).expect("there is room");
            let devid = DevId::new(count as u64 + 1);
            // What lay at the beginning lies at the end then.
            balance::start(&filesystem, &Balance::full(), false, &mut on_and_on).expect("there is room");
            let size = NewSize::To(last_end(tree, devid) - MIB);
            let ended = resize(tree, devid, size, &mut on_and_on).expect("there is room");
            assert!(ended.progress.done > 0, "{what}: something lay at the end");
            filesystem.shutdown().expect("works");
        }
        let removed = pool.loops.remove(0);
        let added = std::mem::replace(&mut pool.spares[0], removed);
        pool.loops.push(added);
        assert_btrfs_check(&pool.loops[0], what);
        run(Command::new("btrfs").args(["device", "scan"]).args(&pool.loops));
        pool.mount("rw");
        read_back(&pool.mount_point(), what);
        scrub(&pool.mount_point());
        // The kernel goes on where we ended: the id is the next one, the size is what it was said to be.
        let point = pool.mount_point();
        run(Command::new("btrfs").args(["filesystem", "resize", &format!("{}:max", count + 1)]).arg(&point));
        run(Command::new("btrfs").args(["device", "add", "-f"]).args([&pool.spares[0], &point]));
        run(Command::new("btrfs").args(["device", "remove", &(count + 2).to_string()]).arg(&point));
        read_back(&point, what);
        pool.unmount();
        assert_btrfs_check(&pool.loops[0], what);
        forget(&pool);
        let filesystem = open(&pool.loops);
        assert_eq!(filesystem.pool().superblock().num_devices.get(), count as u64, "{what}");
    }
}

#[test]
fn the_kernel_takes_a_device_that_was_replaced() {
    if !can_mount() {
        return;
    }
    for profile in [Profile::Raid1, Profile::Single, Profile::Raid6] {
        let row = profile.attributes();
        let count = usize::from(row.devs_min.max(row.nparity * 2));
        let what = row.name;
        let mut pool = with_a_spare(&vec![1024 * MIB; count + 1], profile, 0);
        pool.mount("rw");
        use_pool(&pool.mount_point());
        pool.unmount();
        forget(&pool);
        {
            let filesystem = open(&pool.loops);
            let target = open_device(&pool.spares[0]).expect("nobody has it");
            let (which, by) = (Leaving::Id(DevId::new(1)), ReplaceOptions::default());
            replace(&filesystem, which, &target, &by, &mut on_and_on).expect("it is as large");
            filesystem.shutdown().expect("works");
        }
        std::mem::swap(&mut pool.spares[0], &mut pool.loops[0]);
        assert_btrfs_check(&pool.loops[0], what);
        // The old one is no device of the pool any more.
        run(Command::new("btrfs").args(["device", "scan"]).args(&pool.loops));
        pool.mount("rw");
        let (spare, point) = (pool.spares[0].clone(), pool.mount_point());
        read_back(&point, what);
        scrub(&point);
        run(Command::new("btrfs").args(["replace", "start", "-B", "1"]).args([&spare, &point]));
        read_back(&point, what);
        pool.unmount();
        forget(&pool);
        std::mem::swap(&mut pool.spares[0], &mut pool.loops[0]);
        assert_btrfs_check(&pool.loops[0], what);
    }
}

#[test]
fn a_hint_follows_a_device_that_the_kernel_replaces() {
    if !can_mount() {
        return;
    }
    let mut pool = with_a_spare(&[400 * MIB; 3], Profile::Raid1, 1);
    pool.mount("rw");
    use_pool(&pool.mount_point());
    let (spare, point) = (pool.spares[0].clone(), pool.mount_point());
    run(Command::new("btrfs").args(["replace", "start", "-B", "1"]).args([&spare, &point]));
    read_back(&point, "replaced");
    pool.unmount();
    forget(&pool);
    pool.spares[0] = std::mem::replace(&mut pool.loops[0], spare);
    assert_btrfs_check(&pool.loops[0], "replaced");
    let filesystem = open(&pool.loops);
    let devices = filesystem.pool().volume().devices();
    let first = devices.iter().find(|device| device.devid == DevId::new(1)).expect("a member");
    assert_eq!(first.name, pool.loops[0].display().to_string());
    assert_eq!(first.hint, AllocationHint::MetadataPreferred);
    let space = filesystem.pool().space_summary().expect("writable");
    let of_first = space.devices.iter().find(|device| device.devid == DevId::new(1)).expect("a member");
    assert_eq!(of_first.class, PlacementClass::Fast);
}
