//! Cases that random names seldom meet: many links, hashes that collide, flags, lists that are inherited.

use super::pool::{NOW, Pool};
use brindle_fs::{
    AttributeChange, FileFlags, Filesystem, FsError, InodeFlags, InodeId, NewInode, NewTime, RenameMode,
    Timestamp, XattrMode,
};
use brindle_ondisk::name_hash;
use std::collections::HashMap;

pub(crate) fn file() -> NewInode<'static> {
    NewInode { mode: 0o100_644, ..NewInode::default() }
}

pub(crate) fn directory() -> NewInode<'static> {
    NewInode { mode: 0o040_755, ..NewInode::default() }
}

pub(crate) fn create(fs: &Filesystem, parent: InodeId, name: &str, new: &NewInode<'_>) -> InodeId {
    fs.create(parent, name.as_bytes(), new).unwrap_or_else(|error| panic!("{name}: {error}")).id
}

fn long_name(number: usize) -> Vec<u8> {
    format!("{number:0>200}").into_bytes()
}

#[test]
fn more_names_than_one_item_holds() {
    const NAMES: usize = 500;
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let below = create(&fs, top, "below", &directory());
    let id = create(&fs, top, "first", &file());
    for number in 0..NAMES {
        fs.link(id, if number % 3 == 0 { below } else { top }, &long_name(number)).expect("another name");
    }
    assert_eq!(fs.attributes(id).expect("there").nlink as usize, NAMES + 1);
    fs.sync().expect("durable");
    pool.assert_clean("linked");
    pool.assert_btrfs_check("linked");
    for number in (0..NAMES).filter(|number| number % 7 != 0) {
        let parent = if number % 3 == 0 { below } else { top };
        if number % 2 == 0 {
            let other = format!("{number:x>180}");
            fs.rename(parent, &long_name(number), below, other.as_bytes(), RenameMode::NoReplace)
                .expect("moves");
            fs.unlink(below, other.as_bytes()).expect("there");
        } else {
            fs.unlink(parent, &long_name(number)).expect("there");
        }
    }
    fs.shutdown().expect("closes");
    pool.assert_clean("some are left");
    pool.assert_btrfs_check("some are left");
}

#[test]
fn an_inode_has_at_most_as_many_names_as_btrfs_says() {
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let id = create(&fs, top, "0", &file());
    for number in 1..65535 {
        fs.link(id, top, number.to_string().as_bytes()).expect("another name");
    }
    assert!(matches!(fs.link(id, top, b"more"), Err(FsError::TooManyLinks(_))));
    fs.unlink(top, b"7").expect("there");
    fs.link(id, top, b"more").expect("there is room again");
    fs.shutdown().expect("closes");
    pool.assert_clean("as many names as can be");
}

