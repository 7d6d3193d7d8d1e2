//! Many of everything at once: nothing hangs.

use crate::support::{Written, can_mount, run};
use std::process::Command;

#[test]
fn many_open_files_renames_and_writers_of_a_full_pool_end() {
    if !can_mount() {
        return;
    }
    const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/limits.py");
    const FILES: &str = "1600";
    const RENAMES: &str = "4000";
    const PROCESSES: &str = "24";
    const ROUNDS: &str = "16";
    let mut ours = Written::make("300M");
    let said =
        run(Command::new("python3").arg(SCRIPT).arg(ours.root()).args([FILES, RENAMES, PROCESSES, ROUNDS]));
    assert!(String::from_utf8_lossy(&said.stdout).starts_with("refused"));
    ours.finish();
}
