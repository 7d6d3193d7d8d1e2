//! `mount` and `umount`: the process in the background, the options, and other ways to be called.

use super::support::{
    Image, Loops, brindle, brindle_fails, brindle_prints, brindle_succeeds, is_root, text, with_devices,
};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns true if mounts can be made at all.
pub(super) fn can_mount() -> bool {
    let is_there = Path::new("/dev/fuse").exists();
    if !is_there {
        println!("skipped: needs /dev/fuse");
    }
    is_there
}

pub(super) fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("there is a mount table");
    table.lines().any(|line| line.contains(&format!(" {} ", text(path))))
}

/// Unmounts it. What this process has just closed may still be open in a child of another test that is being started.
pub(super) fn unmount(place: &Path) {
    const TRIES: usize = 6000;
    for _ in 0..TRIES {
        let output = brindle(["umount", text(place)]);
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return;
        }
        assert!(said.contains("busy"), "{said}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} stays busy", place.display());
}

#[test]
fn the_mount_answers_when_the_command_returns() {
    if !can_mount() {
        return;
    }
    let image = Image::unpack("raid1");
    let place = image.beside("place").to_owned();
    std::fs::create_dir(&place).expect("new");
    let mut arguments = with_devices(&["-q", "mount"], &image.devices);
    arguments.push(place.clone());
    brindle_prints(&arguments);
    assert!(is_mounted(&place));
    let names = std::fs::read_dir(&place).expect("it answers").count();
    let listed = brindle_prints(with_devices(&["-q", "ls", "-a"], &image.devices));
    assert_eq!(names, listed.lines().count());

    // A process has its working directory in it. (A file that we had open could be inherited by what other tests start.)
    let mut visitor = Command::new("cat");
    let visitor = visitor.current_dir(&place).stdin(Stdio::piped()).spawn().expect("there is cat");
    let said = brindle_fails(1, ["umount", text(&place)]);
    assert!(said.contains("busy"), "{said}");
    visitor.wait_with_output().expect("it ends with its input");
    unmount(&place);
    assert!(!is_mounted(&place));
    let said = brindle_fails(1, ["umount", text(&place)]);
    assert!(said.contains("nothing is mounted there"), "{said}");
}

#[test]
fn errors_of_the_background_process_are_printed_by_the_command() {
    let image = Image::unpack("raid0");
    let place = image.beside("place").to_owned();
    std::fs::create_dir(&place).expect("new");
    let mut arguments = with_devices(&["-q", "mount"], &image.devices[..1]);
    arguments.push(place.clone());
    let said = brindle_fails(1, &arguments);
    assert!(said.starts_with("brindle: missing devid 2") && said.lines().count() == 1, "{said}");
    let mut arguments = with_devices(&["-q", "mount"], &image.devices);
    arguments.push(image.beside("nowhere"));
    let said = brindle_fails(1, &arguments);
    assert!(said.contains("nowhere"), "{said}");
}

#[test]
fn options_are_refused_by_name() {
    let said = brindle_fails(2, ["mount", "-o", "ro,bogus", "x.img", "/mnt"]);
    assert_eq!(said, "brindle: unknown option 'bogus'\n");
    let said = brindle_fails(2, ["mount", "-o", "compress=best", "x.img", "/mnt"]);
    assert!(said.contains("one of zlib, lzo, zstd"), "{said}");
}

#[test]
fn mount_8_says_rw_when_its_user_said_nothing() {
    if !can_mount() {
        return;
    }
    let image = Image::unpack("raid1");
    let place = image.beside("place").to_owned();
    std::fs::create_dir(&place).expect("new");
    let mount = |options: &str| {
        let options = format!("{options},device={}", text(&image.devices[1]));
        let output = brindle([text(&image.devices[0]), text(&place), "-o", &options]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && is_mounted(&place), "{said}");
        said
    };
    mount("rw,nodev");
    std::fs::write(place.join("written"), b"by us").expect("it can be written");
    unmount(&place);
    mount("ro,nodev");
    assert_eq!(std::fs::read(place.join("written")).expect("it was written"), b"by us");
    std::fs::write(place.join("written"), b"again").expect_err("read-only");
    unmount(&place);
}

