//! Which copy is read, as the command line has it, and what it says of what was read.

use super::support::{Image, brindle_fails, brindle_prints, text};
use std::path::Path;

#[test]
fn the_policy_is_chosen_at_mount_and_changed_while_mounted() {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: needs /dev/fuse");
        return;
    }
    let image = Image::unpack("raid1");
    let place = image.beside("place").to_owned();
    std::fs::create_dir(&place).expect("new");
    let mount = |options: &str| {
        let devices = image.devices.iter().map(|device| text(device));
        let words = ["-q", "mount", "-o", options].into_iter().chain(devices).chain([text(&place)]);
        brindle_prints(words)
    };
    let get = |name: &str| brindle_prints(["property", "get", text(&place), name]);
    let set = |name: &str, value: &str| brindle_prints(["property", "set", text(&place), name, value]);
    let shown = |names: &str| format!("read_policy={names}\n");

    mount("ro");
    assert_eq!(get("read_policy"), shown("pid round-robin:262144 devid:1 roundrobin latency queue [auto]"));
    set("read_policy", "round-robin:1M");
    assert_eq!(get("read_policy"), shown("pid [round-robin:1048576] devid:1 roundrobin latency queue auto"));
    // The mount has nobody to complain to any more, and answers all the same.
    for wrong in ["devid:9", "round-robin:0", "fastest"] {
        let said = brindle_fails(1, ["property", "set", text(&place), "read_policy", wrong]);
        assert!(said.contains("Invalid argument"), "{said}");
    }
    set("roundrobin_rot_nonlocal_inc", "3");
    assert_eq!(get("roundrobin_rot_nonlocal_inc"), "roundrobin_rot_nonlocal_inc=3\n");
    brindle_prints(["umount", text(&place)]);

    mount("ro,read_policy=devid:2");
    let reads = || -> serde_json::Value {
        let said = brindle_prints(["device", "reads", "--json", text(&place)]);
        serde_json::from_str(&said).expect("JSON")
    };
    assert_eq!(reads()["is_counted"], false);
    set("read_statistics", "1");
    let files = |path: &Path| std::fs::read_dir(path).expect("a directory").flatten().collect::<Vec<_>>();
    let contents = files(&place).into_iter().filter_map(|entry| std::fs::read(entry.path()).ok());
    assert!(contents.map(|bytes| bytes.len()).sum::<usize>() > 0, "it holds files");
    let counted = reads();
    assert_eq!(
        (&counted["is_counted"], &counted["devices"][0]["reads"]),
        (&true.into(), &0.into()),
        "{counted}"
    );
    assert!(counted["devices"][1]["bytes"].as_u64() > Some(0), "{counted}");
    assert!(brindle_prints(["device", "reads", text(&place)]).contains("[devid:2]"));
    brindle_prints(["umount", text(&place)]);

    let devices: Vec<&str> = image.devices.iter().map(|device| text(device)).collect();
    let words = [&["mount", "-o", "read_policy=fastest"], devices.as_slice(), &[text(&place)]].concat();
    assert!(brindle_fails(1, words).contains("'fastest' is no read policy"));
}
