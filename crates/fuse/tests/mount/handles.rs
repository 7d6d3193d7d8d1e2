//! File handles (name_to_handle_at(2), as an NFS server has them): they outlive the kernel's cache, and the server.

use crate::support::{Written, can_mount, run};
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/handles.py");

fn save(place: &Path, store: &Path, names: &[&str]) {
    run(Command::new("python3").args([SCRIPT, "save"]).args([place, store]).args(names));
}

/// Contents that each handle opens, a line each.
fn opened(place: &Path, store: &Path) -> Vec<String> {
    std::fs::write("/proc/sys/vm/drop_caches", "2").expect("root may");
    let said = run(Command::new("python3").args([SCRIPT, "open"]).args([place, store])).stdout;
    String::from_utf8(said).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn handles_outlive_the_cache_and_the_server_and_never_open_another_file() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let (place, store) = (ours.root().to_owned(), ours.scratch.path().join("handles"));
    std::fs::create_dir_all(place.join("above/below")).expect("room");
    std::fs::write(place.join("above/below/file"), "contents").expect("room");
    std::fs::write(place.join("gone"), "of a file that goes").expect("room");
    save(&place, &store, &["above/below/file", "above/below", ".", "gone"]);
    let all = ["contents", "below file in below", "of a file that goes"];
    let seen = opened(&place, &store);
    assert_eq!([&seen[0], &seen[1], &seen[3]], all);
    ours.remount();
    let seen = opened(&place, &store);
    assert_eq!([&seen[0], &seen[1], &seen[3]], all);
    // The numbers of what was made last are free after a remount.
    std::fs::remove_file(place.join("gone")).expect("it is there");
    assert_eq!(opened(&place, &store)[3], "Stale file handle");
    ours.remount();
    for number in 0..10 {
        std::fs::write(place.join(format!("new{number}")), "of another file").expect("room");
    }
    let seen = opened(&place, &store);
    assert_eq!([&seen[0], &seen[1], &seen[3]], ["contents", "below file in below", "Stale file handle"]);
    // A directory is found where it is by now, and a handle of a directory that is gone opens none.
    std::fs::create_dir(place.join("elsewhere")).expect("room");
    std::fs::rename(place.join("above/below"), place.join("elsewhere/moved")).expect("it is there");
    assert_eq!(opened(&place, &store)[1], "moved file in moved");
    ours.remount();
    assert_eq!(opened(&place, &store)[..2], ["contents", "moved file in moved"]);
    std::fs::remove_dir_all(place.join("elsewhere")).expect("it is there");
    assert_eq!(opened(&place, &store)[..2], ["Stale file handle"; 2]);
    ours.finish();
}
