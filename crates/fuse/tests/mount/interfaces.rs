//! Locks, leases, change notification and overlayfs, as on a mount of the kernel.

use crate::support::{KernelMount, Written, can_mount, run};
use std::path::Path;
use std::process::Command;

fn worked(place: &Path) -> Vec<String> {
    const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/interfaces.py");
    let said = run(Command::new("python3").arg(SCRIPT).arg(place)).stdout;
    String::from_utf8(said).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn locks_leases_notification_and_overlays_work_as_the_kernels_do() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let seen = worked(ours.root());
    let image = ours.scratch.path().join("kernels");
    run(Command::new("truncate").args(["-s", "512M"]).arg(&image));
    run(Command::new("mkfs.btrfs").arg("-q").arg(&image));
    let kernel = KernelMount::of(&image, &ours.directory("kernel"), "rw");
    assert_eq!(seen, worked(&kernel.at));
    for line in
        ["overlay 0", "upper gone 0o20000 0 []", "event 0x80 renamed", "lock that is waited for: woken"]
    {
        assert!(seen.iter().any(|seen| seen == line), "{line}: {seen:#?}");
    }
    ours.finish();
}
