//! Mounts as a machine makes them when it starts, and what programs see that outlive a server.

use super::ends::Served;
use super::mount::{can_mount, unmount};
use super::support::{Loops, brindle, brindle_fails, brindle_prints, brindle_succeeds, is_root, text};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn all_devices_of_a_pool_are_found_by_one() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let images: Vec<PathBuf> = ["a.img", "b.img", "c.img"].map(|name| scratch.path().join(name)).to_vec();
    for image in &images {
        File::create(image).and_then(|image| image.set_len(512 << 20)).expect("sparse");
    }
    let place = scratch.path().join("place");
    fs::create_dir(&place).expect("new");
    let [a, b, c] = [0, 1, 2].map(|number: usize| text(&images[number]));
    brindle_prints(["mkfs", "-m", "raid1", "-d", "raid1", a, b, c]);
    let first = Loops::attach(&images[..2], &[]);
    let device = text(&first.0[1]);
    assert_eq!(brindle_prints(["device", "ready", "--udev", device]), "ID_BRINDLE_READY=0\n");
    brindle_fails(1, ["device", "ready", device]);
    let said = brindle_fails(1, ["mount", "--helper", device, text(&place)]);
    assert!(said.contains("missing devid 3"), "{said}");
    let last = Loops::attach(&images[2..], &[]);
    assert_eq!(brindle_prints(["device", "ready", "--udev", device]), "ID_BRINDLE_READY=1\n");
    brindle_succeeds(["device", "ready", device]);
    brindle_succeeds(["mount", "--helper", device, text(&place)]);
    fs::write(place.join("file"), "contents").expect("room");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let as_other = |path: PathBuf| {
        let mut other = Command::new("setpriv");
        other.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "cat"]).arg(path);
        other.output().expect("setpriv").stdout
    };
    assert_eq!(as_other(place.join("file")), b"contents", "a mount of root is open to others");
    brindle_succeeds(["device", "ready", text(&last.0[0])]);
    unmount(&place);
    // A copy of a device is not taken for it.
    let copy = scratch.path().join("copy.img");
    fs::copy(&images[0], &copy).expect("room");
    let copy = Loops::attach(&[copy], &[]);
    brindle_fails(1, ["device", "ready", text(&last.0[0])]);
    drop(copy);
    assert!(brindle_fails(1, ["device", "ready", text(&scratch.path().join("place"))]).contains("place"));
    drop((first, last));
    brindle_prints(["check", a, b, c]);
}

