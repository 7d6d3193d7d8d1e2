//! Placement by the command line: classes, hints, tiers, and reports of them.

use super::mount::unmount;
use super::support::{brindle_fails, brindle_prints, brindle_succeeds, text};
use std::path::{Path, PathBuf};

/// Two disks and an SSD, as image files.
struct Pool {
    directory: tempfile::TempDir,
    devices: Vec<PathBuf>,
}

impl Pool {
    fn make(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let devices: Vec<PathBuf> =
            ["disk1", "disk2", "ssd"].iter().map(|name| directory.path().join(name)).collect();
        std::fs::create_dir(directory.path().join("place")).expect("new");
        let mut words: Vec<String> = ["-q", "mkfs", "--size", "512M"].map(str::to_owned).into();
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        for (device, class) in devices.iter().zip(["bulk", "bulk", "fast"]) {
            words.push(format!("{}:{class}", text(device)));
        }
        brindle_prints(words);
        Self { directory, devices }
    }

    fn place(&self) -> PathBuf {
        self.directory.path().join("place")
    }

    fn mount(&self, options: &str, classes: [&str; 3]) {
        let mut words: Vec<String> = ["-q", "mount", "-o", options].map(str::to_owned).into();
        words.extend(
            self.devices.iter().zip(classes).map(|(device, class)| format!("{}{class}", text(device))),
        );
        words.push(text(&self.place()).to_owned());
        brindle_prints(words);
    }

    fn unmount(&self) {
        unmount(&self.place());
    }

    fn usage(&self) -> String {
        brindle_prints(["filesystem", "usage", text(&self.place())])
    }
}

fn can_mount() -> bool {
    let is_there = Path::new("/dev/fuse").exists();
    if !is_there {
        println!("skipped: needs /dev/fuse");
    }
    is_there
}

#[test]
fn s0_13_the_mode_is_shown_back() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(&["-d", "single", "-m", "dup"]);
    for (option, shown) in [
        ("rw", "placement: ssd_metadata\n"),
        ("ssd_metadata", "placement: ssd_metadata\n"),
        ("ssd_metadata=strict", "placement: ssd_metadata=strict\n"),
    ] {
        pool.mount(option, [""; 3]);
        let usage = pool.usage();
        assert!(usage.contains(shown), "{option}: {usage}");
        assert!(usage.contains("Metadata,DUP on fast devices: Size:"), "{usage}");
        pool.unmount();
    }
    // Changed while it is mounted.
    pool.mount("rw", [""; 3]);
    let place = pool.place();
    for mode in ["ssd_metadata=strict", "no_ssd_metadata", "ssd_metadata"] {
        brindle_prints(["property", "set", text(&place), "placement", mode]);
        let shown = brindle_prints(["property", "get", text(&place), "placement"]);
        assert_eq!(shown, format!("placement={mode}\n"));
    }
    let said = brindle_fails(2, ["property", "set", text(&place), "placement", "soft"]);
    assert!(said.contains("ssd_metadata=strict"), "{said}");
    pool.unmount();
    pool.mount("no_ssd_metadata", [""; 3]);
    let json = brindle_prints(["filesystem", "usage", "--json", text(&pool.place())]);
    assert!(json.contains("\"placement\": \"no_ssd_metadata\""), "{json}");
    assert!(!pool.usage().contains("on fast devices"), "it makes no difference");
    pool.unmount();
}

#[test]
fn a_class_may_be_told_for_one_mount() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(&["-d", "single", "-m", "single"]);
    pool.mount("rw", [":fast", "", ":bulk"]);
    let usage = pool.usage();
    assert!(
        usage.contains("devid 1: ") && usage.lines().any(|line| line == "devid 1: bulk (METADATA_PREFERRED)"),
        "{usage}"
    );
    assert_eq!(usage.lines().filter(|line| line.starts_with("devid ") && line.contains(": fast")).count(), 1);
    pool.unmount();
    pool.mount("rw", [""; 3]);
    assert!(pool.usage().lines().any(|line| line.starts_with("devid 1: fast")));
    pool.unmount();
    let said = brindle_fails(2, ["mount", &format!("{}:slow", text(&pool.devices[0])), text(&pool.place())]);
    assert!(said.contains("neither fast nor bulk"), "{said}");
}

