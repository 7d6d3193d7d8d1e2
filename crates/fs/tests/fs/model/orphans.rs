//! Inodes without a name.

use super::pool::Pool;
use super::rules::{create, directory, file};
use brindle_fs::{
    AllocateMode, AttributeChange, Filesystem, FsError, InodeId, NewTime, RangePair, Remaining, XattrMode,
};
use std::sync::atomic::{AtomicBool, Ordering};

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
fn open_files_outlive_their_names() {
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
    fs.close_file(open).expect("closed");
    assert!(!is_gone(&fs, id));
    fs.release(inode).expect("goes");
    assert!(is_gone(&fs, id));
    assert!(matches!(fs.acquire(id), Err(FsError::NoInode(_))));
    fs.shutdown().expect("closes");
    pool.assert_clean("gone");
    pool.assert_btrfs_check("gone");
}

#[test]
fn an_open_directory_outlives_its_name() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = create(&fs, fs.root(), "directory", &directory());
    let inode = fs.acquire(id).expect("there");
    fs.remove_directory(fs.root(), b"directory").expect("empty");
    assert_eq!(fs.attributes(id).expect("there").nlink, 0);
    let change = AttributeChange { mode: Some(0o700), ..AttributeChange::default() };
    assert_eq!(fs.set_attributes(id, &change).expect("changed").mode & 0o777, 0o700);
    assert_eq!(fs.read_directory(id, 0, 1).expect("listed"), []);
    assert_eq!(fs.lookup(id, b"a").expect("looked up"), None);
    assert!(matches!(fs.create(id, b"a", &file()), Err(FsError::NoInode(_))));
    clean_up(&fs);
    fs.sync().expect("durable");
    pool.assert_clean("without a name");
    pool.assert_btrfs_check("without a name");
    fs.release(inode).expect("goes");
    assert!(is_gone(&fs, id));
    fs.shutdown().expect("closes");
    pool.assert_clean("gone");
    pool.assert_btrfs_check("gone");
}

#[test]
fn a_directory_of_many_items_goes_with_its_name() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = create(&fs, fs.root(), "directory", &directory());
    for number in 0..40 {
        let name = format!("user.{number}");
        fs.set_xattr(id, name.as_bytes(), b"x", XattrMode::Any).expect("set");
    }
    clean_up(&fs);
    fs.remove_directory(fs.root(), b"directory").expect("empty");
    assert!(is_gone(&fs, id));
    fs.shutdown().expect("closes");
    pool.assert_clean("gone");
}

