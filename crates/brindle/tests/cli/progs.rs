//! The words of btrfs-progs side by side with btrfs-progs: the same questions to the same pool, mounted by the kernel; then to the
//! pool on its devices, and to a mount of brindle.

use super::mount::{can_mount, unmount};
use super::support::{
    Loops, assert_same_lines, both_print, brindle, brindle_fails, brindle_prints, is_root, text,
};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A pool of two disks and an SSD with subvolumes, snapshots and clones.
pub(super) struct Pool {
    directory: TempDir,
    pub(super) images: Vec<PathBuf>,
}

/// The pool while the kernel has it.
pub(super) struct KernelMount {
    pub(super) place: PathBuf,
    devices: Loops,
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it is installed");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Pool {
    pub(super) fn make() -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let images: Vec<PathBuf> =
            ["disk1", "disk2", "ssd"].iter().map(|name| directory.path().join(name)).collect();
        let fast = format!("{}:fast", text(&images[2]));
        let [first, second] = [0, 1].map(|index| format!("{}:bulk", text(&images[index])));
        let words = ["-q", "mkfs", "--size", "1G", "-L", "progs-tank", "-d", "raid1", "-m", "raid1"];
        brindle_prints(words.map(str::to_owned).into_iter().chain([fast, first, second]));
        fs::create_dir(directory.path().join("place")).expect("new");
        Self { directory, images }
    }

    pub(super) fn mount_by_kernel(&self) -> KernelMount {
        let devices = Loops::attach(&self.images, &[]);
        let place = self.directory.path().join("place");
        for device in &devices.0 {
            brindle_prints(["-q", "device", "scan", text(device)]);
        }
        run("mount", &["-t", "btrfs", text(&devices.0[0]), text(&place)]);
        KernelMount { place, devices }
    }

    fn mount(&self) -> PathBuf {
        let place = self.directory.path().join("place");
        let images: Vec<&str> = self.images.iter().map(|image| text(image)).collect();
        brindle_prints([&["-q", "mount"], &images[..], &[text(&place)]].concat());
        place
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.place).status().expect("umount");
        assert!(unmounted.success() || std::thread::panicking());
        for device in &self.devices.0 {
            let _ = brindle(["device", "scan", "--forget", text(device)]);
        }
    }
}

/// Fills it by the words that are tested.
fn fill(place: &Path) {
    let at = |name: &str| text(&place.join(name)).to_owned();
    let made = brindle_prints(["subvolume", "create", "-p", &at("a"), &at("a/p/q/b")]);
    assert_eq!(made, format!("Create subvolume '{}'\nCreate subvolume '{}'\n", at("a"), at("a/p/q/b")));
    brindle_prints(["-q", "subvolume", "create", &at("a/c")]);
    let contents: Vec<u8> = (0..3 << 20_u32).map(|n| u8::try_from(n % 251).expect("small")).collect();
    fs::write(place.join("a/large"), &contents).expect("room");
    fs::write(place.join("a/tiny"), "within the item").expect("room");
    fs::hard_link(place.join("a/large"), place.join("a/p/second name")).expect("room");
    brindle_prints(["filesystem", "sync", text(place)]);
    let made = brindle_prints(["subvolume", "snapshot", "-r", &at("a"), &at("s")]);
    assert_eq!(made, format!("Create a readonly snapshot of '{}' in '{}'\n", at("a"), at("s")));
    brindle_prints(["-q", "subvolume", "snapshot", &at("a"), &at("a/c/t")]);
    fs::write(place.join("a/own"), &contents[..1 << 20]).expect("room");
    run("cp", &["--reflink=auto", &at("a/own"), &at("clone")]);
    brindle_prints(["filesystem", "sync", text(place)]);
}

