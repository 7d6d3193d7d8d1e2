//! Files that take the names of others without a sync.

use crate::support::{Written, can_mount, noise, run};
use brindle_device::FileDevice;
use brindle_fs::{Filesystem, OpenOptions, WriteOptions};
use rustix::fs::{CWD, RenameFlags};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Contents of a file as a crash would leave them after names were synced: contents without a sync are not.
fn after_a_sync_of_names(ours: &Written, name: &str) -> Vec<u8> {
    let copy = ours.scratch.path().join("crashed");
    File::open(ours.root()).expect("open").sync_all().expect("durable");
    run(Command::new("cp").arg("--sparse=always").args([&ours.image, &copy]));
    let device = FileDevice::open(&copy).expect("a copy");
    let (open, write) = (OpenOptions::default(), WriteOptions::default());
    let filesystem = Filesystem::open_replayed(vec![Arc::new(device)], &open, &write).expect("sound");
    let id = filesystem.resolve(filesystem.root(), name.as_bytes()).expect("it has always been there");
    let file = filesystem.open_file(id).expect("there");
    let mut bytes = vec![0; usize::try_from(file.size()).expect("small")];
    filesystem.read(&file, 0, &mut bytes).expect("read");
    bytes
}

fn write_durably(path: &Path, contents: &[u8]) {
    std::fs::write(path, contents).expect("write");
    File::open(path).expect("open").sync_all().expect("durable");
}

#[test]
fn a_file_that_is_closed_and_takes_anothers_name_is_whole_when_names_are_synced() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let (name, new) = (ours.root().join("name"), ours.root().join("new"));
    write_durably(&name, &noise(300_000, 1));
    for (round, length) in [(2, 100), (3, 900_000), (4, 5000)] {
        let contents = noise(length, round);
        std::fs::write(&new, &contents).expect("write");
        std::fs::rename(&new, &name).expect("rename");
        assert!(after_a_sync_of_names(&ours, "name") == contents, "{length} bytes");
    }
    ours.finish();
}

#[test]
fn a_file_that_is_still_open_and_takes_anothers_name_is_too() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let (name, new) = (ours.root().join("name"), ours.root().join("new"));
    write_durably(&name, &noise(300_000, 1));
    for (round, length) in [(2, 100), (3, 900_000), (4, 5000)] {
        let contents = noise(length, round);
        let mut file = File::create_new(&new).expect("create");
        file.write_all(&contents).expect("write");
        std::fs::rename(&new, &name).expect("rename");
        assert!(after_a_sync_of_names(&ours, "name") == contents, "{length} bytes");
        // It goes on, and what comes later is not lost either.
        file.write_all(b"more").expect("write");
        drop(file);
        assert!(std::fs::read(&name).expect("read") == [&contents[..], b"more"].concat());
    }
    let contents = [noise(70_000, 5), noise(70_000, 6)];
    let files = [&name, &new].map(|path| File::create(path).expect("create"));
    for (file, contents) in files.iter().zip(&contents) {
        file.write_all_at(contents, 0).expect("write");
    }
    rustix::fs::renameat_with(CWD, &new, CWD, &name, RenameFlags::EXCHANGE).expect("exchange");
    assert!(after_a_sync_of_names(&ours, "name") == contents[1]);
    assert!(after_a_sync_of_names(&ours, "new") == contents[0]);
    drop(files);
    ours.finish();
}

#[test]
fn open_files_take_names_from_many_threads_at_once() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let root: Arc<Path> = ours.root().into();
    let threads: Vec<_> = (0..8_u64)
        .map(|thread| {
            let root = Arc::clone(&root);
            std::thread::spawn(move || {
                let (own, common) = (root.join(format!("own-{thread}")), root.join("common"));
                for round in 0..40 {
                    let new = root.join(format!("new-{thread}"));
                    let contents = noise(30_000, thread * 1000 + round);
                    let mut file = File::create(&new).expect("create");
                    file.write_all(&contents).expect("write");
                    std::fs::rename(&new, if round % 2 == 0 { &own } else { &common }).expect("rename");
                    file.write_all(&contents).expect("write");
                    let read = std::fs::read(&own).expect("read");
                    assert!(round % 2 != 0 || read == [&contents[..], &contents].concat());
                    if round % 8 == 0 {
                        file.sync_all().expect("durable");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it has found what it expects");
    }
    let common = std::fs::read(root.join("common")).expect("read");
    assert_eq!(common.len(), 60_000);
    ours.finish();
}

/// Number of times a file is replaced under the eyes of readers.
const REPLACEMENTS: usize = 1500;

#[test]
fn a_name_that_is_replaced_is_found_all_the_time() {
    if !can_mount() {
        return;
    }
    let mut ours = Written::make("512M");
    let (name, new) = (ours.root().join("conf"), ours.root().join("conf.new"));
    std::fs::write(&name, b"0").expect("write");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [0, 1].map(|_| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    std::fs::read(&name)?;
                    std::fs::metadata(&name)?;
                }
                Ok::<(), std::io::Error>(())
            })
        });
        for number in 0..REPLACEMENTS {
            std::fs::write(&new, number.to_string()).expect("write");
            std::fs::rename(&new, &name).expect("rename");
        }
        is_done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("no panic").expect("the name is there all the time");
        }
    });
    ours.finish();
}
