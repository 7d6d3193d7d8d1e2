//! Pools of two classes of devices, made and filled here, with the kernel and btrfs-progs as referees. Needs root, loop
//! devices and btrfs-progs.

use super::ground::{devices_of, devices_of_file, directory, mark, put};
use super::{DATA, METADATA, MIB, SYSTEM};
use crate::kernel::can_make;
use crate::kernel::pool::run;
use crate::model::target::Ground;
use crate::pingpong::SharedPool;
use brindle_care::balance;
use brindle_care::job::Control;
use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_device::FileDevice;
use brindle_fs::{
    AllocateMode, AllocationHint, Filesystem, Host, NewInode, PlacementClass, PlacementMode, SystemHost,
    WriteBackMode, WriteBackWish,
};
use brindle_ondisk::{BlockGroupType, DevId, Profile};
use brindle_policy::balance::Balance;
use brindle_volume::ChunkStatus;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// a, b, c are fast, e, f are bulk.
const FIVE: [PlacementClass; 5] = [
    PlacementClass::Fast,
    PlacementClass::Fast,
    PlacementClass::Fast,
    PlacementClass::Bulk,
    PlacementClass::Bulk,
];

fn make_five(data: Profile, metadata: Profile, device_bytes: u64) -> SharedPool {
    make_of(&FIVE, data, metadata, device_bytes)
}

fn make_of(classes: &[PlacementClass], data: Profile, metadata: Profile, device_bytes: u64) -> SharedPool {
    let pool = SharedPool::of_size(classes.len(), device_bytes);
    let fsid = SystemHost.new_uuid();
    let mut options = MkfsOptions::new(fsid, fsid.0, 1_700_000_000);
    (options.data, options.metadata) = (Some(data), Some(metadata));
    let device = |(path, class): (&PathBuf, &PlacementClass)| NewDevice {
        class: Some(*class),
        ..NewDevice::new(Arc::new(FileDevice::open_writable(path).expect("nobody has it")))
    };
    let devices: Vec<NewDevice> = pool.loops().iter().zip(classes).map(device).collect();
    mkfs(&devices, &options).expect("enough devices");
    pool
}

/// Devices among a, b, c, e, f that a content lies on.
fn letters(pool: &SharedPool, fs: &Filesystem, content: BlockGroupType) -> String {
    named(pool, &devices_of(fs, content))
}

fn named(pool: &SharedPool, devices: &BTreeSet<String>) -> String {
    let letter =
        |(path, letter): (&PathBuf, char)| devices.contains(&path.display().to_string()).then_some(letter);
    pool.loops().iter().zip("abcef".chars()).filter_map(letter).collect()
}

/// Writes `mib` MiB, and lets every checker have a look.
fn fill_and_check(pool: &mut SharedPool, mib: usize) -> (String, String, String) {
    let fs = pool.open();
    for number in 0..mib / 16 {
        put(&fs, fs.root(), &format!("file{number}"), 16 * MIB).expect("room");
    }
    fs.shutdown().expect("closes");
    let found = (letters(pool, &fs, METADATA), letters(pool, &fs, SYSTEM), letters(pool, &fs, DATA));
    drop(fs);
    pool.assert_clean("filled");
    pool.assert_btrfs_check("filled");
    pool.mount("rw");
    let count = std::fs::read_dir(pool.mount_point()).expect("the kernel reads it").count();
    assert!(count >= mib / 16);
    let said = run("btrfs", ["scrub", "start", "-B"], [&pool.mount_point()]);
    assert!(said.contains("no errors found"), "{said}");
    pool.unmount();
    found
}

