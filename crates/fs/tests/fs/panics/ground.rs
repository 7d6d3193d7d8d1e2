//! Files that say which they are and how often they were written, and what must be durable of them.

use crate::simulated::Pool;
use brindle_fs::{FileType, Filesystem, FsError, InodeId, NewInode, OpenFile};
use std::collections::{BTreeMap, BTreeSet};

/// Length of a file's contents, in bytes.
const FILE_BYTES: usize = 24 << 10;
/// Begin of the names that are not looked at: snapshots and clones, which have versions of others.
const COPY: &[u8] = b"snap";

/// Version of a file that a reopened pool must have at least, and the last one that was begun.
#[derive(Clone, Copy, Debug, Default)]
struct Versions {
    durable: u16,
    latest: u16,
    /// Its name has been taken away, durably or not.
    may_be_gone: bool,
}

/// Files by number.
#[derive(Debug, Default)]
pub(crate) struct Ground {
    files: BTreeMap<u16, Versions>,
}

pub(crate) fn plain() -> NewInode<'static> {
    NewInode { mode: 0o100_644, ..NewInode::default() }
}

impl Ground {
    /// Makes a file, whose first version is in memory.
    pub(crate) fn create(
        &mut self,
        fs: &Filesystem,
        parent: InodeId,
        name: &str,
        number: u16,
    ) -> Result<OpenFile, FsError> {
        self.files.insert(number, Versions::default());
        let (_, file) = fs.create_open(parent, name.as_bytes(), &plain())?;
        self.write(fs, &file, number)?;
        Ok(file)
    }

    /// Gives a file its next version.
    pub(crate) fn write(&mut self, fs: &Filesystem, file: &OpenFile, number: u16) -> Result<(), FsError> {
        let versions = self.files.entry(number).or_default();
        versions.latest += 1;
        let contents = contents(number, versions.latest);
        fs.write(file, 0, &contents).map(|_| ())
    }

    /// Makes the present version of a file durable.
    pub(crate) fn sync_file(&mut self, fs: &Filesystem, file: &OpenFile, number: u16) -> Result<(), FsError> {
        fs.sync_file(file)?;
        let versions = self.files.entry(number).or_default();
        versions.durable = versions.latest;
        Ok(())
    }

    /// Makes everything durable.
    pub(crate) fn sync(&mut self, fs: &Filesystem) -> Result<(), FsError> {
        fs.sync()?;
        self.files.values_mut().for_each(|versions| versions.durable = versions.latest);
        Ok(())
    }

    /// A file is about to lose its name: from now on it may be there or not.
    pub(crate) fn loses(&mut self, number: u16) {
        self.files.entry(number).or_default().may_be_gone = true;
    }

    /// The first contradiction between a pool that was opened again and what must be durable.
    pub(crate) fn compare(&self, pool: &Pool) -> Result<(), String> {
        let fs = pool.open().map_err(|error| format!("it does not open: {error}"))?;
        let mut seen = BTreeSet::new();
        let mut directories = vec![fs.root()];
        while let Some(directory) = directories.pop() {
            let entries = fs.read_directory(directory, 0, usize::MAX).map_err(|error| error.to_string())?;
            for entry in entries.into_iter().filter(|entry| !entry.name.starts_with(COPY)) {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                match entry.kind {
                    FileType::Directory => directories.push(entry.inode),
                    FileType::Regular => {
                        let number =
                            self.compare_file(&fs, entry.inode).map_err(|why| format!("{name}: {why}"))?;
                        if number.is_some_and(|number| !seen.insert(number)) {
                            return Err(format!("{name}: a second file of number {number:?}"));
                        }
                    }
                    _ => return Err(format!("{name}: neither directory nor file")),
                }
            }
        }
        let lost = self
            .files
            .iter()
            .find(|(number, file)| file.durable > 0 && !file.may_be_gone && !seen.contains(*number));
        if let Some((number, versions)) = lost {
            return Err(format!("file {number} is lost: {versions:?}"));
        }
        fs.shutdown().map_err(|error| format!("it can't be written: {error}"))
    }

    /// The number of a file that has contents.
    fn compare_file(&self, fs: &Filesystem, id: InodeId) -> Result<Option<u16>, String> {
        let file = fs.open_file(id).map_err(|error| error.to_string())?;
        let mut bytes = vec![0; FILE_BYTES + 1];
        let length = fs.read(&file, 0, &mut bytes).map_err(|error| error.to_string())?;
        bytes.truncate(length);
        let Some(first) = bytes.first_chunk::<4>() else { return Ok(None) };
        let number = u16::from_le_bytes([first[0], first[1]]);
        let version = u16::from_le_bytes([first[2], first[3]]);
        let versions = self.files.get(&number).ok_or_else(|| format!("number {number}, of no file"))?;
        if bytes != contents(number, version) {
            return Err(format!("{length} bytes, not all of them of version {version}"));
        }
        if !(versions.durable..=versions.latest).contains(&version) {
            return Err(format!("version {version}, where {versions:?}"));
        }
        Ok(Some(number))
    }
}

fn contents(number: u16, version: u16) -> Vec<u8> {
    [number.to_le_bytes(), version.to_le_bytes()].concat().repeat(FILE_BYTES / 4)
}