/// Names of one hash, several of them.
fn colliding_names() -> Vec<Vec<u8>> {
    let mut by_hash: HashMap<u64, Vec<Vec<u8>>> = HashMap::new();
    for number in 0..400_000u64 {
        let name = format!("{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
        by_hash.entry(name_hash(&name)).or_default().push(name);
    }
    by_hash.into_values().filter(|names| names.len() > 1).flatten().take(20).collect()
}

#[test]
fn names_of_one_hash_live_together() {
    let names = colliding_names();
    assert!(names.len() >= 4, "there are collisions among so many");
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let ids: Vec<InodeId> = names.iter().map(|name| fs.create(top, name, &file()).expect("new").id).collect();
    let found = |name: &Vec<u8>| fs.lookup(top, name).expect("readable").map(|entry| entry.inode);
    assert_eq!(
        names.iter().map(found).collect::<Vec<_>>(),
        ids.iter().copied().map(Some).collect::<Vec<_>>()
    );
    assert!(matches!(fs.create(top, &names[1], &file()), Err(FsError::Exists(_))));
    fs.set_xattr(ids[0], &[b"user.", &names[0][..]].concat(), b"a", XattrMode::Any).expect("set");
    fs.sync().expect("durable");
    pool.assert_clean("together");
    fs.rename(top, &names[0], top, &names[1], RenameMode::Exchange).expect("they change places");
    assert_eq!((found(&names[0]), found(&names[1])), (Some(ids[1]), Some(ids[0])));
    fs.rename(top, &names[0], top, &names[1], RenameMode::Replace).expect("one goes");
    assert_eq!((found(&names[0]), found(&names[1])), (None, Some(ids[1])));
    for name in &names[2..] {
        fs.unlink(top, name).expect("there");
    }
    fs.shutdown().expect("closes");
    pool.assert_clean("one is left");
    pool.assert_btrfs_check("one is left");
}

#[test]
fn protected_files_stay() {
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let (held, kept) = (create(&fs, top, "held", &directory()), create(&fs, top, "kept", &file()));
    create(&fs, held, "inside", &file());
    fs.set_flags(held, FileFlags::IMMUTABLE).expect("set");
    fs.set_flags(kept, FileFlags::APPEND).expect("set");
    let refused = |result: Result<(), FsError>| matches!(result, Err(FsError::NotPermitted { .. }));
    assert!(refused(fs.create(held, b"new", &file()).map(|_| ())));
    assert!(refused(fs.unlink(held, b"inside")));
    assert!(refused(fs.rename(held, b"inside", top, b"outside", RenameMode::Replace)));
    assert!(refused(fs.rename(top, b"held", top, b"moved", RenameMode::Replace)));
    assert!(refused(fs.unlink(top, b"kept")));
    assert!(refused(fs.link(kept, top, b"again").map(|_| ())));
    assert!(refused(fs.set_xattr(kept, b"user.a", b"x", XattrMode::Any)));
    let mode = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
    assert!(refused(fs.set_attributes(kept, &mode).map(|_| ())));
    // As with utimensat(2): both times become the present one, or it is an explicit time like any other.
    let modified = AttributeChange { modified: Some(NewTime::Now), ..AttributeChange::default() };
    assert!(refused(fs.set_attributes(kept, &modified).map(|_| ())));
    let touch = AttributeChange { accessed: Some(NewTime::Now), ..modified };
    assert!(fs.set_attributes(kept, &touch).is_ok());
    fs.set_flags(held, FileFlags::empty()).expect("set");
    fs.unlink(held, b"inside").expect("allowed again");
    fs.shutdown().expect("closes");
    pool.assert_clean("as before");
}

#[test]
fn flags_and_properties_go_down_the_tree() {
    let pool = Pool::new();
    let fs = pool.open();
    let above = create(&fs, fs.root(), "above", &directory());
    fs.set_xattr(above, b"btrfs.compression", b"zstd", XattrMode::Any).expect("set");
    let id = create(&fs, above, "below", &file());
    assert_eq!(fs.attributes(id).expect("there").flags, InodeFlags::COMPRESS);
    assert_eq!(fs.xattr(id, b"btrfs.compression").expect("readable").as_deref(), Some(&b"zstd"[..]));
    fs.set_xattr(above, b"btrfs.compression", b"", XattrMode::Any).expect("taken away");
    let later = create(&fs, above, "later", &file());
    assert_eq!(fs.xattrs(later).expect("readable"), []);
    fs.set_flags(above, FileFlags::NOCOW).expect("set");
    let in_place = create(&fs, above, "in place", &file());
    let flags = fs.attributes(in_place).expect("there").flags;
    assert_eq!(flags, InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    fs.shutdown().expect("closes");
    pool.assert_clean("flags");
    pool.assert_btrfs_check("flags");
}

#[test]
fn a_mode_and_its_list_change_together() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = create(&fs, fs.root(), "file", &file());
    let entry =
        |tag: u8, permissions: u8, id: u32| [&[tag, 0, permissions, 0][..], &id.to_le_bytes()].concat();
    let list = |mask: u8| {
        let (none, head) = (u32::MAX, vec![2, 0, 0, 0]);
        [
            head,
            entry(1, 6, none),
            entry(2, 7, 1000),
            entry(4, 4, none),
            entry(16, mask, none),
            entry(32, 4, none),
        ]
        .concat()
    };
    fs.set_xattr(id, b"system.posix_acl_access", &list(7), XattrMode::Any).expect("set");
    assert_eq!(fs.attributes(id).expect("there").mode, 0o100_674);
    let change = AttributeChange { mode: Some(0o654), ..AttributeChange::default() };
    assert_eq!(fs.set_attributes(id, &change).expect("set").mode, 0o100_654);
    assert_eq!(fs.xattr(id, b"system.posix_acl_access").expect("readable"), Some(list(5)));
    fs.remove_xattr(id, b"system.posix_acl_access").expect("removed");
    assert_eq!(fs.xattrs(id).expect("readable"), []);
    assert_eq!(fs.attributes(id).expect("there").mode, 0o100_654);
}

#[test]
fn times_are_those_of_the_host() {
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let now = Timestamp { seconds: NOW, nanoseconds: 5 };
    let id = create(&fs, top, "file", &file());
    let made = fs.attributes(id).expect("there");
    assert_eq!([made.accessed, made.changed, made.modified, made.created], [now; 4]);
    let above = fs.attributes(top).expect("there");
    assert_eq!((above.modified, above.changed, above.size), (now, now, 8));
    let then = Timestamp { seconds: 5, nanoseconds: 7 };
    let change = AttributeChange { accessed: Some(NewTime::At(then)), ..AttributeChange::default() };
    let after = fs.set_attributes(id, &change).expect("set");
    assert_eq!((after.accessed, after.changed, after.modified), (then, now, now));
    fs.note_access(id).expect("read");
    assert_eq!(fs.attributes(id).expect("there").accessed, now);
}

#[test]
fn an_attribute_may_fill_a_tree_block_and_no_more() {
    let pool = Pool::new();
    let fs = pool.open();
    let id = create(&fs, fs.root(), "file", &file());
    let largest = 16384 - 101 - 25 - 30 - b"user.a".len();
    fs.set_xattr(id, b"user.a", &vec![1; largest], XattrMode::Any).expect("it fits");
    let refused = fs.set_xattr(id, b"user.a", &vec![1; largest + 1], XattrMode::Replace);
    assert!(matches!(refused, Err(FsError::XattrTooLarge(_))));
    assert_eq!(fs.xattr(id, b"user.a").expect("readable").map(|value| value.len()), Some(largest));
    fs.shutdown().expect("closes");
    pool.assert_clean("a large attribute");
    pool.assert_btrfs_check("a large attribute");
}

#[test]
fn a_flag_that_needs_an_attribute_is_refused_where_there_is_no_room_for_it() {
    // A name of the same hash as `btrfs.compression`: both attributes would share an item.
    let name = b"user.caeeggaeacceaecaccaaaaaa";
    assert_eq!(name_hash(name), name_hash(b"btrfs.compression"));
    let pool = Pool::new();
    let fs = pool.open();
    let id = create(&fs, fs.root(), "file", &file());
    let largest = 16384 - 101 - 25 - 30 - name.len();
    fs.set_xattr(id, name, &vec![1; largest], XattrMode::Any).expect("it fits");
    let refused = fs.set_flags(id, FileFlags::COMPRESS);
    assert!(matches!(refused, Err(FsError::XattrTooLarge(_))), "{refused:?}");
    fs.set_xattr(id, name, b"short", XattrMode::Any).expect("still writable");
    fs.set_flags(id, FileFlags::COMPRESS).expect("there is room");
    fs.shutdown().expect("closes");
    pool.assert_clean("two attributes of one hash");
    pool.assert_btrfs_check("two attributes of one hash");
}

#[test]
fn a_pool_that_is_only_read_is_not_changed() {
    let pool = Pool::new();
    let fs = pool.open_read_only();
    assert!(!fs.is_writable());
    let is_refused = |result: Result<(), FsError>| {
        matches!(result, Err(FsError::Tree(brindle_tree::TreeError::ReadOnly(_))))
    };
    assert!(is_refused(fs.create(fs.root(), b"a", &file()).map(|_| ())));
    assert!(is_refused(fs.unlink(fs.root(), b"a")));
    assert!(is_refused(fs.set_attributes(fs.root(), &AttributeChange::default()).map(|_| ())));
    assert!(is_refused(fs.commit()));
    fs.sync().expect("nothing waits to be written");
}

#[test]
fn a_target_too_long_for_a_tree_block_is_refused_and_nothing_is_lost() {
    for (nodesize, longest) in [(4096, 3949), (16384, 4095)] {
        let pool = Pool::with(|options| options.nodesize = Some(nodesize));
        let fs = pool.open();
        let symlink = |name: &[u8], length: usize| {
            let target = vec![b'a'; length];
            let new = NewInode { target: Some(&target), mode: 0o120_777, ..NewInode::default() };
            fs.create(fs.root(), name, &new)
        };
        create(&fs, fs.root(), "kept", &file());
        for length in [longest + 1, 4096, 5000] {
            assert!(matches!(symlink(b"long", length), Err(FsError::NameTooLong(_))), "{nodesize}: {length}");
        }
        symlink(b"longest", longest).expect("fits");
        create(&fs, fs.root(), "later", &file());
        fs.shutdown().expect("still writable");
        pool.assert_clean("after the refusals");
        pool.assert_btrfs_check("after the refusals");
    }
}

#[test]
fn a_whiteout_is_left_where_the_new_name_is_free() {
    let pool = Pool::new();
    let fs = pool.open();
    let top = fs.root();
    let id = create(&fs, top, "old", &file());
    create(&fs, top, "taken", &file());
    let whiteout = |replaces| RenameMode::Whiteout { replaces, uid: 0, gid: 0 };
    let refused = fs.rename(top, b"old", top, b"taken", whiteout(false));
    assert!(matches!(refused, Err(FsError::Exists(_))), "{refused:?}");
    fs.rename(top, b"old", top, b"new", whiteout(false)).expect("moves");
    let found = |name: &[u8]| fs.lookup(top, name).expect("readable").expect("there").inode;
    assert_eq!(found(b"new"), id);
    assert_eq!(fs.attributes(found(b"old")).expect("there").mode, 0o020_000);
    fs.rename(top, b"new", top, b"taken", whiteout(true)).expect("replaces");
    assert_eq!(found(b"taken"), id);
    fs.shutdown().expect("closes");
    pool.assert_clean("whiteouts");
}