#[test]
fn s0_05_and_s0_06_example_a_on_images() {
    if !can_make() {
        return;
    }
    let mut pool = make_five(Profile::Raid1, Profile::Raid1, 512 << 20);
    let (metadata, system, data) = fill_and_check(&mut pool, 256);
    assert!(metadata.chars().all(|letter| "abc".contains(letter)), "{metadata}");
    assert!(system.chars().all(|letter| "abc".contains(letter)), "{system}");
    assert_eq!(data, "ef");
    // e and f are full: data goes to a, b and c as well.
    let fs = pool.open();
    for number in 0..40 {
        put(&fs, fs.root(), &format!("more{number}"), 16 * MIB).expect("there is room on a, b, c");
    }
    fs.shutdown().expect("closes");
    assert_eq!(letters(&pool, &fs, DATA), "abcef");
    drop(fs);
    pool.assert_btrfs_check("spilled");
}

/// Every data chunk in the order in which they came: its address, its length, and where its stripes lie.
fn data_chunks(fs: &Filesystem) -> Vec<String> {
    let shown = |chunk: ChunkStatus| {
        let stripes = chunk.stripes.iter().map(|stripe| format!("{}:{}", stripe.devid, stripe.physical));
        format!("{} +{} {}", chunk.start, chunk.length, stripes.collect::<Vec<_>>().join(" "))
    };
    let chunks = fs.pool().volume().chunks();
    chunks.into_iter().filter(|chunk| chunk.kind.contains(DATA)).map(shown).collect()
}

#[test]
fn s0_03_without_the_mode_data_chunks_are_those_that_the_kernel_makes() {
    const FILE_BYTES: u64 = 64 << 20;
    if !can_make() {
        return;
    }
    let sizes = [1000, 1300, 1700, 2200, 2900].map(|mib: u64| mib << 20);
    for profile in ["single", "raid1", "raid10", "raid6"] {
        let mut pool = SharedPool::of_sizes(&sizes);
        run("mkfs.btrfs", ["-q", "-f", "-K", "-m", "raid1", "-d", profile], pool.loops());
        pool.keep_crash_state();
        // The largest are fast: the mode would have data elsewhere.
        let names: Vec<String> = pool.loops().iter().map(|path| path.display().to_string()).collect();
        let (bulk, fast) = (PlacementClass::Bulk, PlacementClass::Fast);
        pool.write.borrow_mut().classes = names.into_iter().zip([bulk, bulk, bulk, fast, fast]).collect();
        pool.write.borrow_mut().placement = PlacementMode::Classic;
        let fs = pool.open();
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        let mut count = 0;
        loop {
            let id = fs.create(fs.root(), format!("file{count}").as_bytes(), &new).expect("room").id;
            let file = fs.open_file(id).expect("there it is");
            match fs.allocate(&file, AllocateMode::Allocate, 0, FILE_BYTES) {
                Ok(()) => count += 1,
                Err(error) => break println!("{profile}: {count} files: {error}"),
            }
        }
        fs.shutdown().expect("closes");
        let ours = data_chunks(&fs);
        drop(fs);

        pool.crash();
        pool.mount("rw");
        for number in 0..count {
            let file = pool.mount_point().join(format!("file{number}"));
            run("fallocate", ["-l", &FILE_BYTES.to_string()], [&file]);
        }
        pool.unmount();
        let fs = pool.open();
        let theirs = data_chunks(&fs);
        assert_eq!(ours, theirs, "{profile}");
        assert!(ours.len() > 5, "{profile}: {ours:?}");
    }
}

#[test]
fn s0_07_example_b_with_raid6_on_images() {
    if !can_make() {
        return;
    }
    let mut pool = make_five(Profile::Raid6, Profile::Raid6, 512 << 20);
    let (metadata, system, data) = fill_and_check(&mut pool, 128);
    assert_eq!((metadata.as_str(), system.as_str(), data.as_str()), ("abc", "abc", "abcef"));
}

#[test]
fn s0_08_example_b_with_raid5_on_images() {
    if !can_make() {
        return;
    }
    let mut pool = make_five(Profile::Raid5, Profile::Raid5, 512 << 20);
    let (metadata, _, data) = fill_and_check(&mut pool, 128);
    assert_eq!((metadata.as_str(), data.as_str()), ("abc", "ef"));
}

