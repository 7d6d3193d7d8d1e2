//! The library and the kernel take turns, and the model says what there must be.

use super::case::{Case, Maker};
use super::pool::SharedPool;
use crate::kernel::pool::{run, try_run};
use crate::model::target::{Ground, Library};
use brindle_fs::{Compression, CompressionChoice, WriteOptions};
use brindle_testing::manifest::Time;
use brindle_testing::model::{Model, TreePath, XattrRule, path};
use brindle_testing::operations::{
    Data, Generator, Mix, MountedTarget, Operation, Target, Texture, apply_both, compare,
};
use std::fs::File;
use std::ops::ControlFlow;
use std::rc::Rc;

/// A pool, what must be in it, and what comes next.
pub(super) struct Game {
    name: String,
    pool: Rc<SharedPool>,
    model: Model,
    generator: Generator,
    operations: usize,
    turn: usize,
    has_many_links: bool,
    complaints_before: usize,
}

/// Compression of contents, by the turn.
const COMPRESSION: [&str; 4] = ["no", "zlib", "lzo", "zstd"];

impl Game {
    pub(super) fn new(case: &Case, maker: Maker, seed: u64, operations: usize) -> Self {
        let pool = Rc::new(case.make(maker));
        let mix = Mix { names_max: 100, sync_file: 1, remount: 0, subvolumes: 6, ..Mix::default() };
        let complaints_before = pool.complaints().len();
        let mut game = Self {
            name: format!("{case:?} by {maker:?}, seed {seed}"),
            pool,
            model: Model::new(),
            generator: Generator::new(seed, mix),
            operations,
            turn: usize::try_from(seed).expect("small"),
            has_many_links: !case.features.contains("^extref"),
            complaints_before,
        };
        game.examine("as made");
        game
    }

    /// Plays `rounds` turns of each.
    pub(super) fn play(&mut self, rounds: usize) {
        for round in 0..rounds {
            self.turn += 1;
            self.library(round);
            self.kernel(round);
        }
        self.library(rounds);
    }

    fn pool_mut(&mut self) -> &mut SharedPool {
        Rc::get_mut(&mut self.pool).expect("the library has closed it")
    }

    fn when(&self, who: &str, round: usize) -> String {
        format!("{}: {who}, round {round}", self.name)
    }

    fn examine(&mut self, when: &str) {
        let when = format!("{}: {when}", self.name);
        let complaints = self.pool.complaints();
        assert_eq!(complaints.get(self.complaints_before..).unwrap_or_default(), [""; 0], "{when}");
        self.pool.assert_btrfs_check(&when);
        self.pool.assert_clean(&when);
    }

    fn library(&mut self, round: usize) {
        let when = self.when("the library", round);
        let algorithm = [None, Some(Compression::Zlib), Some(Compression::Lzo), Some(Compression::Zstd)];
        let compression = algorithm[self.turn % 4].map(|algorithm| CompressionChoice {
            algorithm,
            level: None,
            force: self.turn % 8 == 0,
        });
        *self.pool.write.borrow_mut() = WriteOptions { compression, ..WriteOptions::default() };
        let mut library = Library::of(Rc::clone(&self.pool) as Rc<dyn Ground>);
        compare(&self.model, &mut library).unwrap_or_else(|why| panic!("{when}, to begin with: {why}"));
        self.do_things(&mut library, &when);
        if self.turn % 2 == 0 {
            relocate_all(&library, &when);
            self.some(&mut library, self.operations / 4, &when);
            compare(&self.model, &mut library).unwrap_or_else(|why| panic!("{when}, moved: {why}"));
        }
        let crashes = round % 2 == 1;
        if crashes {
            library.apply(&Operation::Sync).expect("syncs");
            let model = self.model.clone();
            self.pool.keep_crash_state();
            // What comes after is lost.
            self.some(&mut library, self.operations / 4, &when);
            self.model = model;
        }
        library.close();
        drop(library);
        self.pool_mut().has_crashed = false;
        if crashes {
            self.pool_mut().crash();
            self.complaints_before = self.pool.complaints().len();
        }
        self.examine(&format!("after {when}"));
    }

