//! Generator, shrinking and trials, on targets that are the model itself, or nearly.

use super::choose::COLLIDING;
use super::{Data, Generator, Mix, Operation, Target, Texture, Trial, compare, replay};
use crate::manifest::Manifest;
use crate::model::{Errno, Model, TreePath, path};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The model as a target, with one thing wrong if that is asked for.
struct Mirror {
    model: Model,
    forgets_links: bool,
}

impl Mirror {
    fn new(forgets_links: bool) -> Self {
        Self { model: Model::new(), forgets_links }
    }
}

impl Target for Mirror {
    fn apply(&mut self, operation: &Operation) -> Result<(), Errno> {
        match operation {
            // A rename over a file with another name takes both.
            Operation::Rename { to, .. } if self.forgets_links => {
                let is_linked =
                    self.model.inode(to).is_ok_and(|inode| inode.nlink == 2 && !inode.is_directory());
                self.model.apply(operation)?;
                if is_linked { self.model.unlink(to) } else { Ok(()) }
            }
            _ => self.model.apply(operation),
        }
    }

    fn manifest(&mut self) -> Result<Manifest, String> {
        Ok(self.model.expectation().manifest().clone())
    }

    fn contents(&mut self, path: &TreePath) -> Option<Vec<u8>> {
        self.model.contents(path).ok()
    }
}

#[test]
fn every_kind_of_operation_comes_and_most_can_be_done() {
    let (mut generator, mut model) = (Generator::new(3, Mix::default()), Model::new());
    let mut kinds: HashMap<String, (u32, u32)> = HashMap::new();
    for _ in 0..6000 {
        let operation = generator.next(&model);
        let name = format!("{operation:?}").split(' ').next().map(str::to_owned).unwrap_or_default();
        let (done, refused) = kinds.entry(name).or_default();
        match model.apply(&operation) {
            Ok(()) => *done += 1,
            Err(_) => *refused += 1,
        }
    }
    assert_eq!(kinds.len(), 25, "{kinds:?}");
    assert!(kinds.values().all(|(done, _)| *done > 0), "{kinds:?}");
    let refused: u32 = kinds.values().map(|(_, refused)| refused).sum();
    assert!((100..900).contains(&refused), "{refused} of 6000 refused: {kinds:?}");
    assert!(model.walk().len() > 100, "{} names at the end", model.walk().len());
}

#[test]
fn operations_follow_from_the_seed() {
    let all = |seed| {
        let (mut generator, mut model) = (Generator::new(seed, Mix::default()), Model::new());
        let next = |_| {
            let operation = generator.next(&model);
            let _ = model.apply(&operation);
            operation
        };
        (0..300).map(next).collect::<Vec<Operation>>()
    };
    assert_eq!(all(5), all(5));
    assert_ne!(all(5), all(6));
}

#[test]
fn the_colliding_names_collide() {
    for pair in COLLIDING.chunks(2) {
        let hash = |name: &str| brindle_ondisk::name_hash(name.as_bytes());
        assert_eq!(hash(pair[0]), hash(pair[1]));
        assert_ne!(pair[0], pair[1]);
    }
}

#[test]
fn a_target_that_is_right_passes() {
    Trial::new(1, 500, Mix::default()).run(|| Mirror::new(false));
    Trial::new(1, 300, Mix::contents()).run(|| Mirror::new(false));
    Trial::new(1, 1000, Mix::names()).run(|| Mirror::new(false));
}

#[test]
fn a_failure_is_shrunk_to_few_operations() {
    let trial = Trial::new(1, 3000, Mix::default());
    let message =
        catch_unwind(AssertUnwindSafe(|| trial.run(|| Mirror::new(true)))).expect_err("a wrong rename");
    let message = message.downcast_ref::<String>().expect("a message");
    assert!(message.contains("BRINDLE_SEED="), "{message}");
    // Two inodes, a link to one of them, and the rename; a directory to put them in, at most.
    let operations = message.lines().filter(|line| line.starts_with("    ")).count();
    assert!((4..=6).contains(&operations), "{message}");
    assert!(message.contains("Link {") && message.contains("Rename {"), "{message}");
}

#[test]
fn a_difference_is_told_by_its_path_and_byte() {
    let write = |byte: u64| Operation::Write {
        path: path("d/f"),
        offset: 100 + byte,
        data: Data { length: 3, texture: Texture::Noise, seed: 1 },
    };
    let common = [
        Operation::MakeDirectory { path: path("d"), mode: 0o755 },
        Operation::Create { path: path("d/f"), mode: 0o644 },
        Operation::Truncate { path: path("d/f"), size: 5000 },
    ];
    let (mut model, mut mirror) = (Model::new(), Mirror::new(false));
    for operation in &common {
        model.apply(operation).expect("can be done");
        mirror.apply(operation).expect("can be done");
    }
    assert_eq!(compare(&model, &mut mirror), Ok(()));
    model.apply(&write(0)).expect("can be done");
    mirror.apply(&write(0)).expect("can be done");
    mirror.apply(&write(7)).expect("can be done");
    let told = compare(&model, &mut mirror).expect_err("three bytes differ");
    assert!(told.starts_with("d/f: sha256") && told.contains("from byte 107 on"), "{told}");
}

#[test]
fn an_operation_reads_back_from_its_words() {
    let odd = TreePath::new(*b"a b/\xff%");
    assert_eq!(format!("{odd:?}"), r#"path("a%20b/%ff%25")"#);
    assert_eq!(path("a%20b/%ff%25"), odd);
}

/// Disk with room for a number of bytes of one file.
struct Full(Mirror);

impl Target for Full {
    fn apply(&mut self, operation: &Operation) -> Result<(), Errno> {
        match operation {
            Operation::Write { path, offset, data } if data.length > 1000 => {
                self.0.model.write(path, *offset, &data.bytes()[..1000])?;
                Err(Errno::NoSpace)
            }
            Operation::MakeDirectory { .. } => Err(Errno::NoSpace),
            _ => self.0.apply(operation),
        }
    }

    fn manifest(&mut self) -> Result<Manifest, String> {
        self.0.manifest()
    }

    fn contents(&mut self, path: &TreePath) -> Option<Vec<u8>> {
        self.0.contents(path)
    }

    fn may_be_full(&self) -> bool {
        true
    }
}

#[test]
fn a_full_target_changes_no_more_than_the_file_that_is_written() {
    let operations = [
        Operation::Create { path: path("f"), mode: 0o644 },
        Operation::Write {
            path: path("f"),
            offset: 0,
            data: Data { length: 5000, texture: Texture::Text, seed: 1 },
        },
        Operation::MakeDirectory { path: path("d"), mode: 0o755 },
        Operation::Create { path: path("g"), mode: 0o644 },
    ];
    replay(&operations, Full(Mirror::new(false)), 1)
        .map_err(|disagreement| disagreement.what)
        .expect("the same");
}