#[test]
fn a_stock_kernel_reads_and_keeps_stored_hints() {
    if !can_make() {
        return;
    }
    let mut pool = make_five(Profile::Raid1, Profile::Raid1, 8 << 30);
    let fs = pool.open();
    fs.set_small_file_bytes(64 << 10).expect("it can be stored");
    fs.pool().set_allocation_hint(DevId::new(5), AllocationHint::DataOnly).expect("it is there");
    fs.pool().set_allocation_hint(DevId::new(1), AllocationHint::MetadataOnly).expect("it is there");
    let fast = directory(&fs, fs.root(), "fast");
    mark(&fs, fast, "fast");
    let small = put(&fs, fs.root(), "small", 5000).expect("room");
    let marked = put(&fs, fast, "marked", MIB).expect("room");
    let bulk = put(&fs, fs.root(), "bulk", MIB).expect("room");
    let lies = |pool: &SharedPool, fs: &Filesystem, file| named(pool, &devices_of_file(fs, file));
    assert_eq!([small, marked, bulk].map(|file| lies(&pool, &fs, file)), ["bc", "bc", "ef"]);
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_btrfs_check("made");

    let sums = |pool: &SharedPool| {
        let files = ["small", "fast/marked", "bulk"].map(|name| pool.mount_point().join(name));
        files.map(|file| std::fs::read(file).expect("readable"))
    };
    pool.mount("rw");
    let before = sums(&pool);
    let mount_point = pool.mount_point();
    let xattr = run("getfattr", ["--only-values", "-n", "user.brindle.tier"], [mount_point.join("fast")]);
    assert_eq!(xattr, "fast");
    // Work of its own, and everything moved.
    for number in 0..200 {
        std::fs::write(mount_point.join(format!("kernel{number}")), vec![7; 9000]).expect("room");
    }
    let said = run("btrfs", ["scrub", "start", "-B"], [&mount_point]);
    assert!(said.contains("no errors found"), "{said}");
    run("btrfs", ["balance", "start", "--full-balance"], [&mount_point]);
    run("btrfs", ["filesystem", "resize", "5:7G"], [&mount_point]);
    assert_eq!(sums(&pool), before);
    pool.unmount();
    pool.assert_btrfs_check("the kernel has used it");
    pool.assert_clean("the kernel has used it");

    let fs = pool.open();
    assert_eq!(fs.small_file_bytes(), 64 << 10);
    let hints: Vec<u8> = fs.pool().volume().devices().iter().map(|device| device.hint.number()).collect();
    assert_eq!(hints, [2, 1, 1, 0, 3]);
    let fast = fs.lookup(fs.root(), b"fast").expect("readable").expect("there").inode;
    let new = put(&fs, fast, "new", MIB).expect("room");
    assert!(lies(&pool, &fs, new).chars().all(|letter| "bc".contains(letter)), "{}", lies(&pool, &fs, new));
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_btrfs_check("and again");
}

/// Returns true if a file of two copies has one on the first device.
fn has_copy_on_a(pool: &SharedPool, fs: &Filesystem, path: &str) -> bool {
    let find =
        |parent, name: &str| fs.lookup(parent, name.as_bytes()).expect("readable").expect("there").inode;
    let devices = named(pool, &devices_of_file(fs, path.split('/').fold(fs.root(), find)));
    assert_eq!(devices.len(), 2, "{path}: both copies");
    devices.contains('a')
}

