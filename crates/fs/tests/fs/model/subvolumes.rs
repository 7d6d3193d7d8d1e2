//! Subvolumes and snapshots.

use super::pool::Pool;
use super::rules::{create, directory, file};
use brindle_fs::{Filesystem, FsError, InodeId, Remaining, RenameMode, RootId};

fn clean_up(fs: &Filesystem) {
    // What has changed is dropped behind the next commit.
    for _ in 0..3 {
        while fs.background_step().expect("works") == Remaining::More {}
        fs.commit().expect("durable");
    }
}

fn ids(fs: &Filesystem) -> Vec<u64> {
    fs.subvolumes().expect("readable").iter().map(|subvolume| subvolume.id.get()).collect()
}

#[test]
fn what_is_deleted_is_dropped_and_its_number_not_used_again() {
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let first = fs.create_subvolume(top, b"first", 0, 0).expect("made");
    for number in 0..3000 {
        create(&fs, InodeId::root_of(first), &number.to_string(), &file());
    }
    let second = fs.snapshot(first, top, b"second", false).expect("made");
    assert_eq!(ids(&fs), [5, first.get(), second.get()]);
    fs.delete_subvolume(top, b"first").expect("deleted");
    assert!(matches!(fs.attributes(InodeId::root_of(first)), Err(FsError::DeletedSubvolume(_))));
    clean_up(&fs);
    assert!(matches!(fs.attributes(InodeId::root_of(first)), Err(FsError::NoSubvolume(_))));
    let third = fs.create_subvolume(top, b"third", 0, 0).expect("made");
    assert!(third > second);
    assert_eq!(ids(&fs), [5, second.get(), third.get()]);
    fs.sync().expect("durable");
    pool.assert_clean("the source is dropped");
    pool.assert_btrfs_check("the source is dropped");
    fs.delete_subvolume_by_id(second).expect("deleted");
    clean_up(&fs);
    fs.shutdown().expect("closes");
    pool.assert_clean("both are dropped");
    pool.assert_btrfs_check("both are dropped");
}

#[test]
fn dropping_goes_on_after_a_crash() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = fs.create_subvolume(fs.root(), b"large", 0, 0).expect("made");
    for number in 0..30_000 {
        create(&fs, InodeId::root_of(id), &number.to_string(), &file());
    }
    fs.sync().expect("durable");
    fs.delete_subvolume(fs.root(), b"large").expect("deleted");
    for _ in 0..3 {
        fs.commit().expect("durable");
        fs.background_step().expect("works");
    }
    fs.commit().expect("durable");
    assert!(fs.pool().root_item(id).expect("readable").is_some(), "too large to go at once");
    drop(fs);
    pool.assert_clean("half dropped");
    let fs = pool.open();
    clean_up(&fs);
    assert!(fs.pool().root_item(id).expect("readable").is_none());
    fs.shutdown().expect("closes");
    pool.assert_clean("dropped");
    pool.assert_btrfs_check("dropped");
}

#[test]
fn what_must_not_be_deleted_is_not() {
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let outer = fs.create_subvolume(top, b"outer", 0, 0).expect("made");
    let inner = fs.create_subvolume(InodeId::root_of(outer), b"inner", 0, 0).expect("made");
    assert!(
        matches!(fs.delete_subvolume(top, b"outer"), Err(FsError::NestedSubvolume(_, nested)) if nested == inner)
    );
    assert!(matches!(fs.delete_subvolume_by_id(RootId::FS_TREE), Err(FsError::NoSubvolume(_))));
    fs.set_default_subvolume(inner).expect("set");
    assert_eq!(fs.default_subvolume().expect("readable"), inner);
    let refused = fs.delete_subvolume(InodeId::root_of(outer), b"inner");
    assert!(matches!(refused, Err(FsError::DefaultSubvolume(_))));
    create(&fs, top, "directory", &directory());
    assert!(matches!(fs.delete_subvolume(top, b"directory"), Err(FsError::NotASubvolume(_))));
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_clean("a default");
    pool.assert_btrfs_check("a default");
    let fs = pool.open();
    assert_eq!(fs.root(), InodeId::root_of(inner), "the default is entered");
}

#[test]
fn a_read_only_subvolume_is_not_changed_until_it_is_writable() {
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let id = fs.create_subvolume(top, b"one", 0, 0).expect("made");
    let root = InodeId::root_of(id);
    let inside = create(&fs, root, "inside", &file());
    fs.set_subvolume_read_only(id, true).expect("set");
    let refused = |result: Result<(), FsError>| matches!(result, Err(FsError::ReadOnlySubvolume(_)));
    assert!(refused(fs.create(root, b"new", &file()).map(|_| ())));
    assert!(refused(fs.unlink(root, b"inside")));
    assert!(refused(fs.check_writable(inside)));
    let copy = fs.snapshot(id, top, b"two", false).expect("made");
    create(&fs, InodeId::root_of(copy), "new", &file());
    fs.rename(top, b"one", top, b"renamed", RenameMode::NoReplace).expect("its name is not in it");
    fs.set_subvolume_read_only(id, false).expect("set");
    create(&fs, root, "new", &file());
    fs.shutdown().expect("closes");
    pool.assert_clean("writable");
    pool.assert_btrfs_check("writable");
}
