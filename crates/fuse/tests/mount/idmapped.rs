//! Mounts that map owners (`MOUNT_ATTR_IDMAP`), as containers and home directories have them.

use crate::support::{KernelMount, Written, can_mount, run};
use std::path::Path;
use std::process::Command;

fn worked(place: &Path, target: &Path, also: Option<&str>) -> Vec<String> {
    const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/idmapped.py");
    let said =
        run(Command::new("python3").arg(SCRIPT).arg(place.join("files")).arg(target).args(also)).stdout;
    String::from_utf8(said).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn owners_are_mapped_as_the_kernel_maps_them() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let target = ours.directory("mapped");
    let mut seen = worked(ours.root(), &target, Some("subvolumes"));
    // The mount by which an ioctl comes is not known.
    let told = [
        "subvolume Permission denied",
        "subvolume, by its own name Permission denied",
        "subvolume of root done",
    ];
    assert_eq!(seen.split_off(seen.len() - told.len()), told);
    let image = ours.scratch.path().join("kernels");
    run(Command::new("truncate").args(["-s", "512M"]).arg(&image));
    run(Command::new("mkfs.btrfs").arg("-q").arg(&image));
    let kernel = KernelMount::of(&image, &ours.directory("kernel"), "rw");
    assert_eq!(seen, worked(&kernel.at, &target, None));
    for line in [
        "unnamed done",
        "by-user-directory 0o40755 0 0",
        "by-user-directory 0o40755 100000 100000",
        "by-user-unnamed 0o100640 0 0",
        "groups/by-user 0o100644 0 4",
        "root: unlink done",
        "unmapped 0o100644 65534 100007",
        "root of all makes Value too large for defined data type",
    ] {
        assert!(seen.iter().any(|seen| seen == line), "{line}: {seen:#?}");
    }
    let of_list = |start: &str| seen.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!((of_list("by-user 0o102770 0 4 02"), of_list("setgid-of-another 0o100770 0 9 02")), (1, 1));
    ours.finish();
}
