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
        assert_eq!(entry["modified"]["seconds"], expected.mtime.sec, "{path}");
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
fn what_is_not_there_is_named() {
    let image = Image::unpack("single");
    for command in ["ls", "cat", "stat"] {
        let said = brindle_fails(1, with_path(&["-q", command], b"no/such", &image));
        assert!(said.starts_with("brindle: ") && said.contains("no/such"), "{said}");
    }
    let said = brindle_fails(1, with_devices(&["-q", "cat"], &image.devices));
    assert_eq!(said.lines().count(), 1, "{said}");
    let said = brindle_fails(1, with_devices(&["-q", "ls", "--subvolid", "4711"], &image.devices));
    assert!(said.contains("4711"), "{said}");
    let said = brindle_fails(1, with_devices(&["-q", "ls", "-o", "bogus"], &image.devices));
    assert!(said.contains("unknown option 'bogus'"), "{said}");
}