/// Words that both are asked, with a path below the mount.
const QUESTIONS: &[(&str, &str)] = &[
    ("filesystem usage", ""),
    ("filesystem usage -T", ""),
    ("filesystem usage -b", "a"),
    ("filesystem usage -H", ""),
    ("filesystem usage -T -k", ""),
    ("filesystem usage --si -m", ""),
    ("filesystem df", ""),
    ("filesystem df -b", "a"),
    ("filesystem show", ""),
    ("filesystem show --raw", ""),
    ("filesystem du", ""),
    ("filesystem du -s --raw", "a"),
    ("device usage", ""),
    ("device usage -b", ""),
    ("device stats", ""),
    ("device stats -T", ""),
    ("subvolume list", ""),
    ("subvolume list", "a"),
    ("subvolume list -o", "a"),
    ("subvolume list -a", "a/c"),
    ("subvolume list -apcguqR", ""),
    ("subvolume list -apcguqRt", "a"),
    ("subvolume list -st", ""),
    ("subvolume list -r", ""),
    ("subvolume list -G +8", ""),
    ("subvolume list -C -9", ""),
    ("subvolume list --sort=-rootid,path", ""),
    ("subvolume list -d", ""),
    ("subvolume show", "a"),
    ("subvolume show -r 257", ""),
    ("subvolume get-default", ""),
    ("subvolume find-new", "a"),
    ("property list -ts", "a"),
    ("property list -tf", ""),
    ("inspect-internal rootid", "a/p"),
    ("inspect-internal subvolid-resolve 257", ""),
    ("inspect-internal inode-resolve 257", "a"),
    ("inspect-internal min-dev-size --id 2", ""),
];

/// Lines without those that may differ: blanks at the end, and a time that btrfs-progs 6.2 show of what was never sent; and what
/// brindle adds behind a blank line is left out.
fn comparable(words: &str, output: &[u8], lines: usize) -> Vec<u8> {
    let text = String::from_utf8_lossy(output).into_owned();
    let is_told = |line: &&str| !line.contains("Send time:") && !line.starts_with("WARNING");
    let mut kept: Vec<&str> = text.lines().map(str::trim_end).filter(is_told).collect();
    if words.starts_with("filesystem usage") || words.starts_with("filesystem df") {
        // Parts of classes are indented below the line of a profile.
        kept.retain(|line| !line.starts_with("    fast") && !line.starts_with("    bulk"));
        kept.truncate(lines);
    }
    if words.starts_with("device usage") {
        kept.retain(|line| !line.trim_start().starts_with("Class:"));
    }
    kept.join("\n").into_bytes()
}

fn compare(place: &Path) {
    for (words, below) in QUESTIONS {
        let path = place.join(below);
        let path = if below.is_empty() { place.to_owned() } else { path };
        let mut arguments: Vec<PathBuf> = words.split(' ').map(PathBuf::from).collect();
        arguments.push(path);
        if words.ends_with("find-new") {
            arguments.push("8".into());
        }
        let Some((expected, found)) = both_print(&arguments) else { return };
        let said = String::from_utf8_lossy(&found.stderr);
        assert!(found.status.success(), "{words} {below}: {said}");
        let lines = String::from_utf8_lossy(&expected).lines().count();
        let [expected, found] = [&expected, &found.stdout].map(|output| comparable(words, output, lines));
        assert_same_lines(&format!("{words} {below}"), &expected, &found);
    }
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&brindle_prints(words)).expect("JSON")
}

