//! Subvolumes and snapshots of a mount, by its ioctls.

use crate::support::{KernelMount, Written, can_mount};
use brindle_kernel::{ControlError, Mounted};
use rustix::io::Errno;
use std::path::Path;

fn open(path: &Path) -> Mounted {
    Mounted::open(path).expect("a mount of ours")
}

fn errno(error: &ControlError) -> Option<Errno> {
    match error {
        ControlError::Refused { source, .. } => Some(*source),
        _ => None,
    }
}

#[test]
fn subvolumes_come_and_go() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let root = ours.root().to_owned();
    let top = open(&root);
    // The kernel remembers that there is nothing of this name.
    assert!(!root.join("sub").exists());
    top.create_subvolume(b"sub").expect("created");
    std::fs::write(root.join("sub/file"), b"one").expect("write");
    assert_eq!(errno(&top.create_subvolume(b"sub").expect_err("taken")), Some(Errno::EXIST));
    top.snapshot(&open(&root.join("sub")), b"before", true).expect("a snapshot");
    std::fs::write(root.join("sub/file"), b"two").expect("write");
    top.snapshot(&open(&root.join("sub")), b"copy", false).expect("a snapshot");
    std::fs::write(root.join("copy/file"), b"three").expect("write");
    let read = |path: &str| std::fs::read(root.join(path)).expect("read");
    assert_eq!((read("before/file"), read("sub/file")), (b"one".to_vec(), b"two".to_vec()));
    let error = std::fs::write(root.join("before/file"), b"x").expect_err("read-only");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS));
    let error = std::fs::remove_file(root.join("before/file")).expect_err("read-only");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS));
    let (found, default) = top.subvolumes().expect("a list");
    let paths: Vec<_> =
        found.iter().map(|record| String::from_utf8_lossy(&record.path).into_owned()).collect();
    assert_eq!((paths, default), (vec![String::new(), "sub".into(), "before".into(), "copy".into()], 5));
    assert!(open(&root.join("before")).is_read_only().expect("flags"));
    let snapshot = open(&root.join("before")).subvolume().expect("info");
    assert_eq!(snapshot.parent_uuid, open(&root.join("sub")).subvolume().expect("info").uuid);
    top.delete_subvolume(b"copy").expect("deleted");
    assert!(!root.join("copy").exists());
    assert_eq!(errno(&top.delete_subvolume(b"copy").expect_err("gone")), Some(Errno::NOENT));
    std::fs::create_dir(root.join("plain")).expect("mkdir");
    assert_eq!(errno(&top.delete_subvolume(b"plain").expect_err("none")), Some(Errno::INVAL));
    open(&root.join("before")).set_read_only(false).expect("flags");
    std::fs::write(root.join("before/file"), b"writable").expect("write");
    drop(top);
    ours.finish();
    let kernel = KernelMount::of(&ours.image, &ours.directory("kernel"), "ro");
    assert_eq!(std::fs::read(kernel.at.join("before/file")).expect("read"), b"writable");
    assert_eq!(std::fs::read(kernel.at.join("sub/file")).expect("read"), b"two");
    assert!(!kernel.at.join("copy").exists());
}

#[test]
fn a_snapshot_holds_what_was_written_to_open_files() {
    use std::io::Write;
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let root = ours.root().to_owned();
    let top = open(&root);
    top.create_subvolume(b"sub").expect("created");
    let mut file = std::fs::File::create(root.join("sub/file")).expect("create");
    file.write_all(&[7; 300_000]).expect("write");
    top.snapshot(&open(&root.join("sub")), b"snapshot", true).expect("a snapshot");
    file.write_all(&[8; 300_000]).expect("write");
    assert!(std::fs::read(root.join("snapshot/file")).expect("read") == vec![7; 300_000]);
    drop((file, top));
    ours.finish();
}

#[test]
fn the_filesystem_tells_of_itself() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let top = open(ours.root());
    let (server, info) = (top.server().expect("server"), top.filesystem().expect("info"));
    assert_eq!((server.process, server.is_writable), (0, 1), "we do not end with the mount");
    assert_eq!((server.fsid, info.nodesize, info.devices), (info.fsid, 16384, 1));
    assert_eq!(top.label().expect("label"), b"");
    std::fs::write(ours.root().join("file"), b"x").expect("write");
    top.sync().expect("sync");
    assert!(top.filesystem().expect("info").generation > info.generation);
    drop(top);
    ours.finish();
}
