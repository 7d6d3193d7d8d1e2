//! Pools on shared devices: one export, several systems.

use super::mount::{can_mount, unmount};
use super::nbd::{Exported, image};
use super::support::{brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::process::{Command, Output};

/// Mount option of short leases: an observer waits for three intervals, in which a busy machine is to renew one.
const INTERVAL: &str = "lease=3";

/// Runs brindle in a namespace of process ids of its own: to the others it is a process that they can't see, as one of another machine.
fn elsewhere(words: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_brindle")]).args(words);
    command.env_remove("BRINDLE_LOG").output().expect("util-linux")
}

/// The process that holds devices.
fn holder(device: &str) -> Pid {
    let shown = super::support::brindle(["device", "lease", "--json", device]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let process = shown["leases"][0]["process"].as_i64().expect("it is held");
    i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process")
}

#[test]
fn one_system_at_a_time_writes_a_pool_on_an_export() {
    if !can_mount() || !is_root("a namespace of process ids") {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let disk = image(directory.path(), "disk", 512 << 20);
    let server = Exported::at(&directory.path().join("socket"), &[text(&disk)]);
    let device = format!("{}&x-timeout=300", server.uri);
    brindle_succeeds(["mkfs", "-q", &device]);
    let places = ["first", "second"].map(|name| directory.path().join(name));
    places.iter().for_each(|place| std::fs::create_dir(place).expect("room"));
    let mount = ["-q", "mount", "-o", INTERVAL, &device];
    brindle_succeeds(mount.into_iter().chain([text(&places[0])]));
    let write = |name: &str| {
        let mut file = std::fs::File::create_new(places[0].join(name))?;
        file.write_all(&[7; 100_000]).and_then(|()| file.sync_all())
    };
    write("before").expect("it holds the pool");
    let said = brindle_fails(1, ["mount", &device, text(&places[1])]);
    assert!(said.contains("holds the pool, by its lease on nbd+unix"), "{said}");
    assert!(brindle_fails(1, ["mkfs", "-f", &device]).contains("holds the pool"));
    let told = elsewhere(&["device", "stats", "--reset", &device]);
    assert!(String::from_utf8_lossy(&told.stderr).contains("holds the pool"), "{told:?}");
    // Readers are warned.
    let seen = brindle_succeeds(["ls", &device]);
    assert!(String::from_utf8_lossy(&seen.stderr).contains("holds the pool; its writes"), "{seen:?}");
    // The holder hangs for longer than three intervals, and another system takes the pool over.
    let server_of_mount = holder(&device);
    kill_process(server_of_mount, Signal::STOP).expect("it runs");
    let told = elsewhere(&["device", "stats", "--reset", &device]);
    assert!(told.status.success(), "{told:?}");
    assert!(String::from_utf8_lossy(&told.stderr).contains("has not renewed its lease"), "{told:?}");
    kill_process(server_of_mount, Signal::CONT).expect("it is there");
    write("after").expect_err("it has lost the pool");
    let _ = super::support::brindle(["umount", text(&places[0])]);
    brindle_succeeds(mount.into_iter().chain([text(&places[1])]));
    assert!(std::fs::read(places[1].join("before")).expect("it was fsynced") == vec![7; 100_000]);
    assert!(!places[1].join("after").exists());
    assert!(brindle_prints(["device", "lease", "--break", &device]).contains("was taken from"));
    let late = std::fs::write(places[1].join("late"), b"x")
        .and_then(|()| std::fs::File::open(places[1].join("late"))?.sync_all());
    late.expect_err("the lease was broken");
    unmount(&places[1]);
    brindle_succeeds(["check", "--check-data-csum", &device]);
}

#[test]
fn a_mount_without_a_connection_that_was_outlived_repeats_nothing() {
    if !can_mount() || !is_root("a namespace of process ids") {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let (disk, socket) = (image(directory.path(), "disk", 512 << 20), directory.path().join("socket"));
    let server = Exported::at(&socket, &[text(&disk)]);
    let device = format!("{}&x-timeout=300", server.uri);
    brindle_succeeds(["mkfs", "-q", &device]);
    let place = directory.path().join("place");
    std::fs::create_dir(&place).expect("room");
    brindle_succeeds(["-q", "mount", "-o", INTERVAL, &device, text(&place)]);
    let write = |name: &str| {
        let mut file = std::fs::File::create_new(place.join(name))?;
        file.write_all(&[7; 100_000]).and_then(|()| file.sync_all())
    };
    write("before").expect("it holds the pool");
    // The server is killed, and another system has the image meanwhile.
    drop(server);
    let told = elsewhere(&["device", "stats", "--reset", text(&disk)]);
    assert!(told.status.success(), "{told:?}");
    assert!(String::from_utf8_lossy(&told.stderr).contains("has not renewed its lease"), "{told:?}");
    let theirs = std::fs::read(&disk).expect("an image");
    std::fs::remove_file(&socket).expect("it was killed");
    let server = Exported::at(&socket, &[text(&disk)]);
    write("after").expect_err("it has lost the pool");
    let _ = super::support::brindle(["umount", text(&place)]);
    assert!(std::fs::read(&disk).expect("an image") == theirs, "not a byte was written");
    brindle_succeeds(["check", "--check-data-csum", &server.uri]);
}

#[test]
fn an_unmount_gives_the_lease_up_and_a_crash_does_not() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let disk = image(directory.path(), "disk", 512 << 20);
    brindle_succeeds(["mkfs", "-q", text(&disk)]);
    let place = directory.path().join("place");
    std::fs::create_dir(&place).expect("room");
    let mount = || brindle_succeeds(["-q", "mount", "-o", "lease=5", text(&disk), text(&place)]);
    mount();
    brindle_fails(1, ["device", "lease", text(&disk)]);
    let pid = holder(text(&disk));
    let named = format!(", process {}, since 20", pid.as_raw_nonzero());
    assert!(brindle_prints(["filesystem", "show", text(&disk)]).contains("Held by host "));
    assert!(brindle_prints(["filesystem", "show", text(&disk)]).contains(&named));
    let shown = brindle_prints(["filesystem", "show", "--json", text(&disk)]);
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["pools"][0]["holder"]["process"], pid.as_raw_nonzero().get());
    std::fs::write(place.join("file"), b"x").expect("it holds the pool");
    brindle_succeeds(["umount", text(&place)]);
    assert_eq!(brindle_prints(["device", "lease", text(&disk)]), "no system holds the devices\n");
    // Another system need not wait either.
    let told = elsewhere(&["device", "stats", "--reset", text(&disk)]);
    assert!(told.status.success(), "{told:?}");
    assert!(!String::from_utf8_lossy(&told.stderr).contains("lease"), "{told:?}");
    mount();
    kill_process(holder(text(&disk)), Signal::KILL).expect("it runs");
    let _ = super::support::brindle(["umount", text(&place)]);
    brindle_fails(1, ["device", "lease", text(&disk)]);
    // A pool that is not mounted, and is held all the same.
    assert!(brindle_prints(["status", text(&disk)]).contains("held by host "));
    let status: serde_json::Value =
        serde_json::from_str(&brindle_prints(["status", "--json", text(&disk)])).expect("JSON");
    assert_eq!(status["pools"][0]["holder"]["interval_ms"], 5000);
}