/// Files that have an address, as the kernel or brindle knows them.
fn files_at(address: &str, places: &[&str]) -> Vec<String> {
    let words = [&["inspect-internal", "logical-resolve", address], places].concat();
    let mut lines: Vec<String> = brindle_prints(words).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn questions_to_a_mount_of_the_kernel_are_answered_as_by_btrfs_progs() {
    if !is_root("a mount of the kernel") {
        return;
    }
    let pool = Pool::make();
    let mount = pool.mount_by_kernel();
    let (place, at) = (mount.place.as_path(), |name: &str| text(&mount.place.join(name)).to_owned());
    fill(place);
    compare(place);
    // Found by its label, by its UUID, and among all.
    for name in [
        "progs-tank",
        json(&["filesystem", "show", "--json", text(place)])["pools"][0]["uuid"].as_str().expect("a UUID"),
    ] {
        assert!(brindle_prints(["-q", "filesystem", "show", name]).contains("'progs-tank'"));
    }
    assert!(brindle_prints(["-q", "fi", "sh", "-m"]).contains("'progs-tank'"));
    assert!(!brindle_prints(["-q", "fi", "sh", "-d"]).contains("'progs-tank'"));
    // An address of the file that is in two snapshots.
    let address = address_of(&at("a/large"));
    let files = files_at(&address, &[text(place)]);
    assert_eq!(
        files,
        ["a/c/t/large", "a/c/t/p/second name", "a/large", "a/p/second name", "s/large", "s/p/second name"]
    );
    let said = brindle_fails(1, ["inspect", "logical-resolve", "12345", text(place)]);
    assert!(said.contains("in no extent of data"), "{said}");
    let found = json(&["tier", "where", "--json", "--fast", "1", "--bulk", "2", "--bulk", "3", &at("a/own")]);
    assert_eq!((&found["files"], &found["total_bytes"]), (&1.into(), &(2 << 20).into()), "{found}");
    balances_are_carried_out_by_the_kernel(place);
    deletions_say_why_not(place);
}

fn balances_are_carried_out_by_the_kernel(place: &Path) {
    assert_eq!(brindle_prints(["balance", "status", text(place)]), "There is no balance.\n");
    let said = brindle_prints(["balance", "start", "-d", "usage=100", text(place)]);
    assert!(said.starts_with("Done: ") && !said.starts_with("Done: 0 "), "{said}");
    let said = brindle_fails(1, ["balance", "start", "-mmisplaced", text(place)]);
    assert!(said.contains("brindle tier apply"), "{said}");
    for what in ["pause", "cancel"] {
        let said = brindle_fails(2, ["balance", what, text(place)]);
        assert!(said.contains("no balance"), "{said}");
    }
}

/// The address of a file's first extent, by the dump of its tree's items.
fn address_of(path: &str) -> String {
    let line = brindle_prints(["subvolume", "find-new", path, "0"]);
    let line = line.lines().find(|line| line.ends_with(" large")).expect("the file is listed").to_owned();
    line.split_once("disk start ").expect("an address").1.split(' ').next().expect("a number").to_owned()
}

fn deletions_say_why_not(place: &Path) {
    let at = |name: &str| text(&place.join(name)).to_owned();
    let refused = |name: &str, reason: &str| {
        let said = brindle_fails(1, ["subvolume", "delete", &at(name)]);
        assert!(said.contains(reason), "{name}: {said}");
    };
    fs::create_dir(place.join("directory")).expect("room");
    refused("", "the top level of a pool can't be deleted");
    refused("directory", "a directory, not a subvolume");
    refused("a", "it holds other subvolumes (a/p/q/b, a/c)");
    refused("nowhere", "there is nothing of that name");
    brindle_prints(["subvolume", "set-default", &at("s")]);
    refused("s", "it is the default subvolume");
    brindle_prints(["subvolume", "set-default", "5", text(place)]);
    let said = brindle_fails(1, ["subvolume", "set-default", "999", text(place)]);
    assert!(said.contains("no subvolume of id 999"), "{said}");
    let said = brindle_fails(1, ["subvolume", "create", &at("directory")]);
    assert!(said.contains("there is something of that name"), "{said}");

    let tried = brindle_prints(["su", "del", "--dry-run", "-R", &at("a")]);
    assert_eq!(tried.matches("(dry run)").count(), 4, "{tried}");
    assert!(place.join("a/c/t").is_dir(), "nothing was done");
    let said = brindle_prints(["su", "del", "-RC", &at("a")]);
    let names: Vec<&str> = said.lines().map(|line| line.rsplit('/').next().expect("a path")).collect();
    assert_eq!(names, ["b'", "t'", "c'", "a'"], "the deepest first");
    let id = json(&["subvolume", "show", "--json", &at("s")])["id"].to_string();
    let said = brindle_prints(["subvolume", "delete", "-c", "-i", &id, text(place)]);
    assert_eq!(said, "Delete subvolume (commit): 's'\n");
    brindle_prints(["subvolume", "sync", text(place)]);
    assert_eq!(brindle_prints(["subvolume", "list", text(place)]), "");
    assert_eq!(brindle_prints(["subvolume", "list", "-d", text(place)]), "");
}

#[test]
fn deleted_subvolumes_are_waited_for_without_the_next_commit() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let (image, place) = (directory.path().join("pool.img"), directory.path().join("place"));
    fs::create_dir(&place).expect("new");
    brindle_prints(["-q", "mkfs", "--size", "512M", text(&image)]);
    // No commit comes by itself before the test is given up.
    brindle_prints(["-q", "mount", "-o", "commit=3000", text(&image), text(&place)]);
    let subvolume = place.join("deleted");
    brindle_prints(["subvolume", "create", text(&subvolume)]);
    fs::write(subvolume.join("file"), "changed since the last commit").expect("room");
    let id = brindle_prints(["inspect-internal", "rootid", text(&subvolume)]);
    brindle_prints(["subvolume", "delete", text(&subvolume)]);
    let said = brindle_prints(["subvolume", "sync", text(&place), id.trim()]);
    assert!(said.contains(&format!("Subvolume id {} is gone (1/1)", id.trim())), "{said}");
    assert_eq!(brindle_prints(["subvolume", "list", "-d", text(&place)]), "");
    unmount(&place);
}

