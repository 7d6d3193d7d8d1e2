//! Words to users that have gone wrong somewhere: each says what is in the way, and what to do.

use super::mount::{can_mount, unmount};
use super::progs::Pool;
use super::support::{brindle, brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Output;
use tempfile::TempDir;

/// A directory with images of 512 MiB and a place to mount at.
struct Scratch {
    directory: TempDir,
    images: Vec<PathBuf>,
}

impl Scratch {
    fn new(count: usize) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(directory.path().join("m")).expect("new");
        let images: Vec<PathBuf> =
            (0..count).map(|number| directory.path().join(format!("{number}.img"))).collect();
        for image in &images {
            File::create(image).and_then(|image| image.set_len(512 << 20)).expect("sparse");
        }
        Self { directory, images }
    }

    fn at(&self, name: &str) -> String {
        text(&self.directory.path().join(name)).to_owned()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_device_given_twice_is_wrong_usage_everywhere() {
    let scratch = Scratch::new(2);
    let [a, b] = [0, 1].map(|number: usize| text(&scratch.images[number]));
    assert!(brindle_fails(2, ["mkfs", a, a]).contains("is given twice"));
    brindle_prints(["mkfs", "-d", "raid1", "-m", "raid1", a, b]);
    let place = scratch.at("m");
    for words in [
        &["mount", a, a, &place][..],
        &["check", a, a],
        &["ls", a, a],
        &["filesystem", "usage", a, a],
        &["inspect", "dump-tree", a, a],
        &["scrub", "start", a, a],
        &["tier", "status", a, a],
        &["status", a, a],
        &["metrics", a, a],
    ] {
        let said = brindle_fails(2, words);
        assert!(said.contains("is given twice") && !said.contains("missing"), "{words:?}: {said}");
    }
    assert!(brindle_fails(2, ["balance", "start", a, b]).contains("say which block groups"));
}

#[test]
fn a_device_may_be_named_by_an_option_again() {
    let scratch = Scratch::new(2);
    let [a, b] = [0, 1].map(|number: usize| text(&scratch.images[number]));
    brindle_prints(["mkfs", "-d", "raid1", "-m", "raid1", a, b]);
    // As in lines of fstab for the kernel's btrfs.
    let all = format!("device={a},device={b}");
    brindle_prints(["ls", "-o", &all, a]);
    brindle_prints(["filesystem", "label", "-o", &all, a, "mirror"]);
    let place = scratch.at("m");
    let mount = |options: &str, device: &str| brindle(["mount", "--fake", "-o", options, device, &place]);
    for options in
        [&all, &format!("{all},silent,mand,noinode_cache"), &format!("device={a}:fast,device={b}:bulk")]
    {
        let output = mount(options, a);
        assert!(output.status.success(), "{options}: {}", said(&output));
    }
    let output = mount(&format!("device={a}:bulk,device={b}"), &format!("{a}:fast"));
    assert!(output.status.code() == Some(2) && said(&output).contains("is given twice"), "{output:?}");
}

#[test]
fn options_of_mkfs_that_no_device_can_have_are_wrong_usage() {
    let scratch = Scratch::new(1);
    let image = text(&scratch.images[0]);
    let long = "x".repeat(256);
    for options in [
        &["-n", "3K"][..],
        &["-L", &long],
        &["--mixed", "-n", "16K"],
        &["--mixed", "-d", "dup", "-m", "single"],
    ] {
        brindle_fails(2, [&["mkfs"], options, &[image]].concat());
    }
    brindle_fails(1, ["mkfs", "-d", "raid1", image]);
    brindle_prints(["-q", "mkfs", image]);
}

#[test]
fn contents_that_do_not_fit_are_told_once() {
    let scratch = Scratch::new(0);
    let (source, image) = (scratch.at("m"), scratch.at("small.img"));
    fs::write(scratch.directory.path().join("m/file"), vec![7; 150 << 20]).expect("room");
    File::create(&image).and_then(|image| image.set_len(130 << 20)).expect("sparse");
    let said = brindle_fails(1, ["mkfs", "--rootdir", &source, &image]);
    assert!(said.contains("the contents do not fit") && !said.contains("read-only"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn the_uuid_of_the_only_device_is_chosen() {
    let scratch = Scratch::new(2);
    let [a, b] = [0, 1].map(|number: usize| text(&scratch.images[number]));
    let uuid = "8a0c7f5e-2f4e-4a51-9d0b-0e6f2b7c1d3a";
    brindle_prints(["mkfs", "--device-uuid", uuid, a]);
    assert!(brindle_prints(["inspect", "dump-super", a]).contains(uuid));
    assert!(brindle_fails(2, ["mkfs", "-f", "--device-uuid", uuid, a, b]).contains("the only device"));
}

#[test]
fn a_directory_to_send_that_is_not_there_is_named() {
    let scratch = Scratch::new(0);
    let gone = scratch.at("m/typo");
    let said = brindle_fails(1, ["send", "-f", "/dev/null", &gone]);
    assert!(said.contains(&format!("{gone}: no such file or directory")), "{said}");
}

#[test]
fn the_state_of_a_pool_is_told_by_a_later_copy_of_its_superblock() {
    let scratch = Scratch::new(1);
    let image = text(&scratch.images[0]);
    brindle_prints(["mkfs", image]);
    let file = File::options().write(true).open(image).expect("it is there");
    file.write_all_at(&[0; 4096], 64 << 10).expect("room");
    let shown = String::from_utf8_lossy(&brindle(["status", image]).stdout).into_owned();
    assert!(shown.contains("  errors  not mounted  "), "{shown}");
    assert!(shown.contains(": superblock at offset 65536 is bad") && shown.contains("; data "), "{shown}");
}

#[test]
fn groups_of_a_new_subvolume_are_looked_for() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new(1);
    let (image, place) = (text(&scratch.images[0]), scratch.at("m"));
    brindle_prints(["mkfs", image]);
    brindle_prints(["mount", image, &place]);
    let (one, two, three) = (scratch.at("m/one"), scratch.at("m/two"), scratch.at("m/three"));
    for words in [&["create", "-i", "1/5", &one][..], &["snapshot", "-i", "1/5", &one, &two]] {
        let output = brindle_succeeds([&["subvolume"], words].concat());
        assert!(said(&output).contains("quotas are off: -i makes no difference"), "{output:?}");
    }
    brindle_prints(["quota", "enable", &place]);
    for words in [&["create", "-i", "1/5", &three][..], &["snapshot", "-i", "1/5", &one, &three]] {
        let said = brindle_fails(1, [&["subvolume"], words].concat());
        assert!(said.contains("there is no quota group 1/5"), "{said}");
    }
    brindle_prints(["qgroup", "create", "1/5", &place]);
    brindle_prints(["subvolume", "create", "-i", "1/5", &three]);
    assert!(brindle_prints(["qgroup", "show", "-p", &place]).contains("1/5"));
    unmount(scratch.directory.path().join("m").as_path());
}

#[test]
fn the_process_that_uses_an_image_is_named() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new(1);
    let (image, place) = (text(&scratch.images[0]), scratch.at("m"));
    brindle_prints(["mkfs", image]);
    brindle_prints(["mount", "-o", "noblkdev", image, &place]);
    let said = brindle_fails(1, ["balance", "start", "-dusage=0", image]);
    assert!(
        said.contains(") writes it") && said.contains(&format!("mount -o noblkdev {image} {place}")),
        "{said}"
    );
    unmount(scratch.directory.path().join("m").as_path());
}

#[test]
fn marks_that_make_no_difference_are_told_by_the_status_of_tiers() {
    let scratch = Scratch::new(3);
    let words: Vec<String> = scratch.images.iter().map(|image| text(image).to_owned()).collect();
    let said = ["fast", "bulk", "bulk"].iter().zip(&words).map(|(class, image)| format!("{image}:{class}"));
    let making = ["mkfs", "-d", "raid10", "-m", "raid1"].map(str::to_owned).into_iter().chain(said);
    brindle_succeeds(making);
    let status = |more: &[&str]| {
        brindle_prints(
            [&["tier", "status"], more].concat().iter().copied().chain(words.iter().map(String::as_str)),
        )
    };
    let expected = "Marks of files and limits of small files, if there are any, make no difference: data of profile raid10";
    assert!(status(&[]).contains(expected), "{}", status(&[]));
    assert!(status(&["--json"]).contains(expected));
}

#[test]
fn a_balance_by_the_kernel_is_told_without_bytes() {
    if !is_root("a mount of the kernel") {
        return;
    }
    let pool = Pool::make();
    let mount = pool.mount_by_kernel();
    fs::write(mount.place.join("file"), vec![7; 3 << 20]).expect("room");
    let said = brindle_prints(["balance", "start", "--full-balance", text(&mount.place)]);
    assert!(said.contains("block groups in ") && !said.contains("moved"), "{said}");
}

#[test]
fn settings_that_a_mount_of_the_kernel_lacks_are_told_with_the_way_to_them() {
    if !is_root("a mount of the kernel") {
        return;
    }
    let pool = Pool::make();
    let mount = pool.mount_by_kernel();
    let place = text(&mount.place);
    for words in [
        &["property", "get", place, "read_policy"][..],
        &["property", "set", place, "small_files", "64K"],
        &["property", "set", place, "log_profile", "single"],
        &["device", "reads", place],
    ] {
        let said = brindle_fails(1, words);
        assert!(said.contains("unmount it, then `brindle mount` its devices"), "{words:?}: {said}");
    }
    let hint = ["property", "set", place, "allocation_hint", "METADATA_PREFERRED", "--devid", "1"];
    let said = brindle_fails(1, hint);
    assert!(said.contains("`brindle property set DEVICE allocation_hint HINT`"), "{said}");
    // The command of the message works.
    drop(mount);
    let images: Vec<&str> = pool.images.iter().map(|image| text(image)).collect();
    let others = format!("device={},device={}", images[1], images[2]);
    brindle_prints(["-q", "property", "set", "-o", &others, images[0], "allocation_hint", "DATA_ONLY"]);
}

#[test]
fn devices_that_hold_no_pool_and_pools_that_lack_devices_are_told_apart() {
    let scratch = Scratch::new(4);
    let (place, other) = (scratch.at("m"), scratch.at("other"));
    let [empty, tiny, gone] = ["empty.img", "tiny.img", "gone.img"].map(|name| scratch.at(name));
    File::create(&empty).expect("room");
    File::create(&tiny).and_then(|image| image.set_len(16 << 20)).expect("sparse");
    assert!(
        brindle_fails(1, ["mount", &empty, &place]).contains("is empty: `brindle mkfs` makes a pool on it")
    );
    assert!(brindle_fails(1, ["mkfs", &gone]).contains("no such file: with --size SIZE it is made"));
    assert!(brindle_fails(1, ["mkfs", &tiny]).contains("has 16 MiB, with these options"));
    let ext4 = File::options().write(true).open(&tiny).expect("it is there");
    ext4.write_all_at(&0xef53_u16.to_le_bytes(), 1080).expect("room");
    for words in [&["mount", &tiny, &place][..], &["filesystem", "usage", &tiny], &["check", &tiny]] {
        let said = brindle_fails(1, words);
        assert!(said.contains("it holds an ext2/3/4 filesystem"), "{words:?}: {said}");
    }
    let said = brindle_fails(2, ["mount", "-o", "degradded", &tiny, &place]);
    assert!(said.contains("is 'degraded' meant?"), "{said}");
    let images: Vec<&str> = scratch.images.iter().map(|image| text(image)).collect();
    brindle_prints([&["mkfs", "-m", "raid1", "-d", "raid1"], &images[..]].concat());
    let mount = |devices: &[&str]| brindle_fails(1, [&["mount"], devices, &[&place]].concat());
    let said = mount(&images[..2]);
    assert!(said.contains("devid 4 (") && said.contains("name all devices of the pool"), "{said}");
    // Not where they are looked for.
    fs::create_dir(&other).expect("new");
    for image in &scratch.images[2..] {
        fs::rename(image, scratch.directory.path().join("other").join(image.file_name().expect("a name")))
            .expect("the same filesystem");
    }
    let said = mount(&images[..2]);
    assert!(
        said.contains("missing devid 3 (uuid") && said.contains("name all devices of the pool, or"),
        "{said}"
    );
}

#[test]
fn properties_that_cannot_be_set_are_answered_with_those_that_can() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new(1);
    let (image, place) = (text(&scratch.images[0]), scratch.at("m"));
    brindle_prints(["mkfs", image]);
    brindle_prints(["mount", image, &place]);
    let directory = scratch.at("m/directory");
    fs::create_dir(&directory).expect("room");
    for (code, words, why) in [
        (2, &[&place, "compression", "lz4"][..], "compression is zlib, lzo, zstd or none"),
        (2, &[&place, "read_policy", "roundrobbin"], "read_policy is one of pid"),
        (1, &[&directory, "ro", "true"], "ro is a property of subvolumes"),
        (2, &["--devid", "1", &place, "allocation_hint", "metadata"], "it is one of DATA_PREFERRED"),
        (1, &["--devid", "9", &place, "allocation_hint", "DATA_ONLY"], "no device with the id 9"),
        (2, &[&place, "mount_options", "commit=5"], "`mount -o remount` changes some of them"),
        (2, &[&place, "tier", "nonsense"], "a tier is fast, bulk or the name of a class"),
    ] {
        let said = brindle_fails(code, [&["property", "set"], words].concat());
        assert!(said.contains(why), "{words:?}: {said}");
    }
    unmount(scratch.directory.path().join("m").as_path());
}

#[test]
fn options_of_btrfs_are_taken_or_have_another_word() {
    let scratch = Scratch::new(1);
    let (image, place) = (text(&scratch.images[0]), scratch.at("m"));
    brindle_prints(["mkfs", "--rootdir", &place, image]);
    brindle_prints(["check", "--readonly", "--force", "--mode=lowmem", "-b", "-p", image]);
    brindle_prints(["restore", "-D", "-i", "-m", "-S", "-x", "--xattr", "-s", "--root", "5", image, &place]);
    for (words, word) in [
        (&["check", "--tree-root", "4096", image][..], "--tree-root of btrfs: "),
        (&["check", "--clear-space-cache=v2", image], "brindle rescue clear-space-cache v1|v2"),
        (&["restore", "-l", image], "brindle subvolume list DEVICE..."),
        (&["filesystem", "defragment", "--step", "1M", image], "--step of btrfs: "),
        (&["balance", "start", "--enqueue", image], "brindle balance status"),
        (&["check", "-Q", image], "`brindle qgroup show DEVICE...`"),
        (&["check", "-E", "256", image], "`brindle inspect dump-tree -t ID DEVICE...`"),
        (&["restore", "-t", "4096", image, &place], "-t of btrfs: -o rescue=usebackuproot"),
        (&["restore", "-f", "4096", image, &place], "-f of btrfs: -o rescue=usebackuproot"),
        (&["restore", "--path-regex", "^/$", image, &place], "--path PATH restores"),
        (
            &["device", "add", "--enqueue", image, &place],
            "--enqueue of btrfs: a change of devices begins at once",
        ),
        (&["mkfs", "-R", "quota", image], "brindle quota enable"),
        (&["mkfs", "-l", "16k", image], "-n is the size of all tree blocks"),
        (&["mkfs", "-A", "0", image], "-A of btrfs: it means nothing any more"),
    ] {
        let said = brindle_fails(2, words);
        assert!(said.contains(word) && said.contains("unexpected argument"), "{words:?}: {said}");
    }
    let said = brindle_fails(2, ["filesystem", "resize", "--enqueue", "max", &place]);
    assert!(said.contains("--enqueue of btrfs: a resize begins at once"), "{said}");
    brindle_prints(["-q", "mkfs", "-f", "-s", "4k", image]);
    assert!(brindle_fails(2, ["mkfs", "-f", "-s", "16k", image]).contains("sectors of 4096 bytes"));
}

#[test]
fn commands_of_btrfs_are_taken_or_have_another_word() {
    assert_eq!(brindle_prints(["version"]), brindle_prints(["--version"]));
    for (words, word) in [
        (&["filesystem", "balance", "start", "x"][..], "balance of btrfs: `brindle balance`"),
        (&["fi", "mkswapfile", "x"], "the system swaps to no file of a FUSE mount"),
        (&["inspect", "map-swapfile", "x"], "the system swaps to no file of a FUSE mount"),
        (
            &["inspect-internal", "map-logical", "-l", "1", "x"],
            "map-logical of btrfs: `brindle inspect list-chunks`",
        ),
        (&["inspect", "select-super", "x"], "`brindle rescue super-recover DEVICE...`"),
        (&["rescue", "fix-data-checksum", "x"], "-o rescue=idatacsums"),
        (&["rescue", "clear-ino-cache", "x"], "does no harm"),
        (&["rescue", "create-control-device"], "no command of brindle needs /dev/btrfs-control"),
        (&["btrfs-convert", "x"], "brindle mkfs --rootdir DIR"),
        (&["btrfstune", "-m", "x"], "btrfstune of btrfs: "),
        (&["btrfs-image", "x", "y"], "`brindle inspect dump-tree`"),
        (&["find-root", "x"], "-o rescue=usebackuproot"),
    ] {
        let said = brindle_fails(2, words);
        assert!(said.contains(word) && said.contains("unrecognized subcommand"), "{words:?}: {said}");
    }
    assert!(!brindle_fails(2, ["ls-files"]).contains("of btrfs"));
}

/// Expects that a path within a subvolume is taken for none, and that nothing is changed.
fn refuse_paths_within(place: &str) {
    let (directory, file) = (format!("{place}/directory"), format!("{place}/file"));
    fs::create_dir(&directory).expect("room");
    fs::write(&file, "x").expect("room");
    for (path, kind) in [(&directory, "a directory"), (&file, "a file")] {
        for (words, meant) in [
            (&["subvolume", "show", path][..], "`brindle subvolume show --rootid 5 "),
            (&["subvolume", "set-default", path], "`brindle subvolume set-default 5 "),
            (&["qgroup", "limit", "1G", path], "its quota group is 0/5"),
            (&["qgroup", "assign", path, "1/1", place], "its quota group is 0/5"),
        ] {
            let said = brindle_fails(1, words);
            let expected = format!("{path}: {kind} in the subvolume of id 5, not a subvolume: {meant}");
            assert!(said.contains(&expected), "{words:?}: {said}");
        }
    }
    brindle_prints(["subvolume", "show", "--rootid", "5", &file]);
    brindle_prints(["subvolume", "set-default", "5", &file]);
    assert!(brindle_fails(2, ["subvolume", "set-default", "x", place]).contains("not the id"));
}

#[test]
fn a_path_within_a_subvolume_is_not_taken_for_it() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new(1);
    let (image, place) = (text(&scratch.images[0]), scratch.at("m"));
    brindle_prints(["mkfs", image]);
    brindle_prints(["mount", image, &place]);
    brindle_prints(["quota", "enable", &place]);
    refuse_paths_within(&place);
    for path in [format!("{place}/"), format!("{place}/.")] {
        let said = brindle_fails(1, ["subvolume", "create", &path]);
        assert!(said.contains("exists, it is a mount point: a new subvolume has a name below it"), "{said}");
    }
    unmount(scratch.directory.path().join("m").as_path());
}

#[test]
fn a_path_within_a_subvolume_of_the_kernel_is_not_taken_for_it() {
    if !is_root("a mount of the kernel") {
        return;
    }
    let pool = Pool::make();
    let mount = pool.mount_by_kernel();
    brindle_prints(["quota", "enable", text(&mount.place)]);
    refuse_paths_within(text(&mount.place));
    let shown = brindle_prints(["scrub", "limit", text(&mount.place)]);
    assert!(shown.starts_with("DEVID  LIMIT  PATH\n") && shown.contains("    1   none  /dev/"), "{shown}");
    brindle_prints(["scrub", "limit", "-a", "-l", "50M", text(&mount.place)]);
    let shown = brindle_prints(["scrub", "limit", text(&mount.place)]);
    assert!(shown.contains("    1  50.00MiB/s  /dev/"), "{shown}");
}

#[test]
fn options_of_a_mount_are_shown_back() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new(1);
    let (image, place) = (text(&scratch.images[0]), scratch.at("m"));
    brindle_prints(["mkfs", image]);
    brindle_prints([
        "mount",
        "-o",
        "rw,nodatacow,compress=zstd:5,commit=17,degraded,datacow,datasum",
        image,
        &place,
    ]);
    let shown = || brindle_prints(["property", "get", &place, "mount_options"]);
    assert_eq!(shown(), "mount_options=compress=zstd:5,degraded,commit=17\n");
    assert!(brindle_prints(["property", "get", &place]).contains(&shown()));
    let status = String::from_utf8_lossy(&brindle(["status", "--json", &place]).stdout).into_owned();
    assert!(status.contains("\"mount_options\": \"compress=zstd:5,degraded,commit=17\""), "{status}");
    if is_root("a remount") {
        brindle_prints(["mount", "-o", "remount,commit=18,read_policy=pid", &place]);
        assert_eq!(shown(), "mount_options=compress=zstd:5,degraded,commit=18,read_policy=pid\n");
    }
    unmount(scratch.directory.path().join("m").as_path());
    brindle_prints(["mount", image, &place]);
    assert_eq!(shown(), "mount_options=\n");
    unmount(scratch.directory.path().join("m").as_path());
}

