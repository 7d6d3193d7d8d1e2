//! Programs that meet at the same names of a mount: eight processes that make, write, sync, unlink and change four files, on
//! one SSD and three disks with everything mirrored.

use super::mount::can_mount;
use super::sorting::Served;
use super::support::text;
use std::process::Command;

/// Changes that the other processes make to the files; the first is a mix of all.
const KINDS: [&str; 8] = ["", "times", "mode", "length", "attribute", "contents", "link", "name"];
/// Seconds after its time at which an unfinished race is stuck.
const PATIENCE_SECONDS: u64 = 300;

/// Seconds for each kind (`BRINDLE_RACING_SECONDS`).
fn seconds() -> u64 {
    std::env::var("BRINDLE_RACING_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(1)
}

#[test]
fn programs_that_meet_at_the_same_names_leave_a_sound_and_writable_pool() {
    if !can_mount() {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/racing.py");
    let mut served = Served::make([":fast", ":bulk", ":bulk", ":bulk"], &["-d", "raid1", "-m", "raid1"]);
    let place = served.place();
    for (seed, kind) in KINDS.iter().enumerate() {
        let mut race = Command::new("timeout");
        race.args(["--signal=KILL", &(seconds() + PATIENCE_SECONDS).to_string(), "python3", script]);
        race.args([text(&place), &seconds().to_string(), &(seed * 100).to_string(), kind]);
        let output = race.output().expect("python3");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kind}: {}: {said}", output.status);
    }
    std::fs::write(place.join("later"), b"still writable").expect("the pool is writable");
    served.unmount();
    served.check();
}
