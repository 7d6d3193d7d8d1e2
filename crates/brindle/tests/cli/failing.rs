//! Devices that fail or are missing under a mount: the log of a mount in the background tells of them, and so does every
//! command that lists devices.

use super::mount::{can_mount, unmount};
use super::support::{brindle_prints, is_root, text, with_devices};
use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest time that something is waited for.
const PATIENCE: Duration = Duration::from_secs(300);

/// A small filesystem in memory, unmounted when dropped.
pub(super) struct Small(pub(super) PathBuf);

impl Small {
    pub(super) fn mount(place: PathBuf, bytes: &str) -> Self {
        fs::create_dir(&place).expect("room");
        let size = format!("size={bytes}");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&place).status();
        assert!(status.expect("mount").success());
        Self(place)
    }

    /// Gives it another size.
    pub(super) fn resize(&self, bytes: u64) {
        let size = format!("remount,size={bytes}");
        let status = Command::new("mount").args(["-o", &size]).arg(&self.0).status();
        assert!(status.expect("mount").success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// The texts of all three commands that list devices.
fn shown(place: &Path) -> [String; 3] {
    [["filesystem", "usage"], ["filesystem", "show"], ["tier", "status"]]
        .map(|words| brindle_prints(["-q", words[0], words[1], text(place)]))
}

/// The state of a device, as all three commands have it as JSON.
fn states(place: &Path, devid: u64) -> [Value; 3] {
    [["filesystem", "usage"], ["filesystem", "show"], ["tier", "status"]].map(|words| {
        let said = brindle_prints(["-q", words[0], words[1], "--json", text(place)]);
        let value: Value = serde_json::from_str(&said).expect("JSON");
        let pool = value.pointer("/pools/0").unwrap_or(&value);
        let devices = pool["devices"].as_array().expect("a list").clone();
        let device = devices.into_iter().find(|device| device["devid"] == devid);
        device.expect("it is listed")["health"].clone()
    })
}

/// A journal of our own, and its socket.
fn journal(directory: &Path) -> (UnixDatagram, PathBuf) {
    let socket = directory.join("journal");
    let journal = UnixDatagram::bind(&socket).expect("a new socket");
    journal.set_read_timeout(Some(PATIENCE)).expect("a time");
    (journal, socket)
}

/// Mounts in the background, with that journal.
fn mount_logging(socket: &Path, devices: &[PathBuf], place: &Path) {
    let mut mount = Command::new(env!("CARGO_BIN_EXE_brindle"));
    mount.arg("mount").args(devices).arg(place).env("BRINDLE_LOG_SOCKET", socket).env_remove("BRINDLE_LOG");
    assert!(mount.status().expect("the binary was built").success());
}

/// Fields of the next entry of the journal that tells of something.
fn next_entry(journal: &UnixDatagram, word: &str) -> String {
    let (mut bytes, begin) = (vec![0; 1 << 16], Instant::now());
    loop {
        let length = journal.recv(&mut bytes).expect("an entry in time");
        let entry = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if entry.contains(word) {
            return entry;
        }
        assert!(begin.elapsed() < PATIENCE, "{word}: {entry}");
    }
}

#[test]
fn a_device_that_fails_under_a_mount_is_logged_and_named_by_all_commands() {
    if !can_mount() || !is_root("a filesystem without room for a device") {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let small = Small::mount(scratch.path().join("small"), "48M");
    let devices = [scratch.path().join("sound.img"), small.0.join("failing.img")];
    let place = scratch.path().join("place");
    fs::create_dir(&place).expect("room");
    let mkfs = ["-q", "mkfs", "--size", "512M", "-L", "tank", "-m", "raid1", "-d", "raid1"];
    brindle_prints(with_devices(&mkfs, &devices));
    let (journal, socket) = journal(scratch.path());
    mount_logging(&socket, &devices, &place);
    for shown in shown(&place) {
        assert!(!shown.contains("failing:"), "{shown}");
    }
    // More than the small filesystem has room for.
    let contents: Vec<u8> =
        (0..80_u32 << 20 >> 2).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(place.join("large"), &contents).expect("one device is enough");
    brindle_prints(["-q", "filesystem", "sync", text(&place)]);
    let entry = next_entry(&journal, "failing.img");
    assert!(entry.contains("PRIORITY=4\n") && entry.contains("SYSLOG_IDENTIFIER=brindle\n"), "{entry}");
    let message = format!("MESSAGE={} (tank): ", text(&place));
    assert!(entry.contains(&message) && !entry.contains("WARN"), "{entry}");
    let name = format!("devid 2 ({})", text(&devices[1]));
    for shown in shown(&place) {
        let line = shown.lines().find(|line| line.contains(&name)).unwrap_or_else(|| panic!("{shown}"));
        assert!(line.contains("failing: ") && !line.contains(" 0 write errors"), "{line}");
        assert!(!shown.contains("devid 1 ("), "{shown}");
    }
    for state in states(&place, 2) {
        assert_eq!(state["state"], "failing");
        assert!(state["write_errors"].as_u64() > Some(0), "{state}");
    }
    for state in states(&place, 1) {
        assert_eq!(state["state"], "ok");
    }
    assert!(fs::read(place.join("large")).expect("one device is enough") == contents);
    unmount(&place);
}

#[test]
fn repeated_messages_of_a_mount_are_counted_and_summed_up() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let (image, place) = (scratch.path().join("a.img"), scratch.path().join("place"));
    fs::create_dir(&place).expect("room");
    brindle_prints(["-q", "mkfs", "--size", "256M", "-d", "single", text(&image)]);
    brindle_prints(["-q", "mount", text(&image), text(&place)]);
    let contents = [0xb7; 1 << 16];
    fs::write(place.join("file"), contents).expect("room");
    unmount(&place);
    let mut bytes = fs::read(&image).expect("it is there");
    let at = bytes.chunks_exact(4096).position(|sector| *sector == contents[..4096]).expect("it was written");
    bytes[at * 4096] ^= 1;
    fs::write(&image, &bytes).expect("room");
    let (journal, socket) = journal(scratch.path());
    mount_logging(&socket, std::slice::from_ref(&image), &place);
    for _ in 0..4 {
        fs::read(place.join("file")).expect_err("there is no other copy");
    }
    unmount(&place);
    let repeated = next_entry(&journal, "(repeated ");
    assert!(repeated.contains(&format!("MESSAGE={}: ", text(&place))), "{repeated}");
}

#[test]
fn a_missing_device_is_named_by_all_commands() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let devices = [scratch.path().join("a.img"), scratch.path().join("b.img")];
    let place = scratch.path().join("place");
    fs::create_dir(&place).expect("room");
    let mkfs = ["-q", "mkfs", "--size", "256M", "-m", "raid1", "-d", "raid1"];
    brindle_prints(with_devices(&mkfs, &devices));
    brindle_prints(["-q", "mount", "-o", "degraded", text(&devices[0]), text(&place)]);
    let (shown, states) = (shown(&place), states(&place, 2));
    unmount(&place);
    for shown in shown {
        assert!(shown.to_lowercase().contains("missing"), "{shown}");
    }
    for state in states {
        assert_eq!(state["state"], "missing");
    }
}

#[test]
fn a_device_whose_file_is_gone_from_under_a_mount_is_named_by_show() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let devices = [scratch.path().join("a.img"), scratch.path().join("b.img")];
    let place = scratch.path().join("place");
    fs::create_dir(&place).expect("room");
    let mkfs = ["-q", "mkfs", "--size", "256M", "-m", "raid1", "-d", "raid1"];
    brindle_prints(with_devices(&mkfs, &devices));
    let mut mount = vec!["-q", "mount"];
    mount.extend(devices.iter().map(|device| text(device)));
    mount.push(text(&place));
    brindle_prints(mount);
    for gone in &devices {
        let aside = scratch.path().join("aside");
        fs::rename(gone, &aside).expect("it is there");
        let (texts, states) = (shown(&place), states(&place, 1));
        let show = brindle_prints(["-q", "filesystem", "show", "--json", text(&place)]);
        // What lies at its name now is another thing.
        fs::write(gone, vec![0; 1 << 20]).expect("room");
        let replaced = brindle_prints(["-q", "filesystem", "show", text(&place)]);
        fs::rename(&aside, gone).expect("room");
        for shown in [&texts[1], &replaced] {
            let line =
                shown.lines().find(|line| line.contains(text(gone))).unwrap_or_else(|| panic!("{shown}"));
            assert!(line.ends_with(" MISSING") && shown.contains("Some devices missing"), "{shown}");
            assert_eq!(shown.matches("path ").count(), 2, "{shown}");
        }
        assert!(states.iter().all(Value::is_object), "{states:?}");
        let show: Value = serde_json::from_str(&show).expect("JSON");
        let listed = show["pools"][0]["devices"].as_array().expect("a list").iter();
        let missing: Vec<&Value> = listed.filter(|device| device["missing"] == true).collect();
        assert!(missing.len() == 1 && missing[0]["path"] == text(gone), "{show}");
    }
    unmount(&place);
}