    fn kernel(&mut self, round: usize) {
        let when = self.when("the kernel", round);
        let compression = COMPRESSION[(self.turn + 2) % 4];
        self.pool_mut().mount(&format!("compress={compression}"));
        let root = self.pool.mount_point();
        let mut mounted = MountedTarget::new(&root, || {});
        compare(&self.model, &mut mounted).unwrap_or_else(|why| panic!("{when}, to begin with: {why}"));
        // A scrub looks at every superblock, and those that lag are written by the next commit.
        if !self.pool.has_crashed {
            self.scrub(&when);
        }
        self.do_things(&mut mounted, &when);
        self.chores(round);
        let mut held: Vec<File> = Vec::new();
        let crashes = round % 2 == 1;
        if crashes {
            held = self.orphans(&root);
        }
        compare(&self.model, &mut mounted).unwrap_or_else(|why| panic!("{when}: {why}"));
        if crashes {
            // Without a log, for the library does not replay one.
            run("btrfs", ["filesystem", "sync"], [&root]);
            self.pool.keep_crash_state();
            let model = self.model.clone();
            self.some(&mut mounted, self.operations / 4, &when);
            self.model = model;
        }
        drop(held);
        self.scrub(&when);
        self.pool_mut().unmount();
        self.pool_mut().has_crashed = false;
        if crashes {
            self.pool_mut().crash();
            self.complaints_before = self.pool.complaints().len();
        }
        self.examine(&format!("after {when}"));
    }

    /// Files that are open and have no name, and a subvolume that is being deleted.
    fn orphans(&mut self, root: &std::path::Path) -> Vec<File> {
        let doomed = root.join("doomed");
        run("btrfs", ["subvolume", "create"], [&doomed]);
        for number in 0..200 {
            std::fs::write(doomed.join(format!("file{number}")), vec![7; number * 50]).expect("room");
        }
        run("btrfs", ["filesystem", "sync"], [root]);
        let hold = |number: usize| {
            let name = root.join(format!("orphan{number}"));
            std::fs::write(&name, vec![9; number * 3000]).expect("room");
            let file = File::open(&name).expect("there it is");
            std::fs::remove_file(&name).expect("there it is");
            file
        };
        let held = (0..20).map(hold).collect();
        run("btrfs", ["subvolume", "delete"], [&doomed]);
        // The model does not know that names came and went there.
        let touch = Operation::SetTimes { path: TreePath::top(), mtime: Time { sec: 1, nsec: 2 } };
        self.one(&mut MountedTarget::new(root, || {}), &touch, "orphans");
        held
    }

    fn scrub(&self, when: &str) {
        let said = run("btrfs", ["scrub", "start", "-B"], [self.pool.mount_point()]);
        assert!(said.contains("no errors found"), "{when}: {said}");
    }

    /// Operations that only the kernel has, a part of them in each round.
    fn chores(&self, round: usize) {
        let root = self.pool.mount_point();
        match (self.turn + round) % 4 {
            0 => {
                run("btrfs", ["balance", "start", "--full-balance"], [&root]);
            }
            1 => {
                run("btrfs", ["filesystem", "defragment", "-r", "-czstd"], [&root]);
                run("btrfs", ["balance", "start", "-m"], [&root]);
            }
            2 => {
                // It ends with 1 if a subvolume is still being deleted, which does not matter here.
                let _ = try_run("btrfs", ["subvolume", "sync"], [&root]);
                run("btrfs", ["balance", "start", "-d"], [&root]);
            }
            _ => {
                run("btrfs", ["filesystem", "defragment", "-r"], [&root]);
            }
        }
        run("btrfs", ["filesystem", "sync"], [&root]);
    }

    fn do_things(&mut self, target: &mut impl Target, when: &str) {
        self.some(target, self.operations / 2, when);
        self.bursts(target, when);
        self.some(target, self.operations / 2, when);
        compare(&self.model, target).unwrap_or_else(|why| panic!("{when}: {why}"));
    }

    fn some(&mut self, target: &mut impl Target, count: usize, when: &str) {
        for _ in 0..count {
            let operation = self.generator.next(&self.model);
            self.one(target, &operation, when);
        }
    }

    fn one(&mut self, target: &mut impl Target, operation: &Operation, when: &str) {
        let answer = apply_both(&mut self.model, target, operation);
        answer.map(drop).unwrap_or_else(|why| panic!("{when}: {why}"));
    }

