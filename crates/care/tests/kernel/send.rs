//! Streams of brindle beside those of the kernel, of the same snapshots of random trees: both received by `btrfs receive`, and compared
//! with the source by the kernel.

use super::host::{LoopPool, assert_btrfs_check, can_mount, options, run};
use crate::kernel::receive::{SNAPSHOTS, send_random};
use crate::support::MIB;
use brindle_care::job::Control;
use brindle_care::send::{SendOptions, send};
use brindle_device::open_device;
use brindle_fs::{Filesystem, OpenOptions, RootId};
use brindle_testing::manifest::Manifest;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sends all snapshots of a pool that is not mounted, each as the difference from the one before. Returns the paths of the streams.
fn send_all(pool: &LoopPool, version: u32, compressed: bool) -> Vec<PathBuf> {
    let devices = pool.loops.iter().map(|path| open_device(path).expect("readable")).collect();
    let filesystem = Filesystem::open(devices, &OpenOptions::default()).expect("the kernel's pool");
    let all = filesystem.subvolumes().expect("readable");
    let id = |number: usize| -> RootId {
        let name = format!("s{number}");
        all.iter().find(|one| one.path == name.as_bytes()).expect("there").id
    };
    (0..SNAPSHOTS)
        .map(|number| {
            let path = pool.beside(&format!("ours{version}{compressed}.{number}"));
            let parent = number.checked_sub(1).map(id);
            let options = SendOptions { version, compressed, parent, ..SendOptions::whole(id(number)) };
            let mut stream = std::fs::File::create(&path).expect("room");
            send(&filesystem, &options, &mut stream, &mut |_| Control::Continue)
                .unwrap_or_else(|error| panic!("s{number}: {error}"));
            path
        })
        .collect()
}

fn receive_all(directory: &Path, streams: &[PathBuf]) {
    std::fs::create_dir(directory).expect("room");
    for stream in streams {
        run(Command::new("btrfs").args(["-q", "receive", "-f"]).arg(stream).arg(directory));
    }
}

fn compare(expected: &Path, found: &Path, what: &str) {
    for number in 0..SNAPSHOTS {
        let name = format!("s{number}");
        let tree = |path: PathBuf| Manifest::of_directory(&path).expect("readable").portable();
        let differences = tree(expected.join(&name)).diff(&tree(found.join(&name)));
        assert!(differences.is_empty(), "{what}, snapshot {number}:\n{}", differences.join("\n"));
        let said = run(Command::new("btrfs").args(["subvolume", "show"]).arg(found.join(&name)));
        assert!(said.contains("readonly") && !said.contains("Received UUID: \t\t-"), "{said}");
    }
}

#[test]
fn the_kernel_receives_what_brindle_sends() {
    if !can_mount() {
        return;
    }
    for (seed, mount) in [(11, "rw,compress=zstd"), (12, "rw,compress-force=lzo")] {
        let mut pool = LoopPool::make(&[1024 * MIB], &options());
        pool.attach();
        pool.mount(mount);
        let theirs = send_random(&pool, seed, &["--proto", "2"]);
        pool.unmount();
        let forms = [(1, false), (2, false), (2, true)];
        let ours = forms.map(|(version, compressed)| send_all(&pool, version, compressed));
        pool.mount("rw");
        // Into the same pool: the parent of an increment is a subvolume of this UUID, the source itself or one that was received.
        let at = |name: &str| pool.mount_point().join(name);
        receive_all(&at("theirs"), &theirs);
        compare(&pool.mount_point(), &at("theirs"), "the kernel's own stream");
        for ((version, compressed), streams) in forms.iter().zip(&ours) {
            let what = format!("seed {seed}, version {version}, compressed {compressed}");
            let directory = at(&format!("ours{version}{compressed}"));
            receive_all(&directory, streams);
            compare(&pool.mount_point(), &directory, &what);
        }
        pool.unmount();
        assert_btrfs_check(&pool.loops[0], "what was received");
    }
}
