//! The long random life of a pool.

use brindle_fs::{Filesystem, FsError, InodeId, NewInode};
use brindle_sim::Random;

const FILES_PER_DIRECTORY: usize = 500;
/// Number of files made in a commit at first, and number of operations in a commit later: a busy half minute.
const MADE_PER_COMMIT: usize = 2000;
const OPERATIONS_PER_COMMIT: usize = 200;
const BLOCK: [u8; 4096] = [0; 4096];

/// Files that come, change and go.
pub(super) struct Life<'f> {
    fs: &'f Filesystem,
    directories: Vec<InodeId>,
    /// Number of replacements of each file, which is part of its name.
    files: Vec<u32>,
    random: Random,
}

impl<'f> Life<'f> {
    /// Makes `files` files, half of them with contents.
    pub(super) fn begin(fs: &'f Filesystem, files: usize) -> Self {
        let mut life = Self { fs, directories: Vec::new(), files: Vec::new(), random: Random::new(7) };
        for number in 0..files {
            if number % FILES_PER_DIRECTORY == 0 {
                let name = format!("directory{number}");
                let made = fs.create(fs.root(), name.as_bytes(), &new(0o40_755));
                life.directories.push(made.expect("room").id);
            }
            life.files.push(0);
            life.make(number).expect("room");
            if number % MADE_PER_COMMIT == 0 {
                fs.sync().expect("commits");
            }
        }
        fs.sync().expect("commits");
        life
    }

    /// Changes files here and there, with a commit now and then.
    pub(super) fn go_on(&mut self, operations: usize) {
        for number in 0..operations {
            self.change().expect("room");
            if number % OPERATIONS_PER_COMMIT == 0 {
                self.fs.sync().expect("commits");
            }
        }
        self.fs.sync().expect("commits");
    }

    fn change(&mut self) -> Result<(), FsError> {
        let number = self.random.index(self.files.len());
        let (directory, name) = self.place(number);
        match self.random.index(3) {
            0 => {
                self.fs.unlink(directory, &name)?;
                self.files[number] += 1;
                self.make(number)
            }
            kind => {
                let found = self.fs.lookup(directory, &name)?.expect("all files are there");
                let open = self.fs.open_file(found.inode)?;
                if kind == 1 {
                    self.fs.append(&open, &BLOCK).map(|_| ())
                } else {
                    self.fs.write(&open, 0, &BLOCK).map(|_| ())
                }
            }
        }
    }

    fn make(&mut self, number: usize) -> Result<(), FsError> {
        let (directory, name) = self.place(number);
        let made = self.fs.create(directory, &name, &new(0o100_644))?;
        if number % 2 == 0 {
            let open = self.fs.open_file(made.id)?;
            self.fs.append(&open, &BLOCK)?;
        }
        Ok(())
    }

    fn place(&self, number: usize) -> (InodeId, Vec<u8>) {
        let name = format!("a name of some length {number}.{}", self.files[number]);
        (self.directories[number / FILES_PER_DIRECTORY], name.into_bytes())
    }
}

fn new(mode: u32) -> NewInode<'static> {
    NewInode { mode, ..NewInode::default() }
}