#[test]
fn mount_8_says_nothing_of_dev_and_suid_which_are_its_default() {
    if !can_mount() || !is_root("device nodes") {
        return;
    }
    let image = Image::unpack("single");
    let place = image.beside("place").to_owned();
    std::fs::create_dir(&place).expect("new");
    for (options, shown) in [("rw", "rw"), ("rw,nodev", "rw,nodev"), ("rw,nosuid,nodev", "rw,nosuid,nodev")] {
        brindle_prints([text(&image.devices[0]), text(&place), "-o", options]);
        assert_eq!(options_shown(&place), format!("{shown},relatime"));
        unmount(&place);
    }
    brindle_prints(["mount", text(&image.devices[0]), text(&place)]);
    assert_eq!(options_shown(&place), "rw,nosuid,nodev,relatime");
    unmount(&place);
}

/// The options of a mount that the mount table shows for all filesystems alike.
pub(super) fn options_shown(place: &Path) -> String {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("there is a mount table");
    let line =
        table.lines().rfind(|line| line.contains(&format!(" {} ", text(place)))).expect("it is mounted");
    line.split(' ').nth(5).expect("options").to_owned()
}

#[test]
fn writes_are_on_the_devices_when_umount_returns() {
    if !can_mount() {
        return;
    }
    let image = Image::unpack("single");
    let place = image.beside("place").to_owned();
    std::fs::create_dir(&place).expect("new");
    for round in 0..3 {
        brindle_prints(with_devices(&["mount"], &[image.devices[0].clone(), place.clone()]));
        let said = brindle_fails(1, with_devices(&["mount"], &[image.devices[0].clone(), place.clone()]));
        assert!(said.contains("in use") || said.contains("it is mounted there already"), "{said}");
        let said = brindle(["ls", text(&image.devices[0])]).stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("another process of brindle has the pool open"), "{said}");
        std::fs::write(place.join(format!("round-{round}")), vec![7; 100_000]).expect("write");
        unmount(&place);
        brindle_prints(["check", text(&image.devices[0])]);
    }
    let twice = [image.devices[0].clone(), image.devices[0].clone(), place.clone()];
    let said = brindle_fails(2, with_devices(&["mount"], &twice));
    assert!(said.contains("is given twice"), "{said}");
    let listed = brindle_prints(["ls", text(&image.devices[0])]);
    assert!((0..3).all(|round| listed.contains(&format!("round-{round}"))), "{listed}");
}

