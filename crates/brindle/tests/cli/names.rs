//! Names that eight programs change and sync at the same time, on a server that is killed.

use super::ends::Served;
use super::mount::{can_mount, unmount};
use super::support::text;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/names.py");
/// Notes that all programs have made when the server is killed, in bytes.
const NOTES_BYTES: u64 = 100_000;

/// Number of kills (`BRINDLE_KILL_ROUNDS`).
fn rounds() -> u64 {
    std::env::var("BRINDLE_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2)
}

/// Length of all notes, in bytes.
fn noted(notes: &Path) -> u64 {
    let entries = std::fs::read_dir(notes).expect("a directory");
    entries.map(|entry| entry.and_then(|entry| entry.metadata()).expect("a file").len()).sum()
}

#[test]
fn names_that_were_synced_survive_a_killed_server() {
    if !can_mount() {
        return;
    }
    let mut served = Served::make();
    let notes = tempfile::tempdir().expect("temporary directory");
    for round in 0..rounds() {
        served.mount_with("commit=3600");
        let before = noted(notes.path());
        let mut script = Command::new("python3");
        script.args([SCRIPT, "work", text(&served.place()), text(notes.path()), &round.to_string()]);
        let mut programs = script.stderr(Stdio::inherit()).spawn().expect("python3");
        let end = Instant::now() + Duration::from_secs(120);
        while noted(notes.path()) < before + NOTES_BYTES {
            assert!(Instant::now() < end, "the programs do nothing any more");
            assert!(programs.try_wait().expect("our child").is_none(), "the programs have ended");
            std::thread::sleep(Duration::from_millis(3));
        }
        served.kill();
        assert!(programs.wait().expect("our child").success(), "round {round}");
        served.check();
        served.mount_with("commit=3600");
        let mut script = Command::new("python3");
        let looked = script.args([SCRIPT, "look", text(&served.place()), text(notes.path())]);
        assert!(looked.status().expect("python3").success(), "round {round}");
        unmount(&served.place());
        served.wait_for_success();
    }
    served.check();
}