#[test]
fn inodes_without_a_name_after_a_crash_go_later() {
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
fn a_snapshot_has_none_of_the_orphans_of_its_source() {
    const FILES: u64 = 200;
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let mut held = Vec::new();
    for number in 0..FILES {
        let name = format!("file{number}");
        let id = create(&fs, top, &name, &file());
        write(&fs, id, if number % 2 == 0 { 100 } else { 6000 });
        held.push(fs.acquire(id).expect("there"));
    }
    fs.sync().expect("durable");
    (0..FILES).for_each(|number| fs.unlink(top, format!("file{number}").as_bytes()).expect("there"));
    let kept = create(&fs, top, "kept", &file());
    for (name, is_read_only) in [("writable", false), ("read-only", true), ("doomed", false)] {
        let snapshot = fs.snapshot(top.tree, top, name.as_bytes(), is_read_only).expect("made");
        let inside = |id: InodeId| InodeId { tree: snapshot, number: id.number };
        assert!(held.iter().all(|inode| is_gone(&fs, inside(inode.id()))), "{name}");
        assert!(fs.attributes(inside(kept)).is_ok());
    }
    fs.delete_subvolume(top, b"doomed").expect("there");
    assert!(held.iter().all(|inode| fs.attributes(inode.id()).is_ok()), "what is open is kept");
    fs.sync().expect("durable");
    pool.assert_clean("open, without names");
    pool.assert_btrfs_check("open, without names");
    drop((held, fs));
    let fs = pool.open();
    clean_up(&fs);
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
    fs.release(inode).expect("stays");
    fs.release(given_up).expect("goes");
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
    fs.close_file(open).expect("closed");
    fs.sync().expect("durable");
    fs.unlink(fs.root(), b"file").expect("there");
    assert!(is_gone(&fs, id));
    fs.shutdown().expect("closes");
    pool.assert_clean("gone");
    pool.assert_btrfs_check("gone");
}

#[test]
fn an_open_file_outlives_its_name_without_being_acquired() {
    let pool = Pool::new();
    let fs = pool.open();
    for is_closed in [true, false] {
        let id = create(&fs, fs.root(), "file", &file());
        write(&fs, id, 300_000);
        let open = fs.open_file(id).expect("a file");
        fs.unlink(fs.root(), b"file").expect("there");
        clean_up(&fs);
        let mut buffer = vec![0; 300_000];
        assert_eq!(fs.read(&open, 0, &mut buffer).expect("readable"), 300_000);
        assert!(buffer.iter().all(|byte| *byte == 7));
        assert!(fs.open_file(id).is_ok(), "as long as it is open it may be opened once more");
        if is_closed {
            fs.close_file(open).expect("closed");
        } else {
            drop(open);
        }
        clean_up(&fs);
        assert!(is_gone(&fs, id));
    }
    fs.shutdown().expect("closes");
    pool.assert_clean("gone");
    pool.assert_btrfs_check("gone");
}

/// Number of times each of four names is made and removed, beside threads that change its target.
const REMOVALS: usize = 20_000;

/// Changes an inode that another thread may be removing.
fn change(fs: &Filesystem, id: InodeId, turn: usize) -> Result<(), FsError> {
    match turn % 7 {
        0 => {
            let change = AttributeChange { size: Some(turn as u64 % 9000), ..AttributeChange::default() };
            fs.set_attributes(id, &change).map(|_| ())
        }
        1 => fs.set_xattr(id, b"user.a", b"x", XattrMode::Any),
        2 => {
            let change = AttributeChange { modified: Some(NewTime::Now), ..AttributeChange::default() };
            fs.set_attributes(id, &change).map(|_| ())
        }
        3 => {
            let open = fs.open_file(id)?;
            fs.allocate(&open, AllocateMode::Allocate, 0, 20_000).and(fs.close_file(open))
        }
        4 => {
            let open = fs.open_file(id)?;
            let done = fs.write(&open, 4096, &[1; 9000]).map(|_| ()).and(fs.sync_file(&open));
            done.and(fs.close_file(open))
        }
        5 => {
            let open = fs.open_file(id)?;
            let copied = fs
                .copy_range(&RangePair {
                    source: &open,
                    source_offset: 0,
                    target: &open,
                    target_offset: 1 << 20,
                    length: 8192,
                })
                .map(|_| ());
            copied.and(fs.close_file(open))
        }
        _ => fs.note_access(id),
    }
}

#[test]
fn an_operation_on_an_inode_that_goes_fails_alone() {
    let pool = Pool::new();
    let fs = pool.open();
    let done = AtomicBool::new(false);
    let refused = |error: &FsError| matches!(error, FsError::NoInode(_) | FsError::NotFound(_));
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..3u8)
            .map(|maker| {
                let fs = &fs;
                scope.spawn(move || {
                    for turn in 0..REMOVALS {
                        let name = [b'a' + maker, b'0' + u8::try_from(turn % 2).expect("small")];
                        let id = create(fs, fs.root(), std::str::from_utf8(&name).expect("letters"), &file());
                        if turn % 3 > 0 {
                            write(fs, id, if turn % 3 == 1 { 11 } else { 20_000 });
                        }
                        fs.unlink(fs.root(), &name).expect("it is the only one that does");
                    }
                })
            })
            .collect();
        for changer in 0..3 {
            let (fs, done) = (&fs, &done);
            scope.spawn(move || {
                for turn in (changer..).take_while(|_| !done.load(Ordering::Relaxed)) {
                    let name = [b'a' + u8::try_from(turn % 3).expect("small"), b'0' + u8::from(turn % 5 > 2)];
                    let Some(entry) = fs.lookup(fs.root(), &name).expect("readable") else { continue };
                    let changed = change(fs, entry.inode, turn);
                    assert!(changed.as_ref().err().is_none_or(refused), "{changed:?}");
                }
            });
        }
        let results: Vec<_> = makers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.expect("nothing is refused"));
    });
    clean_up(&fs);
    fs.shutdown().expect("still writable");
    pool.assert_clean("nothing is left");
    pool.assert_btrfs_check("nothing is left");
}