#[test]
fn hints_are_shown_and_set_on_devices_and_on_mounts() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(&["-d", "single", "-m", "dup"]);
    let [disk1, disk2, ssd] = [0, 1, 2].map(|number| text(&pool.devices[number]));
    let get = |path: &str| brindle_prints(["property", "get", path, "allocation_hint"]);
    let line =
        |devid, path: &str, hint: &str| format!("devid={devid}, path={path}: allocation_hint={hint}\n");
    assert_eq!(get(ssd), line(1, ssd, "METADATA_PREFERRED"));
    assert_eq!(get(disk1), line(2, disk1, "DATA_PREFERRED"));
    // The whole pool is needed.
    let said = brindle_fails(1, ["-q", "property", "set", disk1, "allocation_hint", "DATA_ONLY"]);
    assert!(said.contains("-o device=PATH"), "{said}");
    let others = format!("device={disk2},device={ssd}");
    brindle_prints(["-q", "property", "set", "-o", &others, disk1, "allocation_hint", "DATA_ONLY"]);
    assert_eq!(get(disk1), line(2, disk1, "DATA_ONLY"));
    let said = brindle_fails(2, ["-q", "property", "set", "-o", &others, disk1, "allocation_hint", "WARM"]);
    assert!(said.contains("METADATA_ONLY"), "{said}");

    pool.mount("rw", [""; 3]);
    let place = pool.place();
    brindle_prints(["property", "set", "--devid", "1", text(&place), "allocation_hint", "metadata-only"]);
    // A device that is in use is found where it is mounted.
    brindle_prints(["-q", "property", "set", disk2, "allocation_hint", "NO_NEW_CHUNKS"]);
    let all = [line(1, ssd, "METADATA_ONLY"), line(2, disk1, "DATA_ONLY"), line(3, disk2, "NO_NEW_CHUNKS")];
    assert_eq!(get(text(&place)), all.concat());
    let one = brindle_prints(["property", "get", "--devid", "3", text(&place), "allocation_hint"]);
    assert_eq!(one, all[2]);
    brindle_fails(1, ["property", "get", "--devid", "9", text(&place), "allocation_hint"]);
    brindle_fails(2, ["property", "set", text(&place), "allocation_hint", "DATA_ONLY"]);
    pool.unmount();
    assert_eq!([ssd, disk1, disk2].map(get), all);
    brindle_prints(["-q", "check", disk1, disk2, ssd]);
}

#[test]
fn a_device_that_is_missing_has_a_hint_too() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(&["-d", "raid1", "-m", "raid1"]);
    let [disk1, disk2, ssd] = [0, 1, 2].map(|number| text(&pool.devices[number]));
    let get = |options: &str, path: &str| {
        brindle_prints(["-q", "property", "get", "--devid", "3", "-o", options, path, "allocation_hint"])
    };
    let away = pool.directory.path().join("away");
    std::fs::rename(disk2, &away).expect("the same directory");
    let set = ["-q", "property", "set", "--devid", "3"];
    let rest = [ssd, "allocation_hint", "DATA_ONLY"];
    let others = format!("device={disk1}");
    let said = brindle_fails(1, [&set[..], &["-o", &others], &rest].concat());
    assert!(said.contains("-o degraded"), "{said}");
    let others = format!("degraded,device={disk1}");
    brindle_prints([&set[..], &["-o", &others], &rest].concat());
    assert_eq!(get(&others, ssd), "devid=3, path=missing: allocation_hint=DATA_ONLY\n");

    let place = pool.place();
    brindle_prints(["-q", "mount", "-o", "degraded", ssd, disk1, text(&place)]);
    brindle_prints([&set[..], &[text(&place), "allocation_hint", "NO_NEW_CHUNKS"]].concat());
    assert_eq!(get("rw", text(&place)), "devid=3, path=missing: allocation_hint=NO_NEW_CHUNKS\n");
    let usage = pool.usage();
    let shown = usage.lines().find(|line| line.starts_with("devid 3: ")).unwrap_or_default();
    assert!(shown.ends_with(": missing (NO_NEW_CHUNKS)"), "{usage}");
    pool.unmount();

    // It has missed something; reading all of the pool finds the hints in it.
    std::fs::rename(&away, disk2).expect("the same directory");
    let found = get(&format!("{others},device={disk2}"), ssd);
    assert_eq!(found, format!("devid=3, path={disk2}: allocation_hint=NO_NEW_CHUNKS\n"));
}

