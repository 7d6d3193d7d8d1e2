//! A pool is used by path as `std::fs` uses a directory: random operations on both end alike.

use super::Images;
use brindle_pool::{Error, Pool};
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::{fs, io};

#[derive(Clone, Debug)]
enum Operation {
    Write(String, usize),
    Read(String),
    CreateDir(String),
    CreateDirAll(String),
    RemoveFile(String),
    RemoveDir(String),
    Rename(String, String),
    Link(String, String),
    Symlink(String, String),
    ReadLink(String),
    List(String),
    Metadata(String),
    LinkMetadata(String),
}

/// Outcome of an operation, as far as both tell it.
type Outcome = Result<Vec<u8>, io::ErrorKind>;

/// Names of few files, with `..` where it can't lead out of the root: the model has something above it.
fn path(may_go_up: bool) -> impl Strategy<Value = String> {
    let part = prop_oneof![8 => "[abc]", 1 => Just(".".to_owned()), 1 => Just("..".to_owned())];
    let is_inside = move |parts: &Vec<String>| {
        let mut depth = 0;
        parts.iter().all(|part| {
            depth += match part.as_str() {
                "." => 0,
                ".." => -1,
                _ => 1,
            };
            depth >= 0 && (may_go_up || part.starts_with(['a', 'b', 'c']))
        })
    };
    let parts = vec(part, 1..4).prop_filter("within the root", is_inside);
    (parts, prop::bool::weighted(0.1))
        .prop_map(|(parts, slash)| parts.join("/") + if slash { "/" } else { "" })
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let any = || path(true);
    prop_oneof![
        3 => (any(), 0..20_000_usize).prop_map(|(path, length)| Write(path, length)),
        2 => any().prop_map(Read),
        3 => any().prop_map(CreateDir),
        1 => path(false).prop_map(CreateDirAll),
        1 => any().prop_map(RemoveFile),
        1 => any().prop_map(RemoveDir),
        2 => (any(), any()).prop_map(|(from, to)| Rename(from, to)),
        1 => (any(), any()).prop_map(|(from, to)| Link(from, to)),
        2 => (path(false), any()).prop_map(|(target, link)| Symlink(target, link)),
        1 => any().prop_map(ReadLink),
        1 => any().prop_map(List),
        1 => any().prop_map(Metadata),
        1 => any().prop_map(LinkMetadata),
    ]
}

fn contents(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from((index * 7 + length) % 251).expect("small")).collect()
}

fn in_pool(pool: &Pool, operation: &Operation) -> Outcome {
    let nothing = |result: Result<(), Error>| result.map(|()| Vec::new());
    let facts = |found: brindle_pool::Attributes| {
        let size = if found.mode & 0o170_000 == 0o040_000 { 0 } else { found.size };
        format!("{:o} {size}", found.mode & 0o170_000).into_bytes()
    };
    let done = match operation {
        Operation::Write(path, length) => nothing(pool.write(path, contents(*length))),
        Operation::Read(path) => pool.read(path),
        Operation::CreateDir(path) => nothing(pool.create_dir(path)),
        Operation::CreateDirAll(path) => nothing(pool.create_dir_all(path)),
        Operation::RemoveFile(path) => nothing(pool.remove_file(path)),
        Operation::RemoveDir(path) => nothing(pool.remove_dir(path)),
        Operation::Rename(from, to) => nothing(pool.rename(from, to)),
        Operation::Link(from, to) => nothing(pool.hard_link(from, to)),
        Operation::Symlink(target, link) => nothing(pool.symlink(target, link)),
        Operation::ReadLink(path) => {
            pool.read_link(path).map(|found| found.into_os_string().into_encoded_bytes())
        }
        Operation::List(path) => pool.read_dir(path).and_then(|entries| {
            let names = entries.map(|entry| Ok(entry?.name().to_owned().into_encoded_bytes()));
            names.collect::<Result<_, Error>>().map(sorted)
        }),
        Operation::Metadata(path) => pool.metadata(path).map(facts),
        Operation::LinkMetadata(path) => pool.symlink_metadata(path).map(facts),
    };
    done.map_err(|error| io::Error::from(error).kind())
}

fn in_directory(root: &Path, operation: &Operation) -> Outcome {
    let at = |path: &String| -> PathBuf { PathBuf::from(format!("{}/{path}", root.display())) };
    let nothing = |result: io::Result<()>| result.map(|()| Vec::new());
    let facts = |found: fs::Metadata| {
        use std::os::unix::fs::MetadataExt;
        let size = if found.is_dir() { 0 } else { found.size() };
        format!("{:o} {size}", found.mode() & 0o170_000).into_bytes()
    };
    let done = match operation {
        Operation::Write(path, length) => nothing(fs::write(at(path), contents(*length))),
        Operation::Read(path) => fs::read(at(path)),
        Operation::CreateDir(path) => nothing(fs::create_dir(at(path))),
        Operation::CreateDirAll(path) => nothing(fs::create_dir_all(at(path))),
        Operation::RemoveFile(path) => nothing(fs::remove_file(at(path))),
        Operation::RemoveDir(path) => nothing(fs::remove_dir(at(path))),
        Operation::Rename(from, to) => nothing(fs::rename(at(from), at(to))),
        Operation::Link(from, to) => nothing(fs::hard_link(at(from), at(to))),
        Operation::Symlink(target, link) => nothing(std::os::unix::fs::symlink(target, at(link))),
        Operation::ReadLink(path) => {
            fs::read_link(at(path)).map(|found| found.into_os_string().into_encoded_bytes())
        }
        Operation::List(path) => fs::read_dir(at(path)).and_then(|entries| {
            let names = entries.map(|entry| Ok(entry?.file_name().into_encoded_bytes()));
            names.collect::<io::Result<_>>().map(sorted)
        }),
        Operation::Metadata(path) => fs::metadata(at(path)).map(facts),
        Operation::LinkMetadata(path) => fs::symlink_metadata(at(path)).map(facts),
    };
    done.map_err(|error| plain(&error))
}

/// The kind; those that the library has no kind for are one.
fn plain(error: &io::Error) -> io::ErrorKind {
    match error.kind() {
        kind if kind.to_string().contains("loop") => io::ErrorKind::Other,
        kind => kind,
    }
}

fn sorted(mut names: Vec<Vec<u8>>) -> Vec<u8> {
    names.sort();
    names.join(&b'\n')
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn operations_end_as_in_a_directory(operations in vec(operation(), 1..80)) {
        let images = Images::new(1);
        let pool = images.writable();
        let model = tempfile::TempDir::new().expect("a directory");
        for (number, operation) in operations.iter().enumerate() {
            let (ours, theirs) = (in_pool(&pool, operation), in_directory(model.path(), operation));
            prop_assert_eq!(ours, theirs, "operation {}: {:?}", number, operation);
        }
    }
}