    /// Operations that random ones seldom come to: an extent with many references, a file with many names, a
    /// directory with many files, and a snapshot of it all; and their end.
    fn bursts(&mut self, target: &mut impl Target, when: &str) {
        self.turn += 1;
        let base = path("burst");
        if self.model.is_there(&base) && self.turn % 3 == 0 {
            self.shrink_burst(target, &base, when);
        }
        if !self.model.is_there(&base) {
            self.one(target, &Operation::CreateSubvolume { path: base.clone() }, when);
        }
        let turn = self.turn;
        let name = |what: &str, number: usize| base.join(format!("{what}-{turn}-{number}").as_bytes());
        let contents = |length: usize, seed: u64| Data { length, texture: Texture::Noise, seed };
        for number in 0..40 {
            let path = name("small", number);
            self.one(target, &Operation::Create { path: path.clone(), mode: 0o644 }, when);
            let data = contents(number * 137, number as u64);
            self.one(target, &Operation::Write { path: path.clone(), offset: 0, data }, when);
            let value = contents(number * 7, 1);
            let (name, rule) = ("user.burst".to_owned(), XattrRule::Create);
            self.one(target, &Operation::SetXattr { path, name, value, rule }, when);
        }
        let (shared, many) = (name("shared", 0), name("many", 0));
        for path in [&shared, &many] {
            self.one(target, &Operation::Create { path: path.clone(), mode: 0o600 }, when);
        }
        let data = contents(64 << 10, turn as u64);
        self.one(target, &Operation::Write { path: shared.clone(), offset: 0, data }, when);
        for number in 0..50_u64 {
            let (from_offset, to_offset) = (number % 8 * 4096, number * 32768);
            let (from, to) = (shared.clone(), many.clone());
            let clone = Operation::CloneRange { from, from_offset, to, to_offset, length: 16384 };
            self.one(target, &clone, when);
        }
        if self.has_many_links {
            for number in 0..90 {
                let existing = shared.clone();
                let path = base.join(format!("link-{turn}-{number}-{}", "x".repeat(220)).as_bytes());
                self.one(target, &Operation::Link { existing, path }, when);
            }
        }
        let (source, path) = (base.clone(), path(&format!("burst-snapshot-{turn}")));
        self.one(target, &Operation::Snapshot { source, path, is_read_only: turn % 2 == 0 }, when);
        let data = contents(9000, 3);
        self.one(target, &Operation::Write { path: shared, offset: 20_000, data }, when);
    }

    /// Takes away most of what is there, and its snapshots.
    fn shrink_burst(&mut self, target: &mut impl Target, base: &TreePath, when: &str) {
        let walk = self.model.walk();
        let is_burst = |path: &TreePath| path.bytes().starts_with(b"burst-snapshot");
        let snapshots: Vec<TreePath> = walk
            .iter()
            .filter(|found| found.is_root && is_burst(&found.path) && found.path.names().count() == 1)
            .map(|found| found.path.clone())
            .collect();
        let files: Vec<TreePath> = walk
            .iter()
            .filter(|found| {
                let is_direct = found.path.split().is_some_and(|(parent, _)| parent == *base);
                is_direct && found.inode.is_some_and(|inode| !inode.is_directory())
            })
            .map(|found| found.path.clone())
            .collect();
        for path in snapshots.into_iter().skip(1) {
            let delete = Operation::DeleteSubvolume { path };
            let is_refused = self.model.clone().apply(&delete).is_err();
            if !is_refused {
                self.one(target, &delete, when);
            }
        }
        for (number, path) in files.into_iter().enumerate() {
            let operation = match number % 5 {
                0 => continue,
                1 => Operation::Truncate { path, size: 5000 },
                _ => Operation::Unlink { path },
            };
            self.one(target, &operation, when);
        }
    }
}

/// Empties every block group that there is.
fn relocate_all(library: &Library, when: &str) {
    let pool = library.fs().pool();
    let alone = pool.begin_exclusive("a test").expect("nothing else runs");
    for group in pool.block_groups().expect("writable") {
        let done = pool.relocate(&alone, group.start, &mut |_| ControlFlow::Continue(()));
        done.unwrap_or_else(|error| panic!("{when}, block group at {}: {error}", group.start));
    }
}
