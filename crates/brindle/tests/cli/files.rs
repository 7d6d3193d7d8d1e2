//! `ls`, `cat` and `stat` against the manifests of golden images.

use super::support::{Image, brindle, brindle_fails, brindle_prints, with_devices};
use brindle_testing::manifest::{Entry, Kind};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

const TOP: [&str; 2] = ["--subvolid", "5"];

fn with_path(words: &[&str], path: &[u8], image: &Image) -> Vec<PathBuf> {
    let mut arguments = with_devices(words, &image.devices);
    arguments.extend(["--path".into(), OsString::from_vec(path.to_vec()).into()]);
    arguments
}

#[test]
fn ls_lists_every_name() {
    let image = Image::unpack("single");
    let words = [&["-q", "ls", "-R", "-a", "--json"][..], &TOP].concat();
    let listed: Value =
        serde_json::from_str(&brindle_prints(with_devices(&words, &image.devices))).expect("JSON");
    let listed = listed.as_array().expect("a list");
    // The root is in the manifest, and not in its own listing.
    assert_eq!(listed.len(), image.golden.manifest.len() - 1);
    for entry in listed {
        let Some(path) = entry["path"].as_str() else { continue };
        let path = path.trim_start_matches('/');
        let expected = image.golden.manifest.entry(path.as_bytes()).expect("the name is in the manifest");
        assert_eq!(entry["mode"], format!("{:04o}", expected.mode), "{path}");
        assert_eq!(entry["size"], expected.size, "{path}");
        if !expected.has_no_times() {
            assert_eq!(entry["modified"]["seconds"], expected.mtime.sec, "{path}");
        }
    }
}

#[test]
fn ls_of_a_directory_is_sorted_and_hides_dots() {
    let image = Image::unpack("single");
    let text = brindle_prints(with_devices(&["-q", "ls"], &image.devices));
    let names: Vec<&str> = text.lines().collect();
    assert!(names.is_sorted() && !names.is_empty() && names.iter().all(|name| !name.starts_with('.')));
    let long = brindle_prints(with_devices(&["-q", "ls", "-l", "-i"], &image.devices));
    assert_eq!(long.lines().count(), names.len());
}

#[test]
fn cat_writes_what_is_in_the_file() {
    let image = Image::unpack("zstd-levels");
    let is_file = |entry: &&Entry| matches!(entry.kind, Kind::File { .. });
    for entry in image.golden.manifest.entries().filter(is_file).take(40) {
        let output = brindle(with_path(&[&["-q", "cat"][..], &TOP].concat(), &entry.path, &image));
        assert!(output.status.success());
        assert_eq!(Kind::file_of(&output.stdout), entry.kind, "{}", entry.path.escape_ascii());
    }
}

#[test]
fn stat_shows_xattrs_and_targets() {
    let image = Image::unpack("single");
    for entry in image.golden.manifest.entries() {
        let words = [&["-q", "stat", "--json"][..], &TOP].concat();
        if entry.xattrs.is_empty() && !matches!(entry.kind, Kind::Symlink { .. }) {
            continue;
        }
        let json = brindle_prints(with_path(&words, &entry.path, &image));
        let shown: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(shown["xattrs"].as_array().map(Vec::len), Some(entry.xattrs.len()));
        assert_eq!(shown["links"], entry.nlink);
        if let Kind::Symlink { target } = &entry.kind {
            assert_eq!(shown["size"], target.len());
        }
    }
}

