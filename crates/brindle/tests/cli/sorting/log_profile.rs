//! The log of a pool of one SSD and two disks, shown and chosen.

use super::{Served, json};
use crate::mount::can_mount;
use crate::support::{brindle_fails, brindle_prints, text, with_devices};
use serde_json::{Value, json};

const RAID1: [&str; 4] = ["-d", "raid1", "-m", "raid1"];

fn log_of(served: &Served) -> Value {
    served.json(&["tier", "status", "--json"])["log"].clone()
}

fn set(served: &Served, value: &str) {
    brindle_prints(["-q", "property", "set", text(&served.place()), "log_profile", value]);
}

#[test]
fn a_log_on_the_only_ssd_can_be_chosen_and_its_loss_is_told() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([":fast", ":bulk", ":bulk", ":bulk"], &RAID1);
    let place = served.place();
    let log = log_of(&served);
    assert_eq!((&log["devices"], &log["profile"]), (&Value::Null, &json!("metadata")), "{log}");
    for command in ["status", "plan"] {
        let said = served.prints(&["tier", command]);
        let why =
            "an fsync writes to every device: a log with as many copies as asked for needs 2 fast devices";
        assert!(said.contains(why), "{said}");
        let remedy = format!(
            "`brindle property set {} log_profile single` puts the log on devid 1 alone",
            text(&place)
        );
        assert!(said.contains(&remedy) && said.contains("if devid 1 is lost, so is"), "{said}");
    }
    let said = brindle_fails(2, ["property", "set", text(&place), "log_profile", "raid5"]);
    assert!(said.contains("'raid5' is no profile of a log"), "{said}");
    set(&served, "single");
    let shown = brindle_prints(["property", "get", text(&place), "log_profile"]);
    assert_eq!(shown.trim(), "log_profile=single");
    let log = log_of(&served);
    assert_eq!((&log["devices"], &log["has_fewer_copies"]), (&json!([1]), &json!(true)), "{log}");
    let said = served.prints(&["tier", "status"]);
    assert!(
        said.contains("an fsync writes to devid 1, and to each device")
            && said.contains("log_profile=single: "),
        "{said}"
    );
    served.unmount();
    served.check();
    // It is stored; a mount can go by another one.
    let stored = json(with_devices(&["tier", "status", "--json"], &served.devices));
    assert_eq!(stored["log"]["profile"], "single");
    served.mount();
    assert_eq!(log_of(&served)["profile"], "single");
    set(&served, "metadata");
    assert_eq!(log_of(&served)["devices"], Value::Null);
    served.unmount();
    served.check();
}

#[test]
fn a_mount_option_overrules_the_stored_profile_of_the_log() {
    if !can_mount() {
        return;
    }
    let classes = [":fast", ":bulk", ":bulk", ":bulk"];
    let mut served = Served::make_mounted(classes, &RAID1, "log_profile=single");
    assert_eq!(log_of(&served)["devices"], json!([1]));
    served.unmount();
    let stored = json(with_devices(&["tier", "status", "--json"], &served.devices));
    assert_eq!(stored["log"]["profile"], "metadata");
    served.check();
}

#[test]
fn disks_before_the_ssd_get_higher_devids_and_the_log_is_on_the_ssd() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([":bulk", ":bulk", ":bulk", ":bulk"], &RAID1);
    let place = served.place();
    // The last device turns out to be flash.
    brindle_prints([
        "property",
        "set",
        "--devid",
        "4",
        text(&place),
        "allocation_hint",
        "METADATA_PREFERRED",
    ]);
    std::fs::write(place.join("file"), b"contents").expect("room");
    let said = served.prints(&["tier", "plan"]);
    assert!(
        said.contains("devid 1 is a bulk device, and mounts go by the superblock of the lowest devid"),
        "{said}"
    );
    assert!(
        said.contains("unmounted, `brindle tier apply --devids DEVICE...` gives devid 1, 2, 3 higher ids"),
        "{said}"
    );
    assert!(said.contains("log_profile single` puts the log on devid 4 alone"), "{said}");
    let said = brindle_fails(1, ["tier", "apply", "--devids", text(&place)]);
    assert!(said.contains("the pool is mounted"), "{said}");
    served.unmount();
    let said = brindle_prints(with_devices(&["-q", "tier", "plan"], &served.devices));
    assert!(said.contains("`brindle tier apply --devids /"), "{said}");
    let said = brindle_prints(with_devices(&["-q", "tier", "apply", "--devids"], &served.devices));
    for changed in ["devid 1 is devid 5 now", "devid 2 is devid 6 now", "devid 3 is devid 7 now"] {
        assert!(said.contains(changed), "{said}");
    }
    served.check();
    let again = brindle_prints(with_devices(&["-q", "tier", "apply", "--devids"], &served.devices));
    assert!(!again.contains("now"), "{again}");
    served.mount();
    assert_eq!(std::fs::read(place.join("file")).expect("there"), b"contents");
    set(&served, "single");
    assert_eq!(log_of(&served)["devices"], json!([4]));
    served.unmount();
    served.check();
}
