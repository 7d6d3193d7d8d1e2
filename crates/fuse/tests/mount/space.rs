//! Space that is given back to the devices of a mount.

use crate::support::{Written, can_mount, run, writable_options};
use brindle_fs::WriteOptions;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What the image takes of the filesystem that it lies on, in bytes.
fn allocated(image: &Path) -> u64 {
    image.metadata().expect("stat").blocks() * 512
}

fn fill(path: &Path, length_mib: usize) {
    let mut file = File::create(path).expect("create");
    for number in 0..length_mib {
        file.write_all(&vec![number.to_le_bytes()[0] | 1; 1 << 20]).expect("write");
    }
    file.sync_all().expect("durable");
}

#[test]
fn fstrim_makes_holes_of_what_is_not_used() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("1G");
    fill(&ours.root().join("kept"), 16);
    fill(&ours.root().join("gone"), 64);
    let full = allocated(&ours.image);
    std::fs::remove_file(ours.root().join("gone")).expect("unlink");
    File::open(ours.root()).expect("open").sync_all().expect("durable");
    let said = run(Command::new("fstrim").arg("-v").arg(ours.root()));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("trimmed"), "{said}");
    let left = allocated(&ours.image);
    assert!(left + (60 << 20) < full, "{full} bytes before, {left} bytes after");
    let kept = std::fs::read(ours.root().join("kept")).expect("read");
    assert!(kept.chunks(1 << 20).zip(0usize..).all(|(part, number)| {
        let byte = number.to_le_bytes()[0] | 1;
        part.iter().all(|found| *found == byte)
    }));
    ours.finish();
}

#[test]
fn what_is_freed_is_discarded_in_the_background() {
    if !can_mount() {
        return;
    }
    let write = WriteOptions { discard: true, ..WriteOptions::default() };
    let mut ours = Written::make_with("1G", &write, &writable_options());
    fill(&ours.root().join("gone"), 64);
    let full = allocated(&ours.image);
    std::fs::remove_file(ours.root().join("gone")).expect("unlink");
    File::open(ours.root()).expect("open").sync_all().expect("durable");
    let end = Instant::now() + Duration::from_secs(60);
    while allocated(&ours.image) + (60 << 20) > full {
        assert!(Instant::now() < end, "{full} bytes before, {} after", allocated(&ours.image));
        std::thread::sleep(Duration::from_millis(200));
    }
    ours.finish();
}
