//! Inodes without a name.

use super::pool::Pool;
use super::rules::{create, directory, file};
use brindle_fs::{Filesystem, FsError, InodeId, Remaining};

fn write(fs: &Filesystem, id: InodeId, length: usize) {
    let file = fs.open_file(id).expect("a file");
    let bytes = vec![7; length];
    let mut at = 0;
    while at < length {
        at += fs.write(&file, at as u64, &bytes[at..]).expect("room");
    }
}

fn clean_up(fs: &Filesystem) {
    while fs.background_step().expect("works") == Remaining::More {}
}

fn is_gone(fs: &Filesystem, id: InodeId) -> bool {
    matches!(fs.attributes(id), Err(FsError::NoInode(_)))
}

#[test]
fn what_is_open_outlives_its_name() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = create(&fs, fs.root(), "file", &file());
    write(&fs, id, 300_000);
    let inode = fs.acquire(id).expect("there");
    fs.unlink(fs.root(), b"file").expect("there");
    assert_eq!(fs.attributes(id).expect("there").nlink, 0);
    assert!(matches!(fs.link(id, fs.root(), b"again"), Err(FsError::NoInode(_))));
    clean_up(&fs);
    fs.sync().expect("durable");
    pool.assert_clean("without a name");
    pool.assert_btrfs_check("without a name");
    let open = fs.open_file(id).expect("still there");
    let mut buffer = vec![0; 300_000];
    assert_eq!(fs.read(&open, 0, &mut buffer).expect("readable"), 300_000);
    assert!(buffer.iter().all(|byte| *byte == 7));
    fs.release(&inode).expect("goes");
    assert!(is_gone(&fs, id));
    assert!(matches!(fs.acquire(id), Err(FsError::NoInode(_))));
    fs.shutdown().expect("closes");
    pool.assert_clean("gone");
    pool.assert_btrfs_check("gone");
}

#[test]
fn what_a_crash_leaves_without_a_name_goes_later() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = create(&fs, fs.root(), "file", &file());
    let below = create(&fs, fs.root(), "directory", &directory());
    write(&fs, id, 3_000_000);
    let _held = [fs.acquire(id).expect("there"), fs.acquire(below).expect("there")];
    fs.unlink(fs.root(), b"file").expect("there");
    fs.remove_directory(fs.root(), b"directory").expect("empty");
    assert!(matches!(fs.create(below, b"in what is gone", &file()), Err(FsError::NoInode(_))));
    let kept = create(&fs, fs.root(), "kept", &file());
    fs.sync().expect("durable");
    drop(fs);
    pool.assert_clean("after a crash");
    let fs = pool.open();
    assert_eq!(fs.attributes(id).expect("not yet gone").nlink, 0);
    clean_up(&fs);
    assert!(is_gone(&fs, id) && is_gone(&fs, below));
    assert!(fs.attributes(kept).is_ok());
    fs.shutdown().expect("closes");
    pool.assert_clean("cleaned up");
    pool.assert_btrfs_check("cleaned up");
}

#[test]
fn a_file_without_a_name_may_get_one() {
    let pool = Pool::new();
    let fs = pool.open();
    let (made, inode) = fs.create_unnamed(fs.root(), &file()).expect("made");
    let (other, given_up) = fs.create_unnamed(fs.root(), &file()).expect("made");
    assert_eq!((made.nlink, fs.attributes(made.id).expect("there").nlink), (0, 0));
    write(&fs, made.id, 100_000);
    write(&fs, other.id, 100_000);
    assert_eq!(fs.link(made.id, fs.root(), b"named").expect("linked").nlink, 1);
    fs.release(&inode).expect("stays");
    fs.release(&given_up).expect("goes");
    assert!(is_gone(&fs, other.id));
    assert_eq!(fs.attributes(made.id).expect("there").size, 100_000);
    fs.shutdown().expect("closes");
    pool.assert_clean("named");
    pool.assert_btrfs_check("named");
}

#[test]
fn the_last_name_of_a_large_file_takes_it_along() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = create(&fs, fs.root(), "file", &file());
    let open = fs.open_file(id).expect("a file");
    // Every other sector, so that there are more extents than one transaction takes.
    for sector in 0..400u64 {
        fs.write(&open, sector * 8192, &[1; 4096]).expect("room");
    }
    fs.sync().expect("durable");
    fs.unlink(fs.root(), b"file").expect("there");
    assert!(is_gone(&fs, id));
    fs.shutdown().expect("closes");
    pool.assert_clean("gone");
    pool.assert_btrfs_check("gone");
}
