//! `restore` of every golden image against its manifest.

use super::support::{Image, brindle, brindle_fails, brindle_prints, is_root, text, with_devices};
use brindle_testing::golden;
use brindle_testing::manifest::{Entry, Kind, Manifest, Time};
use serde_json::Value;
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// More than an inode has room for, but on btrfs and few others.
const TOO_MANY_XATTRS: [&str; 1] = ["deep-tree"];

/// The years that ext4 knows.
const TIMES: RangeInclusive<i64> = -(1 << 31)..=(1 << 34) - (1 << 31) - 1;

/// Manifest without the parts that a copy on the filesystem of the temporary directory can't keep: xattrs of btrfs
/// itself, and times that are far off.
fn without_the_impossible(manifest: &Manifest, original: &Manifest) -> Manifest {
    let without = |entry: &Entry| {
        let mut entry = entry.clone();
        entry.xattrs.retain(|name, _| !name.starts_with(b"btrfs."));
        let original = original.entry(&entry.path).map_or(entry.mtime, |original| original.mtime);
        if !TIMES.contains(&original.sec) {
            entry.mtime = Time { sec: 0, nsec: 0 };
        }
        entry
    };
    manifest.clone().portable().entries().map(without).collect()
}

#[test]
fn every_golden_image_is_restored_as_its_manifest_says() {
    if !is_root("restoring owners and device nodes") {
        return;
    }
    for name in golden::names().into_iter().filter(|name| !TOO_MANY_XATTRS.contains(&name.as_str())) {
        let image = Image::unpack(&name);
        let destination = image.beside("out");
        let mut arguments = with_devices(&["-q", "restore", "--subvolid", "5"], &image.devices);
        arguments.push(destination.clone());
        brindle_prints(arguments);
        // A log is replayed in memory.
        let replayed = image.golden.other_manifest("manifest-replayed").ok();
        let expected = replayed.as_ref().unwrap_or(&image.golden.manifest);
        let found = Manifest::of_directory(&destination).expect("readable");
        let found = without_the_impossible(&found, expected);
        let differences = without_the_impossible(expected, expected).diff(&found);
        assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
    }
}

#[test]
fn attributes_that_the_destination_cannot_hold_are_reported_once_a_file() {
    let image = Image::unpack(TOO_MANY_XATTRS[0]);
    let mut arguments = with_devices(&["-q", "restore", "--subvolid", "5"], &image.devices);
    arguments.push(image.beside("out"));
    let output = brindle(arguments);
    if output.status.success() {
        println!("skipped: the temporary directory's filesystem holds any number of extended attributes");
        return;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().all(|line| line.contains(" extended attributes, the first: ")), "{said}");
    let files: HashSet<&str> =
        said.lines().map(|line| line.rsplit_once(": cannot").expect("a file").0).collect();
    assert_eq!(files.len(), said.lines().count());
}

#[test]
fn existing_files_are_kept_unless_told_otherwise() {
    let image = Image::unpack("raid1");
    let destination = image.beside("out");
    let run = |more: &[&str]| {
        let mut arguments = with_devices(&[&["-q", "restore", "--json"], more].concat(), &image.devices);
        arguments.push(destination.clone());
        let output = brindle(arguments);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), report)
    };
    let (code, first) = run(&[]);
    assert_eq!((code, &first["failures"]), (Some(0), &0.into()));
    let (code, again) = run(&[]);
    assert_eq!(code, Some(1));
    assert!(
        again["failed"][0]["error"]
            .as_str()
            .is_some_and(|error| error.contains("exists, and stays: --overwrite")),
        "{again}"
    );
    let (code, replaced) = run(&["--overwrite"]);
    assert_eq!((code, &replaced["files"]), (Some(0), &first["files"]));
}

