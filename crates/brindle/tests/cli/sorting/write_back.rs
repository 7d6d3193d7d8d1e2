//! The write-back tier on a mount: shown, set, emptied, and killed.

use super::{Served, json, wait_until};
use crate::mount::can_mount;
use crate::support::{brindle, brindle_fails, brindle_prints, text, with_devices};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CLASSES: [&str; 4] = [":fast", ":fast", ":bulk", ":bulk"];
const WRITERS: usize = 8;
const BLOCK_BYTES: usize = 96 << 10;
const BLOCKS: usize = 24;

fn state(served: &Served) -> Value {
    served.json(&["tier", "status", "--json"])["write_back"].clone()
}

fn waiting(served: &Served) -> u64 {
    state(served)["waiting_bytes"].as_u64().expect("a number")
}

fn put(path: &Path, bytes: usize) {
    let mut file = File::create(path).expect("room");
    file.write_all(&contents(bytes)).expect("room");
    file.sync_all().expect("syncs");
}

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from(at / 3 % 251).expect("small")).collect()
}

fn property(served: &Served, name: &str) -> String {
    brindle_prints(["property", "get", text(&served.place()), name]).trim().to_owned()
}

fn set(served: &Served, name: &str, value: &str) {
    brindle_prints(["-q", "property", "set", text(&served.place()), name, value]);
}

#[test]
fn waiting_data_is_shown_and_goes_when_write_back_is_switched_off() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make(CLASSES, &["-d", "raid1", "-m", "raid1"]);
    let place = served.place();
    assert_eq!(property(&served, "writeback"), "writeback=sync", "the default of a mount");
    for number in 0..20 {
        put(&place.join(format!("file{number}")), 200_000);
    }
    let shown = state(&served);
    assert!(waiting(&served) >= 20 * 200_000, "{shown}");
    assert_eq!((shown["mode"].as_str(), shown["profile"].as_str()), (Some("sync"), Some("raid1")));
    assert!(shown["waiting_since"].as_u64() > Some(0) && shown["obstacle"].is_null(), "{shown}");
    let said = served.prints(&["tier", "status"]);
    assert!(
        said.contains("write-back: sync, raid1; ") && said.contains(" wait on fast devices, for "),
        "{said}"
    );
    // A file is not the place to change it at.
    let file = place.join("file1");
    let said = brindle_fails(2, ["property", "set", text(&file), "writeback", "off"]);
    assert!(said.contains(&format!("a property of the whole mount, {}", place.display())), "{said}");
    assert_eq!(property(&served, "writeback"), "writeback=sync");
    // The pool of a named mount is written, which is no news.
    let shown = brindle(["filesystem", "show", text(&place)]);
    assert!(shown.status.success() && shown.stderr.is_empty(), "{shown:?}");
    // It lies in no wrong place, and is left alone by what moves misplaced data.
    assert!(served.prints(&["tier", "apply"]).starts_with("Nothing to move."));
    set(&served, "writeback", "off");
    wait_until("it was destaged", || waiting(&served) == 0);
    assert_eq!(property(&served, "writeback"), "writeback=off");
    assert!(state(&served)["destaged_bytes"].as_u64() >= Some(20 * 200_000));
    for number in 0..20 {
        assert!(fs::read(place.join(format!("file{number}"))).expect("there") == contents(200_000));
    }
    put(&place.join("later"), 200_000);
    assert_eq!(waiting(&served), 0);
    served.unmount();
    served.check();
    // The choice is stored, and shown of a pool that is not mounted.
    let shown = json(with_devices(&["tier", "status", "--json"], &served.devices));
    assert_eq!(shown["write_back"]["mode"], "off");
}

#[test]
fn too_few_fast_devices_are_told_and_a_profile_can_be_chosen() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make([":fast", ":bulk", ":bulk", ":bulk"], &["-d", "raid1", "-m", "raid1"]);
    let place = served.place();
    let why = state(&served)["obstacle"].as_str().expect("a reason").to_owned();
    assert!(why.contains("needs 2 fast devices, and there is 1"), "{why}");
    assert!(served.prints(&["tier", "status"]).contains("write-back: none: data is raid1"));
    put(&place.join("file"), 300_000);
    assert_eq!(waiting(&served), 0);
    assert_eq!(property(&served, "writeback_profile"), "writeback_profile=data");
    set(&served, "writeback_profile", "single");
    assert_eq!(property(&served, "writeback_profile"), "writeback_profile=single");
    put(&place.join("another"), 300_000);
    assert!(waiting(&served) >= 300_000);
    for (name, wrong) in [("writeback", "async"), ("writeback_profile", "raid7")] {
        let said = brindle_fails(2, ["property", "set", text(&place), name, wrong]);
        assert!(said.contains(wrong), "{said}");
    }
    set(&served, "writeback_profile", "data");
    wait_until("it was destaged", || waiting(&served) == 0);
    served.unmount();
    served.check();
}

