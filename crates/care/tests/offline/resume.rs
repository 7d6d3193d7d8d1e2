//! Extractions that go on where another one ended, and surveys.

use super::extract::{Watched, all, filled};
use super::populate::{fill, make_source, open};
use crate::support::MIB;
use brindle_care::extract::{
    ExtractError, ExtractObserver, ExtractOptions, Extracted, Failure, Note, extract, survey,
};
use brindle_care::populate::PopulateOptions;
use brindle_fs::Filesystem;
use brindle_testing::manifest::Manifest;
use rustix::fs::FlockOperation;
use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;
use tempfile::TempDir;

const RESUME: ExtractOptions =
    ExtractOptions { overwrite: false, resume: true, one_subvolume: false, is_root: false, threads: None };
/// Files of [`make_source`], each counted once.
const FILES: u64 = 303;

fn place() -> (TempDir, PathBuf, PathBuf) {
    let place = tempfile::tempdir().expect("temporary directory");
    let (source, into) = (place.path().join("source"), place.path().join("into"));
    (place, source, into)
}

/// Extracts without a failure.
fn extracted(filesystem: &Filesystem, into: &Path, options: ExtractOptions) -> Extracted {
    let observer = Watched::until(u64::MAX);
    let done = all(filesystem, into, options, &observer);
    assert_eq!(observer.failures(), []);
    done
}

