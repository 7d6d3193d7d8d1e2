//! Files that are being read. The kernel does not tell us of opening and closing, so the state of a reader
//! (its extents, its sequential readers) is kept for the files read last.

use brindle_fs::{FsError, OpenFile};
use std::sync::{Arc, Mutex, PoisonError};

/// Sets of slots; a file belongs to one set by its number.
const SETS: usize = 64;
/// Files that a set holds. An open file costs at most some 200 KiB, mostly much less.
const WAYS: usize = 4;

/// A bounded cache of open files, by inode number.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    sets: Vec<Mutex<Set>>,
}

/// Files of one set, the one used last at the end.
type Set = Vec<(u64, Arc<OpenFile>)>;

impl Default for OpenFiles {
    fn default() -> Self {
        Self { sets: (0..SETS).map(|_| Mutex::default()).collect() }
    }
}

impl OpenFiles {
    /// Upper bound on the number of files.
    #[cfg(test)]
    pub(crate) const CAPACITY: usize = SETS * WAYS;

    /// Number of files.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.sets.iter().map(|set| set.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// The file of this number; opened if it is not among those read last.
    pub(crate) fn get(
        &self,
        number: u64,
        open: impl FnOnce() -> Result<OpenFile, FsError>,
    ) -> Result<Arc<OpenFile>, FsError> {
        if let Some(file) = self.find(number) {
            return Ok(file);
        }
        let opened = Arc::new(open()?);
        let mut set = self.set(number);
        // Another thread may have opened it meanwhile; both should read ahead with one state.
        if let Some((_, file)) = set.iter().find(|(at, _)| *at == number) {
            return Ok(Arc::clone(file));
        }
        if set.len() == WAYS {
            set.remove(0);
        }
        set.push((number, Arc::clone(&opened)));
        Ok(opened)
    }

    fn find(&self, number: u64) -> Option<Arc<OpenFile>> {
        let mut set = self.set(number);
        let index = set.iter().position(|(at, _)| *at == number)?;
        set[index..].rotate_left(1);
        set.last().map(|(_, file)| Arc::clone(file))
    }

    fn set(&self, number: u64) -> std::sync::MutexGuard<'_, Set> {
        // Numbers of files made together are consecutive, and subvolumes differ in the high bits only.
        let mixed = (number ^ (number >> 48)) % SETS as u64;
        let index = usize::try_from(mixed).expect("less than the number of sets");
        self.sets[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
