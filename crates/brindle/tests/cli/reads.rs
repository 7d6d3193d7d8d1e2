//! Choice of the copy to read by the command line, and reports of reads.

use super::mount::unmount;
use super::support::{Image, Loops, brindle_fails, brindle_prints, is_root, text, with_devices};
use brindle_device::{Device, FileDevice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

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
    let show = |paths: &[PathBuf]| brindle_prints(with_devices(&["-q", "filesystem", "show"], paths));
    assert_eq!(show(std::slice::from_ref(&place)), show(&image.devices));
    assert_eq!(get("read_policy"), shown("pid round-robin:262144 devid:1 roundrobin latency queue [auto]"));
    set("read_policy", "round-robin:1M");
    assert_eq!(get("read_policy"), shown("pid [round-robin:1048576] devid:1 roundrobin latency queue auto"));
    // The mount has no reader of its messages any more, and answers all the same.
    for wrong in ["devid:9", "round-robin:0", "fastest"] {
        let said = brindle_fails(2, ["property", "set", text(&place), "read_policy", wrong]);
        assert!(said.contains("read_policy is one of pid"), "{said}");
    }
    assert_eq!(
        get("read_policies/policy"),
        shown("pid [round-robin:1048576] devid:1 roundrobin latency queue auto")
    );
    set("read_policies/policy", "roundrobin");
    assert_eq!(get("read_policy"), shown("pid round-robin:1048576 devid:1 [roundrobin] latency queue auto"));
    for (knob, otherwise) in
        [("nonlocal_inc_mixed_only", 1), ("rot_nonlocal_inc", 1), ("nonrot_nonlocal_inc", 0)]
    {
        let line = format!("roundrobin_{knob}={otherwise}\n");
        assert_eq!(get(&format!("read_policies/roundrobin_{knob}")), line);
    }
    assert_eq!(get("read_host_stats"), "read_host_stats=0\n");
    set("roundrobin_rot_nonlocal_inc", "3");
    assert_eq!(get("roundrobin_rot_nonlocal_inc"), "roundrobin_rot_nonlocal_inc=3\n");
    unmount(&place);

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
    unmount(&place);

    let devices: Vec<&str> = image.devices.iter().map(|device| text(device)).collect();
    let words = [&["mount", "-o", "read_policy=fastest"], devices.as_slice(), &[text(&place)]].concat();
    assert!(brindle_fails(1, words).contains("'fastest' is no read policy"));
}

/// Time to wait for a condition.
const PATIENCE: Duration = Duration::from_secs(120);

/// Foreign reads of a device, past all caches, until stopped.
fn keep_busy(device: &Path, is_over: &AtomicBool) {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = std::fs::File::options().read(true).custom_flags(direct).open(device).expect("a device");
    let mut room = vec![0; (256 << 10) + 4096];
    let start = room.as_ptr().align_offset(4096);
    let buffer = &mut room[start..start + (256 << 10)];
    for number in 0_u64.. {
        if is_over.load(Relaxed) {
            break;
        }
        file.read_exact_at(buffer, number % 60 * (256 << 10)).expect("readable");
    }
}

#[test]
fn the_host_says_what_waits_for_a_disk() {
    if !is_root("to attach loop devices") {
        return;
    }
    let directory = tempfile::tempdir().expect("room");
    let images = ["a", "b"].map(|name| directory.path().join(name));
    for image in &images {
        std::fs::write(image, vec![0; 16 << 20]).expect("room");
    }
    let of_image = FileDevice::open(&images[0]).expect("there it is").host_in_flight();
    assert_eq!(of_image, None, "a file has no queue");
    let loops = Loops::attach(&images, &[]);
    let [busy, idle] =
        [0, 1].map(|number: usize| FileDevice::open(&loops.0[number]).expect("a block device"));
    let is_over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| keep_busy(&loops.0[0], &is_over));
        }
        let until = Instant::now() + PATIENCE;
        let mut most = 0;
        while most < 2 && Instant::now() < until {
            most = most.max(busy.host_in_flight().expect("the host says"));
            std::thread::yield_now();
        }
        is_over.store(true, Relaxed);
        most
    });
    assert!(most >= 2, "eight readers: {most}");
    // The host's scan of new devices ends at some time.
    let until = Instant::now() + PATIENCE;
    while idle.host_in_flight() != Some(0) {
        assert!(Instant::now() < until, "nobody reads it");
        std::thread::yield_now();
    }
}
