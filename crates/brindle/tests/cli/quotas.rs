//! `brindle quota` and `brindle qgroup` on a mount of the kernel, beside btrfs-progs; and what they show of its devices afterwards.

use super::ends::Served;
use super::mount::{can_mount, unmount};
use super::progs::Pool;
use super::support::{assert_same_lines, both_print, brindle, brindle_fails, brindle_prints, is_root, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Options of `qgroup show` that both are asked.
const SHOWN: [&[&str]; 10] = [
    &[],
    &["-p"],
    &["-c"],
    &["-pcre"],
    &["-F"],
    &["-f"],
    &["--raw"],
    &["--si"],
    &["--kbytes"],
    &["--sort=-rfer,qgroupid"],
];

/// Fills a pool, with groups of two levels above those of subvolumes.
fn fill(place: &Path) {
    let at = |name: &str| text(&place.join(name)).to_owned();
    let pool = text(place);
    brindle_prints(["quota", "enable", pool]);
    brindle_prints(["-q", "subvolume", "create", &at("a")]);
    brindle_prints(["qgroup", "create", "1/100", pool]);
    brindle_prints(["qgroup", "create", "2/7", pool]);
    brindle_prints(["-q", "subvolume", "create", "-i", "1/100", &at("b")]);
    brindle_prints(["-q", "qgroup", "assign", "--no-rescan", &at("a"), "1/100", pool]);
    brindle_prints(["-q", "qgroup", "assign", "--no-rescan", "1/100", "2/7", pool]);
    for (name, megabytes) in [("a/f", 3), ("b/f", 1)] {
        fs::write(place.join(name), vec![7; megabytes << 20]).expect("room");
    }
    brindle_prints(["filesystem", "sync", pool]);
    brindle_prints(["-q", "subvolume", "snapshot", "-i", "1/100", &at("a"), &at("s")]);
    brindle_prints(["qgroup", "limit", "20M", "1/100", pool]);
    brindle_prints(["qgroup", "limit", "-e", "5M", &at("b")]);
    brindle_prints(["-q", "quota", "rescan", "-W", pool]);
    brindle_prints(["-q", "quota", "rescan", "-w", pool]);
    brindle_prints(["filesystem", "sync", pool]);
}

/// Lines without the blanks between columns, and without the paths of groups of higher levels: btrfs-progs 6.2 print the name of
/// another group and a zero there.
fn columns(said: &[u8]) -> Vec<u8> {
    let said = String::from_utf8_lossy(said).replace('\0', "");
    let line = |line: &str| {
        let line = if line.starts_with("0/") { line } else { line.split('<').next().unwrap_or(line) };
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_higher = words.first().is_some_and(|word| word.starts_with(['1', '2']));
        let strange = is_higher && words.last() == Some(&"2/7") && !line.ends_with(' ');
        words[..words.len() - usize::from(strange)].join(" ") + "\n"
    };
    said.lines().map(line).collect::<String>().into_bytes()
}

fn refusals(place: &Path) {
    let pool = text(place);
    for (words, why) in [
        (&["create", "1/100"][..], "already"),
        (&["destroy", "1/100"], "has members"),
        (&["destroy", "3/3"], "no quota group 3/3"),
        (&["assign", "1/100", "2/7"], "is part of 2/7 already"),
        (&["remove", "0/999", "1/100"], "1/100"),
        (&["limit", "1M", "3/3"], "no quota group 3/3"),
    ] {
        let said = brindle_fails(1, [&["qgroup"], words, &[pool]].concat());
        assert!(said.contains(why), "{words:?}: {said}");
    }
    let said = brindle_fails(2, ["qgroup", "assign", "2/7", "1/100", pool]);
    assert!(said.contains("level"), "{said}");
    brindle_fails(2, ["qgroup", "create", "1/2/3", pool]);
}

fn stale_groups_go(place: &Path) {
    let (pool, gone) = (text(place), place.join("gone"));
    brindle_prints(["-q", "subvolume", "create", text(&gone)]);
    let shown: Value =
        serde_json::from_str(&brindle_prints(["subvolume", "show", "--json", text(&gone)])).expect("JSON");
    let id = format!("0/{}", shown["id"]);
    brindle_prints(["-q", "subvolume", "delete", "--commit", text(&gone)]);
    brindle_prints(["-q", "subvolume", "sync", pool]);
    // Recent kernels remove the group themselves, at a time of their own: also between two questions.
    let is_there = || brindle_prints(["qgroup", "show", pool]).contains(&format!("{id} "));
    let before = is_there();
    let said = brindle_prints(["qgroup", "clear-stale", "--dry-run", pool]);
    let is_named = said.contains(&id);
    assert!(if is_named { before } else { !is_there() }, "{said}");
    brindle_prints(["qgroup", "clear-stale", pool]);
    assert!(!brindle_prints(["qgroup", "show", pool]).contains(&format!("{id} ")));
}

#[test]
fn quotas_of_a_kernel_mount_are_changed_and_shown_as_btrfs_does() {
    if !is_root("a mount of the kernel") {
        return;
    }
    let pool = Pool::make();
    let raw;
    {
        let mount = pool.mount_by_kernel();
        fill(&mount.place);
        let a = mount.place.join("a");
        for options in SHOWN {
            let words = [&["qgroup", "show"], options, &[text(&a)]].concat();
            let paths: Vec<PathBuf> = words.iter().map(PathBuf::from).collect();
            let Some((expected, found)) = both_print(&paths) else { return };
            assert!(found.status.success(), "{found:?}");
            assert_same_lines(&words.join(" "), &columns(&expected), &columns(&found.stdout));
        }
        refusals(&mount.place);
        stale_groups_go(&mount.place);
        let (told, shown) =
            both_print(&["subvolume", "show", text(&a)].map(PathBuf::from)).expect("asked before");
        let block = |said: Vec<u8>| {
            let said = String::from_utf8(said).expect("text");
            said.split_once("\tQuota group:").expect("a group").1.to_owned()
        };
        assert_eq!(block(shown.stdout), block(told));
        // A group that a member is taken out of without a rescan can't be known any more.
        let wrong = text(&mount.place).to_owned();
        brindle_prints(["-q", "qgroup", "remove", "--no-rescan", text(&a), "1/100", &wrong]);
        let status = brindle(["status", &wrong]);
        let said = String::from_utf8_lossy(&status.stdout);
        assert!(said.contains("the numbers of quota groups are wrong"), "{said}");
        brindle_prints(["-q", "qgroup", "assign", "--no-rescan", text(&a), "1/100", &wrong]);
        brindle_prints(["-q", "quota", "rescan", "-w", &wrong]);
        let status = brindle(["status", &wrong]);
        assert!(!String::from_utf8_lossy(&status.stdout).contains("quota groups"));
        let status = brindle_prints(["quota", "status", text(&mount.place)]);
        assert!(status.contains("qgroup (full accounting)") && status.contains("Level 2:"), "{status}");
        brindle_prints(["filesystem", "sync", text(&mount.place)]);
        raw = brindle_prints(["qgroup", "show", "--raw", "-pcre", text(&mount.place)]);
    }
    let images: Vec<&str> = pool.images.iter().map(|image| text(image)).collect();
    let shown = brindle_prints([&["qgroup", "show", "--raw", "-pcre"], &images[..]].concat());
    assert_same_lines("on devices", raw.as_bytes(), shown.as_bytes());
    let json = brindle_prints([&["qgroup", "show", "--json"], &images[..]].concat());
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let groups = json["groups"].as_array().expect("groups");
    let outer = groups.iter().find(|group| group["qgroupid"] == "1/100").expect("the group");
    assert_eq!(outer["max_referenced_bytes"], 20 << 20);
    assert_eq!(
        (outer["parents"][0].as_str(), outer["children"].as_array().map(Vec::len)),
        (Some("2/7"), Some(3))
    );
    {
        let mount = pool.mount_by_kernel();
        let place = text(&mount.place);
        let written = fs::write(mount.place.join("b/more"), vec![1; 30 << 20]);
        let synced = run_sync(&mount.place.join("b/more"));
        assert!(written.is_err() || synced.is_err(), "the limit is one");
        brindle_prints(["qgroup", "limit", "none", "1/100", place]);
        brindle_prints(["quota", "disable", place]);
        let said = brindle_fails(1, ["qgroup", "show", place]);
        assert!(said.contains("quotas are off"), "{said}");
        assert!(!brindle(["quota", "status", "--is-enabled", place]).status.success());
    }
}

fn run_sync(path: &Path) -> std::io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// On a mount of ours: numbers that the kernel counts as well, and a limit that is kept.
#[test]
fn quota_groups_of_a_mount_of_brindle_are_kept_right() {
    if !can_mount() || !is_root("a mount of the kernel") {
        return;
    }
    let made = Pool::make();
    let scratch = tempfile::tempdir().expect("temporary directory");
    let place = scratch.path().to_owned();
    let (pool, at) = (text(&place), |name: &str| text(&place.join(name)).to_owned());
    let images: Vec<&str> = made.images.iter().map(|image| text(image)).collect();
    brindle_prints([&["mount"], &images[..], &[pool]].concat());
    brindle_prints(["quota", "enable", pool]);
    brindle_prints(["-q", "quota", "rescan", "-W", pool]);
    brindle_prints(["-q", "subvolume", "create", &at("a")]);
    fs::write(place.join("a/f"), vec![7; 3 << 20]).expect("room");
    brindle_prints(["-q", "subvolume", "snapshot", &at("a"), &at("s")]);
    fs::write(place.join("a/g"), vec![8; 1 << 20]).expect("room");
    brindle_prints(["qgroup", "create", "1/100", pool]);
    brindle_prints(["-q", "qgroup", "assign", &at("a"), "1/100", pool]);
    brindle_prints(["-q", "quota", "rescan", "-W", pool]);
    brindle_prints(["-q", "subvolume", "create", "-i", "1/100", &at("b")]);
    fs::write(place.join("b/f"), vec![7; 1 << 20]).expect("room");
    brindle_prints(["-q", "subvolume", "snapshot", "-i", "1/100", &at("b"), &at("c")]);
    brindle_prints(["-q", "subvolume", "snapshot", "-i", "1/100", &at("b"), &at("gone")]);
    let said = brindle_fails(1, ["subvolume", "create", "-i", "1/9", &at("d")]);
    assert!(said.contains("there is no quota group 1/9"), "{said}");
    brindle_prints(["-q", "subvolume", "delete", "--commit", &at("gone")]);
    brindle_prints(["-q", "subvolume", "sync", pool]);
    brindle_prints(["filesystem", "sync", pool]);
    assert!(
        !brindle_prints(["qgroup", "show", pool]).contains("<stale>"),
        "the group goes with its subvolume"
    );
    brindle_prints(["qgroup", "limit", "8M", "1/100", pool]);
    let large = place.join("a/large");
    let written = fs::write(&large, vec![9; 30 << 20]);
    let refused = written.and_then(|()| run_sync(&large)).expect_err("past the limit");
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::DQUOT.raw_os_error()), "{refused}");
    // A program that neither syncs nor closes hears of it before each write.
    let file = fs::File::options().write(true).open(&large).expect("opens");
    let begin = 64 << 20;
    let small = |number: u64| file.write_all_at(&[9; 4096], begin + number * 4096);
    let full = (0..2048).find(|&number| small(number).is_err()).expect("8 MiB is the limit");
    for attempt in 0..3 {
        let refused = small(full).expect_err("there is no more room than before");
        let dquot = rustix::io::Errno::DQUOT.raw_os_error();
        assert_eq!(refused.raw_os_error(), Some(dquot), "{attempt}: {refused}");
    }
    drop(file);
    fs::remove_file(&large).expect("deletion is never refused");
    wait_for_usage(&at("a"), "Usage referenced:\t4");
    let shown = brindle_prints(["qgroup", "show", "--raw", "-pcre", pool]);
    brindle_prints(["umount", pool]);
    let devices = brindle_prints([&["qgroup", "show", "--raw", "-pcre"], &images[..]].concat());
    assert_same_lines("on devices", shown.as_bytes(), devices.as_bytes());
    let mount = made.mount_by_kernel();
    let pool = text(&mount.place);
    let status = brindle_prints(["quota", "status", pool]);
    assert!(status.contains("Inconsistent:            no"), "{status}");
    brindle_prints(["-q", "quota", "rescan", "-w", pool]);
    brindle_prints(["filesystem", "sync", pool]);
    let counted = brindle_prints(["qgroup", "show", "--raw", "-pcre", pool]);
    assert_same_lines("counted by the kernel", shown.as_bytes(), counted.as_bytes());
}

