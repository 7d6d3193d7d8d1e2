//! Times of writes that a host's page cache brings, in each order in which the host may tell them.

use super::bench::{Bench, Setup, create};
use brindle_fs::{AttributeChange, Filesystem, InodeFlags, InodeId, NewTime, OpenFile, Timestamp};

const SECTOR: usize = 4096;

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 7 }
}

/// The host tells the times of what a program wrote.
fn tell(filesystem: &Filesystem, id: InodeId, seconds: i64) {
    let (modified, changed) = (Some(NewTime::At(at(seconds))), Some(at(seconds)));
    let change = AttributeChange { modified, changed, ..AttributeChange::default() };
    filesystem.set_attributes(id, &change).expect("sets");
}

fn times(filesystem: &Filesystem, id: InodeId) -> (Timestamp, Timestamp) {
    let attributes = filesystem.attributes(id).expect("there");
    (attributes.modified, attributes.changed)
}

fn bring(filesystem: &Filesystem, file: &OpenFile, sector: u64) {
    filesystem.write_cached(file, sector * 2 * 4096, &[3; SECTOR]).expect("writes");
}

/// A committed file, whose time the host has told.
fn begin(bench: &Bench) -> (Filesystem, OpenFile) {
    let filesystem = bench.open();
    let file = filesystem.open_file(create(&filesystem, 0, InodeFlags::empty())).expect("opens");
    bring(&filesystem, &file, 0);
    tell(&filesystem, file.id(), 1000);
    filesystem.confirm_times(file.inode()).expect("confirms");
    filesystem.sync().expect("commits");
    (filesystem, file)
}

/// The times that a crash leaves.
fn after_a_crash(bench: &Bench, filesystem: Filesystem, file: OpenFile) -> (Timestamp, Timestamp) {
    let id = file.id();
    drop((file, filesystem));
    let filesystem = bench.open();
    let found = times(&filesystem, id);
    drop(filesystem);
    bench.assert_clean("after a crash");
    found
}

#[test]
fn times_that_come_behind_the_contents_are_the_hosts() {
    let bench = Bench::new(&Setup::default());
    let (filesystem, file) = begin(&bench);
    bring(&filesystem, &file, 1);
    assert_eq!(times(&filesystem, file.id()), (at(1000), at(1000)), "nobody has told another");
    tell(&filesystem, file.id(), 2000);
    assert_eq!(times(&filesystem, file.id()), (at(2000), at(2000)));
    filesystem.sync().expect("commits");
    assert_eq!(times(&filesystem, file.id()), (at(2000), at(2000)));
    assert_eq!(after_a_crash(&bench, filesystem, file), (at(2000), at(2000)));
}

#[test]
fn times_that_come_before_the_contents_stay() {
    let bench = Bench::new(&Setup::default());
    let (filesystem, file) = begin(&bench);
    tell(&filesystem, file.id(), 2000);
    bring(&filesystem, &file, 1);
    filesystem.sync().expect("commits");
    bring(&filesystem, &file, 2);
    assert_eq!(times(&filesystem, file.id()), (at(2000), at(2000)));
    filesystem.confirm_times(file.inode()).expect("confirms");
    filesystem.sync().expect("commits");
    assert_eq!(times(&filesystem, file.id()), (at(2000), at(2000)));
    assert_eq!(after_a_crash(&bench, filesystem, file), (at(2000), at(2000)));
}

#[test]
fn no_times_at_all_leave_those_before() {
    let bench = Bench::new(&Setup::default());
    let (filesystem, file) = begin(&bench);
    bring(&filesystem, &file, 1);
    filesystem.confirm_times(file.inode()).expect("confirms");
    filesystem.sync_file(&file).expect("syncs");
    assert_eq!(times(&filesystem, file.id()), (at(1000), at(1000)));
    assert_eq!(after_a_crash(&bench, filesystem, file), (at(1000), at(1000)));
}

#[test]
fn a_commit_has_no_new_contents_under_an_old_time() {
    let bench = Bench::new(&Setup::default());
    let (filesystem, file) = begin(&bench);
    bring(&filesystem, &file, 1);
    filesystem.sync().expect("commits");
    assert_eq!(times(&filesystem, file.id()), (at(1000), at(1000)), "it is not shown");
    let (modified, changed) = after_a_crash(&bench, filesystem, file);
    assert!(modified > at(1000) && changed > at(1000), "{modified:?} {changed:?}");
}

#[test]
fn a_commit_between_contents_and_times_changes_neither() {
    let bench = Bench::new(&Setup::default());
    let (filesystem, file) = begin(&bench);
    for round in 0..3 {
        bring(&filesystem, &file, 1 + round);
        filesystem.sync().expect("commits");
    }
    tell(&filesystem, file.id(), 2000);
    assert_eq!(times(&filesystem, file.id()), (at(2000), at(2000)));
    filesystem.confirm_times(file.inode()).expect("confirms");
    filesystem.sync().expect("commits");
    assert_eq!(after_a_crash(&bench, filesystem, file), (at(2000), at(2000)));
}

#[test]
fn other_changes_keep_the_times_that_they_do_not_set() {
    let bench = Bench::new(&Setup::default());
    let (filesystem, file) = begin(&bench);
    bring(&filesystem, &file, 1);
    filesystem.sync().expect("commits");
    let change = AttributeChange { mode: Some(0o600), changed: Some(at(3000)), ..AttributeChange::default() };
    filesystem.set_attributes(file.id(), &change).expect("sets");
    assert_eq!(times(&filesystem, file.id()), (at(1000), at(3000)));
    filesystem.confirm_times(file.inode()).expect("confirms");
    assert_eq!(times(&filesystem, file.id()), (at(1000), at(3000)));
    // A write past the cache has a time of our own, which a mode that is set behind it does not take away.
    filesystem.write(&file, 0, &[4; 100]).expect("writes");
    let written = times(&filesystem, file.id()).0;
    assert!(written > at(3000));
    filesystem.set_attributes(file.id(), &change).expect("sets");
    assert_eq!(times(&filesystem, file.id()).0, written);
    bring(&filesystem, &file, 2);
    filesystem.confirm_times(file.inode()).expect("confirms");
    filesystem.sync().expect("commits");
    assert_eq!(after_a_crash(&bench, filesystem, file).0, written);
}
