//! Operations on a mount that only an administrator may do, and an ordinary user (`allow_other`) is refused.

use super::mount::{can_mount, unmount};
use super::support::{brindle_prints, is_root, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

const NOBODY: u32 = 65534;

/// Runs the binary as an unprivileged user; `None` if that user can't reach it.
fn as_unprivileged(arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
    command.uid(NOBODY).gid(NOBODY).args(arguments).env_remove("BRINDLE_LOG").output().ok()
}

/// State of the pool, as far as it might have changed.
fn state(place: &Path) -> [String; 3] {
    let devices = brindle_prints(["filesystem", "usage", "--json", text(place)]);
    let balance = brindle_prints(["balance", "status", "--json", text(place)]);
    [devices, balance, brindle_prints(["property", "get", text(place), "placement"])]
}

#[test]
fn an_ordinary_user_changes_neither_devices_nor_tiers_of_the_administrators_mount() {
    if !can_mount() || !is_root("a mount that others may use") {
        return;
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("our own");
    let [first, second, third, place] =
        ["first", "second", "third", "place"].map(|name| scratch.path().join(name));
    fs::create_dir(&place).expect("new");
    fs::File::create(&third).and_then(|file| file.set_len(512 << 20)).expect("sparse");
    fs::set_permissions(&third, fs::Permissions::from_mode(0o666)).expect("our own");
    let fast = format!("{}:fast", text(&first));
    brindle_prints(["-q", "mkfs", "--size", "512M", "-d", "single", "-m", "single", &fast, text(&second)]);
    brindle_prints(["-q", "mount", "-o", "allow_other", text(&first), text(&second), text(&place)]);
    let own = place.join("own");
    fs::create_dir(&own).expect("room");
    std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).expect("root may");
    // A commit changes what is free, and none is to come between.
    brindle_prints(["filesystem", "sync", text(&place)]);
    let before = state(&place);
    let (at, new) = (text(&place), text(&third));
    let refused: [&[&str]; 15] = [
        &["device", "add", new, at],
        &["device", "remove", "2", at],
        &["device", "remove", text(&second), at],
        &["device", "stats", "--reset", at],
        &["filesystem", "resize", "2:-100M", at],
        &["filesystem", "label", at, "his"],
        &["balance", "start", "--full-balance", at],
        &["balance", "pause", at],
        &["balance", "cancel", at],
        &["tier", "apply", at],
        &["property", "set", at, "small_files", "64K"],
        &["property", "set", at, "placement", "no_ssd_metadata"],
        &["property", "set", at, "allocation_hint", "DATA_ONLY", "--devid", "2"],
        &["property", "set", at, "read_policy", "pid"],
        &["property", "set", at, "tier", "fast"],
    ];
    for words in refused {
        let Some(output) = as_unprivileged(words) else {
            println!("skipped: others can't reach the binary");
            unmount(&place);
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("ermi") || said.contains("not permitted"), "{words:?}: {said}");
    }
    // Nor can this user resume a balance; that there is none may be known.
    let output = as_unprivileged(&["balance", "resume", at]).expect("it could be reached");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(state(&place), before, "nothing has changed");
    // The user's own files may be marked.
    let output =
        as_unprivileged(&["property", "set", text(&own), "tier", "fast"]).expect("it could be reached");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Nor can the user mount root's images, wherever ordinary users may open `/dev/fuse`.
    for image in [&first, &second] {
        fs::set_permissions(image, fs::Permissions::from_mode(0o600)).expect("our own");
    }
    let output =
        as_unprivileged(&["mount", text(&first), text(&second), text(&own)]).expect("it could be reached");
    assert_ne!(output.status.code(), Some(0));
    unmount(&place);
    brindle_prints(["-q", "check", text(&first), text(&second)]);
}