#[test]
fn a_single_file_goes_to_a_name_or_into_a_directory() {
    let image = Image::unpack("single");
    let names = brindle_prints(with_devices(&["-q", "ls", "-l"], &image.devices));
    let line = names.lines().find(|line| line.starts_with('-')).expect("there is a file");
    let name = line.split(' ').next_back().expect("a line has words");
    let restore = |destination: &Path| {
        let mut arguments = with_devices(&["-q", "cp", "--path", name], &image.devices);
        arguments.push(destination.to_owned());
        brindle_prints(arguments)
    };
    restore(&image.beside("copy"));
    std::fs::create_dir(image.beside("directory")).expect("new");
    restore(&image.beside("directory"));
    let contents = std::fs::read(image.beside("copy")).expect("restored");
    assert_eq!(std::fs::read(image.beside("directory").join(name)).expect("restored"), contents);
    let output = brindle(with_devices(&["-q", "cat", "--path", name], &image.devices));
    assert_eq!(output.stdout, contents);
}

#[test]
fn a_destination_that_cannot_be_made_is_named() {
    let image = Image::unpack("raid1");
    let mut arguments = with_devices(&["-q", "restore"], &image.devices);
    arguments.push(image.beside("no/such/place"));
    let said = brindle_fails(1, arguments);
    assert!(said.contains(text(&image.beside("no/such/place"))), "{said}");
}

#[test]
fn missing_devices_are_put_up_with_when_asked() {
    let image = Image::unpack("raid1");
    let run = |options: &[&str]| {
        let mut arguments = with_devices(&[&["-q", "restore"], options].concat(), &image.devices[1..]);
        arguments.push(image.beside("out"));
        brindle(arguments)
    };
    let beside = String::from_utf8_lossy(&run(&[]).stderr).into_owned();
    assert!(beside.contains("dev1.img): name all devices of the pool"), "{beside}");
    std::fs::remove_file(&image.devices[0]).expect("it is there");
    let refused = run(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("-o degraded"));
    assert!(run(&["-o", "degraded"]).status.success());
}