#[test]
fn a_pool_is_named_by_its_uuid_its_label_or_one_block_device() {
    if !can_mount() || !is_root("a loop device") {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let images: Vec<PathBuf> = ["a.img", "b.img", "c.img"].map(|name| scratch.path().join(name)).to_vec();
    for image in &images {
        File::create(image).and_then(|image| image.set_len(512 << 20)).expect("sparse");
    }
    let [a, b, c] = [0, 1, 2].map(|number: usize| text(&images[number]));
    // No other pool has this label.
    let label = format!("tagged-{}", std::process::id());
    brindle_prints(["mkfs", "-L", &label, "-m", "raid1", "-d", "raid1", a, b, c]);
    let loops = Loops::attach(&images, &[]);
    let device = text(&loops.0[1]);
    let place = scratch.path().join("place");
    fs::create_dir(&place).expect("new");
    let shown = brindle_prints(["filesystem", "show", device]);
    let uuid = shown.split("uuid: ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a UUID");
    for name in [device.to_owned(), format!("UUID={uuid}"), format!("LABEL={label}")] {
        let said = brindle_succeeds(["mount", &name, text(&place)]);
        assert!(!String::from_utf8_lossy(&said.stderr).contains("missing"), "{name}: {said:?}");
        fs::write(place.join("file"), &name).expect("room");
        unmount(&place);
        assert_eq!(brindle_prints(["cat", &name, "-p", "file"]), name);
        for words in [
            &["check"][..],
            &["status"],
            &["filesystem", "show"],
            &["filesystem", "usage"],
            &["tier", "plan"],
            &["scrub", "start"],
            &["device", "lease"],
            &["rescue", "zero-log", "--dry-run"],
            &["rescue", "super-recover", "--dry-run"],
            &["rescue", "fix-device-size", "--dry-run"],
            &["rescue", "readmit", "--dry-run"],
            &["rescue", "chunk-recover", "--dry-run"],
        ] {
            let words: Vec<&str> = words.iter().copied().chain([name.as_str()]).collect();
            let done = brindle_succeeds(&words);
            let said =
                String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
            assert!(!said.contains("is missing") && !said.contains("degraded"), "{words:?}: {said}");
            assert!(!said.contains("are given"), "{words:?}: {said}");
        }
        brindle_succeeds(["balance", "start", "-dusage=0", &name]);
    }
    let said = brindle_fails(1, ["mount", "LABEL=not to be found", text(&place)]);
    assert!(said.contains("LABEL=not to be found: no block device has it"), "{said}");
    // The named devices are to do, if that is what is said.
    let said =
        brindle_succeeds(["mount", "-o", "degraded=named,ro", device, text(&loops.0[0]), text(&place)]);
    assert!(String::from_utf8_lossy(&said.stderr).contains("device 3 is missing"), "{said:?}");
    assert!(brindle_prints(["filesystem", "show", text(&place)]).contains("MISSING"));
    unmount(&place);
}

/// The one or the other would be taken, and written, by chance.
#[test]
fn a_tag_of_a_device_and_its_copy_is_refused() {
    if !is_root("a loop device") {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    let images: Vec<PathBuf> = ["one.img", "copy.img"].map(|name| scratch.path().join(name)).to_vec();
    let label = format!("copied-{}", std::process::id());
    brindle_prints(["mkfs", "--size", "200M", "-L", &label, text(&images[0])]);
    fs::copy(&images[0], &images[1]).expect("room");
    let loops = Loops::attach(&images, &[]);
    let said = brindle_fails(1, ["ls", &format!("LABEL={label}")]);
    assert!(said.contains("one is a copy") && said.contains("name the devices themselves"), "{said}");
    loops.0.iter().for_each(|device| assert!(said.contains(text(device)), "{said}"));
    brindle_succeeds(["ls", text(&loops.0[1])]);
}

#[test]
fn image_files_that_were_not_named_are_told_of() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let images: Vec<PathBuf> = ["a.img", "b.img", "c.img"].map(|name| scratch.path().join(name)).to_vec();
    for image in &images {
        File::create(image).and_then(|image| image.set_len(512 << 20)).expect("sparse");
    }
    let [a, b, c] = [0, 1, 2].map(|number: usize| text(&images[number]));
    brindle_prints(["mkfs", "-m", "raid1", "-d", "raid1", a, b, c]);
    let expected = format!("missing devid 2 ({b}), devid 3 ({c}): name all devices of the pool");
    for words in
        [&["ls", a][..], &["check", a], &["balance", "start", "-dusage=0", a], &["scrub", "start", a]]
    {
        let said = brindle_fails(1, words);
        assert!(said.contains(&expected) && !said.contains("degraded"), "{words:?}: {said}");
    }
    let said = brindle_succeeds(["inspect", "tree-stats", a]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains(&format!("device 3 is missing: it was not named, and is here: {c}")), "{said}");
    let said = brindle_succeeds(["rescue", "zero-log", "--dry-run", a]);
    assert!(String::from_utf8_lossy(&said.stderr).contains("1 of 3 devices are given: name the others"));
    fs::remove_file(&images[2]).expect("it is there");
    assert!(brindle_fails(1, ["ls", a]).contains("-o degraded"), "not all are there");
}

#[test]
fn programs_go_on_after_a_new_mount() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make();
    served.mount();
    let path = served.place().join("file");
    let mut file = File::create(&path).expect("room");
    file.write_all(b"durable").and_then(|()| file.sync_all()).expect("room");
    let directory = File::open(served.place()).expect("it is there");
    served.kill();
    let gone = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error);
        assert!(matches!(errno, Some(Errno::NOTCONN | Errno::CONNABORTED)), "{error}");
    };
    gone(file.write_all(b" and more").and_then(|()| file.sync_all()).expect_err("its server is gone"));
    gone(
        rustix::fs::openat(&directory, "file", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())
            .expect_err("its server is gone")
            .into(),
    );
    served.mount();
    gone(file.sync_all().expect_err("it is of the mount before"));
    assert_eq!(fs::read(&path).expect("it is there"), b"durable");
    File::options().append(true).open(&path).and_then(|mut file| file.write_all(b" and more")).expect("room");
    drop((file, directory));
    unmount(&served.place());
    served.wait_for_success();
    served.check();
}

#[test]
fn a_command_on_a_mount_whose_server_has_ended_names_the_way_out() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make();
    served.mount();
    let place = served.place();
    let below = place.join("file");
    fs::write(&below, "contents").expect("room");
    served.kill_if_alive();
    let way_out = format!("has ended; the pool is as of its last sync: `brindle umount {}`", text(&place));
    let commands = "filesystem usage,filesystem df,filesystem sync,filesystem label,device stats,device usage,subvolume list,\
                    subvolume show,subvolume delete,balance start --full-balance,balance status,scrub start,scrub status,quota enable,\
                    qgroup show,tier status,property get,ls,check,stat,filesystem show,filesystem du,filesystem defragment,send";
    for command in commands.split(',') {
        for path in [&place, &below] {
            let said = brindle_fails_somehow(command.split_whitespace().chain([text(path)]));
            assert!(said.contains(&way_out), "{command}: {said}");
        }
    }
    brindle_prints(["umount", text(&place)]);
    served.mount();
    unmount(&place);
    served.wait_for_success();
}

/// Messages of a command that fails, whatever its exit status.
fn brindle_fails_somehow<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let output = brindle(words);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}
