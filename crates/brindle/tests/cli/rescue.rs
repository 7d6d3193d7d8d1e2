//! Damage beyond redundancy: what the commands say, and what they go on with.

use super::mount::{can_mount, unmount};
use super::support::{brindle, brindle_fails, brindle_prints, text};
use brindle_ondisk::{Logical, RootId};
use brindle_testing::damage::Victim;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes the devices of a damaged pool to files.
fn unpack(victim: &Victim, directory: &Path) -> Vec<PathBuf> {
    let write = |image: &brindle_testing::golden::SparseImage| {
        let path = directory.join(format!("dev{}.img", image.devid()));
        image.write_to(&path).expect("room for the image");
        path
    };
    victim.images().iter().map(write).collect()
}

/// A pool whose last root tree is lost.
fn without_root_tree(directory: &Path) -> PathBuf {
    let mut victim = Victim::load("dup");
    let root = victim.superblock().root;
    victim.back_up_roots(root + (1 << 20));
    victim.edit_block_raw(root, |bytes| bytes.fill(0));
    unpack(&victim, directory).remove(0)
}

#[test]
fn an_older_commit_is_offered_shown_checked_and_mounted() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let image = without_root_tree(directory.path());
    let image = text(&image);
    let said = brindle_fails(1, ["ls", image]);
    assert!(said.contains("can be read: -o ro,rescue=usebackuproot"), "{said}");
    let status = brindle(["status", "-v", image]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    let advice = format!("`brindle mount -o ro,rescue=usebackuproot {image} DIR`");
    assert!(status.contains(&advice) && !status.contains("attach"), "{status}");
    let listed = brindle(["ls", "-o", "rescue=usebackuproot", image]);
    let warned = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success() && warned.contains("by a backup root"), "{warned}");
    brindle_prints(["-q", "ls", "-o", "usebackuproot", image]);
    let checked = brindle(["-q", "check", "-o", "rescue=usebackuproot", image]);
    let found = String::from_utf8_lossy(&checked.stdout);
    assert!(found.contains("is examined, by a backup root"), "{found}");
    let said = brindle_fails(2, ["check", "-o", "rescue=all", image]);
    assert!(said.contains("check takes usebackuproot"), "{said}");
    assert!(brindle_prints(["-q", "inspect", "dump-tree", "-t", "chunk", image]).contains("CHUNK_ITEM"));
    let dumped = brindle_prints(["-q", "inspect", "dump-tree", "-o", "usebackuproot", "-t", "fs", image]);
    assert!(dumped.contains("INODE_ITEM"), "{dumped}");
    let place = directory.path().join("place");
    fs::create_dir(&place).expect("new");
    let said = brindle_fails(2, ["mount", "-o", "rescue=usebackuproot", image, text(&place)]);
    assert!(said.contains("go with 'ro' only"), "{said}");
    if can_mount() {
        brindle_prints(["-q", "mount", "-o", "ro,rescue=usebackuproot", image, text(&place)]);
        let names = fs::read_dir(&place).expect("a mount").count();
        let written = fs::write(place.join("new"), b"");
        unmount(&place);
        assert!(names > 0 && written.is_err());
    }
}

/// The first block of a tree.
fn root_of(victim: &Victim, tree: RootId) -> Logical {
    let of_tree = victim.blocks().iter().filter(|block| block.tree == tree);
    of_tree.max_by_key(|block| block.level).expect("the pool has it").at
}

/// A pool without a tree that is written with the files.
fn without_checksums(directory: &Path) -> PathBuf {
    let mut victim = Victim::load("single");
    let root = root_of(&victim, RootId::CSUM_TREE);
    victim.edit_block_raw(root, |bytes| bytes.fill(0));
    unpack(&victim, directory).remove(0)
}

#[test]
fn a_tree_that_is_lost_is_told_of_by_status_and_at_the_mount() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let image = without_checksums(directory.path());
    let image = text(&image);
    let told = brindle(["status", "-v", image]);
    let said = String::from_utf8_lossy(&told.stdout);
    assert_eq!(told.status.code(), Some(3), "{said}");
    assert!(said.contains("the CSUM_TREE can't be read: "), "{said}");
    assert!(said.contains("brindle restore -o rescue=all"), "{said}");
    let place = directory.path().join("place");
    fs::create_dir(&place).expect("new");
    let said = brindle_fails(1, ["mount", "-o", "rw", image, text(&place)]);
    assert!(said.contains("can't be written without its CSUM_TREE: "), "{said}");
    if can_mount() {
        for options in ["noatime", "ro"] {
            let mounted = brindle(["mount", "-o", options, image, text(&place)]);
            let said = String::from_utf8_lossy(&mounted.stderr);
            let written = fs::write(place.join("new"), b"");
            unmount(&place);
            assert!(written.is_err(), "{options}");
            assert!(said.contains("CSUM_TREE") && said.contains("-o ro,rescue=all"), "{said}");
        }
    }
}

#[test]
fn a_pool_without_its_device_tree_is_mounted_to_be_read() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut victim = Victim::load("single");
    let root = root_of(&victim, RootId::DEV_TREE);
    victim.edit_block_raw(root, |bytes| bytes.fill(0));
    let image = unpack(&victim, directory.path()).remove(0);
    let place = directory.path().join("place");
    fs::create_dir(&place).expect("new");
    let mounted = brindle(["mount", text(&image), text(&place)]);
    let names = fs::read_dir(&place).map(Iterator::count);
    unmount(&place);
    let said = String::from_utf8_lossy(&mounted.stderr);
    assert!(said.contains("mounting read-only: ") && said.contains("-o ro,rescue=all"), "{said}");
    assert!(mounted.status.success() && names.is_ok_and(|names| names > 0));
}

