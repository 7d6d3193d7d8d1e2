//! One fast device and mirrored metadata, on a mount of brindle and offline: one copy belongs there.

use super::{Served, assert_filled, fill, json, wait_until};
use crate::mount::can_mount;
use crate::support::{brindle_prints, text, with_devices};
use serde_json::Value;

/// The number of chunks of trees without a copy on the fast device.
fn chunks_without_copy_on_flash(status: &Value) -> u64 {
    let kinds = status["kinds"].as_array().expect("a list").iter();
    let of_trees = kinds.filter(|kind| kind["content"] != "data");
    of_trees.map(|kind| kind["wrong_chunks"].as_u64().expect("a number")).sum()
}

#[test]
fn one_fast_device_holds_one_copy_of_metadata_on_a_mount_and_offline() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([":bulk", ":bulk", ":bulk", ":bulk"], &["-d", "raid1", "-m", "raid1"]);
    let place = served.place();
    fill(&place);
    let hint = |served: &Served, devid: &str, hint: &str| {
        let place = served.place();
        brindle_prints(["property", "set", "--devid", devid, text(&place), "allocation_hint", hint]);
    };
    // The device that has no copy turns out to be fast.
    let status = served.json(&["tier", "status", "--json"]);
    let devices = status["devices"].as_array().expect("a list").iter();
    let free = devices.min_by_key(|device| device["metadata_bytes"].as_u64().expect("a number"));
    let devid = free.expect("four")["devid"].to_string();
    hint(&served, &devid, "METADATA_PREFERRED");
    let wrong = |served: &Served| chunks_without_copy_on_flash(&served.json(&["tier", "status", "--json"]));
    assert_ne!(wrong(&served), 0);
    let planned = served.prints(&["tier", "plan"]);
    assert!(planned.contains("To the fast devices") && planned.contains("one copy of two"), "{planned}");
    let said = served.prints(&["tier", "apply"]);
    assert!(said.contains("Done") && said.contains("both copies on flash: add 1 more fast device"), "{said}");
    assert_eq!(wrong(&served), 0);
    let shown = served.prints(&["tier", "status"]);
    assert!(shown.contains("metadata of profile raid1: right, one copy of two on fast devices"), "{shown}");
    assert_filled(&place);
    assert!(served.prints(&["tier", "apply"]).starts_with("Nothing to move."));
    // Another one: the watch follows.
    let other = if devid == "1" { "2" } else { "1" };
    hint(&served, other, "METADATA_PREFERRED");
    hint(&served, &devid, "DATA_PREFERRED");
    let watch = served.starts(&["tier", "watch", "--interval", "1"]);
    wait_until("one copy is on the other device", || wrong(&served) == 0);
    served.unmount();
    assert!(watch.wait_with_output().expect("it ends").status.success());
    served.check();
    // Offline, with a third.
    let last = if devid == "4" { "3" } else { "4" };
    let reversed = |command| ["-q", "tier", command, "--fast", last, "--bulk", other];
    let status = || json(with_devices(&[&reversed("status")[..], &["--json"]].concat(), &served.devices));
    let before = chunks_without_copy_on_flash(&status());
    let said = brindle_prints(with_devices(&reversed("apply"), &served.devices));
    assert!(said.contains("one copy of two on fast devices is right"), "{said}");
    assert_eq!(chunks_without_copy_on_flash(&status()), 0, "{before} before: {said}");
    served.check();
}

#[test]
fn a_pool_made_with_one_fast_device_says_what_another_one_would_give() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let device = |name: &str| format!("{}:{name}", text(&scratch.path().join(name.replace(':', ""))));
    let devices = [device("fast"), device("bulk")];
    let third = format!("{}:bulk", text(&scratch.path().join("third")));
    let mut words = vec!["mkfs", "--size", "256M", "-m", "raid1"];
    words.extend([devices[0].as_str(), devices[1].as_str(), third.as_str()]);
    let said = brindle_prints(words);
    assert!(
        said.contains("Note: metadata of profile raid1: one copy of two on fast devices is right; both"),
        "{said}"
    );
}

