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
    ] {
        let said = brindle_fails(2, words);
        assert!(said.contains("is given twice") && !said.contains("missing"), "{words:?}: {said}");
    }
    assert!(brindle_fails(2, ["balance", "start", a, b]).contains("say which block groups"));
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
    assert!(shown.contains("  ok  not mounted  data"), "{shown}");
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
    let making = ["mkfs", "-d", "raid1", "-m", "raid1"].map(str::to_owned).into_iter().chain(said);
    brindle_succeeds(making);
    let status = |more: &[&str]| {
        brindle_prints(
            [&["tier", "status"], more].concat().iter().copied().chain(words.iter().map(String::as_str)),
        )
    };
    let expected = "Marks of files and limits of small files make no difference: data of profile raid1";
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
        (1, &["--devid", "1", &place, "allocation_hint", "metadata"], "it is one of DATA_PREFERRED"),
        (1, &["--devid", "9", &place, "allocation_hint", "DATA_ONLY"], "no device with the id 9"),
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
    ] {
        let said = brindle_fails(2, words);
        assert!(said.contains(word) && said.contains("unexpected argument"), "{words:?}: {said}");
    }
}