#[test]
fn a_server_that_makes_its_last_commit_is_waited_for() {
    if !can_mount() || !is_root("unmounting by umount(8)") {
        return;
    }
    let image = Image::unpack("single");
    let place = image.beside("place").to_owned();
    std::fs::create_dir(&place).expect("new");
    for round in 0..3 {
        brindle_prints(with_devices(&["mount"], &[image.devices[0].clone(), place.clone()]));
        let name = place.join("changing");
        if round > 0 {
            assert_eq!(std::fs::read(&name).expect("it was written").len(), round << 20);
        }
        std::fs::write(&name, vec![7; (round + 1) << 20]).expect("write");
        // By the helper of umount(8), if it is installed, the last commit is waited for already: not so without.
        while !Command::new("umount").args(["-i", text(&place)]).status().expect("umount").success() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    brindle_prints(with_devices(&["mount"], &[image.devices[0].clone(), place.clone()]));
    unmount(&place);
    brindle_prints(["check", text(&image.devices[0])]);
}

#[test]
fn the_pool_of_a_mount_is_shown_and_changed_through_it() {
    if !can_mount() {
        return;
    }
    let image = Image::unpack("single");
    let place = image.beside("place").to_owned();
    std::fs::create_dir(&place).expect("new");
    // Logs are counted, and one that a commit forestalls is not written.
    let words = ["mount", "-o", "commit=3600"];
    brindle_prints(with_devices(&words, &[image.devices[0].clone(), place.clone()]));
    let at = |name: &str| text(&place.join(name)).to_owned();
    brindle_prints(["subvolume", "create", &at("one"), &at("two")]);
    let said = brindle_fails(1, ["subvolume", "create", &at("one"), &at("three")]);
    assert!(said.contains("there is something of that name"), "{said}");
    std::fs::write(place.join("one/file"), b"x").expect("write");
    brindle_prints(["subvolume", "snapshot", "-r", &at("one"), &at("two")]);
    assert_eq!(std::fs::read(place.join("two/one/file")).expect("in the snapshot"), b"x");
    let shown = brindle_succeeds(["filesystem", "show", text(&place)]);
    assert_eq!(String::from_utf8_lossy(&shown.stderr), "", "the mount that is asked is no reason to warn");
    let listed = brindle_prints(["subvolume", "list", text(&place)]);
    assert!(listed.contains("path two/one\n") && listed.contains("path three\n"), "{listed}");
    assert!(brindle_prints(["subvolume", "list", "-r", text(&place)]).contains("path two/one\n"));
    assert!(brindle_prints(["subvolume", "show", &at("two/one")]).contains("readonly"));
    brindle_prints(["property", "set", &at("two/one"), "ro", "false"]);
    assert_eq!(brindle_prints(["property", "get", &at("two/one"), "ro"]), "ro=false\n");
    brindle_prints(["property", "set", &at("one"), "compression", "zstd"]);
    assert_eq!(brindle_prints(["property", "get", &at("one"), "compression"]), "compression=zstd\n");
    assert_eq!(brindle_prints(["property", "get", &at("one")]), "ro=false\ncompression=zstd\n");
    assert_eq!(brindle_prints(["property", "get", &at("one/file")]), "");
    let listed = brindle_prints(["property", "get", text(&place)]);
    for property in ["ro=false", "placement=", "small_files=", "devid=1, path=", "read_policy="] {
        assert!(listed.lines().any(|line| line.starts_with(property)), "{property}: {listed}");
    }
    let said = brindle_fails(1, ["subvolume", "delete", &at("two")]);
    assert!(said.contains("holds other subvolumes (two/one)"), "{said}");
    brindle_prints(["subvolume", "delete", "--commit", &at("two/one"), &at("three")]);
    brindle_prints(["subvolume", "set-default", &at("one")]);
    assert!(brindle_prints(["subvolume", "get-default", text(&place)]).contains("path one\n"));
    brindle_prints(["filesystem", "label", text(&place), "a label"]);
    assert_eq!(brindle_prints(["filesystem", "label", text(&place)]), "a label\n");
    brindle_prints(["filesystem", "sync", text(&place)]);
    assert!(brindle_prints(["filesystem", "usage", text(&place)]).contains("Unallocated:\n"));
    std::fs::write(place.join("a new name"), b"").expect("room");
    std::fs::File::open(&place)
        .and_then(|directory| directory.sync_all())
        .expect("a directory can be synced");
    let commits = brindle_prints(["filesystem", "commit-stats", text(&place)]);
    assert!(commits.contains(&format!("{:<16} {:>25}\n", "logs written", 1)), "{commits}");
    assert!(commits.starts_with("commits ") && commits.contains("\nroots blocks "), "{commits}");
    let commits = brindle_prints(["filesystem", "commit-stats", "--json", text(&place)]);
    let commits: serde_json::Value = serde_json::from_str(&commits).expect("JSON");
    let roots = &commits["total"]["blocks_by_level"]["roots"][0];
    assert!(roots.as_u64() >= commits["commits"].as_u64(), "{commits}");
    unmount(&place);
    let listed = brindle_prints(["property", "get", text(&image.devices[0])]);
    assert!(listed.contains("allocation_hint="), "{listed}");
    let listed = brindle_prints(["subvolume", "list", text(&image.devices[0])]);
    assert!(listed.contains("path two\n") && !listed.contains("two/one"), "{listed}");
    assert!(brindle_prints(["subvolume", "get-default", text(&image.devices[0])]).contains("path one\n"));
    brindle_prints(["check", text(&image.devices[0])]);
}

#[test]
fn a_sync_does_not_fail_because_others_found_no_room() {
    const FAR_TOO_MUCH_MIB: usize = 1 << 10;
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let (image, place) = (scratch.path().join("image"), scratch.path().join("place"));
    std::fs::create_dir(&place).expect("new");
    brindle_prints(["-q", "mkfs", "--size", "128M", text(&image)]);
    brindle_prints(["mount", text(&image), text(&place)]);
    let mut file = std::fs::File::create(place.join("large")).expect("create");
    let part = vec![7; 1 << 20];
    let is_told = (0..FAR_TOO_MUCH_MIB).any(|_| file.write_all(&part).is_err());
    assert!(is_told, "all of it was taken");
    drop(file);
    let said =
        String::from_utf8(brindle_succeeds(["filesystem", "sync", text(&place)]).stderr).expect("text");
    assert!(said.contains("no room for some of what was written"), "{said}");
    let said =
        String::from_utf8(brindle_succeeds(["filesystem", "sync", text(&place)]).stderr).expect("text");
    assert_eq!(said, "", "it is told once");
    unmount(&place);
    brindle_prints(["check", text(&image)]);
}

#[test]
fn a_mount_in_the_foreground_ends_with_a_signal() {
    if !can_mount() {
        return;
    }
    let image = Image::unpack("raid1");
    let place = image.beside("place").to_owned();
    std::fs::create_dir(&place).expect("new");
    let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
    command.args(["-q", "mount", "--foreground"]).args(&image.devices).arg(&place);
    let mut child = command.stdout(Stdio::null()).spawn().expect("the binary was built");
    while !is_mounted(&place) {
        assert!(child.try_wait().expect("our child").is_none(), "it ended before it mounted");
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our child");
    assert!(child.wait().expect("our child").success());
    assert!(!is_mounted(&place));
}

#[test]
fn a_write_protected_pool_is_mounted_to_be_read() {
    if !can_mount() || !is_root("making a loop device") {
        return;
    }
    let image = Image::unpack("single");
    let place = image.beside("place");
    std::fs::create_dir(&place).expect("new");
    let loops = Loops::attach(&image.devices, &["--read-only"]);
    let device = text(&loops.0[0]);
    let output = brindle(["mount", device, text(&place)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("mounting read-only"), "{said}");
    unmount(&place);
    let said = brindle_fails(1, ["mount", "-o", "rw", device, text(&place)]);
    assert!(said.contains(device), "{said}");
}

#[test]
fn real_programs_work_and_leave_a_sound_pool() {
    if !can_mount() || !is_root("mounting a pool for real programs") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/programs.sh");
    let mut command = Command::new(script);
    // The other settings take minutes each, and so do many packages and files: `make programs` plays them.
    command.env("BRINDLE", env!("CARGO_BIN_EXE_brindle")).env("SETTINGS", "plain").env("DEBS", "10");
    command.env("TREE", "README.md docs crates/fs");
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // Says what was passed over.
    eprintln!("{said}");
}

#[test]
fn a_read_only_mount_answers_what_only_reads() {
    if !can_mount() {
        return;
    }
    let image = Image::unpack("raid1");
    let place = image.beside("place");
    std::fs::create_dir(&place).expect("new");
    let mount = |options: &str| {
        let words = ["-q", "mount", "-o", options];
        brindle_prints(with_devices(
            &words,
            &[image.devices.as_slice(), std::slice::from_ref(&place)].concat(),
        ));
    };
    let ask = |words: &[&str]| brindle_prints(words.iter().copied().chain([text(&place)]));
    let questions: [&[&str]; 5] = [
        &["filesystem", "usage"],
        &["filesystem", "df", "--json"],
        &["tier", "status", "--json"],
        &["tier", "plan", "--json"],
        &["property", "get"],
    ];
    // A plan that has something to do says so by its exit code.
    let answer = |words: &[&str]| brindle(words.iter().copied().chain([text(&place)]));
    let ask_all = || questions.map(|words| String::from_utf8(answer(words).stdout).expect("text"));
    mount("rw,metadata_defrag=off");
    brindle_prints(["property", "set", text(&place), "small_files", "64K"]);
    unmount(&place);
    mount("rw,metadata_defrag=off");
    let expected = ask_all();
    assert!(expected[4].contains("small_files=65536\n"), "{}", expected[4]);
    assert!(expected.iter().all(|answer| !answer.is_empty()));
    unmount(&place);
    mount("ro");
    assert_eq!(ask_all(), expected);
    assert!(ask(&["filesystem", "commit-stats"]).contains('0'));
    assert_eq!(ask(&["filesystem", "sync"]), "");
    for words in [&["tier", "apply"][..], &["tier", "watch"]] {
        let said = brindle_fails(1, words.iter().copied().chain([text(&place)]));
        assert!(said.contains("the pool is mounted read-only"), "{said}");
    }
    unmount(&place);
}

/// A pool that the kernel has mounted, until dropped.
pub(super) struct KernelMount {
    loop_device: String,
    pub(super) at: PathBuf,
}

impl KernelMount {
    pub(super) fn new(image: &Path, at: PathBuf) -> Self {
        std::fs::create_dir(&at).expect("a mountpoint");
        let output = run("losetup", &["--find", "--show", text(image)]);
        let mount = Self { loop_device: output.trim().to_owned(), at };
        run("mount", &["-t", "btrfs", &mount.loop_device, text(&mount.at)]);
        mount
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
        let _ = Command::new("losetup").args(["--detach", &self.loop_device]).status();
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_pool_that_the_kernel_has_mounted_is_warned_of() {
    if !is_root("mounting a pool by the kernel") {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let [image, at, place] = ["image", "kernel", "place"].map(|name| scratch.path().join(name));
    // A golden image may be mounted by the test of another package, and the kernel gives the second mount another UUID.
    brindle_prints(["-q", "mkfs", "--size", "512M", text(&image)]);
    let mounted = KernelMount::new(&image, at);
    for command in ["ls", "check"] {
        for device in [image.clone(), PathBuf::from(&mounted.loop_device)] {
            let said = brindle([PathBuf::from(command), device]).stderr;
            let said = String::from_utf8_lossy(&said);
            assert!(said.contains("the kernel has the pool mounted"), "{command}: {said}");
        }
    }
    std::fs::create_dir(&place).expect("new");
    for device in [image.clone(), PathBuf::from(&mounted.loop_device)] {
        let said = brindle_fails(1, with_devices(&["mount"], &[device, place.clone()]));
        assert!(said.contains("in use"), "{said}");
    }
    // Commits are counted by the kernel.
    let commits = brindle_prints(["filesystem", "commit-stats", text(&mounted.at)]);
    assert!(commits.starts_with("commits ") && commits.contains("\ntotal_commit_ms "), "{commits}");
    let commits = brindle_prints(["filesystem", "commit-stats", "--json", text(&mounted.at)]);
    let commits: serde_json::Value = serde_json::from_str(&commits).expect("JSON");
    assert!(commits["max_commit_ms"].is_u64(), "{commits}");
    drop(mounted);
    let said = brindle([PathBuf::from("ls"), image]).stderr;
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
}