#[test]
fn mkfs_tells_that_fsyncs_write_to_a_disk_where_one_fast_device_has_one_copy() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let notes = |classes: &[&str]| {
        let device = |(number, class)| format!("{}/{number}{class}", text(scratch.path()));
        let devices: Vec<String> = classes.iter().enumerate().map(device).collect();
        let mkfs = ["mkfs", "-f", "--json", "--size", "512M", "-d", "raid1", "-m", "raid1"];
        let words = mkfs.into_iter().chain(devices.iter().map(String::as_str));
        let report: Value = serde_json::from_str(&brindle_prints(words)).expect("JSON");
        report["notes"].to_string()
    };
    assert!(notes(&[":fast", ":bulk", ":bulk"]).contains("log_profile single"));
    assert_eq!(notes(&[":fast", ":fast", ":bulk", ":bulk"]), "[]");
    assert_eq!(notes(&[":bulk", ":bulk"]), "[]");
}

/// Reasons of a place as `class reason`, each once, and the classes of devices that hold any bytes.
fn reasons(found: &Value) -> (Vec<String>, usize) {
    let all = found["reasons"].as_array().expect("a list").iter();
    let told = all.map(|one| format!("{} {}", one["class_name"], one["reason"]).replace('"', "")).collect();
    let devices = found["devices"].as_array().expect("a list").iter();
    (told, devices.filter(|device| device["used_bytes"] != 0).count())
}

#[test]
fn one_fast_device_holds_one_copy_of_small_and_marked_files_on_a_mount_and_offline() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([":fast", ":bulk", ":bulk", ":bulk"], &["-d", "raid1", "-m", "raid1"]);
    let place = served.place();
    std::fs::write(place.join("small"), vec![7; 20_000]).expect("room");
    std::fs::write(place.join("marked"), vec![8; 4 << 20]).expect("room");
    std::fs::write(place.join("large"), vec![9; 4 << 20]).expect("room");
    let at = |name: &str| text(&place.join(name)).to_owned();
    let lies = |name: &str| json(["tier", "where", "--json", &at(name)].map(Into::into).to_vec());
    assert_eq!(reasons(&lies("small")), (vec!["bulk data".to_owned()], 2), "nothing is asked for yet");
    brindle_prints(["property", "set", text(&place), "small_files", "64K"]);
    brindle_prints(["property", "set", &at("marked"), "tier", "fast"]);
    assert_eq!(reasons(&lies("small")), (vec!["bulk spilled".to_owned()], 2));
    let note = "data of small and marked files, profile raid1: one copy of two on fast devices, which is read; both copies on \
                flash: add 1 more fast device";
    let planned = served.prints(&["tier", "plan"]);
    assert!(planned.contains("To the fast devices") && planned.contains(note), "{planned}");
    let said = served.prints(&["tier", "apply"]);
    assert!(said.contains("Done") && said.contains(note), "{said}");
    for (name, reason) in [("small", "small"), ("marked", "mark")] {
        let expected = vec![format!("bulk {reason}"), format!("fast {reason}")];
        assert_eq!(reasons(&lies(name)), (expected, 2), "{name}");
    }
    assert_eq!(reasons(&lies("large")), (vec!["bulk data".to_owned()], 2));
    std::fs::write(place.join("new"), vec![6; 9000]).expect("room");
    assert_eq!(reasons(&lies("new")), (vec!["bulk small".to_owned(), "fast small".to_owned()], 2));
    let status = served.prints(&["tier", "status"]);
    assert!(status.contains(note) && !status.contains("make no difference"), "{status}");
    let files = &served.json(&["tier", "status", "--json"])["files"];
    assert_eq!(
        (&files["small_and_marked"]["wrong_bytes"], &files["other"]["wrong_bytes"]),
        (&0.into(), &0.into()),
        "{files}"
    );
    assert!(served.prints(&["map", "--json"]).contains("\"fast_data\""));
    assert!(served.prints(&["tier", "apply"]).starts_with("Nothing to move."));
    served.unmount();
    served.check();
    let plan = || json(with_devices(&["tier", "plan", "--json"], &served.devices));
    assert_eq!(plan()["nothing_to_move"], true, "{}", plan());
    // Another disk is said to be the fast device, and the files follow.
    let words = ["-q", "tier", "apply", "--fast", "2", "--bulk", "1"];
    let said = brindle_prints(with_devices(&words, &served.devices));
    assert!(said.contains(note), "{said}");
    let words = ["tier", "where", "--json", "--path", "marked", "--fast", "2", "--bulk", "1"];
    let found = json(with_devices(&words, &served.devices));
    assert_eq!(reasons(&found), (vec!["bulk mark".to_owned(), "fast mark".to_owned()], 2), "{found}");
    served.check();
}