#[test]
fn options_may_stand_between_the_devices_and_the_destination() {
    let image = Image::unpack("raid1");
    let destination = image.beside("out");
    let mut arguments = with_devices(&["-q", "cp"], &image.devices);
    arguments.extend(["--path".into(), "/".into(), destination.clone()]);
    brindle_prints(arguments);
    assert!(destination.is_dir());
    let output = brindle(["cp".into(), image.devices[0].clone(), "--path".into(), "/".into()]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Every file that is there must be what the manifest says, byte by byte, and nothing else may be there.
fn assert_only_whole_files(image: &Image, destination: &Path) {
    for entry in Manifest::of_directory(destination).expect("readable").entries() {
        let expected = image.golden.manifest.entry(&entry.path);
        let expected = expected.unwrap_or_else(|| panic!("{} is not ours", entry.path.escape_ascii()));
        if matches!(entry.kind, Kind::File { .. }) {
            assert_eq!(entry.kind, expected.kind, "{}", entry.path.escape_ascii());
        }
    }
}

#[test]
fn a_signal_leaves_whole_files_only() {
    for name in ["single", "zstd-levels", "deep-tree"] {
        let image = Image::unpack(name);
        let destination = image.beside("out");
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.args(["-q", "restore", "--threads", "1", "--subvolid", "5"]).args(&image.devices);
        command.arg(&destination).env_remove("BRINDLE_LOG");
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary was built");
        let directories = || std::fs::read_dir(&destination).map_or(0, Iterator::count);
        while directories() == 0 && child.try_wait().expect("our child").is_none() {
            std::thread::yield_now();
        }
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our child");
        let output = child.wait_with_output().expect("our child");
        let said = String::from_utf8_lossy(&output.stderr);
        // It may have been faster than we were.
        if output.status.code() == Some(143) {
            assert_eq!(
                said.lines().filter(|line| line.starts_with("brindle: interrupted: SIGTERM")).count(),
                1
            );
        } else {
            assert!(output.status.code().is_some() && !said.contains("interrupted"), "{name}: {said}");
        }
        assert_only_whole_files(&image, &destination);
    }
}

/// Number of files below a directory.
fn count_files(directory: &Path) -> usize {
    let below = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => count_files(&entry.path()),
        Ok(_) => 1,
        Err(_) => 0,
    };
    std::fs::read_dir(directory).map_or(0, |entries| entries.flatten().map(below).sum())
}

#[test]
fn copies_that_are_killed_are_gone_on_with_until_they_are_whole() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let [source, image, copy] = ["source", "image", "copy"].map(|name| scratch.path().join(name));
    let mut random = 7_u64;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).expect("31 bits") % below
    };
    for number in 0..400 {
        let directory = source.join((number % 7).to_string());
        std::fs::create_dir_all(&directory).expect("room");
        let length = if number % 40 == 0 { 3 << 20 } else { draw(60_000) };
        let contents: Vec<u8> = (0..length).map(|at| (at * number % 251).to_le_bytes()[0]).collect();
        std::fs::write(directory.join(number.to_string()), contents).expect("room");
    }
    std::fs::hard_link(source.join("0/7"), source.join("1/link")).expect("room");
    brindle_prints(["-q", "mkfs", "--size", "200M", "--rootdir", text(&source), text(&image)]);
    let resume = ["cp", "--json", "--resume", text(&image), text(&copy)];
    let mut killed = 0;
    for _ in 0..8 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_brindle"));
        let mut child = child.args(resume).stdout(Stdio::null()).spawn().expect("the binary was built");
        let enough = count_files(&copy) / 2 + draw(100);
        while count_files(&copy) < enough && child.try_wait().expect("our child").is_none() {
            std::thread::yield_now();
        }
        killed += usize::from(child.try_wait().expect("our child").is_none());
        child.kill().expect("our child");
        child.wait().expect("our child");
    }
    println!("{killed} of 8 were killed at work");
    let report: Value = serde_json::from_str(&brindle_prints(resume)).expect("JSON");
    let count = |report: &Value, name: &str| report[name].as_u64().expect("a number");
    assert_eq!(count(&report, "files") + count(&report, "kept_files"), 400, "{report}");
    let manifest = |place: &Path| Manifest::of_directory(place).expect("readable");
    let differences = manifest(&source).diff(&manifest(&copy));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let again: Value = serde_json::from_str(&brindle_prints(resume)).expect("JSON");
    assert_eq!((count(&again, "files"), count(&again, "kept_files")), (0, 400), "{again}");
}

#[test]
fn a_dry_run_tells_what_would_be_done() {
    let image = Image::unpack("raid1");
    let destination = image.beside("out");
    let run = |words: &[&str]| {
        let mut arguments = with_devices(&[&["-q", "cp", "--json"], words].concat(), &image.devices);
        arguments.push(destination.clone());
        let output = brindle(arguments);
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).expect("JSON"))
    };
    let (code, foreseen) = run(&["--dry-run"]);
    assert_eq!((code, &foreseen["dry_run"]), (Some(0), &true.into()), "{foreseen}");
    assert!(!destination.exists());
    let (_, done) = run(&[]);
    for name in ["files", "directories", "symlinks", "specials", "hard_links", "failures"] {
        assert_eq!(foreseen[name], done[name], "{name}");
    }
    // Extents that were allocated and never written count before, and not after.
    assert!(foreseen["bytes"].as_u64() >= done["bytes"].as_u64(), "{foreseen} {done}");
    assert_eq!(run(&["--dry-run"]).0, Some(1), "all files exist");
    let (code, kept) = run(&["--dry-run", "--resume"]);
    assert_eq!((code, &kept["files"], &kept["kept_files"]), (Some(0), &0.into(), &done["files"]));
    let mut arguments = with_devices(&["cp", "--dry-run", "--overwrite"], &image.devices);
    arguments.push(destination.clone());
    assert!(brindle_prints(arguments).starts_with("would restore "));
    let mut arguments = with_devices(&["cp", "--dry-run"], &image.devices);
    arguments.push(image.beside("no/such/place"));
    assert!(brindle_fails(1, arguments).contains("no/such/place"));
}