#[test]
fn a_mount_remounted_read_only_destages_no_more_until_it_is_writable_again() {
    if !can_mount() {
        return;
    }
    let options = "writeback=all,writeback_age=3600";
    let mut served = Served::make_mounted(CLASSES, &["-d", "single", "-m", "raid1"], options);
    let place = served.place();
    put(&place.join("file"), 4 << 20);
    let before = waiting(&served);
    assert!(before >= 4 << 20);
    brindle_prints(["-q", "mount", "-o", "remount,ro", text(&place)]);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(waiting(&served), before);
    let said = brindle_fails(1, ["property", "set", text(&place), "writeback", "off"]);
    assert!(said.to_lowercase().contains("read-only"), "{said}");
    brindle_prints(["-q", "mount", "-o", "remount,rw", text(&place)]);
    set(&served, "writeback", "off");
    wait_until("it was destaged", || waiting(&served) == 0);
    served.unmount();
    served.check();
}

/// A block of a writer's file, with the writer and the round.
fn block(writer: usize, round: u64) -> Vec<u8> {
    let word = (writer as u64) << 32 | round;
    word.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

/// Rounds that a writer was told are durable, by block; and of a round under way.
type Acknowledged = [[(u64, u64); BLOCKS]; WRITERS];

/// Eight writers sync blocks all the time; destaging goes on all the time, too; the server is killed again and again. What
/// was acknowledged is there, in its last round or the one that was under way.
#[test]
fn kills_while_data_is_destaged_lose_nothing_that_was_acknowledged() {
    if !can_mount() {
        return;
    }
    let kills = std::env::var("BRINDLE_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(3);
    let options = "writeback=all,writeback_age=0,wake_interval=0,commit=1";
    let mut served = Served::make_mounted(CLASSES, &["-d", "single", "-m", "raid1"], options);
    let place = served.place();
    let known: Mutex<Acknowledged> = Mutex::new([[(0, 0); BLOCKS]; WRITERS]);
    for kill in 0..kills {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for writer in 0..WRITERS {
                let (place, known, is_over) = (&place, &known, &is_over);
                threads.spawn(move || {
                    let path = place.join(format!("writer{writer}"));
                    let opened = File::options().create(true).truncate(false).write(true).open(path);
                    let Ok(file) = opened else { return };
                    for round in kill * 1_000_000 + 1.. {
                        let at = usize::try_from(round).expect("small") % BLOCKS;
                        known.lock().expect("no panic")[writer][at].1 = round;
                        // The server is gone.
                        if is_over.load(Ordering::Relaxed)
                            || file.write_all_at(&block(writer, round), (at * BLOCK_BYTES) as u64).is_err()
                            || file.sync_data().is_err()
                        {
                            return;
                        }
                        known.lock().expect("no panic")[writer][at].0 = round;
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(1500 + kill * 377 % 900));
            // A failed assertion must not leave the writers writing.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                wait_until("something was destaged", || {
                    state(&served)["destaged_bytes"].as_u64().expect("a number") > 0
                });
            }));
            served.kill();
            is_over.store(true, Ordering::Relaxed);
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        served.check();
        served.mount();
        for (writer, blocks) in known.lock().expect("no panic").iter_mut().enumerate() {
            let found = fs::read(place.join(format!("writer{writer}"))).expect("it was synced");
            for (at, (durable, begun)) in blocks.iter_mut().enumerate() {
                let there = found.get(at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES);
                let (old, new) = (block(writer, *durable), block(writer, *begun));
                let is_page_of = |page: &[u8]| page == &old[..page.len()] || page == &new[..page.len()];
                let is_right = there.is_some_and(|there| there.chunks(4096).all(is_page_of));
                assert!(
                    is_right || *durable == 0,
                    "kill {kill}, writer {writer}, block {at}: neither round {durable} nor {begun}"
                );
                // One that was under way may be there in part; the next time counts again.
                *durable = if there == Some(old.as_slice()) { *durable } else { 0 };
            }
        }
    }
    served.unmount();
    served.check();
}