fn assert_equal(source: &Path, into: &Path) {
    let set_id = source.join("sub/file7");
    // Which an ordinary user's copy has not.
    fs::set_permissions(&set_id, Permissions::from_mode(0o750)).expect("own file");
    let manifest = |place| Manifest::of_directory(place).expect("readable");
    let differences = manifest(source).diff(&manifest(into));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn an_extraction_that_was_stopped_goes_on_with_the_rest() {
    let (_place, source, into) = place();
    let filesystem = filled(&source);
    for stops_at in [200_000, 600_000, 1_000_000] {
        let observer = Watched::until(stops_at);
        all(&filesystem, &into, ExtractOptions { threads: Some(1), ..RESUME }, &observer);
        assert_eq!(observer.failures(), []);
    }
    let rest = extracted(&filesystem, &into, RESUME);
    assert!(rest.kept_files > 0 && rest.files > 0, "{rest:?}");
    assert_eq!(rest.kept_files + rest.files, FILES);
    assert_equal(&source, &into);
    let again = extracted(&filesystem, &into, RESUME);
    let nothing =
        Extracted { directories: 2, kept_files: FILES, kept_bytes: again.kept_bytes, ..Extracted::default() };
    assert_eq!(again, nothing);
}

#[test]
fn files_that_differ_are_copied_anew_and_the_rest_stays() {
    let (_place, source, into) = place();
    make_source(&source);
    fs::set_permissions(source.join("sub/deep"), Permissions::from_mode(0o555)).expect("own directory");
    let (device, report) = fill(&source, &PopulateOptions::default(), 256 * MIB);
    report.expect("there is room");
    let filesystem = open(&device);
    extracted(&filesystem, &into, ExtractOptions::default());
    let inode = |name: &str| fs::metadata(into.join(name)).expect("there").ino();
    let kept = inode("sub/file100");

    // Of the right size with zeros in it, as the loss of power leaves a file: its time was not set.
    let size = fs::metadata(into.join("sub/file200")).expect("there").len();
    fs::write(into.join("sub/file200"), vec![0; usize::try_from(size).expect("small")]).expect("room");
    fs::write(into.join("sub/file201"), "longer or shorter").expect("room");
    let early = SystemTime::UNIX_EPOCH;
    let file = File::options().write(true).open(into.join("sub/file202")).expect("there");
    file.set_times(FileTimes::new().set_modified(early)).expect("own file");
    fs::set_permissions(into.join("sub/file203"), Permissions::from_mode(0o600)).expect("own file");
    for name in ["sub/file204", "sub/link", "sub/symbolic"] {
        fs::remove_file(into.join(name)).expect("there");
    }
    fs::write(into.join("sub/link"), "no link any more").expect("room");
    symlink("elsewhere", into.join("sub/symbolic")).expect("room");
    fs::set_permissions(into.join("sub/deep"), Permissions::from_mode(0o755)).expect("own directory");
    fs::remove_file(into.join("sub/deep/last")).expect("there");
    fs::set_permissions(into.join("sub/deep"), Permissions::from_mode(0o555)).expect("own directory");
    fs::write(into.join("sub/.brindle-1f-0.unfinished"), "of a copy that was killed").expect("room");
    fs::write(into.join("mine"), "foreign").expect("room");

    let done = extracted(&filesystem, &into, RESUME);
    // The linked file too, of which `sub/link` comes first.
    let counted = Extracted { files: 6, links: 1, symlinks: 1, kept_files: FILES - 6, ..done };
    assert_eq!(done, counted);
    assert_eq!(fs::read(into.join("mine")).expect("it stays"), b"foreign");
    fs::remove_file(into.join("mine")).expect("there");
    // Its removal has changed the time of the directory.
    extracted(&filesystem, &into, RESUME);
    assert_equal(&source, &into);
    assert_eq!(inode("sub/file100"), kept);
    assert_eq!(inode("text"), inode("sub/link"));
}

/// Puts something of another kind in the way of each kind.
fn obstruct(into: &Path) {
    for name in ["sub/file1", "sub/symbolic", "sub/file2", "text"] {
        fs::remove_file(into.join(name)).expect("there");
    }
    fs::create_dir(into.join("sub/file1")).expect("room");
    fs::write(into.join("sub/symbolic"), "no link").expect("room");
    symlink("/etc/passwd", into.join("sub/file2")).expect("room");
    symlink("nowhere", into.join("text")).expect("room");
    fs::remove_dir_all(into.join("sub/deep")).expect("there");
    symlink("/tmp", into.join("sub/deep")).expect("room");
}

#[test]
fn other_kinds_are_in_the_way_and_replaced_if_they_may_be() {
    let (_place, source, into) = place();
    let filesystem = filled(&source);
    extracted(&filesystem, &into, ExtractOptions::default());
    obstruct(&into);
    let failures = |options, is_dry: bool| {
        let observer = Watched::until(u64::MAX);
        let run = if is_dry { survey } else { extract };
        run(&filesystem, filesystem.root(), None, &into, options, &observer).expect("it can begin");
        observer.failures()
    };
    let told = |name: &str, what: &str| {
        (name.to_owned(), format!("{what} of this name is in the way, and stays; --overwrite replaces it"))
    };
    let directory = ("sub/file1".to_owned(), "a directory of this name is in the way, and stays".to_owned());
    let expected = [
        told("sub/deep", "a symbolic link"),
        directory.clone(),
        told("sub/file2", "a symbolic link"),
        told("sub/symbolic", "a file"),
        told("text", "a symbolic link"),
    ];
    assert_eq!(failures(RESUME, true), expected);
    assert_eq!(failures(RESUME, false), expected);
    assert_eq!(fs::read_link(into.join("sub/file2")).expect("it stays"), Path::new("/etc/passwd"));
    let both = ExtractOptions { overwrite: true, ..RESUME };
    let expected = [directory];
    assert_eq!(failures(both, true), expected);
    assert_eq!(failures(both, false), expected);
    fs::remove_dir(into.join("sub/file1")).expect("empty");
    assert_eq!(failures(RESUME, false), []);
    assert_equal(&source, &into);
}

/// Observer that looks at the times of files while others are copied.
struct Times<'p> {
    source: &'p Path,
    into: &'p Path,
    /// Files that had their time too early.
    early: Mutex<BTreeSet<&'static str>>,
}

impl ExtractObserver for Times<'_> {
    fn is_stopped(&self) -> bool {
        false
    }

    fn entered(&self, _: &[u8]) {}

    fn wrote(&self, _: u64) {
        let time = |place: &Path, name: &str| {
            fs::metadata(place.join("sub").join(name)).map(|found| (found.mtime(), found.mtime_nsec()))
        };
        for name in ["file1", "file100"] {
            if time(self.into, name).is_ok_and(|found| found == time(self.source, name).expect("there")) {
                self.early.lock().expect("no panic").insert(name);
            }
        }
    }

    fn noted(&self, _: &Note) {}

    fn failed(&self, path: &[u8], failure: &Failure) {
        panic!("{}: {failure}", path.escape_ascii());
    }
}

