//! Subvolumes and snapshots.

use super::pool::{NEW_SUBVOLUME, Pool};
use super::rules::{create, directory, file};
use brindle_fs::{
    AttributeChange, FileFlags, Filesystem, FsError, InodeFlags, InodeId, NewInode, Remaining, RenameMode,
    RootId, XattrMode,
};

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
fn deleted_subvolumes_are_dropped_and_their_ids_not_used_again() {
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let first = fs.create_subvolume(top, b"first", &NEW_SUBVOLUME).expect("made");
    for number in 0..3000 {
        create(&fs, InodeId::root_of(first), &number.to_string(), &file());
    }
    let second = fs.snapshot(first, top, b"second", false).expect("made");
    assert_eq!(ids(&fs), [5, first.get(), second.get()]);
    fs.delete_subvolume(top, b"first").expect("deleted");
    assert!(matches!(fs.attributes(InodeId::root_of(first)), Err(FsError::DeletedSubvolume(_))));
    clean_up(&fs);
    assert!(matches!(fs.attributes(InodeId::root_of(first)), Err(FsError::NoSubvolume(_))));
    let third = fs.create_subvolume(top, b"third", &NEW_SUBVOLUME).expect("made");
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

/// Regression: a snapshot got the id of a subvolume that this mount had deleted, and a name in it the index that was next in
/// the other one.
#[test]
fn the_id_of_a_subvolume_that_was_found_and_deleted_is_not_used_again() {
    let pool = Pool::new();
    let fs = pool.open();
    let old = fs.create_subvolume(fs.root(), b"old", &NEW_SUBVOLUME).expect("made");
    fs.shutdown().expect("closes");
    drop(fs);
    let fs = pool.open();
    create(&fs, InodeId::root_of(old), "one", &file());
    fs.delete_subvolume(fs.root(), b"old").expect("deleted");
    clean_up(&fs);
    assert!(fs.pool().root_item(old).expect("readable").is_none());
    for number in 0..5 {
        create(&fs, fs.root(), &number.to_string(), &file());
    }
    let new = fs.snapshot(RootId::FS_TREE, fs.root(), b"new", false).expect("made");
    assert!(new > old);
    create(&fs, InodeId::root_of(new), "two", &file());
    fs.shutdown().expect("closes");
    pool.assert_clean("with another snapshot");
}

#[test]
fn dropping_goes_on_after_a_crash() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = fs.create_subvolume(fs.root(), b"large", &NEW_SUBVOLUME).expect("made");
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
fn the_place_of_a_subvolume_in_a_snapshot_is_as_old_as_the_snapshot() {
    let pool = Pool::new();
    let fs = pool.open();
    let outer = fs.create_subvolume(fs.root(), b"outer", &NEW_SUBVOLUME).expect("made");
    fs.create_subvolume(InodeId::root_of(outer), b"inner", &NEW_SUBVOLUME).expect("made");
    let snapshot = fs.snapshot(outer, fs.root(), b"snapshot", false).expect("made");
    let all = fs.subvolumes().expect("readable");
    let born = all.iter().find(|found| found.id == snapshot).expect("listed").created;
    assert!(born.seconds > 0);
    let place = fs.lookup(InodeId::root_of(snapshot), b"inner").expect("readable").expect("there").inode;
    let found = [fs.attributes(place), fs.attributes_of(&[place]).remove(0)];
    for found in found.map(|found| found.expect("known")) {
        assert_eq!((found.mode, found.uid, found.gid, found.nlink), (0o040_755, 0, 0, 1));
        assert_eq!((found.modified, found.changed, found.accessed), (born, born, born));
    }
}

/// Regression: it has no item, and the pool took no more changes after an attempt to change it.
#[test]
fn the_place_of_a_subvolume_in_a_snapshot_keeps_no_change_and_refuses_what_has_no_effect() {
    let pool = Pool::new();
    let fs = pool.open();
    let outer = fs.create_subvolume(fs.root(), b"outer", &NEW_SUBVOLUME).expect("made");
    fs.create_subvolume(InodeId::root_of(outer), b"inner", &NEW_SUBVOLUME).expect("made");
    for (name, read_only) in [(&b"writable"[..], false), (b"read-only", true)] {
        let snapshot = fs.snapshot(outer, fs.root(), name, read_only).expect("made");
        let place = fs.lookup(InodeId::root_of(snapshot), b"inner").expect("readable").expect("there").inode;
        let before = fs.attributes(place).expect("known");
        let changes = [
            AttributeChange { mode: Some(0o700), ..AttributeChange::default() },
            AttributeChange { uid: Some(7), gid: Some(7), ..AttributeChange::default() },
            AttributeChange { modified: Some(brindle_fs::NewTime::Now), ..AttributeChange::default() },
        ];
        for change in changes {
            assert_eq!(fs.set_attributes(place, &change).expect("as with the kernel"), before);
        }
        assert!(matches!(fs.set_flags(place, FileFlags::NODUMP), Err(FsError::Unsupported { .. })));
        let set = fs.set_xattr(place, b"user.a", b"x", XattrMode::Any);
        assert!(matches!(set, Err(FsError::Unsupported { .. })));
        assert!(matches!(fs.remove_xattr(place, b"user.a"), Err(FsError::Unsupported { .. })));
        assert_eq!(fs.attributes(place).expect("known"), before);
    }
    assert!(fs.is_writable());
    fs.shutdown().expect("closes");
    pool.assert_clean("places");
}

#[test]
fn a_deleted_subvolume_stays_usable_until_what_is_open_of_it_is_closed() {
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let id = fs.create_subvolume(top, b"open", &NEW_SUBVOLUME).expect("made");
    let root = InodeId::root_of(id);
    let (opened, closed) = (create(&fs, root, "opened", &file()), create(&fs, root, "closed", &file()));
    let handle = fs.open_file(closed).expect("opens");
    fs.write(&handle, 0, b"in memory").expect("room");
    fs.close_file(handle).expect("closes");
    let (held, handle) = (fs.acquire(opened).expect("there"), fs.open_file(opened).expect("opens"));
    fs.write(&handle, 0, b"synced").expect("room");
    fs.sync_file(&handle).expect("durable");
    fs.write(&handle, 0, b"before").expect("room");
    fs.delete_subvolume(top, b"open").expect("deleted");
    for _ in 0..3 {
        fs.write(&handle, 6, b" after").expect("it is open");
        fs.sync_file(&handle).expect("nothing is lost");
        clean_up(&fs);
    }
    let mut found = [0; 20];
    assert_eq!(fs.read(&handle, 0, &mut found).expect("reads"), 12);
    assert_eq!(&found[..12], b"before after");
    assert_eq!(fs.attributes(opened).expect("it is open").size, 12);
    fs.release(held).expect("the handle is left");
    clean_up(&fs);
    assert_eq!(fs.read(&handle, 0, &mut found).expect("the handle keeps it"), 12);
    let other = fs.open_file(closed).expect("it is below what is open");
    assert_eq!(fs.read(&other, 0, &mut found).expect("reads"), 9);
    fs.close_file(other).expect("closes");
    let new = create(&fs, root, "new", &file());
    fs.set_xattr(new, b"user.a", b"x", XattrMode::Any).expect("set");
    fs.unlink(root, b"new").expect("there");
    fs.sync_directory(root).expect("nothing to do");
    let refused = |result: Result<RootId, FsError>| matches!(result, Err(FsError::DeletedSubvolume(_)));
    assert!(refused(fs.create_subvolume(root, b"below", &NEW_SUBVOLUME)));
    assert!(refused(fs.snapshot(RootId::FS_TREE, root, b"below", false)));
    assert!(refused(fs.snapshot(id, top, b"copy", false)));
    let other = fs.create_subvolume(top, b"other", &NEW_SUBVOLUME).expect("made");
    let moved = fs.rename(top, b"other", root, b"moved", RenameMode::Replace);
    assert!(matches!(moved, Err(FsError::DeletedSubvolume(_))), "{moved:?}");
    assert!(fs.set_default_subvolume(id).is_err() && fs.set_subvolume_read_only(id, true).is_err());
    assert!(fs.delete_subvolume_by_id(id).is_err());
    fs.snapshot(other, top, b"snapshot", false).expect("no other subvolume is affected");
    fs.write(&handle, 0, &[1; 100_000]).expect("room");
    fs.close_file(handle).expect("closes");
    clean_up(&fs);
    assert!(fs.pool().root_item(id).expect("readable").is_none(), "dropped");
    assert!(fs.attributes(opened).is_err() && fs.open_file(opened).is_err());
    fs.sync().expect("nothing is lost");
    fs.shutdown().expect("closes");
    pool.assert_clean("dropped");
    pool.assert_btrfs_check("dropped");
}

#[test]
fn a_deleted_subvolume_that_was_open_in_a_crash_is_dropped() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = fs.create_subvolume(fs.root(), b"open", &NEW_SUBVOLUME).expect("made");
    let file = create(&fs, InodeId::root_of(id), "opened", &file());
    let handle = fs.open_file(file).expect("opens");
    fs.sync().expect("durable");
    fs.delete_subvolume(fs.root(), b"open").expect("deleted");
    fs.commit().expect("durable");
    fs.write(&handle, 0, &[7; 100_000]).expect("it is open");
    fs.sync_file(&handle).expect("nothing to keep");
    fs.write_back_all(None).expect("room");
    fs.commit().expect("durable");
    fs.unlink(InodeId::root_of(id), b"opened").expect("there");
    fs.sync_file(&handle).expect("nothing to keep");
    drop((handle, fs));
    let fs = pool.open();
    clean_up(&fs);
    assert!(fs.pool().root_item(id).expect("readable").is_none());
    fs.shutdown().expect("closes");
    pool.assert_clean("dropped");
    pool.assert_btrfs_check("dropped");
}

