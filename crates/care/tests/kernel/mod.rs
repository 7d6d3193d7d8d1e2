//! Verdict of the kernel and btrfs-progs on pools made here: needs root, loop devices and the tools, and says so
//! where they are missing. With CI=true that is a failure.

mod apart;
mod device;
mod dump;
mod fill;
mod host;
mod receive;
mod send;
mod source;
mod turns;

use crate::support::{MIB, assert_clean, examine};
use brindle_care::mkfs::{Features, MkfsOptions, NewDevice, PlacementClass, mkfs};
use brindle_device::{Device, FileDevice};
use brindle_ondisk::{ChecksumType, Profile};
use host::{LoopPool, assert_btrfs_check, can_mount, options, run};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Writes files of many sizes, a subvolume and a snapshot, and reads them back after a scrub.
fn use_pool(mount_point: &Path) {
    for number in 0..60u32 {
        let contents = vec![number.to_le_bytes()[0]; 1000 * number as usize * number as usize / 16];
        std::fs::write(mount_point.join(format!("file{number}")), contents).expect("the pool is writable");
    }
    let (subvolume, snapshot) = (mount_point.join("subvolume"), mount_point.join("snapshot"));
    run(Command::new("btrfs").args(["subvolume", "create"]).arg(&subvolume));
    std::fs::write(subvolume.join("within"), "text").expect("the subvolume is writable");
    run(Command::new("btrfs").args(["subvolume", "snapshot"]).args([&subvolume, &snapshot]));
    run(Command::new("btrfs").args(["filesystem", "sync"]).arg(mount_point));
    scrub(mount_point);
    read_back(mount_point, "after a scrub");
}

/// Checks the files that `use_pool` wrote.
fn read_back(mount_point: &Path, what: &str) {
    for number in 0..60u32 {
        let found = std::fs::read(mount_point.join(format!("file{number}"))).expect("readable");
        let expected = vec![number.to_le_bytes()[0]; 1000 * number as usize * number as usize / 16];
        assert!(found == expected, "{what}: file{number}");
    }
    assert_eq!(std::fs::read(mount_point.join("snapshot/within")).expect("readable"), b"text");
}

fn scrub(mount_point: &Path) {
    let said = run(Command::new("btrfs").args(["scrub", "start", "-B"]).arg(mount_point));
    assert!(said.contains("no errors found"), "{said}");
}

/// Makes a pool, and has it checked, mounted, written, scrubbed and checked again.
fn prove(what: &str, sizes: &[u64], options: &MkfsOptions) {
    println!("{what}");
    let mut pool = LoopPool::make(sizes, options);
    let check = |pool: &LoopPool| {
        assert_clean(what, &examine(pool.images.iter().map(|path| open(path)).collect()));
        assert_btrfs_check(&pool.loops[0], what);
    };
    pool.attach();
    check(&pool);
    pool.mount("rw");
    // First as it was made: every block, every copy.
    scrub(&pool.mount_point());
    use_pool(&pool.mount_point());
    pool.unmount();
    check(&pool);
    pool.mount("ro");
    pool.unmount();
}

fn open(path: &Path) -> Arc<dyn Device> {
    Arc::new(FileDevice::open(path).expect("an image"))
}

#[test]
fn the_kernel_takes_every_profile() {
    if !can_mount() {
        return;
    }
    for row in &Profile::TABLE {
        let mut options = options();
        (options.data, options.metadata) = (Some(row.profile), Some(row.profile));
        prove(row.name, &vec![256 * MIB; usize::from(row.devs_min.max(row.nparity * 2 + 1))], &options);
    }
}

