//! Streams of the kernel, full and incremental, of random trees: received by brindle into the same pool, and compared by the kernel.

use super::host::{LoopPool, assert_btrfs_check, can_mount, options, run};
use crate::support::MIB;
use brindle_care::job::Control;
use brindle_care::receive::{ReceiveOptions, receive};
use brindle_device::{WritableDevice, open_device_to_write};
use brindle_fs::{Filesystem, NewInode, OpenOptions, WriteOptions};
use brindle_testing::manifest::Manifest;
use brindle_testing::model::Model;
use brindle_testing::operations::{Generator, Mix, MountedTarget, Target};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

pub(super) const SNAPSHOTS: usize = 4;
const OPERATIONS: usize = 120;

/// Makes snapshots of a tree that changes at random, and a stream of each. Returns the paths of the streams.
pub(super) fn send_random(pool: &LoopPool, seed: u64, arguments: &[&str]) -> Vec<PathBuf> {
    let root = pool.mount_point();
    run(Command::new("btrfs").args(["subvolume", "create"]).arg(root.join("source")));
    let mix = Mix { remount: 0, sync: 0, ..Mix::default().without_subvolumes() };
    let (mut generator, mut model) = (Generator::new(seed, mix), Model::new());
    let mut target = MountedTarget::new(&root.join("source"), || {});
    let mut streams = Vec::new();
    for number in 0..SNAPSHOTS {
        for _ in 0..OPERATIONS {
            let operation = generator.next(&model);
            if model.apply(&operation).is_ok() {
                target.apply(&operation).unwrap_or_else(|error| panic!("{operation:?}: {error:?}"));
            }
        }
        let snapshot = root.join(format!("s{number}"));
        run(Command::new("btrfs")
            .args(["subvolume", "snapshot", "-r"])
            .arg(root.join("source"))
            .arg(&snapshot));
        let stream = pool.beside(&format!("{number}.stream"));
        let mut send = Command::new("btrfs");
        send.args(["-q", "send"]).args(arguments).arg("-f").arg(&stream);
        if number > 0 {
            send.arg("-p").arg(root.join(format!("s{}", number - 1)));
        }
        run(send.arg(&snapshot));
        streams.push(stream);
    }
    streams
}

fn receive_all(pool: &LoopPool, streams: &[PathBuf]) {
    let devices = pool.loops.iter().map(|path| open_device_to_write(path).expect("not mounted"));
    let devices: Vec<Arc<dyn WritableDevice>> = devices.collect();
    let filesystem = Filesystem::open_writable(devices, &OpenOptions::default(), &WriteOptions::default());
    let filesystem = filesystem.expect("the kernel's pool");
    let directory = NewInode { mode: 0o040_755, ..Default::default() };
    let directory = filesystem.create(filesystem.root(), b"received", &directory).expect("room").id;
    for path in streams {
        let stream = std::fs::File::open(path).expect("it was made");
        let received =
            receive(&filesystem, directory, stream, &ReceiveOptions::default(), &mut |_| Control::Continue);
        assert_eq!(received.unwrap_or_else(|error| panic!("{}: {error}", path.display())), 1);
    }
    filesystem.shutdown().expect("works");
}

fn compare(pool: &LoopPool, what: &str) {
    for number in 0..SNAPSHOTS {
        let tree = |path: PathBuf| Manifest::of_directory(&path).expect("readable").portable();
        let source = tree(pool.mount_point().join(format!("s{number}")));
        let received = pool.mount_point().join(format!("received/s{number}"));
        let differences = source.diff(&tree(received.clone()));
        assert!(differences.is_empty(), "{what}, snapshot {number}:\n{}", differences.join("\n"));
        let said = run(Command::new("btrfs").args(["subvolume", "show"]).arg(&received));
        assert!(said.contains("readonly") && !said.contains("Received UUID: \t\t-"), "{said}");
    }
}

#[test]
fn streams_of_the_kernel_are_received_as_they_were_sent() {
    if !can_mount() {
        return;
    }
    let forms: [(&str, &[&str]); 3] = [
        ("version 1", &[]),
        ("version 2", &["--proto", "2"]),
        ("compressed", &["--proto", "2", "--compressed-data"]),
    ];
    for (seed, (what, arguments)) in (1..).zip(forms) {
        let mut pool = LoopPool::make(&[1024 * MIB], &options());
        pool.attach();
        pool.mount("rw,compress=zstd");
        let streams = send_random(&pool, seed, arguments);
        pool.unmount();
        receive_all(&pool, &streams);
        assert_btrfs_check(&pool.loops[0], what);
        pool.mount("ro");
        compare(&pool, what);
        pool.unmount();
    }
}