/// Regression: the locks of its inodes were taken after that of the directory above, which has a greater id.
#[test]
fn a_subvolume_that_lies_in_a_newer_one_is_deleted() {
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let old = fs.create_subvolume(top, b"old", &NEW_SUBVOLUME).expect("made");
    let new = InodeId::root_of(fs.create_subvolume(top, b"new", &NEW_SUBVOLUME).expect("made"));
    let opened = create(&fs, InodeId::root_of(old), "opened", &file());
    fs.rename(top, b"old", new, b"old", RenameMode::Replace).expect("moved");
    let handle = fs.open_file(opened).expect("opens");
    fs.delete_subvolume(new, b"old").expect("deleted");
    fs.write(&handle, 0, b"open").expect("it is open");
    fs.close_file(handle).expect("closes");
    clean_up(&fs);
    fs.shutdown().expect("closes");
    pool.assert_clean("dropped");
}

#[test]
fn protected_subvolumes_are_not_deleted() {
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let outer = fs.create_subvolume(top, b"outer", &NEW_SUBVOLUME).expect("made");
    let inner = fs.create_subvolume(InodeId::root_of(outer), b"inner", &NEW_SUBVOLUME).expect("made");
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
    let id = fs.create_subvolume(top, b"one", &NEW_SUBVOLUME).expect("made");
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

#[test]
fn a_new_subvolume_has_of_its_surroundings_the_compression_of_the_one_around() {
    let pool = Pool::new();
    let fs = pool.open();
    let property = b"btrfs.compression";
    let outer = fs.create_subvolume(fs.root(), b"outer", &NEW_SUBVOLUME).expect("made");
    fs.set_xattr(InodeId::root_of(outer), property, b"lzo", XattrMode::Any).expect("set");
    let of_group = NewInode { mode: 0o042_775, gid: 9, ..NewInode::default() };
    let within = create(&fs, InodeId::root_of(outer), "within", &of_group);
    fs.set_xattr(within, property, b"zstd", XattrMode::Any).expect("set");
    let new = NewInode { uid: 7, gid: 8, mode: 0o777, umask: 0o027, ..NewInode::default() };
    let inner = fs.create_subvolume(within, b"inner", &new).expect("made");
    let root = fs.attributes(InodeId::root_of(inner)).expect("there");
    assert_eq!((root.mode, root.uid, root.gid), (0o040_750, 7, 8), "not the group of the directory");
    assert_eq!(root.flags, InodeFlags::COMPRESS);
    assert_eq!(fs.xattr(root.id, property).expect("read"), Some(b"lzo".to_vec()));
    fs.shutdown().expect("durable");
    drop(fs);
    pool.assert_clean("compression was inherited");
}
