//! Tiers while a device is missing: what is planned is what is done, and what the return of the device changes is told.

use super::{Served, json};
use crate::mount::can_mount;
use crate::support::{brindle, brindle_fails, brindle_prints, text, with_devices};
use std::fs::{self, File};
use std::path::Path;

const RAID1: [&str; 4] = ["-d", "raid1", "-m", "raid1"];

/// Has a mount make a commit.
fn sync(place: &Path) {
    let directory = File::open(place).expect("mounted");
    rustix::fs::syncfs(&directory).expect("a commit");
}

#[test]
fn with_a_device_missing_tiers_are_planned_with_those_that_are_there() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([":fast", ":fast", ":bulk", ":bulk"], &RAID1);
    let place = served.place();
    brindle_prints(["-q", "property", "set", text(&place), "small_files", "64K"]);
    served.unmount();
    let lost = served.devices.remove(1);
    served.mount_options = "degraded";
    served.mount();
    fs::write(place.join("small"), vec![7; 9000]).expect("room");
    sync(&place);
    let note = "device 2 (fast) is missing, and counts for nothing: 1 fast and 2 bulk devices are there. Once it is back, metadata of \
                profile raid1 belongs on fast devices (now with one copy of two on fast devices); data of small and marked files, \
                profile raid1, belongs on fast devices (now with one copy of two on fast devices)";
    let plan = served.json(&["-q", "tier", "plan", "--json"]);
    assert_eq!((&plan["nothing_to_move"], &plan["missing_devids"]), (&true.into(), &[2].into()), "{plan}");
    let planned = served.prints(&["-q", "tier", "plan"]);
    assert!(planned.starts_with("Nothing to move.") && planned.contains(note), "{planned}");
    let said = served.prints(&["-q", "tier", "apply"]);
    assert!(said.starts_with("Nothing to move.") && said.contains(note), "{said}");
    let status = served.json(&["-q", "tier", "status", "--json"]);
    let files = &status["files"]["small_and_marked"];
    assert_eq!((&files["wrong_bytes"], &files["bulk_bytes"]), (&0.into(), &0.into()), "{status}");
    assert_eq!(status["devices"].as_array().map(Vec::len), Some(4), "{status}");
    assert!(served.prints(&["-q", "tier", "status"]).contains(note));
    let at = text(&place.join("small")).to_owned();
    let found = json(["-q", "tier", "where", "--json", &at].map(Into::into).to_vec());
    let reasons: Vec<&str> = found["reasons"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["reason"].as_str())
        .collect();
    assert_eq!((reasons, &found["missing_devids"]), (vec!["small", "small"], &[2].into()), "{found}");
    assert!(brindle_prints(["-q", "tier", "where", &at]).contains(note));
    served.unmount();
    let planned = brindle_prints(with_devices(&["-q", "tier", "plan"], &served.devices));
    assert!(
        planned.contains(note) && planned.contains("on a mount of brindle with `-o degraded`"),
        "{planned}"
    );
    brindle_fails(1, with_devices(&["-q", "tier", "apply"], &served.devices));
    // It comes back, and what was told is so.
    served.mount();
    brindle_prints(["-q", "device", "rejoin", text(&lost), text(&place)]);
    let planned = served.prints(&["-q", "tier", "plan"]);
    assert!(planned.contains("To the fast devices: ") && !planned.contains("missing"), "{planned}");
    served.unmount();
    served.devices.insert(1, lost);
    served.check();
}

#[test]
fn status_recommends_what_takes_in_an_ssd_whose_log_the_pool_lacks() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([":fast", ":bulk", ":bulk", ":bulk"], &RAID1);
    let place = served.place();
    brindle_prints(["-q", "property", "set", text(&place), "log_profile", "single"]);
    // The log is on the SSD alone some commits later.
    let names_a_log = |device: &Path| {
        let shown = brindle_prints(["-q", "inspect-internal", "dump-super", text(device)]);
        let root = shown.lines().find_map(|line| line.strip_prefix("log_root\t")).expect("a field");
        root.trim() != "0"
    };
    let is_on_the_ssd_alone = |number: usize| {
        fs::write(place.join(format!("committed {number}")), b"").expect("room");
        sync(&place);
        let file = File::create(place.join(format!("fsynced {number}"))).expect("room");
        file.sync_all().expect("durable");
        names_a_log(&served.devices[0]) && !names_a_log(&served.devices[1])
    };
    assert!((0..20).any(is_on_the_ssd_alone), "no log on the SSD alone");
    served.kill();
    let ssd = served.devices.remove(0);
    served.mount_options = "degraded";
    served.mount();
    fs::write(place.join("without"), vec![8; 9000]).expect("room");
    sync(&place);
    let refused = brindle_fails(1, ["-q", "device", "rejoin", text(&ssd), text(&place)]);
    assert!(refused.contains("names a log"), "{refused}");
    let status = || String::from_utf8_lossy(&brindle(["status", "-v", text(&place)]).stdout).into_owned();
    let shown = status();
    let replace = format!("`brindle device replace start -f 1 {} {}`", text(&ssd), text(&place));
    assert!(shown.contains("names a log of fsyncs") && shown.contains(&replace), "{shown}");
    assert!(!shown.contains("device rejoin"), "{shown}");
    brindle_prints(["-q", "device", "replace", "start", "-f", "1", text(&ssd), text(&place)]);
    let shown = status();
    assert!(!shown.contains("missing") && !shown.contains("names a log"), "{shown}");
    served.unmount();
    served.devices.insert(0, ssd);
    served.check();
}
