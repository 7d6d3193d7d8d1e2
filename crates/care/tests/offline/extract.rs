//! Files that are extracted are those of the pool, and an observer can stop it.

use super::populate::{fill, make_source, open};
use crate::support::MIB;
use brindle_care::extract::{
    ExtractError, ExtractObserver, ExtractOptions, Extracted, Failure, Note, extract,
};
use brindle_care::populate::PopulateOptions;
use brindle_fs::{Filesystem, InodeId};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// An observer that remembers, and stops after an amount of bytes.
pub(super) struct Watched {
    stops_at: u64,
    wrote: AtomicU64,
    failures: Mutex<Vec<(String, String)>>,
}

impl Watched {
    pub(super) fn until(stops_at: u64) -> Self {
        Self { stops_at, wrote: AtomicU64::new(0), failures: Mutex::default() }
    }

    pub(super) fn failures(self) -> Vec<(String, String)> {
        let mut failures = self.failures.into_inner().expect("no thread has panicked");
        failures.sort();
        failures
    }
}

impl ExtractObserver for Watched {
    fn is_stopped(&self) -> bool {
        self.wrote.load(Ordering::Relaxed) >= self.stops_at
    }

    fn entered(&self, _: &[u8]) {}

    fn wrote(&self, bytes: u64) {
        self.wrote.fetch_add(bytes, Ordering::Relaxed);
    }

    fn noted(&self, _: &Note) {}

    fn failed(&self, path: &[u8], failure: &Failure) {
        let told = (String::from_utf8_lossy(path).into_owned(), failure.to_string());
        self.failures.lock().expect("no thread has panicked").push(told);
    }
}

/// A filesystem with the files of a directory.
pub(super) fn filled(source: &Path) -> Filesystem {
    make_source(source);
    let (device, report) = fill(source, &PopulateOptions::default(), 256 * MIB);
    report.expect("there is room");
    open(&device)
}

pub(super) fn all(
    filesystem: &Filesystem,
    into: &Path,
    options: ExtractOptions,
    observer: &Watched,
) -> Extracted {
    extract(filesystem, filesystem.root(), None, into, options, observer)
        .expect("the destination can be made")
}

fn inode_of(filesystem: &Filesystem, name: &[u8]) -> InodeId {
    filesystem.lookup(filesystem.root(), name).expect("readable").expect("there").inode
}

#[test]
fn a_tree_is_extracted_as_it_was_put_in() {
    let place = tempfile::tempdir().expect("temporary directory");
    let (source, into) = (place.path().join("source"), place.path().join("into"));
    let filesystem = filled(&source);
    let observer = Watched::until(u64::MAX);
    let done = all(&filesystem, &into, ExtractOptions::default(), &observer);
    let counted = Extracted { files: 303, directories: 2, links: 1, symlinks: 1, specials: 0, ..done };
    assert_eq!(done, counted);
    assert_eq!(done.bytes, observer.wrote.load(Ordering::Relaxed));
    assert_eq!(observer.failures(), []);
    for name in ["text", "sparse", "sub/file7", "sub/file299", "sub/deep/last"] {
        assert!(
            fs::read(source.join(name)).expect("there") == fs::read(into.join(name)).expect("there"),
            "{name}"
        );
    }
    assert_eq!(fs::read_link(into.join("sub/symbolic")).expect("a link"), Path::new("../text"));
    let inode = |name: &str| fs::metadata(into.join(name)).expect("there").ino();
    assert_eq!(inode("text"), inode("sub/link"));
    assert!(fs::metadata(into.join("sparse")).expect("there").blocks() < 2048, "holes are holes");
    let mode = fs::metadata(into.join("sub/file7")).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o750, "a set-id bit is only given with its owner");
}

#[test]
fn files_that_are_there_are_failures_unless_they_may_be_replaced() {
    let place = tempfile::tempdir().expect("temporary directory");
    let (source, into) = (place.path().join("source"), place.path().join("into"));
    let filesystem = filled(&source);
    fs::create_dir_all(into.join("sub/deep")).expect("room");
    fs::write(into.join("sub/deep/last"), "mine").expect("room");
    let observer = Watched::until(u64::MAX);
    all(&filesystem, &into, ExtractOptions::default(), &observer);
    let why = "cannot make it: File exists (os error 17)";
    assert_eq!(observer.failures(), [("sub/deep/last".to_owned(), why.to_owned())]);
    assert_eq!(fs::read(into.join("sub/deep/last")).expect("there"), b"mine");
    let observer = Watched::until(u64::MAX);
    all(&filesystem, &into, ExtractOptions { overwrite: true, ..ExtractOptions::default() }, &observer);
    assert_eq!(observer.failures(), []);
    assert_eq!(fs::read(into.join("sub/deep/last")).expect("there"), b"x");
}

#[test]
fn an_extraction_that_is_stopped_leaves_whole_files_only() {
    let place = tempfile::tempdir().expect("temporary directory");
    let (source, into) = (place.path().join("source"), place.path().join("into"));
    let filesystem = filled(&source);
    let observer = Watched::until(600_000);
    let done =
        all(&filesystem, &into, ExtractOptions { threads: Some(1), ..ExtractOptions::default() }, &observer);
    assert!(done.files < 303, "{done:?}");
    assert_eq!(observer.failures(), []);
    let mut found = 0;
    for directory in ["", "sub", "sub/deep"] {
        let Ok(entries) = fs::read_dir(into.join(directory)) else { continue };
        for entry in entries.map(|entry| entry.expect("readable")) {
            if entry.file_type().expect("known").is_file() {
                let name = Path::new(directory).join(entry.file_name());
                let original = fs::read(source.join(&name)).expect("no other name");
                assert!(original == fs::read(entry.path()).expect("there"), "{}", name.display());
                found += 1;
            }
        }
    }
    assert_eq!(found, done.files + done.links);
}

#[test]
fn a_single_file_needs_a_name_of_its_own_or_of_the_destination() {
    let place = tempfile::tempdir().expect("temporary directory");
    let filesystem = filled(&place.path().join("source"));
    let text = inode_of(&filesystem, b"text");
    let one = |name, into: &Path| {
        extract(&filesystem, text, name, into, ExtractOptions::default(), &Watched::until(u64::MAX))
    };
    assert_eq!(one(None, &place.path().join("renamed")).expect("room").files, 1);
    assert_eq!(one(Some(&b"same"[..]), place.path()).expect("room").files, 1);
    assert!(place.path().join("renamed").exists() && place.path().join("same").exists());
    assert!(matches!(one(None, place.path()), Err(ExtractError::NoName)));
    assert!(matches!(one(None, &place.path().join("none/file")), Err(ExtractError::Open { .. })));
}