/// Waits for the usage of a subvolume after a file was deleted: the kernel forgets the inode behind the program's back, and it is
/// counted until then.
fn wait_for_usage(subvolume: &str, expected: &str) {
    let begun = Instant::now();
    loop {
        brindle_prints(["filesystem", "sync", subvolume]);
        let group = brindle_prints(["subvolume", "show", "--raw", subvolume]);
        assert!(group.contains("Quota group:\t\t0/"), "{group}");
        if group.contains(expected) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{group}");
    }
}

/// Subvolumes that the writers work in; the last one is part of no group.
const SUBVOLUMES: usize = 4;

/// Makes subvolumes, a group of all but the last one, and lets programs work in them until some snapshots have come and gone.
fn work_and_kill(served: &mut Served, seed: u64, mode: &[&str]) {
    let place = served.place();
    let (pool, at) = (text(&place), |name: &str| text(&place.join(name)).to_owned());
    served.mount_with("commit=1");
    let names: Vec<String> = (0..SUBVOLUMES).map(|number| at(&format!("sub{number}"))).collect();
    for name in &names {
        brindle_prints(["-q", "subvolume", "create", name]);
    }
    match mode.contains(&"SIMPLE") {
        true => brindle_prints(["quota", "enable", "--simple", pool]),
        false => brindle_prints(["quota", "enable", pool]),
    };
    brindle_prints(["-q", "quota", "rescan", "-W", pool]);
    brindle_prints(["qgroup", "create", "1/1", pool]);
    for name in &names[..SUBVOLUMES - 1] {
        brindle_prints(["-q", "qgroup", "assign", name, "1/1", pool]);
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/quotas.py");
    let mut programs = Command::new("python3");
    programs.args([script, env!("CARGO_BIN_EXE_brindle"), pool, &seed.to_string()]).args(mode);
    let mut programs = programs.stdout(Stdio::piped()).spawn().expect("python3");
    let mut done = BufReader::new(programs.stdout.take().expect("a pipe"));
    for _ in 0..20 + seed % 7 {
        done.read_line(&mut String::new()).expect("a line");
    }
    served.kill();
    done.read_to_string(&mut String::new()).expect("the rest");
    assert!(programs.wait().expect("our child").success());
}

/// The numbers on the devices are those of the last commit, whenever the server is killed; else they say that they are wrong.
#[test]
fn numbers_of_quota_groups_are_right_after_a_killed_server() {
    if !can_mount() {
        return;
    }
    for (seed, mode) in [(1, &["CALM"][..]), (2, &["CALM"]), (3, &[])] {
        let mut served = Served::make();
        work_and_kill(&mut served, seed, mode);
        let says_wrong = |served: &Served| {
            let said = brindle_prints(["quota", "status", text(&served.image())]);
            !said.contains("Inconsistent:            no")
        };
        if says_wrong(&served) {
            assert!(mode.is_empty(), "seed {seed}: nothing made them unknown");
            brindle_prints(["check", text(&served.image())]);
        } else {
            served.check();
        }
        served.mount();
        brindle_prints(["-q", "quota", "rescan", "-w", text(&served.place())]);
        unmount(&served.place());
        served.wait_for_success();
        assert!(!says_wrong(&served), "seed {seed}: they are counted");
        served.check();
    }
}

#[test]
fn numbers_of_simple_quotas_are_right_after_a_killed_server() {
    if !can_mount() {
        return;
    }
    for seed in [4, 5] {
        let mut served = Served::make();
        work_and_kill(&mut served, seed, &["CALM", "SIMPLE"]);
        served.check();
        served.mount();
        let said = brindle_fails(1, ["quota", "rescan", text(&served.place())]);
        assert!(said.contains("simple quotas are not counted anew"), "{said}");
        let said = brindle_fails(1, ["quota", "enable", text(&served.place())]);
        assert!(said.contains("simple quotas are on"), "{said}");
        unmount(&served.place());
        served.wait_for_success();
        served.check();
    }
}

/// Tables of a script's work on a mount of the kernel or of ours.
fn tables_of_simple_quotas(place: &Path, mode: &[&str]) -> Vec<u8> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/simple_quotas.py");
    let mut program = Command::new("python3");
    program.args([script, env!("CARGO_BIN_EXE_brindle"), text(place)]).args(mode);
    let output = program.output().expect("python3");
    assert!(output.status.success(), "{}: {}", place.display(), String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The same work has the same numbers on mounts of both, also where each goes on with the pool of the other.
#[test]
fn simple_quotas_count_as_the_kernel_does() {
    if !can_mount() || !is_root("a mount of the kernel") {
        return;
    }
    let pools = [Pool::make(), Pool::make()];
    let modes: [&[&str]; 2] = [&[], &["FURTHER"]];
    for (round, mode) in modes.into_iter().enumerate() {
        let (ours, theirs) = (&pools[round], &pools[1 - round]);
        let counted = {
            let mount = theirs.mount_by_kernel();
            tables_of_simple_quotas(&mount.place, mode)
        };
        let scratch = tempfile::tempdir().expect("temporary directory");
        let place = scratch.path();
        let images: Vec<&str> = ours.images.iter().map(|image| text(image)).collect();
        // Deleted subvolumes are looked for at each commit.
        brindle_prints([&["-q", "mount", "-o", "commit=1"], &images[..], &[text(place)]].concat());
        let found = tables_of_simple_quotas(place, mode);
        brindle_prints(["umount", text(place)]);
        assert_same_lines(&format!("round {round}"), &counted, &found);
        for pool in &pools {
            let images: Vec<&str> = pool.images.iter().map(|image| text(image)).collect();
            brindle_prints([&["-q", "check"], &images[..]].concat());
        }
    }
}

/// Linux ends all writing when a block goes that counts for a subvolume without a group.
#[test]
fn the_kernel_writes_on_where_blocks_of_a_deleted_subvolume_were_moved() {
    if !can_mount() || !is_root("a mount of the kernel") {
        return;
    }
    const FILES: usize = 400;
    let made = Pool::make();
    let images: Vec<&str> = made.images.iter().map(|image| text(image)).collect();
    let scratch = tempfile::tempdir().expect("temporary directory");
    let (place, pool) = (scratch.path(), text(scratch.path()));
    let at = |name: &str| text(&place.join(name)).to_owned();
    brindle_prints([&["-q", "mount"], &images[..], &[pool]].concat());
    brindle_prints(["-q", "subvolume", "create", &at("gone")]);
    for number in 0..FILES {
        fs::write(place.join(format!("gone/{number}")), "contents").expect("room");
    }
    brindle_prints(["-q", "subvolume", "snapshot", &at("gone"), &at("copy")]);
    brindle_prints(["-q", "subvolume", "delete", &at("gone")]);
    brindle_prints(["-q", "subvolume", "sync", pool]);
    brindle_prints(["quota", "enable", "--simple", pool]);
    brindle_prints(["balance", "start", "--full-balance", pool]);
    brindle_prints(["umount", pool]);
    {
        let mount = made.mount_by_kernel();
        for number in 0..FILES {
            fs::remove_file(mount.place.join(format!("copy/{number}"))).expect("writable");
        }
        brindle_prints(["filesystem", "sync", text(&mount.place)]);
        fs::write(mount.place.join("copy/later"), "contents").expect("still writable");
        brindle_prints(["filesystem", "sync", text(&mount.place)]);
    }
    brindle_prints([&["-q", "check"], &images[..]].concat());
}
