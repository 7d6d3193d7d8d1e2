//! `inspect` and `filesystem show`, line by line against btrfs-progs.

use super::support::{
    Image, assert_same_lines, brindle, brindle_fails, brindle_prints, btrfs_prints, with_devices,
};
use brindle_testing::golden;
use serde_json::Value;

/// Images that btrfs-progs 6.2 can't open, or takes another device of as the first.
const NOT_COMPARED: [&str; 2] = ["simple-quota", "seed"];

/// Compares what both programs print, less the lines at the top that name the program. False without btrfs-progs.
fn compare(image: &Image, words: &[&str], skipped_lines: usize) -> bool {
    let theirs = [&["inspect-internal"], words].concat();
    let Some(expected) = btrfs_prints(&with_devices(&theirs, &image.devices)) else {
        return false;
    };
    let ours = [&["-q", "inspect"], words].concat();
    let found = brindle(with_devices(&ours, &image.devices)).stdout;
    let rest = |text: &[u8]| -> Vec<u8> {
        text.split_inclusive(|byte| *byte == b'\n').skip(skipped_lines).flatten().copied().collect()
    };
    assert_same_lines(&format!("{} {}", image.golden.name, words.join(" ")), &rest(&expected), &rest(&found));
    true
}

#[test]
fn dumps_are_those_of_btrfs_progs() {
    for name in golden::names().iter().filter(|name| !NOT_COMPARED.contains(&name.as_str())) {
        let image = Image::unpack(name);
        let is_compared = compare(&image, &["dump-super", "-fa"], 0)
            && compare(&image, &["dump-tree", "--csum-headers", "--csum-items"], 1);
        if !is_compared {
            return;
        }
    }
}

#[test]
fn parts_of_dump_tree_are_those_of_btrfs_progs() {
    let image = Image::unpack("node-4k");
    for words in [&["-e"][..], &["-d"], &["-R"], &["-u"], &["-t", "5", "--dfs"], &["-t", "chunk"]] {
        if !compare(&image, &[&["dump-tree"], words].concat(), 1) {
            return;
        }
    }
}

#[test]
fn dump_tree_as_json_has_every_item() {
    let image = Image::unpack("single");
    let text = brindle_prints(with_devices(&["-q", "inspect", "dump-tree"], &image.devices));
    let json = brindle_prints(with_devices(&["-q", "inspect", "dump-tree", "--json"], &image.devices));
    let nodes: Vec<Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect();
    let items: usize = nodes.iter().map(|node| node["items"].as_array().map_or(0, Vec::len)).sum();
    assert_eq!(items, text.lines().filter(|line| line.starts_with("\titem ")).count());
}

#[test]
fn blocks_and_trees_that_are_not_there_are_named() {
    let image = Image::unpack("single");
    let said = brindle_fails(1, with_devices(&["inspect", "dump-tree", "-t", "999"], &image.devices));
    assert!(said.starts_with("brindle: ") && said.contains("no tree 999"), "{said}");
    let said = brindle_fails(1, with_devices(&["inspect", "dump-tree", "-b", "1"], &image.devices));
    assert!(said.contains("not aligned"), "{said}");
    let said = brindle_fails(1, with_devices(&["inspect", "dump-tree", "-b", "4096"], &image.devices));
    assert!(said.contains("4096"), "{said}");
    let said = brindle_fails(2, ["inspect", "dump-tree", "-t", "bogus", "x.img"]);
    assert!(said.contains("no tree is called"), "{said}");
}

#[test]
fn tree_stats_counts_what_dump_tree_shows() {
    let image = Image::unpack("node-4k");
    let json = brindle_prints(with_devices(&["inspect", "tree-stats", "--json", "-t", "fs"], &image.devices));
    let statistics: Value = serde_json::from_str(&json).expect("JSON");
    let dump = brindle_prints(with_devices(&["inspect", "dump-tree", "-t", "fs"], &image.devices));
    let leaves = dump.lines().filter(|line| line.starts_with("leaf ") && line.contains(" items ")).count();
    assert_eq!(statistics["trees"][0]["nodes_on_level"][0], leaves);
    assert_eq!(statistics["trees"][0]["siblings"]["total"], leaves - 1);
    let text = brindle_prints(with_devices(&["inspect", "tree-stats", "-t", "fs"], &image.devices));
    assert!(text.starts_with("Calculating size of fs tree\n") && text.contains("\tSibling distance: "));
}

#[test]
fn filesystem_show_names_every_device() {
    let image = Image::unpack("raid1");
    let mut devices = image.devices.clone();
    devices.reverse();
    let text = brindle_prints(with_devices(&["filesystem", "show", "--raw"], &devices));
    assert!(text.contains("\tTotal devices 2 FS bytes used "), "{text}");
    assert!(text.contains("\tdevid    1 size 134217728 used "), "{text}");
    let text = brindle_prints(with_devices(&["-q", "filesystem", "show"], &image.devices[..1]));
    assert!(text.contains("MISSING") && text.contains("*** Some devices missing"), "{text}");
    let json = brindle_prints(with_devices(&["-q", "filesystem", "show", "--json"], &image.devices[1..]));
    let pool: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(pool["pools"][0]["devices"][0]["missing"], true);
    assert_eq!(pool["pools"][0]["devices"][1]["total_bytes"], 134_217_728);
}