#[test]
fn a_mount_of_brindle_and_devices_answer_as_the_kernel_does() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make();
    let place = pool.mount();
    let at = |name: &str| text(&place.join(name)).to_owned();
    fill(&place);
    let images: Vec<&str> = pool.images.iter().map(|image| text(image)).collect();
    let lists: [&[&str]; 3] = [&["su", "li", "-apcuqR"], &["su", "li", "-t"], &["su", "li", "--sort=-gen"]];
    let address = address_of(&at("a/large"));
    let files = files_at(&address, &[text(&place)]);
    assert_eq!(
        files,
        ["a/c/t/large", "a/c/t/p/second name", "a/large", "a/p/second name", "s/large", "s/p/second name"]
    );
    // The clone and what it was cloned from share all; two snapshots share the large file.
    let du = json(&["fi", "du", "--format", "json", "-s", text(&place)]);
    let sums = &du["files"][0];
    assert_eq!(sums["total_bytes"].as_u64(), Some(3 * (3 << 20) + (2 << 20)), "{du}");
    assert_eq!((&sums["exclusive_bytes"], &sums["set_shared_bytes"]), (&0.into(), &(4 << 20).into()), "{du}");
    // Data of large files is on the disks, and the mark of another one brings it to the SSD.
    let found = json(&["tier", "where", "--json", &at("a/large")]);
    let reasons = |found: &Value| -> Vec<String> {
        let all = found["reasons"].as_array().expect("reasons");
        all.iter()
            .map(|one| format!("{} {} {}", one["class"], one["reason"], one["used_bytes"]).replace('"', ""))
            .collect()
    };
    assert_eq!(reasons(&found), ["bulk data 6291456"]);
    let devices: Vec<&Value> =
        found["devices"].as_array().expect("devices").iter().map(|one| &one["used_bytes"]).collect();
    assert_eq!(devices, [&Value::from(0), &(3 << 20).into(), &(3 << 20).into()]);
    let tiny = json(&["tier", "where", "--json", &at("a/tiny")]);
    assert_eq!((&tiny["total_bytes"], &tiny["inline_bytes"]), (&0.into(), &15.into()));
    assert!(brindle_prints(["tier", "where", text(&place)]).contains("files, "));
    let usage = brindle_prints(["filesystem", "usage", "-b", text(&place)]);
    deletions_say_why_not_but_keep(&place);
    let of_mount = settled(&place, || lists.map(|words| brindle_prints([words, &[text(&place)]].concat())));
    unmount(&place);

    let of_devices = lists.map(|words| brindle_prints([words, &images[..]].concat()));
    assert_eq!(of_mount, of_devices);
    assert_eq!(files_at(&address, &images), files);
    let offline = json(&[&["tier", "where", "--json", "--path", "a/large"], &images[..]].concat());
    assert_eq!((reasons(&offline), &offline["devices"]), (reasons(&found), &found["devices"]));
    // Sizes do not change with the mount.
    let offline = brindle_prints([&["filesystem", "usage", "-b"], &images[..]].concat());
    for name in ["Device size", "Device allocated", "Data ratio", "Data,RAID1", "Metadata,RAID1"] {
        let line = |text: &str| -> String {
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).expect(name);
            line.split(", Used").next().expect("a size").to_owned()
        };
        assert_eq!(line(&usage), line(&offline));
    }
    let listed = brindle_prints([&["inspect-internal", "list-chunks"], &images[..]].concat());
    assert!(listed.contains("Metadata/raid1") && listed.contains("System/raid1"), "{listed}");
    if is_root("a mount of the kernel") {
        let mount = pool.mount_by_kernel();
        compare(&mount.place);
    }
}