#[test]
fn a_stock_kernel_reads_and_keeps_files_with_one_copy_on_the_only_ssd() {
    if !can_make() {
        return;
    }
    let classes = [PlacementClass::Fast, PlacementClass::Bulk, PlacementClass::Bulk];
    let mut pool = make_of(&classes, Profile::Raid1, Profile::Raid1, 2 << 30);
    let fs = pool.open();
    fs.set_small_file_bytes(64 << 10).expect("it can be stored");
    let fast = directory(&fs, fs.root(), "fast");
    mark(&fs, fast, "fast");
    put(&fs, fast, "marked", 40 * MIB).expect("room");
    put(&fs, fs.root(), "bulk", 40 * MIB).expect("room");
    for number in 0..200 {
        put(&fs, fs.root(), &format!("small{number}"), 20_000).expect("room");
    }
    let paths = ["fast/marked", "bulk", "small7", "small199"];
    let expected = [true, false, true, true];
    assert_eq!(paths.map(|path| has_copy_on_a(&pool, &fs, path)), expected);
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_btrfs_check("made");
    pool.assert_clean("made");
    let mount_point = pool.mount_point();
    let sums = || paths.map(|path| std::fs::read(mount_point.join(path)).expect("readable"));
    pool.mount("rw");
    let before = sums();
    for number in 0..200 {
        std::fs::write(mount_point.join(format!("kernel{number}")), vec![7; 9000]).expect("room");
    }
    let said = run("btrfs", ["scrub", "start", "-B"], [&mount_point]);
    assert!(said.contains("no errors found"), "{said}");
    run("btrfs", ["balance", "start", "--full-balance"], [&mount_point]);
    assert_eq!(sums(), before);
    pool.unmount();
    pool.assert_btrfs_check("the kernel has used it");
    // What the kernel has moved elsewhere is put right, and the kernel reads that.
    let fs = pool.open();
    balance::start(&fs, &Balance::of_misplaced(), false, &mut |_| Control::Continue).expect("room");
    assert_eq!(paths.map(|path| has_copy_on_a(&pool, &fs, path)), expected);
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_btrfs_check("sorted");
    pool.assert_clean("sorted");
    pool.mount("ro");
    assert_eq!(sums(), before);
    pool.unmount();
}

#[test]
fn a_stock_kernel_reads_and_keeps_what_waits_in_the_write_back_tier() {
    if !can_make() {
        return;
    }
    for balances in [false, true] {
        let mut pool = make_five(Profile::Raid1, Profile::Raid1, 4 << 30);
        pool.keep_crash_state();
        pool.write.borrow_mut().write_back = WriteBackWish::Told(WriteBackMode::All);
        let fs = pool.open();
        let waits = put(&fs, fs.root(), "waits", 40 * MIB).expect("room");
        put(&fs, fs.root(), "waits longer", 40 * MIB).expect("room");
        fs.sync().expect("commits");
        assert_eq!(named(&pool, &devices_of_file(&fs, waits)).len(), 2);
        let status = fs.write_back_status().expect("readable");
        assert_eq!((status.obstacle, status.waiting_bytes), (None, 80 << 20));
        // In the midst of destaging.
        let batches = AtomicUsize::new(0);
        fs.destage(&|| batches.fetch_add(1, Ordering::Relaxed) < 1).expect("room");
        let left = fs.write_back_status().expect("readable").waiting_bytes;
        fs.shutdown().expect("closes");
        drop(fs);
        pool.assert_btrfs_check("with data that waits");
        pool.mount("rw");
        let mount_point = pool.mount_point();
        for name in ["waits", "waits longer"] {
            assert!(std::fs::read(mount_point.join(name)).expect("readable") == vec![0; 40 * MIB]);
        }
        std::fs::write(mount_point.join("of the kernel"), vec![7; 9000]).expect("room");
        let said = run("btrfs", ["scrub", "start", "-B"], [&mount_point]);
        assert!(said.contains("no errors found"), "{said}");
        if balances {
            run("btrfs", ["balance", "start", "--full-balance"], [&mount_point]);
        }
        pool.unmount();
        pool.assert_btrfs_check("the kernel has used it");
        let fs = pool.open();
        // The kernel takes the tier's chunks for any of data, and a balance gives their addresses to others.
        let found = fs.write_back_status().expect("readable").waiting_bytes;
        assert!(left > 0 && (balances || found >= left), "{left} before, {found} after");
        fs.destage(&|| true).expect("room");
        assert_eq!(fs.write_back_status().expect("readable").waiting_bytes, 0);
        fs.shutdown().expect("closes");
        drop(fs);
        pool.assert_btrfs_check("destaged");
        pool.assert_clean("destaged");
    }
}