/// The document that a command prints, with its header.
fn json(words: &[&str]) -> serde_json::Value {
    let document: serde_json::Value = serde_json::from_str(&brindle_prints(words)).expect("JSON");
    assert_eq!(document["__header"]["version"], "1", "{document}");
    document
}

#[test]
fn a_mark_outside_of_pools_is_warned_of() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path();
    if rustix::fs::setxattr(path, "user.brindle.test", b"1", rustix::fs::XattrFlags::empty()).is_err() {
        println!("skipped: needs a temporary directory with extended attributes");
        return;
    }
    for (property, value) in [("small_files", "64K"), ("tier", "fast"), ("tier", "bulk")] {
        let output = brindle_succeeds(["property", "set", text(path), property, value]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(&format!("{} is on no mounted btrfs", text(path))), "{property}: {said}");
    }
    let output = brindle_succeeds(["property", "set", text(path), "tier", ""]);
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn tiers_are_properties_of_files_and_of_the_pool() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make(&["-d", "single", "-m", "dup"]);
    pool.mount("rw", [""; 3]);
    let place = pool.place();
    let fast = place.join("fast");
    std::fs::create_dir(&fast).expect("room");
    brindle_prints(["property", "set", text(&fast), "tier", "fast"]);
    std::fs::write(fast.join("large"), vec![7; 4 << 20]).expect("room");
    assert_eq!(brindle_prints(["property", "get", text(&fast.join("large")), "tier"]), "tier=fast\n");
    brindle_fails(2, ["property", "set", text(&fast), "tier", "warm"]);
    brindle_prints(["property", "set", text(&place), "small_files", "64K"]);
    assert_eq!(brindle_prints(["property", "get", text(&place), "small_files"]), "small_files=65536\n");
    brindle_prints(["filesystem", "sync", text(&place)]);
    let usage = pool.usage();
    let line = usage.lines().find(|line| line.contains("Data,single on fast devices"));
    assert!(line.is_some_and(|line| line.contains("Used:4.00MiB")), "{usage}");
    assert!(usage.contains("files up to 64.00KiB"), "{usage}");
    // A directory may have a limit of its own.
    let own = place.join("own");
    brindle_prints(["-q", "subvolume", "create", text(&own)]);
    brindle_prints(["property", "set", text(&own), "small_files", "1M"]);
    assert_eq!(brindle_prints(["property", "get", text(&own), "small_files"]), "small_files=1048576\n");
    std::fs::write(own.join("file"), vec![7; 1 << 20]).expect("room");
    let shown = brindle_prints(["tier", "where", text(&own.join("file"))]);
    assert!(shown.contains("small files"), "{shown}");
    assert_eq!(brindle_prints(["property", "get", text(&place), "small_files"]), "small_files=65536\n");
    let all = brindle_prints(["property", "get", text(&own)]);
    assert!(all.contains("small_files=1048576"), "{all}");
    brindle_prints(["property", "set", text(&own), "small_files", "0"]);
    assert_eq!(brindle_prints(["property", "get", text(&own), "small_files"]), "small_files=0\n");
    brindle_prints(["property", "set", text(&own), "small_files", ""]);
    assert_eq!(brindle_prints(["property", "get", text(&own), "small_files"]), "");
    brindle_fails(2, ["property", "set", text(&own), "small_files", "many"]);
    let shown = json(&["property", "get", "--json", text(&place)]);
    let properties = &shown["properties"];
    assert_eq!(
        (&properties["small_files"], &properties["placement"]),
        (&"65536".into(), &"ssd_metadata".into()),
        "{shown}"
    );
    assert_eq!(shown["devices"].as_array().map(Vec::len), Some(3), "{shown}");
    assert_eq!(shown["devices"][0]["devid"], 1, "{shown}");
    let of_one = json(&["property", "get", "--json", text(&fast), "tier"]);
    assert_eq!(
        (&of_one["properties"]["tier"], &of_one["path"]),
        (&"fast".into(), &text(&fast).into()),
        "{of_one}"
    );
    assert_eq!(json(&["--format", "json", "filesystem", "label", text(&place)])["label"], "");
    let listed = json(&["property", "list", "--json", text(&fast)]);
    assert_eq!(listed["properties"][0]["name"], "compression", "{listed}");
    brindle_prints(["property", "set", text(&fast), "tier", ""]);
    assert_eq!(brindle_prints(["property", "get", text(&fast), "tier"]), "");
    pool.unmount();
    pool.mount("rw", [""; 3]);
    assert_eq!(brindle_prints(["property", "get", text(&place), "small_files"]), "small_files=65536\n");
    pool.unmount();
    // A directory that nothing is mounted on takes attributes too, where its filesystem has them.
    if rustix::fs::setxattr(&place, "user.probe", b"", rustix::fs::XattrFlags::empty()).is_ok() {
        for words in [["tier", "fast"], ["small_files", "64K"]] {
            let said = brindle_succeeds(["property", "set", text(&place), words[0], words[1]]).stderr;
            let said = String::from_utf8_lossy(&said);
            assert!(said.contains("is on no mounted btrfs"), "{said}");
        }
    }
}

