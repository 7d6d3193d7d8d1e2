//! `mount -o remount`: as mount(8) and shutdown scripts call it.

use super::ends::Served;
use super::mount::{can_mount, options_shown, unmount};
use super::support::{brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use std::fs::{self, File};
use std::time::{Duration, Instant};

fn remount(served: &Served, options: &str) {
    let place = served.place();
    // The words, and their order, are those of mount(8).
    let words = ["mount", "--helper", "pool.img", text(&place), "-o", options];
    let said = brindle_succeeds(words).stderr;
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

fn is_refused(served: &Served, options: &str) -> String {
    brindle_fails_with(&["mount", "-o", options, text(&served.place())])
}

fn brindle_fails_with(words: &[&str]) -> String {
    let output = super::support::brindle(words);
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn a_mount_that_is_made_read_only_has_everything_durable() {
    if !can_mount() || !is_root("a remount") {
        return;
    }
    let mut served = Served::make();
    let place = served.place();
    served.mount_with("commit=3600");
    fs::write(place.join("file"), b"contents").expect("room");
    remount(&served, "ro,nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions,remount");
    assert_eq!(options_shown(&place), "ro,nosuid,nodev,relatime");
    fs::write(place.join("other"), b"x").expect_err("it is read-only");
    let said = brindle_fails(1, ["subvolume", "create", text(&place.join("new"))]);
    assert!(said.contains("ead-only"), "{said}");
    served.kill();
    served.mount_with("commit=3600");
    assert_eq!(fs::read(place.join("file")).expect("it is there"), b"contents");
    remount(&served, "remount,ro");
    assert_eq!(fs::read(place.join("file")).expect("it is there"), b"contents");
    remount(&served, "rw,remount");
    assert_eq!(options_shown(&place), "rw,nosuid,nodev,relatime");
    fs::write(place.join("other"), b"x").expect("it is written again");
    brindle_prints(["subvolume", "create", text(&place.join("new"))]);
    unmount(&place);
    served.wait_for_success();
    served.check();
}

#[test]
fn a_remount_changes_what_it_can_and_refuses_the_rest_by_name() {
    if !can_mount() || !is_root("a remount") {
        return;
    }
    let mut served = Served::make();
    let place = served.place();
    served.mount_with("commit=3600,compress=zstd");
    remount(&served, "remount,dev,noexec,compress=zstd");
    assert_eq!(options_shown(&place), "rw,nosuid,noexec,relatime");
    let said = is_refused(&served, "remount,ro,compress=lzo");
    assert!(said.contains("option 'compress=lzo' can't be changed by a remount"), "{said}");
    assert_eq!(options_shown(&place), "rw,nosuid,noexec,relatime");
    let file = File::create(place.join("file")).expect("room");
    let said = is_refused(&served, "remount,ro");
    assert!(said.contains("busy: a file is open there to be written"), "{said}");
    drop(file);
    remount(&served, "remount,read_policy=pid");
    assert!(brindle_prints(["property", "get", text(&place), "read_policy"]).contains("[pid]"));
    let said = is_refused(&served, "remount,read_policy=bogus");
    assert!(said.contains("option 'read_policy=bogus'"), "{said}");
    let property = |name: &str| brindle_prints(["property", "get", text(&place), name]);
    assert_eq!(property("autodefrag"), "autodefrag=false\n");
    remount(&served, "remount,autodefrag");
    assert_eq!(property("autodefrag"), "autodefrag=true\n");
    assert!(property("mount_options").trim_end().ends_with(",autodefrag"));
    remount(&served, "autodefrag,remount,noautodefrag");
    assert_eq!(property("autodefrag"), "autodefrag=false\n");
    remount(&served, "remount,commit=0");
    remount(&served, "remount,commit=1");
    fs::write(place.join("file"), b"contents").expect("room");
    let commits = || brindle_prints(["filesystem", "commit-stats", text(&place)]);
    let (before, end) = (commits(), Instant::now() + Duration::from_secs(120));
    while commits() == before {
        assert!(Instant::now() < end, "no commit comes");
        std::thread::sleep(Duration::from_millis(20));
    }
    unmount(&place);
    served.wait_for_success();
    served.mount_with("ro");
    let said = is_refused(&served, "remount,rw");
    assert!(said.contains("was mounted to be read only"), "{said}");
    remount(&served, "remount,ro");
    unmount(&place);
    served.wait_for_success();
    let said = is_refused(&served, "remount,ro");
    assert!(said.contains("nothing is mounted there by brindle"), "{said}");
}