/// Answer that is the same after two commits: what the kernel tells of closed files behind the program's back comes with the next.
fn settled<T: PartialEq>(place: &Path, ask: impl Fn() -> T) -> T {
    let answer = || {
        brindle_prints(["filesystem", "sync", text(place)]);
        ask()
    };
    let mut before = answer();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = answer();
        if now == before {
            return now;
        }
        before = now;
    }
}

/// Refusals that leave the pool as it is.
fn deletions_say_why_not_but_keep(place: &Path) {
    for (name, reason) in
        [("", "the top level"), ("a/p", "a directory"), ("a", "other subvolumes (a/p/q/b, a/c)")]
    {
        let said = brindle_fails(1, ["subvolume", "delete", text(&place.join(name))]);
        assert!(said.contains(reason), "{name}: {said}");
    }
}

#[test]
fn an_error_is_json_where_json_was_asked_for() {
    for words in [&["su", "list", "--json", "nowhere"][..], &["--format", "json", "fi", "df", "nowhere"]] {
        let said = brindle_fails(1, words);
        let document: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(document["__header"]["version"], "1");
        assert_eq!(document["error"]["exit_status"], 1);
        assert!(document["error"]["message"].as_str().is_some_and(|text| text.contains("nowhere")), "{said}");
    }
    let said = brindle_fails(2, ["--format", "json", "subvolume", "create", "x"]);
    assert!(said.contains("no output as JSON"), "{said}");
}

#[test]
fn refusals_say_what_may_be_done() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| text(&directory.path().join(name)).to_owned();
    let refused = |code: i32, words: &[&str], reason: &str| {
        let said = brindle_fails(code, words);
        assert!(said.contains(reason), "{words:?}: {said}");
    };
    let mut foreign = vec![0; 1 << 20];
    foreign[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    fs::write(at("ext4"), foreign).expect("room");
    fs::write(at("empty"), "").expect("room");
    fs::write(at("small"), vec![0; 8 << 20]).expect("room");
    refused(1, &["mkfs", &at("new")], "with --size SIZE it is made");
    refused(1, &["mkfs", &at("small")], "has 8 MiB, with these options each device needs at least");
    refused(1, &["ls", &at("ext4")], "it holds an ext2/3/4 filesystem");
    refused(1, &["ls", &at("empty")], "is empty");
    if !can_mount() {
        return;
    }
    let (image, place) = (at("image"), at("place"));
    brindle_prints(["-q", "mkfs", "--size", "256M", &image]);
    fs::create_dir_all(&place).expect("new");
    brindle_prints(["-q", "mount", &image, &place]);
    let inner = at("place/directory");
    fs::create_dir(&inner).expect("room");
    refused(2, &["property", "set", &place, "compression", "lz4"], "compression is zlib, lzo, zstd or none");
    refused(2, &["property", "set", &place, "read_policy", "roundrobbin"], "read_policy is one of ");
    refused(1, &["property", "set", &inner, "ro", "true"], "ro is a property of subvolumes");
    refused(
        1,
        &["property", "set", "--devid", "9", &place, "allocation_hint", "DATA_ONLY"],
        "no device with the id 9",
    );
    refused(2, &["filesystem", "label", &place, &"x".repeat(256)], "255 bytes at most");
    brindle_prints(["property", "set", &place, "label", "named"]);
    assert_eq!(brindle_prints(["property", "get", "-t", "filesystem", &place, "label"]), "label=named\n");
    let listed = brindle_prints(["property", "list", "-t", "inode", &inner]);
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["compression", "tier", "small_files"]);
    unmount(Path::new(&place));
}