#[test]
fn commands_that_meet_damage_name_the_words_that_read_what_is_left() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut victim = Victim::load("single");
    let root = root_of(&victim, RootId::FS_TREE);
    victim.edit_block_raw(root, |bytes| bytes.fill(0));
    let image = unpack(&victim, directory.path()).remove(0);
    let (image, copy) = (text(&image), directory.path().join("copy"));
    let advice = "-o rescue=all may read what is left";
    for words in [&["ls"][..], &["restore"], &["inspect", "tree-stats"]] {
        let operands = [image, text(&copy)];
        let count = if words == ["restore"] { 2 } else { 1 };
        let said = brindle_fails(1, words.iter().chain(&operands[..count]).copied());
        assert!(said.contains(advice), "{words:?}: {said}");
        assert!(said.contains("rescue=all:usebackuproot takes an older commit"), "{words:?}: {said}");
    }
    let said = brindle_fails(1, ["ls", "-o", "rescue=all", image]);
    assert!(!said.contains("may read what is left"), "{said}");
    let checked = brindle(["check", image]);
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(said.contains("brindle mount -o ro,rescue=all"), "{said}");
}

#[test]
fn words_of_a_rescue_are_those_of_the_kernel() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let image = unpack(&Victim::load("single"), directory.path()).remove(0);
    for words in
        ["all", "ibadroots:idatacsums", "ignoremetacsums", "isuperflags", "nologreplay:usebackuproot"]
    {
        brindle_prints(["-q", "ls", "-o", &format!("rescue={words}"), text(&image)]);
    }
    let said = brindle_fails(2, ["ls", "-o", "rescue=all:more", text(&image)]);
    assert!(said.contains("'more' is none of"), "{said}");
}

#[test]
fn files_with_bad_copies_are_named_and_those_that_are_lost() {
    let directory = tempfile::tempdir().expect("temporary directory");
    for (image, is_lost) in [("single", true), ("raid1", false)] {
        let mut victim = Victim::load(image);
        let (path, sector) = victim_file(image);
        let place = victim.copies(sector)[0];
        let mut bytes = victim.read(sector, 4096);
        bytes[7] ^= 1;
        let device = victim.images_mut().iter_mut().find(|device| device.devid() == place.devid);
        device.expect("the pool has it").write_at(place.physical, &bytes).expect("within");
        let folder = directory.path().join(image);
        fs::create_dir(&folder).expect("new");
        let devices = unpack(&victim, &folder);
        let words = ["-q", "check", "--check-data-csum", "--json"].into_iter();
        let checked = brindle(words.chain(devices.iter().map(|device| text(device))));
        let report: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
        let [file] = report["files"].as_array().expect("a list").as_slice() else { panic!("{report}") };
        assert_eq!((&file["path"], &file["lost"]), (&format!("/{path}").into(), &is_lost.into()), "{report}");
        let words = ["-q", "check", "--check-data-csum"].into_iter();
        let checked = brindle(words.chain(devices.iter().map(|device| text(device))));
        let said = String::from_utf8_lossy(&checked.stdout);
        let list = folder.join("lost");
        let words = ["-q", "check", "--check-data-csum", "--damaged-files", text(&list)].into_iter();
        brindle(words.chain(devices.iter().map(|device| text(device))));
        let expected = if is_lost { format!("{path}\0") } else { String::new() };
        assert_eq!(fs::read_to_string(&list).expect("a list"), expected);
        let copied = folder.join("restored");
        let words = ["-q", "restore", "--damaged-files", text(&list)].into_iter();
        let operands = devices.iter().map(|device| text(device)).chain([text(&copied)]);
        brindle(words.chain(operands));
        assert_eq!(fs::read_to_string(&list).expect("a list"), expected);
        brindle_fails(2, ["check", "--damaged-files", text(&list), text(&devices[0])]);
        let state = if is_lost { "lost there" } else { "whole by another copy" };
        assert!(said.contains(&format!("/{path} at 0: {state}")), "{said}");
    }
}

/// A file of an image that is not compressed, and the address of its first sector.
fn victim_file(image: &str) -> (&'static str, Logical) {
    use brindle_ondisk::item::FileExtent;
    use brindle_ondisk::{Item, KeyType, ObjectId};
    const PATH: &str = "sizes/4097";
    let victim = Victim::load(image);
    let golden = brindle_testing::golden::Golden::load(image);
    let inode = golden.manifest.entry(PATH.as_bytes()).and_then(|entry| entry.ino).expect("it is there");
    for leaf in victim.leaves(RootId::FS_TREE) {
        for item in victim.leaf_items(leaf.at) {
            let is_it =
                item.key.objectid == ObjectId::new(inode) && item.key.item_type == KeyType::EXTENT_DATA;
            if let Ok(Item::FileExtent(FileExtent::OnDisk { extent, .. })) =
                Item::parse(&item.key, &item.data)
            {
                if is_it {
                    return (PATH, extent.disk_bytenr);
                }
            }
        }
    }
    panic!("{image} has {PATH} on disk");
}
