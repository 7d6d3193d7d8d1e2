//! The ground of a race: a subvolume of its own with a few names, in the library and in the model.

use super::act::Act;
use brindle_testing::model::{Model, TreePath, path};
use brindle_testing::operations::{Data, Operation, Texture};

/// The beginning of the names by which the model keeps files that are open.
pub(super) const HELD: &str = ".held";
/// The name by which the model keeps the file that was made without a name.
pub(super) const TEMPORARY: &str = ".temporary";
/// The contents of a file that an act makes.
pub(super) const NEW_CONTENTS: &[u8] = b"new";
/// The file that most acts are about.
pub(super) const FILE: &str = "f";

/// A kind of ground, by a few bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// The length of the file, in bytes.
    pub(super) length: usize,
    /// The file has a second name.
    pub(super) is_linked: bool,
    /// The file is open all the time.
    pub(super) is_held: bool,
    /// True if the other one, which takes its name, is held too.
    pub(super) is_other_held: bool,
    /// True if all of it is durable before the race begins.
    pub(super) is_durable: bool,
}

impl Shape {
    /// The files that are open all the time.
    pub(super) fn held(self) -> Vec<TreePath> {
        let other = self.is_other_held.then(|| path("g"));
        self.is_held.then(|| path(FILE)).into_iter().chain(other).collect()
    }
}

/// Operations before the race begins, except for those that only a library has.
pub(super) fn before(shape: Shape) -> Vec<Operation> {
    let write = |at: &str, length: usize, seed| Operation::Write {
        path: path(at),
        offset: 0,
        data: Data { length, texture: Texture::Noise, seed },
    };
    let create = |at: &str| Operation::Create { path: path(at), mode: 0o644 };
    let directory = |at: &str| Operation::MakeDirectory { path: path(at), mode: 0o755 };
    let mut operations = vec![
        create(FILE),
        create("g"),
        write("g", 9000, 2),
        directory("d"),
        directory("e"),
        create("e/x"),
        Operation::CreateSubvolume { path: path("v") },
        create("v/x"),
        write("v/x", 5000, 3),
        Operation::SetXattr {
            path: path(FILE),
            name: "user.old".to_owned(),
            value: Data { length: 20, texture: Texture::Text, seed: 4 },
            rule: brindle_testing::model::XattrRule::Any,
        },
    ];
    if shape.length > 0 {
        operations.push(write(FILE, shape.length, 1));
    }
    if shape.is_linked {
        operations.push(Operation::Link { existing: path(FILE), path: path("h") });
    }
    operations
}

/// The model of it.
pub(super) fn model(shape: Shape) -> super::modelled::Modelled {
    let mut model = Model::new();
    for operation in before(shape) {
        model.apply(&operation).unwrap_or_else(|error| panic!("{operation:?}: {error}"));
    }
    let held = shape.held();
    let mut modelled = super::modelled::Modelled::new(model, held);
    modelled.model.create(&path(TEMPORARY), 0o600).expect("the name is free");
    modelled
}

/// Every act that is tried.
pub(super) fn acts() -> Vec<Act> {
    [names(), contents(), attributes(), others()].concat()
}

fn names() -> Vec<Act> {
    use brindle_testing::model::RenameRule::{Exchange, NoReplace, Replace, Whiteout};
    let rename = |from: &str, to: &str, rule| Operation::Rename { from: path(from), to: path(to), rule };
    let operations = [
        Operation::Create { path: path("n"), mode: 0o640 },
        Operation::Create { path: path("d/n"), mode: 0o640 },
        Operation::Unlink { path: path(FILE) },
        rename(FILE, "n", Replace),
        rename(FILE, "n", NoReplace),
        rename(FILE, "d/n", Replace),
        rename("g", FILE, Replace),
        rename("g", FILE, Exchange),
        rename("d", "e", Exchange),
        rename("d", "e/n", Replace),
        rename("e", "d", Replace),
        rename(FILE, "n", Whiteout),
        Operation::Link { existing: path(FILE), path: path("n") },
        Operation::Link { existing: path(FILE), path: path("d/n") },
        Operation::Symlink { path: path("n"), target: "somewhere".to_owned() },
        Operation::MakeDirectory { path: path("n"), mode: 0o750 },
        Operation::RemoveDirectory { path: path("d") },
        Operation::Snapshot { source: TreePath::top(), path: path("s"), is_read_only: false },
        Operation::DeleteSubvolume { path: path("v") },
        Operation::RemoveDirectory { path: path("v") },
        Operation::Unlink { path: path("v/x") },
        Operation::Create { path: path("v/n"), mode: 0o640 },
    ];
    let mut acts: Vec<Act> = operations.into_iter().map(Act::Do).collect();
    acts.extend([Act::CreateOpen(path(FILE)), Act::LinkUnnamed(path("n")), Act::LinkUnnamed(path("d/n"))]);
    acts
}

