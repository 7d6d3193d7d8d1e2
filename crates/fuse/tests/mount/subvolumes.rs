//! Subvolumes and snapshots of a mount, by its ioctls.

use crate::support::{KernelMount, Written, can_mount, run};
use brindle_admin::{ControlError, Mounted};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

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
    let mut file = File::create(root.join("sub/file")).expect("create");
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

#[test]
fn a_file_of_a_deleted_subvolume_is_read_until_it_is_closed() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let root = ours.root().to_owned();
    let top = open(&root);
    top.create_subvolume(b"gone").expect("created");
    std::fs::write(root.join("gone/file"), vec![7; 3 << 20]).expect("write");
    let file = File::open(root.join("gone/file")).expect("open");
    top.delete_subvolume(b"gone").expect("deleted");
    assert!(!root.join("gone").exists());
    for _ in 0..3 {
        top.sync().expect("nothing is wrong");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("forgotten");
        let mut bytes = vec![0; 3 << 20];
        file.read_exact_at(&mut bytes, 0).expect("it is open");
        assert!(bytes.iter().all(|byte| *byte == 7));
        assert_eq!(file.metadata().expect("it is open").len(), 3 << 20);
    }
    drop((file, top));
    ours.finish();
}

#[test]
fn a_new_subvolume_is_like_the_kernels() {
    if !can_mount() {
        return;
    }
    let shell = |root: &Path, script: &str| {
        let output = run(Command::new("sh").args(["-c", script]).current_dir(root));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let outcome = |root: &Path| {
        shell(
            root,
            "mkdir of-group; chmod 2775 of-group; chgrp 4242 of-group; chattr +C of-group; \
             setfacl -d -m u:1234:rwx of-group",
        );
        open(&root.join("of-group")).create_subvolume(b"sub").expect("made");
        shell(
            root,
            "cd of-group; touch sub/file; stat -c '%a %u %g' sub sub/file; lsattr -d sub | cut -c1-22; \
             getfacl -n sub sub/file",
        )
    };
    let mut ours = Written::make("512M");
    let reference = ours.scratch.path().join("reference");
    run(Command::new("truncate").args(["-s", "512M"]).arg(&reference));
    run(Command::new("mkfs.btrfs").arg("-q").arg(&reference));
    let kernel = KernelMount::of(&reference, &ours.directory("kernel"), "rw");
    assert_eq!(outcome(&kernel.at), outcome(ours.root()));
    drop(kernel);
    ours.finish();
}