#[test]
fn a_stock_kernel_reads_what_was_merged_and_returned_to_preallocated_space() {
    if !can_make() {
        return;
    }
    let mut pool = make_five(Profile::Raid1, Profile::Raid1, 4 << 30);
    pool.keep_crash_state();
    pool.write.borrow_mut().write_back = WriteBackWish::Told(WriteBackMode::Sync);
    let fs = pool.open();
    let new = |name: &[u8]| {
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        fs.open_file(fs.create(fs.root(), name, &new).expect("room").id).expect("there")
    };
    let (log, image) = (new(b"log"), new(b"image"));
    fs.allocate(&image, AllocateMode::Allocate, 0, 8 << 20).expect("room");
    fs.sync().expect("commits");
    for part in 0..40 {
        fs.write(&log, part << 14, &[7; 16 << 10]).expect("room");
        fs.sync_file(&log).expect("syncs");
        fs.write(&image, part << 17, &[9; 64 << 10]).expect("room");
        fs.sync_file(&image).expect("syncs");
    }
    fs.close_file(log).and(fs.close_file(image)).expect("closes");
    fs.destage(&|| true).expect("room");
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_btrfs_check("merged");
    pool.assert_clean("merged");
    pool.mount("rw");
    let mount_point = pool.mount_point();
    assert!(std::fs::read(mount_point.join("log")).expect("readable") == vec![7; 640 << 10]);
    let image = std::fs::read(mount_point.join("image")).expect("readable");
    let (written, rest) = image.split_at(5 << 20);
    let expected = [[9; 64 << 10], [0; 64 << 10]].concat();
    assert!(written.chunks(128 << 10).all(|part| part == expected) && rest.iter().all(|byte| *byte == 0));
    std::fs::write(mount_point.join("image"), &image).expect("writable");
    let said = run("btrfs", ["scrub", "start", "-B"], [&mount_point]);
    assert!(said.contains("no errors found"), "{said}");
    pool.unmount();
    pool.assert_btrfs_check("the kernel has used it");
}

#[test]
fn a_pool_of_stock_mkfs_is_placed_right_from_the_next_chunk_on() {
    if !can_make() {
        return;
    }
    let pool = SharedPool::of_size(4, 8 << 30);
    run("mkfs.btrfs", ["-q", "-f", "-d", "single", "-m", "raid1"], pool.loops());
    let names: Vec<String> = pool.loops().iter().map(|path| path.display().to_string()).collect();
    let classes = [PlacementClass::Bulk, PlacementClass::Bulk, PlacementClass::Fast, PlacementClass::Fast];
    pool.write.borrow_mut().classes = names.iter().cloned().zip(classes).collect();
    let fs = pool.open();
    let before = fs.pool().volume().chunks().len();
    for number in 0..80 {
        put(&fs, fs.root(), &format!("file{number}"), 16 * MIB).expect("room");
    }
    let chunks = fs.pool().volume().chunks();
    assert!(chunks.len() > before);
    for chunk in chunks.iter().skip(before) {
        let is_fast = chunk.stripes.iter().all(|stripe| stripe.devid.get() > 2);
        let is_bulk = chunk.stripes.iter().all(|stripe| stripe.devid.get() < 3);
        assert!(if chunk.kind.contains(DATA) { is_bulk } else { is_fast }, "{chunk:?}");
    }
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_btrfs_check("filled");
}