fn contents() -> Vec<Act> {
    let write = |at: &str, offset, length, seed| Operation::Write {
        path: path(at),
        offset,
        data: Data { length, texture: Texture::Noise, seed },
    };
    let truncate = |size| Operation::Truncate { path: path(FILE), size };
    let clone = |from: &str, to: &str, offset| Operation::CloneRange {
        from: path(from),
        from_offset: 0,
        to: path(to),
        to_offset: offset,
        length: 0,
    };
    let file = || path(FILE);
    let operations = [
        write(FILE, 0, 100, 10),
        write(FILE, 0, 40_000, 11),
        write(FILE, 6000, 5000, 12),
        write("g", 1000, 9000, 13),
        write("v/x", 0, 300, 14),
        truncate(0),
        truncate(150),
        truncate(90_000),
        Operation::PunchHole { path: file(), offset: 3000, length: 12_000 },
        Operation::Allocate { path: file(), offset: 1000, length: 30_000, keeps_size: false },
        Operation::ZeroRange { path: file(), offset: 2000, length: 20_000, keeps_size: false },
        clone(FILE, "g", 0),
        clone("g", FILE, 0),
        clone("v/x", "g", 0),
    ];
    let mut acts: Vec<Act> = operations.into_iter().map(Act::Do).collect();
    acts.extend([Act::Read(file()), Act::OpenClose(file()), Act::Read(path("v/x"))]);
    acts
}

fn attributes() -> Vec<Act> {
    let file = || path(FILE);
    let xattr = |at: &str| Operation::SetXattr {
        path: path(at),
        name: "user.new".to_owned(),
        value: Data { length: 30, texture: Texture::Text, seed: 5 },
        rule: brindle_testing::model::XattrRule::Any,
    };
    let mtime = brindle_testing::manifest::Time { sec: 1_000_000_000, nsec: 7 };
    let operations = [
        xattr(FILE),
        xattr("d"),
        Operation::RemoveXattr { path: file(), name: "user.old".to_owned() },
        Operation::SetMode { path: file(), mode: 0o604 },
        Operation::SetOwner { path: file(), uid: 1000, gid: 1001 },
        Operation::SetTimes { path: file(), mtime },
        Operation::SetMode { path: path("d"), mode: 0o711 },
        Operation::SetMode { path: path("v/x"), mode: 0o604 },
    ];
    let mut acts: Vec<Act> = operations.into_iter().map(Act::Do).collect();
    acts.extend([
        Act::SetFlags(file()),
        Act::SetAcl(file()),
        Act::GetXattr(file(), "user.old"),
        Act::Stat(file()),
        Act::Stat(TreePath::top()),
        Act::Lookup(file()),
        Act::Lookup(path("n")),
        Act::List(TreePath::top()),
        Act::List(path("d")),
    ]);
    acts
}

fn others() -> Vec<Act> {
    vec![
        Act::Do(Operation::SyncFile { path: path(FILE) }),
        Act::Do(Operation::SyncFile { path: path("d") }),
        Act::SetReadOnly(TreePath::top(), true),
        Act::SetReadOnly(path("v"), true),
        Act::Commit,
        Act::Sync,
        Act::Background,
        Act::Relocate,
        Act::Defragment,
    ]
}