#[test]
fn a_full_disk_leaves_whole_files_only() {
    let image = Image::unpack("single");
    let (small, copy) = (image.beside("small"), image.beside("copy"));
    for directory in [&small, &copy] {
        std::fs::create_dir(directory).expect("new");
    }
    let script = "mount -t tmpfs -o size=96k none \"$0\" || exit 77; to=$1; shift; \
                  \"$@\" \"$0\"; code=$?; cp -a \"$0/.\" \"$to\"; exit $code";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).args([&small, &copy]).arg(env!("CARGO_BIN_EXE_brindle"));
    command.args(["-q", "restore", "--subvolid", "5"]).args(&image.devices).env_remove("BRINDLE_LOG");
    let output = command.output().expect("there is unshare");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(1) || !said.contains("brindle: ") {
        println!("skipped: needs a small filesystem: {said}");
        return;
    }
    assert!(said.contains("No space left on device") && said.contains("nothing is left of it"), "{said}");
    assert_only_whole_files(&image, &copy);
}

#[test]
fn hard_links_are_links_again() {
    for name in golden::names() {
        let image = Image::unpack(&name);
        let is_linked = |entry: &&Entry| matches!(entry.kind, Kind::File { .. }) && entry.nlink > 1;
        let linked: Vec<&Entry> = image.golden.manifest.entries().filter(is_linked).collect();
        if linked.is_empty() || TOO_MANY_XATTRS.contains(&name.as_str()) {
            continue;
        }
        let mut arguments =
            with_devices(&["-q", "restore", "--overwrite", "--subvolid", "5"], &image.devices);
        arguments.push(image.beside("out"));
        for _ in 0..2 {
            brindle(&arguments);
            let found = Manifest::of_directory(&image.beside("out")).expect("readable");
            for entry in &linked {
                let found = found.entry(&entry.path).expect("restored");
                assert_eq!((found.nlink, &found.kind), (entry.nlink, &entry.kind), "{name}");
            }
        }
        return;
    }
    panic!("no golden image has hard links");
}

#[test]
fn device_nodes_are_left_out_for_an_ordinary_user() {
    let has_device = |entry: &Entry| matches!(entry.kind, Kind::Char { .. } | Kind::Block { .. });
    let names = golden::names();
    let image = names.iter().map(|name| Image::unpack(name));
    let image = image.into_iter().find(|image| image.golden.manifest.entries().any(has_device));
    let image = image.expect("a golden image has device nodes");
    let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
    if is_root("becoming an ordinary user") {
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        for path in image.devices.iter().map(PathBuf::as_path).chain(image.devices[0].parent()) {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(path, mode).expect("our own");
        }
    }
    command.args(["restore", "--json", "--subvolid", "5"]).args(&image.devices).arg(image.beside("out"));
    let Ok(output) = command.env_remove("BRINDLE_LOG").output() else {
        println!("skipped: others can't reach the binary");
        return;
    };
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let notes = report["notes"].to_string();
    assert!(notes.contains("device nodes are left out"), "{notes}");
    assert!(!report["failed"].to_string().contains("special file"), "{report}");
}

#[test]
fn quiet_means_no_summary() {
    let image = Image::unpack("raid1");
    let mut arguments = with_devices(&["-q", "restore"], &image.devices);
    arguments.push(image.beside("out"));
    assert_eq!(brindle_prints(&arguments), "");
    arguments[0] = "restore".into();
    arguments.remove(1);
    arguments.push("--overwrite".into());
    assert!(brindle_prints(&arguments).starts_with("restored "));
}