#[test]
fn the_kernel_takes_every_checksum_nodesize_and_feature() {
    if !can_mount() {
        return;
    }
    let nodesizes = [4096, 16384, 32768, 65536];
    for (checksum, nodesize) in ChecksumType::ALL.into_iter().zip(nodesizes) {
        let mut options = options();
        (options.checksum, options.nodesize) = (checksum, Some(nodesize));
        prove(&format!("{checksum}, nodesize {nodesize}"), &[256 * MIB, 256 * MIB], &options);
    }
    for list in [
        "^block-group-tree",
        "^block-group-tree,^free-space-tree",
        "^block-group-tree,^no-holes",
        "^skinny-metadata",
        "^extref",
        "mixed-bg",
        "mixed-bg,^skinny-metadata,^block-group-tree,^free-space-tree,^no-holes,^extref",
    ] {
        let mut options = options();
        options.features = Features::default().with_list(list).expect("known words");
        prove(list, &[512 * MIB], &options);
    }
}

/// A file of the kernel on the quotas of a pool that it has mounted.
fn quota_file(options: &MkfsOptions, name: &str) -> String {
    let path = format!("/sys/fs/btrfs/{}/qgroups/{name}", options.fsid);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.trim().to_owned()
}

#[test]
fn the_kernel_goes_on_with_simple_quotas() {
    if !can_mount() {
        return;
    }
    for (more, nodesize) in [("", 16384), (",mixed-bg", 4096)] {
        let mut options = options();
        options.features = Features::default().with_list(&format!("squota{more}")).expect("known words");
        let mut pool = LoopPool::make(&[512 * MIB], &options);
        // Version 6.2 of btrfs-progs refuses the feature.
        let check = |pool: &LoopPool| {
            assert_clean("squota", &examine(pool.images.iter().map(|path| open(path)).collect()));
        };
        check(&pool);
        pool.attach();
        pool.mount("rw");
        assert_eq!(quota_file(&options, "mode"), "squota");
        assert_eq!(quota_file(&options, "inconsistent"), "0");
        assert_eq!(quota_file(&options, "0_5/referenced"), nodesize.to_string());
        assert_eq!(quota_file(&options, "0_5/exclusive"), nodesize.to_string());
        use_pool(&pool.mount_point());
        let referenced: u64 = quota_file(&options, "0_5/referenced").parse().expect("a number");
        assert!(referenced > 4 << 20, "{referenced}");
        pool.unmount();
        check(&pool);
        pool.mount("rw");
        // All of it goes again.
        for number in 0..60 {
            std::fs::remove_file(pool.mount_point().join(format!("file{number}"))).expect("writable");
        }
        run(Command::new("btrfs").args(["filesystem", "sync"]).arg(pool.mount_point()));
        let referenced: u64 = quota_file(&options, "0_5/referenced").parse().expect("a number");
        assert!(referenced < MIB, "{referenced}");
        pool.unmount();
        check(&pool);
    }
}

#[test]
fn the_kernel_takes_small_and_large_devices() {
    if !can_mount() {
        return;
    }
    prove("the size of a default pool at the least", &[110 * MIB], &options());
    prove("a terabyte", &[1 << 40], &options());
    prove("unequal devices", &[300 * MIB + 12800, 8 << 30], &options());
}

/// Looks at the pool, mounted without each of its devices in turn. It is attached neither before nor after.
fn without_each(pool: &mut LoopPool, look: impl Fn(&Path, usize)) {
    for lost in 0..pool.images.len() {
        let image = pool.images.remove(lost);
        pool.attach();
        pool.mount("degraded,ro");
        look(&pool.mount_point(), lost);
        pool.unmount();
        pool.detach();
        pool.images.insert(lost, image);
    }
}

#[test]
fn the_kernel_rebuilds_what_a_lost_device_held() {
    if !can_mount() {
        return;
    }
    for profile in [Profile::Raid1, Profile::Raid10, Profile::Raid5, Profile::Raid6] {
        let mut options = options();
        (options.data, options.metadata) = (Some(profile), Some(profile));
        let mut pool = LoopPool::make(&[256 * MIB; 4], &options);
        without_each(&mut pool, |mount_point, lost| {
            let said = std::fs::read_dir(mount_point).expect("readable").count();
            assert_eq!(said, 0, "{profile} without device {lost}");
        });
        pool.attach();
        pool.mount("rw");
        use_pool(&pool.mount_point());
        pool.unmount();
        pool.detach();
        without_each(&mut pool, |mount_point, lost| {
            read_back(mount_point, &format!("{profile} without device {lost}"));
        });
    }
}

