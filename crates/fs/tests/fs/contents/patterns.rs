//! Fsyncs as programs make them: each is logged, and a crash leaves what was synced, in sound trees.

use super::bench::{Bench, Setup};
use brindle_fs::{
    AllocateMode, FileType, Filesystem, InodeId, LogStatistics, NewInode, OpenFile, Remaining, RenameMode,
    RootId, Unlogged,
};
use brindle_ondisk::ObjectId;

/// Rounds of each pattern.
const ROUNDS: u32 = 60;

/// A directory tree, used as a program would by paths.
pub(crate) struct Program<'f> {
    filesystem: &'f Filesystem,
    top: InodeId,
}

impl<'f> Program<'f> {
    pub(crate) fn new(filesystem: &'f Filesystem) -> Self {
        let top = InodeId { tree: RootId::FS_TREE, number: ObjectId::FIRST_FREE };
        Self { filesystem, top }
    }

    pub(crate) fn find(&self, path: &str) -> Option<InodeId> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(self.top, |directory, name| {
            self.filesystem.lookup(directory, name.as_bytes()).expect("a directory").map(|entry| entry.inode)
        })
    }

    fn place<'p>(&self, path: &'p str) -> (InodeId, &'p [u8]) {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.find(above).expect("a directory"), name.as_bytes())
    }

    pub(crate) fn make_directory(&self, path: &str) {
        let (above, name) = self.place(path);
        let new = NewInode { mode: 0o040_755, ..NewInode::default() };
        self.filesystem.create(above, name, &new).expect("a new directory");
    }

    pub(crate) fn symlink(&self, path: &str, target: &str) {
        let (above, name) = self.place(path);
        let new = NewInode { mode: 0o120_777, target: Some(target.as_bytes()), ..NewInode::default() };
        self.filesystem.create(above, name, &new).expect("a new link");
    }

    pub(crate) fn create(&self, path: &str) -> OpenFile {
        let (above, name) = self.place(path);
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        self.filesystem.create_open(above, name, &new).expect("a new file").1
    }

    pub(crate) fn open(&self, path: &str) -> OpenFile {
        self.filesystem.open_file(self.find(path).expect("there")).expect("opens")
    }

    pub(crate) fn write(&self, file: &OpenFile, at: u64, bytes: &[u8]) {
        self.filesystem.write(file, at, bytes).expect("writes");
    }

    pub(crate) fn sync(&self, file: &OpenFile) {
        self.filesystem.sync_file(file).expect("syncs");
    }

    pub(crate) fn close(&self, file: OpenFile) {
        self.filesystem.close_file(file).expect("closes");
    }

    /// A new file with these contents, synced and closed.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let file = self.create(path);
        self.write(&file, 0, bytes);
        self.sync(&file);
        self.close(file);
    }

    pub(crate) fn sync_directory(&self, path: &str) {
        self.filesystem.sync_directory(self.find(path).expect("a directory")).expect("syncs");
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        let ((from_directory, from), (to_directory, to)) = (self.place(from), self.place(to));
        let mode = RenameMode::Replace;
        self.filesystem.rename(from_directory, from, to_directory, to, mode).expect("renames");
    }

    pub(crate) fn link(&self, existing: &str, path: &str) {
        let (above, name) = self.place(path);
        self.filesystem.link(self.find(existing).expect("there"), above, name).expect("links");
    }

    pub(crate) fn unlink(&self, path: &str) {
        let (above, name) = self.place(path);
        self.filesystem.unlink(above, name).expect("unlinks");
    }

    pub(crate) fn read(&self, path: &str) -> Option<Vec<u8>> {
        let file = self.filesystem.open_file(self.find(path)?).expect("opens");
        let mut bytes = vec![0; usize::try_from(file.size()).expect("small")];
        let length = self.filesystem.read(&file, 0, &mut bytes).expect("reads");
        assert_eq!(length, bytes.len());
        Some(bytes)
    }

    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let directory = self.find(path).expect("a directory");
        let entries = self.filesystem.read_directory(directory, 0, usize::MAX).expect("reads");
        entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect()
    }
}

