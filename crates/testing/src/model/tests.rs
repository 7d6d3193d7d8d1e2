//! Tests of the model where the kernel would be asked too seldom; the rest is held against it in `tests/kernel.rs`.

use super::{Body, Errno, Model, RenameRule, XattrRule, path};
use crate::manifest::Time;

fn model() -> Model {
    let mut model = Model::new();
    model.make_directory(&path("d"), 0o755).expect("new");
    model.create(&path("d/f"), 0o644).expect("new");
    model.write(&path("d/f"), 0, b"hello").expect("a file");
    model
}

#[test]
fn a_clone_stays_as_it_was() {
    let mut model = model();
    let before = model.clone();
    model.write(&path("d/f"), 3, b"p!").expect("a file");
    model.unlink(&path("d/f")).expect("there");
    assert_eq!(before.contents(&path("d/f")), Ok(b"hello".to_vec()));
    assert_eq!(model.contents(&path("d/f")), Err(Errno::NotFound));
}

#[test]
fn a_snapshot_shares_nothing_that_can_be_seen() {
    let mut model = model();
    model.create_subvolume(&path("s")).expect("new");
    model.create(&path("s/f"), 0o644).expect("new");
    model.create_subvolume(&path("s/inner")).expect("new");
    model.snapshot(&path("s"), &path("t"), true).expect("a subvolume");
    model.write(&path("s/f"), 0, b"later").expect("a file");
    assert_eq!(model.contents(&path("t/f")), Ok(Vec::new()));
    assert_eq!(model.write(&path("t/f"), 0, b"x"), Err(Errno::ReadOnly));
    assert_eq!(model.create(&path("t/g"), 0o644), Err(Errno::ReadOnly));
    assert!(model.is_there(&path("t/inner")) && !model.is_subvolume(&path("t/inner")));
    assert_eq!(model.snapshot(&path("d"), &path("u"), false), Err(Errno::Invalid));
    assert_eq!(model.delete_subvolume(&path("s")), Err(Errno::NotEmpty));
    model.delete_subvolume(&path("s/inner")).expect("empty");
    model.delete_subvolume(&path("s")).expect("no subvolumes in it");
    assert_eq!(model.link(&path("t/f"), &path("f")), Err(Errno::CrossDevice));
}

#[test]
fn the_last_name_takes_the_inode() {
    let mut model = model();
    model.link(&path("d/f"), &path("g")).expect("new");
    model.rename(&path("d"), &path("e"), RenameRule::Replace).expect("there");
    model.unlink(&path("e/f")).expect("there");
    assert_eq!(model.inode(&path("g")).map(|inode| inode.nlink), Ok(1));
    assert_eq!(model.contents(&path("g")), Ok(b"hello".to_vec()));
    let inodes = model.subvolumes[&super::TOP].inodes.len();
    model.unlink(&path("g")).expect("there");
    assert_eq!(model.subvolumes[&super::TOP].inodes.len(), inodes - 1);
}

#[test]
fn a_rename_over_and_into_itself() {
    let mut model = model();
    model.make_directory(&path("d/e"), 0o755).expect("new");
    assert_eq!(model.rename(&path("d"), &path("d/e/d"), RenameRule::Replace), Err(Errno::Invalid));
    assert_eq!(model.rename(&path("d/e"), &path("d"), RenameRule::Replace), Err(Errno::NotEmpty));
    assert_eq!(model.rename(&path("d/f"), &path("d/e"), RenameRule::Replace), Err(Errno::IsDirectory));
    assert_eq!(model.rename(&path("d/f"), &path("d/f"), RenameRule::NoReplace), Err(Errno::Exists));
    assert_eq!(model.rename(&path("d/f"), &path("d/f"), RenameRule::Replace), Ok(()));
    model.rename(&path("d/f"), &path("d/e"), RenameRule::Exchange).expect("both there");
    assert!(model.inode(&path("d/f")).is_ok_and(super::Inode::is_directory));
    model.rename(&path("d/e"), &path("w"), RenameRule::Whiteout).expect("there");
    assert!(matches!(model.inode(&path("d/e")).map(|inode| &inode.body), Ok(Body::Node(_))));
}

#[test]
fn a_reflink_wants_whole_sectors_or_the_end() {
    let mut model = model();
    model.write(&path("d/f"), 0, &[7; 5000]).expect("a file");
    model.create(&path("g"), 0o644).expect("new");
    let mut clone = |from, to, length| model.clone_range(&path("d/f"), from, &path("g"), to, length);
    assert_eq!(clone(0, 512, 0), Err(Errno::Invalid));
    assert_eq!(clone(0, 0, 1000), Err(Errno::Invalid));
    assert_eq!(clone(0, 0, 8192), Err(Errno::Invalid));
    assert_eq!(clone(4096, 0, 0), Ok(()));
    assert_eq!(clone(0, 8192, 4096), Ok(()));
    // It would end within the file.
    assert_eq!(clone(4096, 0, 904), Err(Errno::Invalid));
    let bytes = model.contents(&path("g")).expect("a file");
    assert_eq!(bytes, [vec![7; 904], vec![0; 8192 - 904], vec![7; 4096]].concat());
    assert_eq!(model.clone_range(&path("g"), 0, &path("g"), 4096, 8192), Err(Errno::Invalid));
}

#[test]
fn a_time_is_known_until_the_contents_change() {
    let mut model = model();
    let mtime = Time { sec: -5, nsec: 7 };
    model.set_times(&path("d/f"), mtime).expect("there");
    model.set_xattr(&path("d/f"), "user.a", b"x", XattrRule::Create).expect("new");
    let found = model.expectation().manifest().clone();
    assert_eq!(found.entry(b"d/f").map(|entry| entry.mtime), Some(mtime));
    let mut other = model.clone();
    other.set_times(&path("d/f"), Time { sec: 0, nsec: 0 }).expect("there");
    assert!(other.expectation().difference(&found).is_some_and(|words| words.contains("d/f: mtime")));
    other.truncate(&path("d/f"), 5).expect("a file");
    assert_eq!(other.expectation().difference(&found), None);
}

#[test]
fn errnos_are_those_of_linux() {
    for code in 1..130 {
        assert_eq!(Errno::from_code(code).code(), code);
    }
    assert_eq!(
        (Errno::NotEmpty.to_string(), Errno::Other(40).to_string()),
        ("ENOTEMPTY".into(), "errno 40".into())
    );
}
