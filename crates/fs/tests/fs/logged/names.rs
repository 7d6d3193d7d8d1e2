//! Names in a log: those that an fsync is about, with what belongs to them, and no others.

use super::tiers::{ONE_OF_EACH, recorded};
use crate::contents::patterns::Program;
use brindle_fs::{Filesystem, LogStatistics};
use brindle_sim::{LossMode, Random, Recorder};

/// Blocks that the log of one small file takes at the most: its leaf, the root of logs, and a block above each.
const SMALL: u64 = 4;

fn counts(filesystem: &Filesystem) -> LogStatistics {
    filesystem.pool().commit_statistics().log
}

/// Makes a directory with new files that are not synced.
fn make_many(program: &Program<'_>, directory: &str, count: u32) {
    for number in 0..count {
        program.close(program.create(&format!("{directory}/{number:05}")));
    }
}

/// The pool as a crash leaves it now, with its log replayed.
fn after_crash(recorder: &Recorder, look: impl FnOnce(&Program<'_>)) {
    let recording = recorder.recording();
    let state = recording.state_at(recorder.position(), LossMode::Everything, &mut Random::new(1));
    let filesystem = crate::simulated::Pool::on(state.writable(), &ONE_OF_EACH).open().expect("opens");
    look(&Program::new(&filesystem));
    filesystem.shutdown().expect("closes");
}

/// A pool with a commit that has these directories.
fn pool(directories: &[&str]) -> (Recorder, Filesystem) {
    let (recorder, filesystem) = recorded(&ONE_OF_EACH, 0x7c);
    let program = Program::new(&filesystem);
    directories.iter().for_each(|path| program.make_directory(path));
    program.put("first", &[1; 12 << 10]);
    filesystem.sync().expect("commits");
    program.put("second", b"");
    (recorder, filesystem)
}

#[test]
fn new_files_of_others_cost_an_fsync_nothing() {
    let (recorder, filesystem) = pool(&["many"]);
    let program = Program::new(&filesystem);
    make_many(&program, "many", 20_000);
    let before = counts(&filesystem);
    program.put("many/synced", b"synced");
    let after = counts(&filesystem);
    assert_eq!(after.commits, before.commits, "fsyncs that were commits");
    assert!(after.blocks - before.blocks <= SMALL, "{} blocks", after.blocks - before.blocks);
    after_crash(&recorder, |program| assert_eq!(program.names("many"), ["synced"]));
    // They are there when they are asked for.
    program.sync(&program.open("many/07000"));
    let last = counts(&filesystem);
    assert!(last.blocks - after.blocks <= SMALL, "{} blocks", last.blocks - after.blocks);
    after_crash(&recorder, |program| assert_eq!(program.names("many"), ["07000", "synced"]));
}

#[test]
fn an_fsync_of_a_directory_logs_its_entries_and_those_of_new_directories_below() {
    let (recorder, filesystem) = pool(&["a", "b"]);
    let program = Program::new(&filesystem);
    let before = counts(&filesystem);
    make_many(&program, "b", 10);
    program.make_directory("a/new");
    program.make_directory("a/new/below");
    make_many(&program, "a", 3);
    make_many(&program, "a/new/below", 2);
    program.sync_directory("a");
    after_crash(&recorder, |program| {
        assert_eq!(program.names("a"), ["new", "00000", "00001", "00002"]);
        assert_eq!(program.names("a/new/below"), ["00000", "00001"]);
        assert_eq!(program.names("b"), [""; 0]);
    });
    assert_eq!(counts(&filesystem).commits, before.commits, "fsyncs that were commits");
}

#[test]
fn a_synced_file_is_found_where_a_moved_directory_has_brought_it() {
    let (recorder, filesystem) = pool(&["a", "a/b", "a/b/c", "d"]);
    let program = Program::new(&filesystem);
    program.put("a/b/c/file", b"old");
    filesystem.sync().expect("commits");
    let before = counts(&filesystem);
    program.rename("a/b", "d/b");
    program.make_directory("other");
    let file = program.open("d/b/c/file");
    program.write(&file, 0, b"new");
    program.sync(&file);
    program.close(file);
    after_crash(&recorder, |program| {
        assert_eq!(program.read("d/b/c/file").as_deref(), Some(&b"new"[..]));
        assert_eq!(program.names("a"), [""; 0]);
        assert_eq!(program.find("other"), None);
    });
    assert_eq!(counts(&filesystem).commits, before.commits, "fsyncs that were commits");
}

#[test]
fn files_that_left_a_removed_directory_are_found_elsewhere() {
    let (recorder, filesystem) = pool(&["a", "a/b", "d"]);
    let program = Program::new(&filesystem);
    ["a/b/one", "a/b/two"].iter().for_each(|path| program.put(path, path.as_bytes()));
    filesystem.sync().expect("commits");
    program.rename("a/b/one", "d/one");
    program.rename("a/b/two", "d/two");
    filesystem.remove_directory(program.find("a").expect("there"), b"b").expect("empty");
    // The name has been that of the directory.
    program.put("a/b", b"a file");
    after_crash(&recorder, |program| {
        assert_eq!(program.read("a/b").as_deref(), Some(&b"a file"[..]));
        assert_eq!(program.read("d/one").as_deref(), Some(&b"a/b/one"[..]));
        assert_eq!(program.read("d/two").as_deref(), Some(&b"a/b/two"[..]));
    });
}

#[test]
fn names_that_went_round_are_logged_together() {
    let (recorder, filesystem) = pool(&[]);
    let program = Program::new(&filesystem);
    ["a", "b", "c"].iter().for_each(|path| program.put(path, path.as_bytes()));
    filesystem.sync().expect("commits");
    for (from, to) in [("a", "spare"), ("b", "a"), ("c", "b"), ("spare", "c")] {
        program.rename(from, to);
    }
    program.sync(&program.open("a"));
    after_crash(&recorder, |program| {
        let read = |path| program.read(path).expect("there");
        assert_eq!([read("a"), read("b"), read("c")], [b"b", b"c", b"a"]);
        assert_eq!(program.find("spare"), None);
    });
}

/// A program that has synced a file, given it its last name, and syncs another file that refers to it.
#[test]
fn the_last_name_of_a_synced_file_goes_along_with_the_next_fsync() {
    let (recorder, filesystem) = pool(&["objects", "refs"]);
    let program = Program::new(&filesystem);
    let before = counts(&filesystem);
    program.put("objects/temporary", b"object");
    make_many(&program, "refs", 100);
    program.link("objects/temporary", "objects/name");
    program.unlink("objects/temporary");
    program.put("refs/main", b"name");
    after_crash(&recorder, |program| {
        assert_eq!(program.read("objects/name").as_deref(), Some(&b"object"[..]));
        assert_eq!(program.names("objects"), ["name"]);
        assert_eq!(program.names("refs"), ["main"]);
    });
    // The entry of a directory that was synced.
    program.sync_directory("objects");
    program.rename("objects/name", "objects/other");
    program.put("refs/main2", b"other");
    after_crash(&recorder, |program| assert_eq!(program.names("objects"), ["other"]));
    assert_eq!(counts(&filesystem).commits, before.commits, "fsyncs that were commits");
}