#[test]
fn files_have_the_time_of_the_copy_until_they_are_durable() {
    let (_place, source, into) = place();
    let filesystem = filled(&source);
    let observer = Times { source: &source, into: &into, early: Mutex::default() };
    let options = ExtractOptions { threads: Some(1), ..ExtractOptions::default() };
    extract(&filesystem, filesystem.root(), None, &into, options, &observer).expect("there is room");
    assert_eq!(observer.early.into_inner().expect("no panic"), BTreeSet::new(), "durable at the end alone");
    assert_equal(&source, &into);
}

/// Observer that panics at the first bytes.
struct Faulty;

impl ExtractObserver for Faulty {
    fn is_stopped(&self) -> bool {
        false
    }

    fn entered(&self, _: &[u8]) {}

    fn wrote(&self, _: u64) {
        panic!("a fault of the observer");
    }

    fn noted(&self, _: &Note) {}

    fn failed(&self, _: &[u8], _: &Failure) {}
}

#[test]
fn a_panic_of_the_copying_threads_ends_the_extraction() {
    let (_place, source, into) = place();
    let filesystem = filled(&source);
    for threads in [1, 3] {
        let options = ExtractOptions { threads: Some(threads), ..RESUME };
        let run = || extract(&filesystem, filesystem.root(), None, &into, options, &Faulty);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err(), "{threads} threads");
    }
    extracted(&filesystem, &into, RESUME);
    assert_equal(&source, &into);
}

#[test]
fn one_extraction_alone_goes_on_with_what_is_there() {
    let (_place, source, into) = place();
    let filesystem = filled(&source);
    fs::create_dir(&into).expect("room");
    let other = File::open(&into).expect("there");
    let run =
        |options| extract(&filesystem, filesystem.root(), None, &into, options, &Watched::until(u64::MAX));
    rustix::fs::flock(&other, FlockOperation::NonBlockingLockShared).expect("not locked");
    assert!(matches!(run(RESUME), Err(ExtractError::Busy(_))));
    run(ExtractOptions::default()).expect("two may copy side by side");
    rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).expect("locked by us alone");
    assert!(matches!(run(ExtractOptions::default()), Err(ExtractError::Busy(_))));
}

#[test]
fn a_survey_counts_what_an_extraction_makes_and_writes_nothing() {
    let (_place, source, into) = place();
    let filesystem = filled(&source);
    let surveyed = |options| {
        let observer = Watched::until(u64::MAX);
        let found = survey(&filesystem, filesystem.root(), None, &into, options, &observer);
        (found.expect("it can begin"), observer.failures())
    };
    let (found, failures) = surveyed(ExtractOptions::default());
    assert!(failures.is_empty() && !into.exists(), "{failures:?}");
    let done = extracted(&filesystem, &into, ExtractOptions::default());
    assert_eq!(found, done);
    // Every file is in the way, the link and both names of the linked one too.
    let (found, failures) = surveyed(ExtractOptions::default());
    assert_eq!((found.files, failures.len()), (0, 305));
    let (found, failures) = surveyed(RESUME);
    assert_eq!((found.files, found.kept_files, failures.len()), (0, FILES, 0));
    for name in ["sub/file100", "text"] {
        fs::remove_file(into.join(name)).expect("there");
    }
    let (found, _) = surveyed(RESUME);
    assert_eq!((found.files, found.kept_files, found.bytes, found.links), (1, FILES - 1, 3700, 1));
    assert!(!into.join("text").exists());

    let one = |name: Option<&[u8]>, into: &Path| {
        let text = filesystem.lookup(filesystem.root(), b"text").expect("readable").expect("there").inode;
        survey(&filesystem, text, name, into, ExtractOptions::default(), &Watched::until(u64::MAX))
    };
    assert_eq!(one(None, &source.with_file_name("new")).expect("it could").files, 1);
    assert!(matches!(one(None, &source), Err(ExtractError::NoName)));
    assert!(matches!(one(None, &source.join("no/file")), Err(ExtractError::Open { .. })));
    let nowhere = into.join("no/directory");
    let refused = survey(
        &filesystem,
        filesystem.root(),
        None,
        &nowhere,
        ExtractOptions::default(),
        &Watched::until(u64::MAX),
    );
    assert!(matches!(refused, Err(ExtractError::Make { .. })));
}