/// Receives a snapshot, and makes it writable.
fn make_received_writable(place: &Path, receive: &[&str], directory: &Path) {
    let at = |name: &str| text(&place.join(name)).to_owned();
    let stream = text(&directory.join("stream")).to_owned();
    let received_uuid = |path: &str| {
        let shown = brindle_prints(["subvolume", "show", path]);
        let line = shown.lines().find(|line| line.contains("Received UUID")).expect("shown").to_owned();
        line.split_whitespace().last().expect("a value").to_owned()
    };
    brindle_prints(["-q", "subvolume", "create", &at("live")]);
    fs::write(place.join("live/file"), "of the stream").expect("room");
    brindle_prints(["-q", "subvolume", "snapshot", "-r", &at("live"), &at("kept")]);
    brindle_prints(["-q", "send", "-f", &stream, &at("kept")]);
    fs::create_dir(place.join("backup")).expect("room");
    run(receive[0], &[&receive[1..], &["-f", &stream, &at("backup")]].concat());
    let received = at("backup/kept");
    assert_ne!(received_uuid(&received), "-");

    let said = brindle_fails(1, ["property", "set", &received, "ro", "false"]);
    assert!(said.contains("no further stream builds on it") && said.contains("-f makes it"), "{said}");
    assert_ne!(received_uuid(&received), "-", "nothing has changed");
    fs::write(place.join("backup/kept/file"), "x").expect_err("it is read-only");
    brindle_prints(["property", "set", &received, "ro", "true"]);

    brindle_prints(["property", "set", "-f", &received, "ro", "false"]);
    assert_eq!(received_uuid(&received), "-", "streams build on contents that are those of their parent");
    fs::write(place.join("backup/kept/file"), "other than in the stream").expect("it is writable");
    for value in ["true", "false"] {
        brindle_prints(["property", "set", &received, "ro", value]);
    }
    brindle_prints(["-q", "subvolume", "snapshot", "-r", &at("live"), &at("later")]);
    let later = text(&directory.join("later")).to_owned();
    brindle_prints(["-q", "send", "-p", &at("kept"), "-f", &later, &at("later")]);
    run(receive[0], &[&receive[1..], &["-f", &later, &at("backup")]].concat());
    let contents = fs::read_to_string(place.join("backup/later/file")).expect("received");
    assert_eq!(contents, "of the stream", "it builds on the parent itself, not on what was changed");
}

#[test]
fn a_received_subvolume_is_made_writable_by_force_alone_and_is_no_parent_any_more() {
    if !can_mount() {
        return;
    }
    let pool = Pool::make();
    let place = pool.mount();
    make_received_writable(&place, &[env!("CARGO_BIN_EXE_brindle"), "-q", "receive"], pool.directory.path());
    unmount(&place);
    if !is_root("a mount of the kernel") {
        return;
    }
    let pool = Pool::make();
    let mount = pool.mount_by_kernel();
    let output = brindle(["property", "set", text(&mount.place), "tier", "fast"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("makes no difference on a mount of the kernel"));
    for (size, reason) in [("+1T", "beyond the end of the device"), ("1M", "the least is 256 MiB")] {
        let said = brindle_fails(1, ["filesystem", "resize", &format!("1:{size}"), text(&mount.place)]);
        assert!(said.contains(reason), "{said}");
    }
    make_received_writable(&mount.place, &["btrfs", "-q", "receive"], pool.directory.path());
    drop(mount);
    let images: Vec<&str> = pool.images.iter().map(|image| text(image)).collect();
    brindle_prints([&["check"], &images[..]].concat());
}