/// The classes of four images in a directory, the fastest first, and what to say of each.
const NAMES: [&str; 4] = ["nvme", "ssd", "disk", "smr"];

/// Makes a pool of four classes; its devices.
fn make_with_classes(directory: &Path, name: &str, more: &[&str]) -> Vec<String> {
    let images = NAMES.map(|class| text(&directory.join(format!("{name}-{class}"))).to_owned());
    // Not in the order of their ranks.
    let words = [2, 0, 3, 1].map(|rank| format!("{}:{}", images[rank], NAMES[rank]));
    let options =
        ["-q", "mkfs", "--size", "512M", "-d", "single", "-m", "single", "--fast", "nvme,ssd", "--bulk"];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    brindle_prints([&options[..], &["disk,smr"], more, &words].concat());
    images.to_vec()
}

/// Asserts that each class has a marked file, and metadata is on the fastest.
fn assert_sorted(images: &[String]) {
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    let report = brindle_prints([&["tier", "status", "--json"], &images[..]].concat());
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    for (class, name) in report["files"]["marked_by_class"].as_array().expect("a list").iter().zip(NAMES) {
        assert_eq!((&class["class_name"], &class["wrong_bytes"]), (&name.into(), &0.into()), "{report}");
    }
    for device in report["devices"].as_array().expect("a list") {
        let has_metadata = device["metadata_bytes"].as_u64() > Some(0);
        assert_eq!(has_metadata, device["rank"] == 0, "{device}");
        assert!(device["data_bytes"].as_u64() > Some(0), "a marked file lies on each: {device}");
    }
    brindle_prints([&["check", "--check-data-csum"], &images[..]].concat());
}

#[test]
fn files_come_to_the_classes_of_their_marks_when_a_pool_is_filled_and_when_they_are_received() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let tree = directory.path().join("tree");
    for name in NAMES {
        let path = tree.join("all").join(name);
        std::fs::create_dir_all(path.parent().expect("one")).expect("room");
        std::fs::write(&path, vec![7; 3 << 20]).expect("room");
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, "user.brindle.tier", name.as_bytes(), flags).expect("room");
    }
    let filled = make_with_classes(directory.path(), "filled", &["--rootdir", text(&tree), "-u", "ro:all"]);
    let listed = brindle_prints(
        [&["tier", "class", "list", "--json"], &filled.iter().map(String::as_str).collect::<Vec<_>>()[..]]
            .concat(),
    );
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    for (rank, class) in listed["classes"].as_array().expect("a list").iter().enumerate() {
        assert_eq!((&class["name"], &class["devids"]), (&NAMES[rank].into(), &serde_json::json!([rank + 1])));
    }
    assert_sorted(&filled);
    let stream = directory.path().join("stream");
    let words = [
        vec!["-q", "send", "-f", text(&stream), "--path", "all"],
        filled.iter().map(String::as_str).collect(),
    ];
    brindle_prints(words.concat());
    let received = make_with_classes(directory.path(), "received", &[]);
    let words = [vec!["receive", "-f", text(&stream)], received.iter().map(String::as_str).collect()];
    brindle_prints(words.concat());
    assert_sorted(&received);
    // By its path and by its id.
    let pair = format!("{}=ssd", filled[0]);
    let words = ["tier", "class", "set", "--device", &pair, "--device", "1=nvme"];
    let words = [&words[..], &filled.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    assert!(brindle_fails(2, words).contains("devid 1 is given a class twice"));
    let words = ["mkfs", "-f", "--fast", "nvme,nvme", &filled[0]];
    assert!(brindle_fails(2, words).contains("class nvme is listed twice"));
    let unknown = format!("{}:tape", filled[0]);
    let said = brindle_fails(2, ["mkfs", "-f", "--fast", "nvme", &unknown]);
    assert!(said.contains("nor a class that is listed"), "{said}");
}
