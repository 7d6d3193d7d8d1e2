//! The most common pool of mixed devices: two hard disks and an SSD, data and metadata in raid1, so that a copy of the metadata
//! lies on the SSD. The names begin with `first`: a run over all tests begins with them.

use super::subject::LibrarySubject;
use super::{COMMON, crash};
use brindle_testing::crash::CrashTest;
use brindle_testing::operations::Mix;

/// All operations that a log has to do with, and many fsyncs.
fn fsyncs(name: &str, seed: u64) -> CrashTest {
    let test = crash(&format!("common::{name}"), seed);
    let mix = Mix { sync_file: 30, sync: 2, contents: 40, names: 45, attributes: 15, ..test.mix.clone() };
    test.mixed(mix)
}

#[test]
fn first_commits() {
    crash("common::first_commits", 8000).of(4, 60, 500).run(&LibrarySubject::new(COMMON));
}

#[test]
fn first_logs() {
    let summary = fsyncs("first_logs", 8100).of(6, 100, 600).run(&LibrarySubject::new(COMMON).logging());
    assert!(summary.count("logs") > 0, "no log was written: {summary:?}");
}

#[test]
fn first_logs_of_contents_that_are_written_early() {
    let test = fsyncs("first_logs_of_contents_that_are_written_early", 8200).of(4, 100, 600);
    test.run(&LibrarySubject::hasty(COMMON).logging());
}

/// Fsyncs that meet a chunk made since the last commit.
#[test]
fn first_logs_and_new_chunks() {
    let test = fsyncs("first_logs_and_new_chunks", 8300);
    let mix = Mix { contents: 60, ..test.mix.clone() };
    let summary = test.mixed(mix).of(4, 80, 500).run(&LibrarySubject::outgrowing(COMMON).logging());
    assert!(summary.count("new chunks") > 0, "no chunk was made: {summary:?}");
    assert!(summary.count("logs") > 0, "no log was written: {summary:?}");
}

#[test]
fn first_names_and_subvolumes() {
    let test = fsyncs("first_names_and_subvolumes", 8400);
    let mix = Mix { names: 75, contents: 12, sync_file: 40, subvolumes: 6, ..test.mix.clone() };
    test.mixed(mix).of(4, 100, 500).run(&LibrarySubject::new(COMMON).logging());
}

#[test]
fn first_block_groups_that_move() {
    fsyncs("first_block_groups_that_move", 8500)
        .of(3, 80, 400)
        .run(&LibrarySubject::relocating(COMMON).logging());
}