#[test]
fn files_that_hold_no_pool_are_told_with_the_next_step() {
    let scratch = Scratch::new(1);
    let (image, tiny, ext4) = (text(&scratch.images[0]), scratch.at("tiny"), scratch.at("ext4"));
    File::create(&tiny).and_then(|file| file.set_len(40_000)).expect("sparse");
    let file = File::create(&ext4).expect("room");
    file.set_len(1 << 20).and_then(|()| file.write_all_at(&0xef53_u16.to_le_bytes(), 1080)).expect("room");
    let commands =
        [&["check"][..], &["ls"], &["status"], &["filesystem", "show"], &["rescue", "super-recover"]];
    let expect = |path: &str, expected: &str| {
        for words in commands {
            let said = brindle_fails(1, [words, &[path]].concat());
            assert!(said.contains(expected) && said.lines().count() == 1, "{words:?}: {said}");
        }
    };
    expect(
        &tiny,
        "tiny: not a btrfs device, or cut off: it has 40000 bytes, and a superblock lies at 64 KiB",
    );
    expect(&ext4, "ext4: not a btrfs device: it holds an ext2/3/4 filesystem");
    expect(image, "and no copy of a superblock is there: `brindle mkfs` makes a pool on it");
}

#[test]
fn an_image_that_cannot_be_made_is_told_with_the_reason() {
    let scratch = Scratch::new(0);
    let (empty, lost) = (scratch.at("empty"), scratch.at("nowhere/new.img"));
    File::create(&empty).expect("room");
    let said = brindle_fails(1, ["mkfs", &empty]);
    assert!(said.contains("has 0 MiB") && said.contains("; --size SIZE gives the file that size"), "{said}");
    for words in [&["mkfs", &lost][..], &["mkfs", "--size", "1G", &lost]] {
        let said = brindle_fails(1, words);
        let expected = format!("{lost}: there is no directory {}", scratch.at("nowhere"));
        assert!(said.contains(&expected), "{words:?}: {said}");
    }
}