#[test]
fn missing_files_are_named_in_errors() {
    let image = Image::unpack("single");
    for command in ["ls", "cat", "stat"] {
        let said = brindle_fails(1, with_path(&["-q", command], b"no/such", &image));
        assert!(said.starts_with("brindle: ") && said.contains("no/such"), "{said}");
    }
    let said = brindle_fails(1, with_devices(&["-q", "cat"], &image.devices));
    assert_eq!(said.lines().count(), 1, "{said}");
    for command in ["ls", "cat", "stat"] {
        let words = [&image.devices[..], &[PathBuf::from("etc/fstab")]].concat();
        let said = brindle_fails(1, with_devices(&["-q", command], &words));
        assert!(said.contains("a path within the pool is given as --path etc/fstab"), "{said}");
    }
    let said = brindle_fails(1, with_devices(&["-q", "ls", "--subvolid", "4711"], &image.devices));
    assert!(said.contains("4711"), "{said}");
    let said = brindle_fails(2, with_devices(&["-q", "ls", "-o", "bogus"], &image.devices));
    assert!(said.contains("unknown option 'bogus'"), "{said}");
}

#[test]
fn a_path_that_leads_nowhere_says_which_part() {
    let image = Image::unpack("single");
    let manifest = &image.golden.manifest;
    let find = |is_it: &dyn Fn(&Kind) -> bool| {
        let named = |entry: &&Entry| is_it(&entry.kind) && std::str::from_utf8(&entry.path).is_ok();
        manifest.entries().filter(named).find(|entry| !entry.path.is_empty()).expect("there is one")
    };
    let says = |path: &[u8], words: &[&str]| {
        let said = brindle_fails(1, with_path(&["-q", "cat", "--subvolid", "5"], path, &image));
        assert!(words.iter().all(|word| said.contains(word)) && said.lines().count() == 1, "{said}");
    };
    let directory = find(&|kind| matches!(kind, Kind::Directory));
    says(&directory.path, &[&String::from_utf8_lossy(&directory.path), "is a directory"]);
    says(b"/", &["brindle: /: is a directory"]);
    let link = find(&|kind| matches!(kind, Kind::Symlink { .. }));
    let below = [&link.path, &b"/x"[..]].concat();
    says(&below, &[&String::from_utf8_lossy(&below), "is a symbolic link, and those are not followed"]);
    let file = find(&|kind| matches!(kind, Kind::File { .. }));
    let below = [&file.path, &b"/x/y"[..]].concat();
    says(&below, &[&format!("{} is not a directory", String::from_utf8_lossy(&file.path))]);
}

#[test]
fn ls_as_json_is_one_document_even_if_empty() {
    let image = Image::unpack("single");
    let is_file = |entry: &&Entry| matches!(entry.kind, Kind::File { .. });
    let file = image.golden.manifest.entries().find(is_file).expect("there is a file");
    let words = [&["-q", "ls", "--json"][..], &TOP].concat();
    let json = brindle_prints(with_path(&words, &file.path, &image));
    assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON").as_array().map(Vec::len), Some(1));
    for name in brindle_testing::golden::names() {
        let image = Image::unpack(&name);
        let words = [&["-q", "ls", "-R", "--json"][..], &TOP].concat();
        let json = brindle_prints(with_devices(&words, &image.devices));
        assert!(serde_json::from_str::<Value>(&json).is_ok_and(|json| json.is_array()), "{name}: {json}");
    }
}

#[test]
fn subvol_and_subvolid_must_agree() {
    let image = Image::unpack("single");
    let ls = |options: &str| brindle(with_devices(&["-q", "ls", "-o", options], &image.devices));
    assert!(ls("subvol=/,subvolid=5").status.success());
    let said = String::from_utf8_lossy(&ls("subvol=/,subvolid=4711").stderr).into_owned();
    assert!(said.contains("subvol=/ is subvolume 5") && said.contains("subvolid=4711"), "{said}");
    let said = brindle_fails(2, with_devices(&["-q", "check", "-o", "subvol=x"], &image.devices));
    assert!(said.contains("not subvol"), "{said}");
}

#[test]
fn verbose_tells_of_devices_and_their_superblocks() {
    let image = Image::unpack("raid1");
    let output = brindle(with_devices(&["-v", "ls"], &image.devices));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(", generation ") && said.contains("devid 2: "), "{said}");
    assert!(said.contains("superblocks: copy 0 generation "), "{said}");
    let quiet = brindle(with_devices(&["ls"], &image.devices));
    assert!(quiet.stderr.is_empty());
}