#[test]
fn filesystem_show_tells_of_a_pool_that_cannot_be_read() {
    let image = Image::unpack("raid0");
    let text = brindle_prints(with_devices(&["-q", "filesystem", "show"], &image.devices[..1]));
    assert!(text.contains("\tdevid    1 size 128.00MiB used "), "{text}");
    assert!(text.contains("MISSING"), "{text}");
}

#[test]
fn no_superblock_is_said_in_a_line() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("zeros.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("room");
    let devices = [path];
    let said = brindle_fails(1, with_devices(&["inspect", "dump-super"], &devices));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("no btrfs superblock at offset 65536; use --force"), "{said}");
    brindle_prints(with_devices(&["inspect", "dump-super", "--force"], &devices));
    let said = brindle_fails(1, with_devices(&["inspect", "dump-super"], &["nosuch".into()]));
    assert_eq!(said, "brindle: cannot open nosuch: No such file or directory (os error 2)\n");
}

#[test]
fn filesystem_show_does_without_the_chunk_tree() {
    let image = Image::unpack("single");
    let dump = brindle_prints(with_devices(&["inspect", "dump-tree", "-t", "chunk"], &image.devices));
    let node = dump.lines().find_map(|line| line.strip_prefix("leaf ")).expect("the tree is a leaf");
    let address = node.split(' ').next().expect("its address");
    // Damages every copy of the block, wherever its chunk lies.
    let address: u64 = address.parse().expect("a number");
    let mut bytes = std::fs::read(&image.devices[0]).expect("our own");
    let block = address.to_le_bytes();
    let mut damaged = 0;
    for start in (0..bytes.len() - 4096).step_by(4096) {
        // A block has its address behind checksum and UUID; the superblock has it elsewhere.
        if bytes[start + 48..start + 56] == block && bytes[start + 64..start + 72] != *b"_BHRfS_M" {
            bytes[start + 200] ^= 0xff;
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    std::fs::write(&image.devices[0], bytes).expect("our own");
    let output = brindle(with_devices(&["filesystem", "show"], &image.devices));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("the pool can't be opened"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("\tdevid    1 size "));
}

#[test]
fn sizes_of_missing_devices_come_from_the_chunk_tree_or_are_unknown() {
    for name in ["raid0", "raid1"] {
        let image = Image::unpack(name);
        for device in 0..2 {
            let devices = &image.devices[device..=device];
            let json = brindle_prints(with_devices(&["-q", "filesystem", "show", "--json"], devices));
            let pool: Value = serde_json::from_str(&json).expect("JSON");
            let text = brindle_prints(with_devices(&["-q", "filesystem", "show", "--raw"], devices));
            let missing = pool["pools"][0]["devices"].as_array().expect("a list");
            let missing = missing.iter().find(|device| device["missing"] == true).expect("one is missing");
            assert!(missing["total_bytes"] == 134_217_728 || missing["total_bytes"].is_null(), "{missing}");
            assert_eq!(
                missing["total_bytes"].is_null(),
                text.contains("size unknown used unknown"),
                "{text}"
            );
            assert!(!text.contains("size 0 "), "{text}");
        }
    }
}

#[test]
fn each_warning_is_printed_once() {
    let image = Image::unpack("raid1");
    let device = std::fs::File::options().write(true).open(&image.devices[0]).expect("our own copy");
    std::os::unix::fs::FileExt::write_all_at(&device, b"damage", (64 << 20) + 500).expect("room");
    for words in [&["filesystem", "show"][..], &["ls"], &["-v", "ls"], &["-vv", "filesystem", "show"]] {
        let output = brindle(with_devices(words, &image.devices));
        let said = String::from_utf8_lossy(&output.stderr);
        let message = |line: &str| line.split_once(": ").map(|(_, text)| text.to_owned());
        let warnings: Vec<&str> = said.lines().filter(|line| line.contains("WARN")).collect();
        assert_eq!(warnings.len(), 1, "{said}");
        assert!(message(warnings[0]).is_some());
    }
}

#[test]
fn nothing_is_printed_before_an_error() {
    let image = Image::unpack("single");
    for words in [&["-b", "1"][..], &["-b", "4096"], &["-t", "999"]] {
        let output = brindle(with_devices(&[&["inspect", "dump-tree"], words].concat(), &image.devices));
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{words:?}");
    }
}

#[test]
fn devices_without_a_superblock_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("zeros.img");
    std::fs::write(&path, vec![0; 1 << 20]).expect("room");
    for words in [&["ls"][..], &["check"], &["filesystem", "show"], &["inspect", "dump-tree"]] {
        let said = brindle_fails(1, with_devices(words, std::slice::from_ref(&path)));
        let expected = "zeros.img: not a btrfs device (no superblock magic at 64 KiB)";
        assert!(said.starts_with("brindle: ") && said.contains(expected), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