/// Does what a program does on a committed pool, without a single commit, and looks at what a crash leaves of it.
fn logged_all_the_time(
    before: impl Fn(&Program<'_>),
    act: impl Fn(&Program<'_>, u32),
    after: impl Fn(&Program<'_>),
) {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let program = Program::new(&filesystem);
    before(&program);
    // A first file of some size, so that data has a block group.
    program.put("first", &[1; 1 << 20]);
    filesystem.commit().expect("commits");
    let counted = |filesystem: &Filesystem| -> LogStatistics { filesystem.pool().commit_statistics().log };
    let (commits, start) = (filesystem.pool().commit_statistics().commits, counted(&filesystem));
    (0..ROUNDS).for_each(|round| act(&program, round));
    let end = counted(&filesystem);
    assert_eq!(end.commits, [0; Unlogged::ALL.len()], "fsyncs that were commits");
    assert_eq!(filesystem.pool().commit_statistics().commits, commits, "commits");
    assert!(end.syncs >= start.syncs + u64::from(ROUNDS), "{end:?}");
    after(&program);
    // A crash.
    drop(filesystem);
    let filesystem = bench.open();
    after(&Program::new(&filesystem));
    filesystem.shutdown().expect("closes");
    bench.assert_clean("replayed");
    bench.assert_btrfs_check("replayed");
}

#[test]
fn a_mail_spool_is_logged() {
    logged_all_the_time(
        |program| ["tmp", "new"].iter().for_each(|path| program.make_directory(path)),
        |program, round| {
            program.put(&format!("tmp/{round}"), format!("mail {round}").as_bytes());
            program.rename(&format!("tmp/{round}"), &format!("new/{round}"));
            program.sync_directory("new");
        },
        |program| {
            assert_eq!(program.names("tmp"), [""; 0]);
            for round in 0..ROUNDS {
                assert_eq!(program.read(&format!("new/{round}")), Some(format!("mail {round}").into_bytes()));
            }
        },
    );
}

/// Each file of a package replaces one, by way of a link to the old one and a new name, in directories old and new.
#[test]
fn an_upgrade_of_packages_is_logged() {
    let path = |round: u32| format!("usr/dir{}/file{round}", round % 7);
    logged_all_the_time(
        |program| {
            program.make_directory("usr");
            (0..7).for_each(|number| program.make_directory(&format!("usr/dir{number}")));
            (0..ROUNDS / 2).for_each(|round| program.put(&path(round), b"old"));
        },
        |program, round| {
            let (path, new_directory) = (path(round), format!("usr/new{}", round / 10));
            if round % 10 == 0 {
                program.make_directory(&new_directory);
                program.symlink(&format!("usr/link{}", round / 10), &new_directory);
                program.sync_directory("usr");
            }
            program.put(&format!("{path}.dpkg-new"), format!("new {round}").as_bytes());
            if program.find(&path).is_some() {
                program.link(&path, &format!("{path}.dpkg-tmp"));
            }
            program.rename(&format!("{path}.dpkg-new"), &path);
            if program.find(&format!("{path}.dpkg-tmp")).is_some() {
                program.unlink(&format!("{path}.dpkg-tmp"));
            }
            program.put(&format!("{new_directory}/{round}"), &[7; 20_000]);
        },
        |program| {
            for round in 0..ROUNDS {
                assert_eq!(program.read(&path(round)), Some(format!("new {round}").into_bytes()));
                assert_eq!(program.read(&format!("usr/new{}/{round}", round / 10)), Some(vec![7; 20_000]));
            }
            let link = program.find("usr/link3").expect("a link");
            assert_eq!(program.filesystem.attributes(link).expect("there").kind, FileType::Symlink);
            assert_eq!(program.filesystem.read_link(link).expect("a target"), b"usr/new3");
        },
    );
}

/// A journal that is made, synced and deleted for each transaction.
#[test]
fn a_database_with_a_journal_that_is_deleted_is_logged() {
    logged_all_the_time(
        |program| {
            program.make_directory("db");
            program.put("db/data", &[0; 100 << 10]);
        },
        |program, round| {
            let journal = program.create("db/journal");
            program.write(&journal, 0, &[9; 5000]);
            program.sync(&journal);
            program.sync_directory("db");
            let data = program.filesystem.open_file(program.find("db/data").expect("there")).expect("opens");
            program.write(&data, u64::from(round % 20) * 4096, &[round.to_le_bytes()[0]; 4096]);
            program.sync(&data);
            program.close(data);
            program.close(journal);
            program.unlink("db/journal");
            program.sync_directory("db");
        },
        |program| {
            assert_eq!(program.names("db"), ["data"]);
            let data = program.read("db/data").expect("there");
            for (page, bytes) in data.chunks(4096).enumerate().take(20) {
                let last = (0..ROUNDS).rfind(|round| usize::try_from(round % 20) == Ok(page));
                assert!(bytes.iter().all(|byte| Some(u32::from(*byte)) == last), "page {page}");
            }
        },
    );
}

/// New objects in new directories, and references that are replaced by way of a lock.
#[test]
fn commits_of_a_version_control_system_are_logged() {
    let object = |round: u32| format!("git/objects/{:02x}/{round}", round.wrapping_mul(37) % 64);
    logged_all_the_time(
        |program| {
            ["git", "git/objects", "git/refs"].iter().for_each(|path| program.make_directory(path));
            program.put("git/refs/main", b"none");
        },
        |program, round| {
            let object = object(round);
            let (directory, _) = object.rsplit_once('/').expect("a directory");
            if program.find(directory).is_none() {
                program.make_directory(directory);
            }
            program.put("git/objects/tmp_obj", format!("object {round}").as_bytes());
            program.link("git/objects/tmp_obj", &object);
            program.unlink("git/objects/tmp_obj");
            program.put("git/refs/main.lock", object.as_bytes());
            program.rename("git/refs/main.lock", "git/refs/main");
            program.sync_directory("git/refs");
        },
        |program| {
            for round in 0..ROUNDS {
                assert_eq!(program.read(&object(round)), Some(format!("object {round}").into_bytes()));
            }
            assert_eq!(program.read("git/refs/main"), Some(object(ROUNDS - 1).into_bytes()));
        },
    );
}

/// A log that is allocated behind its end, appended to and synced; a manifest that names it, replaced now and then.
#[test]
fn a_key_value_store_is_logged() {
    logged_all_the_time(
        |program| {
            program.make_directory("store");
            program.put("store/CURRENT", b"0");
        },
        |program, round| {
            let path = format!("store/{}.log", round / 10);
            if round % 10 == 0 {
                let log = program.create(&path);
                let allocated =
                    program.filesystem.allocate(&log, AllocateMode::AllocateKeepSize, 0, 256 << 10);
                allocated.expect("allocates");
                program.close(log);
                program.put("store/CURRENT.tmp", format!("{}", round / 10).as_bytes());
                program.rename("store/CURRENT.tmp", "store/CURRENT");
                program.sync_directory("store");
            }
            let log = program.filesystem.open_file(program.find(&path).expect("there")).expect("opens");
            program.write(&log, u64::from(round % 10) * 1000, &[round.to_le_bytes()[0]; 1000]);
            program.sync(&log);
            program.close(log);
        },
        |program| {
            assert_eq!(program.read("store/CURRENT"), Some(format!("{}", (ROUNDS - 1) / 10).into_bytes()));
            for number in 0..ROUNDS / 10 {
                let log = program.read(&format!("store/{number}.log")).expect("there");
                assert_eq!(log.len(), 10_000);
                let is_right = |(part, bytes): (usize, &[u8])| {
                    let round = usize::try_from(number * 10).expect("small") + part;
                    bytes.iter().all(|byte| usize::from(*byte) == round)
                };
                assert!(log.chunks(1000).enumerate().all(is_right), "log {number}");
            }
        },
    );
}

/// Directories that move, files in them that are synced by their new paths, and names that change places.
#[test]
fn directories_that_move_are_logged() {
    logged_all_the_time(
        |program| {
            ["a", "a/b", "c"].iter().for_each(|path| program.make_directory(path));
            program.put("a/b/file", b"first");
        },
        |program, round| {
            let (from, to) = if round % 2 == 0 { ("a/b", "c/d") } else { ("c/d", "a/b") };
            program.rename(from, to);
            let file = program
                .filesystem
                .open_file(program.find(&format!("{to}/file")).expect("there"))
                .expect("opens");
            program.sync(&file);
            program.write(&file, 0, format!("round {round:3}").as_bytes());
            program.sync(&file);
            program.close(file);
        },
        |program| {
            assert_eq!(program.read("a/b/file"), Some(format!("round {:3}", ROUNDS - 1).into_bytes()));
            assert_eq!(program.names("c"), [""; 0]);
        },
    );
}

/// A file without a name that the last commit has, and that gets its name and more contents before an fsync.
#[test]
fn a_file_that_was_committed_without_a_name_has_the_name_that_was_synced() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let program = Program::new(&filesystem);
    program.put("first", &[1; 1 << 20]);
    let new = NewInode { mode: 0o100_600, ..NewInode::default() };
    let (attributes, hold) = filesystem.create_unnamed(program.top, &new).expect("room");
    let file = filesystem.open_file(attributes.id).expect("opens");
    program.write(&file, 0, &[2; 50_000]);
    filesystem.sync().expect("commits");
    program.write(&file, 40_000, &[3; 50_000]);
    filesystem.link(attributes.id, program.top, b"name").expect("links");
    program.sync(&file);
    let log = filesystem.pool().commit_statistics().log;
    assert_eq!(log.commits, [0; Unlogged::ALL.len()]);
    let expected = [vec![2; 40_000], vec![3; 50_000]].concat();
    assert!(program.read("name").expect("there") == expected);
    drop((file, hold, filesystem));
    for _ in 0..2 {
        let filesystem = bench.open();
        while filesystem.background_step().expect("works") == Remaining::More {}
        assert!(Program::new(&filesystem).read("name").expect("there") == expected);
        filesystem.shutdown().expect("closes");
        bench.assert_clean("replayed");
        bench.assert_btrfs_check("replayed");
    }
}

/// Contents that replace others without an fsync are there when the fsync of the directory logs the name.
#[test]
fn a_name_that_is_logged_without_its_file_brings_its_contents_along() {
    logged_all_the_time(
        |program| {
            ["a", "b"].iter().for_each(|path| program.make_directory(path));
            program.put("a/file", b"old");
        },
        |program, round| {
            let file = program.create("a/file.new");
            program.write(&file, 0, format!("new {round}").as_bytes());
            program.close(file);
            program.rename("a/file.new", "a/file");
            program.put(&format!("b/{round}"), b"other");
            program.sync_directory("a");
        },
        |program| assert_eq!(program.read("a/file"), Some(format!("new {}", ROUNDS - 1).into_bytes())),
    );
}
