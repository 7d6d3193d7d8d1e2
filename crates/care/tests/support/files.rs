//! Files in a pool, each of its own contents.

use brindle_fs::{Filesystem, NewInode};

/// Fills a filesystem with files, each of other bytes.
pub(crate) fn fill(filesystem: &Filesystem, count: usize, size: usize) {
    for number in 0..count {
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        let made = filesystem.create(filesystem.root(), name(number).as_bytes(), &new).expect("room");
        let file = filesystem.open_file(made.id).expect("there");
        filesystem.write(&file, 0, &contents(number, size)).expect("room");
    }
    filesystem.sync().expect("works");
}

pub(crate) fn assert_filled(filesystem: &Filesystem, count: usize, size: usize) {
    for number in 0..count {
        let entry = filesystem.lookup(filesystem.root(), name(number).as_bytes()).expect("read");
        let file = filesystem.open_file(entry.expect("there").inode).expect("opens");
        let mut found = vec![0; size];
        assert_eq!(filesystem.read(&file, 0, &mut found).expect("read"), size);
        assert!(found == contents(number, size), "file {number}");
    }
}

fn name(number: usize) -> String {
    format!("file{number}")
}

fn contents(number: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from((at / 7 + number * 31) % 251).expect("small")).collect()
}