#[test]
fn the_kernel_mounts_a_pool_with_hints_and_keeps_them() {
    if !can_mount() {
        return;
    }
    let mut pool = LoopPool::files(&[512 * MIB, 256 * MIB, 512 * MIB, 256 * MIB]);
    let class = [PlacementClass::Bulk, PlacementClass::Fast, PlacementClass::Bulk, PlacementClass::Fast];
    let devices: Vec<NewDevice> = pool
        .writable()
        .into_iter()
        .zip(class)
        .map(|(new, class)| NewDevice { class: Some(class), ..new })
        .collect();
    let mut options = options();
    options.data = Some(Profile::Raid1);
    let report = mkfs(&devices, &options).expect("enough devices");
    drop(devices);
    assert!(report.devices[0].name.ends_with("1.img") && report.devices[1].name.ends_with("3.img"));
    pool.attach();
    // As it was made; the kernel knows no hints, and may put the chunks that it adds anywhere.
    pool.mount("ro");
    let usage = run(Command::new("btrfs").args(["device", "usage", "-b"]).arg(pool.mount_point()));
    // A paragraph a device.
    for paragraph in usage.split("\n\n").filter(|paragraph| paragraph.contains("ID:")) {
        let is_fast = paragraph.contains("ID: 1") || paragraph.contains("ID: 2");
        assert_eq!(paragraph.contains("Metadata,RAID1"), is_fast, "{paragraph}");
        assert_eq!(paragraph.contains("Data,RAID1"), !is_fast, "{paragraph}");
    }
    pool.unmount();
    pool.mount("rw");
    use_pool(&pool.mount_point());
    pool.unmount();
    let types: Vec<String> = pool.loops.iter().map(|device| dump::dev_item_type(device)).collect();
    assert_eq!(types, ["0", "1", "0", "1"]);
}

#[test]
fn a_device_in_use_is_refused() {
    if !can_mount() {
        return;
    }
    let mut pool = LoopPool::make(&[256 * MIB], &options());
    pool.attach();
    let image = FileDevice::open_writable(&pool.images[0]).expect_err("a loop device is attached");
    assert!(image.to_string().contains("/dev/loop"), "{image}");
    drop(FileDevice::open_writable(&pool.loops[0]).expect("not mounted"));
    pool.mount("ro");
    let mounted = FileDevice::open_writable(&pool.loops[0]).expect_err("mounted");
    assert!(mounted.to_string().contains("it is mounted"), "{mounted}");
    pool.unmount();
}

#[test]
fn mkfs_on_a_block_device_discards_and_makes_the_same_pool() {
    if !can_mount() {
        return;
    }
    let options = options();
    let by_loop = {
        let mut pool = LoopPool::files(&[256 * MIB]);
        let image = std::fs::OpenOptions::new().write(true).open(&pool.images[0]).expect("there it is");
        std::os::unix::fs::FileExt::write_all_at(&image, &vec![0xa5; 100 << 20], 0).expect("room");
        pool.attach();
        let device = FileDevice::open_writable(&pool.loops[0]).expect("not mounted");
        mkfs(&[NewDevice::new(Arc::new(device))], &options).expect("large enough");
        assert!(dump::superblock(&pool.loops[0]).contains(&options.fsid.to_string()));
        std::fs::read(&pool.images[0]).expect("readable")
    };
    let by_file = LoopPool::make(&[256 * MIB], &options);
    assert!(by_loop == std::fs::read(&by_file.images[0]).expect("readable"), "the same bytes");
}