#[test]
fn refusals_of_a_mount_have_their_reason() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new(1);
    let (image, place, text_file) = (text(&scratch.images[0]), scratch.at("m"), scratch.at("text"));
    fs::write(&text_file, "root:x:0:0:root:/root:/bin/bash\n").expect("room");
    brindle_prints(["mkfs", image]);
    brindle_prints(["mount", image, &place]);
    for (code, words, why) in [
        (2, &["filesystem", "label", &place, "a\nb"][..], "'a\\nb': a label has no line breaks"),
        (
            1,
            &["filesystem", "resize", "1:10M", &place],
            "10 MiB are less than the 256 MiB that a device is shrunk to",
        ),
        (
            1,
            &["receive", "-f", &text_file, &place],
            "it is no stream of btrfs send: it begins with \"root:x:0:0:ro\"",
        ),
        (1, &["check", &place], "a directory of a mounted pool: give its devices ("),
        (1, &["check", &place], "; `brindle scrub start` reads and verifies all of a mounted pool"),
        (1, &["ls", &place], "a directory of a mounted pool: give its devices ("),
        (2, &["balance", "start", "-dfoo", &place], "no such filter: there are usage=, devid=, drange="),
        (2, &["scrub", "limit", &place], "no scrub is running"),
    ] {
        let said = brindle_fails(code, words);
        assert!(said.contains(why), "{words:?}: {said}");
    }
    unmount(scratch.directory.path().join("m").as_path());
    let said = brindle_fails(1, ["ls", &place]);
    assert!(
        said.contains("m: a directory: image files or block devices, those of one pool, are needed"),
        "{said}"
    );
}
