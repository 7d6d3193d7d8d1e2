//! Series of syncs: a program that has written many files often syncs them one after the other. A sync costs a hard disk three
//! seeks, however much it makes durable, so files that are to be expected next go along with one that is synced.
//!
//! A series is seen by its files: each was dirty already when another one was synced before it. The more files go along and are
//! synced then, with nothing new in them, the more go along the next time, and the sooner; files that go along in vain make it fewer, and later.
//! Whatever goes along is made durable as if it had been synced, so a wrong guess costs time, and no promise.

use crate::attributes::InodeId;
use brindle_sync::{Rank, Ranked};
use std::collections::HashSet;

/// Number of files that go along: at first, and at most.
const FIRST_FILES: usize = 8;
const FILES_MAX: usize = 256;
/// Number of syncs in series that are waited for before files go along: at first, and at most.
const FIRST_EVIDENCE: usize = 2;
const EVIDENCE_MAX: usize = 64;
/// Files went along this often, and none of them was synced: the guess is wrong.
const VAIN_MAX: usize = 4;

/// Syncs of the recent past, and what went along with them.
#[derive(Debug)]
pub(super) struct SyncSeries {
    last: Option<InodeId>,
    /// Files with smaller numbers were dirty at the last sync.
    mark: u64,
    /// Syncs in this series that had to write.
    waited: usize,
    /// Syncs in series before files go along.
    evidence: usize,
    /// Files that go along the next time.
    files: usize,
    /// Files that went along, and have not been synced yet.
    ahead: HashSet<InodeId>,
    /// Files that went along in this series, and those of them that had something new when they were synced.
    taken: usize,
    changed: usize,
    /// Times that files went along since one of them was synced.
    vain: usize,
}

impl Default for SyncSeries {
    fn default() -> Self {
        Self {
            last: None,
            mark: 0,
            waited: 0,
            evidence: FIRST_EVIDENCE,
            files: FIRST_FILES,
            ahead: HashSet::new(),
            taken: 0,
            changed: 0,
            vain: 0,
        }
    }
}

impl Ranked for SyncSeries {
    const RANK: Rank = Rank::LogBook;
}

impl SyncSeries {
    /// A file is synced, which has this number among those with dirty data, if it has some; the next one gets the number `next`.
    /// Returns the number of files that are to go along.
    pub(super) fn begin(&mut self, file: InodeId, number: Option<u64>, next: u64) -> usize {
        let was_dirty = number.is_some_and(|number| number < self.mark) && self.last != Some(file);
        (self.last, self.mark) = (Some(file), next);
        let went_along = self.ahead.remove(&file);
        if number.is_none() {
            if went_along {
                self.vain = 0;
            }
            return 0;
        }
        self.changed += usize::from(went_along);
        if !was_dirty || self.vain == VAIN_MAX {
            self.end();
            return 0;
        }
        self.waited += 1;
        if self.waited < self.evidence || self.ahead.len() >= FILES_MAX { 0 } else { self.files }
    }

    /// Files have gone along.
    pub(super) fn went_along(&mut self, files: impl IntoIterator<Item = InodeId>) {
        let before = self.ahead.len();
        self.ahead.extend(files);
        let taken = self.ahead.len() - before;
        if taken > 0 {
            self.taken += taken;
            self.vain += 1;
            self.files = (2 * self.files).min(FILES_MAX);
        }
    }

    /// The series has ended: judges what went along.
    fn end(&mut self) {
        let in_vain = self.ahead.len() + self.changed;
        if self.taken > 0 {
            if 2 * in_vain > self.taken {
                self.evidence = (2 * self.evidence).min(EVIDENCE_MAX);
                self.files = FIRST_FILES;
            } else {
                self.evidence = (self.evidence / 2).max(1);
            }
        }
        self.ahead.clear();
        (self.waited, self.taken, self.changed, self.vain) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::{ObjectId, RootId};

    /// Files with dirty data, as a filesystem counts them.
    #[derive(Default)]
    struct Files {
        series: SyncSeries,
        dirty: Vec<(u64, u64)>,
        next: u64,
        writes: usize,
    }

    impl Files {
        fn write(&mut self, file: u64) {
            if self.dirty.iter().all(|(_, dirty)| *dirty != file) {
                self.dirty.push((self.next, file));
                self.next += 1;
            }
        }

        /// Returns the number of files that go along.
        fn sync(&mut self, file: u64) -> usize {
            let id = |number| InodeId { tree: RootId::FS_TREE, number: ObjectId::new(number) };
            let found = self.dirty.iter().position(|(_, dirty)| *dirty == file);
            let number = found.map(|at| self.dirty.remove(at).0);
            self.writes += usize::from(number.is_some());
            let wanted = self.series.begin(id(file), number, self.next);
            let along: Vec<_> = self.dirty.drain(..wanted.min(self.dirty.len())).collect();
            self.series.went_along(along.iter().map(|(_, file)| id(*file)));
            along.len()
        }
    }

    #[test]
    fn a_series_of_syncs_takes_more_and_more_along() {
        let mut files = Files::default();
        (0..1000).for_each(|file| files.write(file));
        let along: usize = (0..1000).map(|file| files.sync(file)).sum();
        assert!(files.writes <= 12 && along == 1000 - files.writes, "{} syncs had to write", files.writes);
        let before = files.writes;
        (0..100).for_each(|file| files.write(file));
        let more: usize = (0..100).map(|file| files.sync(file)).sum();
        assert!(files.writes - before <= 2 && more >= 98, "{} syncs had to write", files.writes - before);
    }

    #[test]
    fn files_that_are_synced_as_they_are_written_take_nothing_along() {
        let mut files = Files::default();
        (1000..2000).for_each(|file| files.write(file));
        for file in 0..200 {
            files.write(file);
            assert_eq!(files.sync(file), 0);
        }
        // Nor does one that is written and synced again and again.
        for _ in 0..200 {
            files.write(1);
            assert_eq!(files.sync(1), 0);
        }
    }

    #[test]
    fn guesses_that_are_wrong_become_rare() {
        let mut files = Files::default();
        (1000..3000).for_each(|file| files.write(file));
        let mut along = 0;
        for round in 0..300 {
            (0..3).for_each(|file| files.write(3 * (round % 100) + file));
            along += (0..3).map(|file| files.sync(3 * (round % 100) + file)).sum::<usize>();
        }
        assert!(along <= 64, "{along} files went along in vain");
    }

    #[test]
    fn files_that_are_changed_after_they_went_along_count_as_in_vain() {
        let mut files = Files::default();
        let mut along = 0;
        for _ in 0..100 {
            (0..50).for_each(|file| files.write(file));
            for file in 0..50 {
                files.write(file);
                along += files.sync(file);
            }
        }
        assert!(along <= 1000, "{along} files went along in vain, of 5000");
    }
}
