//! Notes of files that small writes have torn, for [`Autodefrag`](crate::autodefrag::Autodefrag), whose module has the walk.
//! Bounded: a file that there is no room for is noted at its next small write.

use crate::attributes::InodeId;
use brindle_interval::{Interval, IntervalSet};
use brindle_ondisk::Generation;
use brindle_policy::defragment::torn::{PAUSE, RUN_BYTES, TornFile};
use brindle_sync::{Mutex, Rank, Ranked};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Upper bound on the noted files.
const FILES_MAX: usize = 4096;
/// Upper bounds on the ranges of a file, and of all files: some 4 MiB.
const RANGES_MAX: usize = 4096;
const ALL_RANGES_MAX: usize = 1 << 16;
/// Bytes of a part that is taken at once.
const PART_BYTES: u64 = 4 * RUN_BYTES;

/// Files that small writes have torn.
#[derive(Debug, Default)]
pub(crate) struct TornFiles {
    is_on: AtomicBool,
    notes: Mutex<Notes>,
    /// Small writes that there was no room for.
    unnoted: AtomicU64,
}

#[derive(Debug, Default)]
struct Notes {
    files: HashMap<InodeId, Note>,
    /// Ranges of all of them.
    ranges: usize,
    /// The file that is under way, with the ranges that are left.
    under_way: Option<(InodeId, Note)>,
}

/// Note of a file.
#[derive(Debug)]
struct Note {
    /// Ranges, of whole multiples of the length of a run.
    ranges: IntervalSet<u64>,
    /// The last commit before the first small write.
    since: Generation,
    first: Instant,
    last: Instant,
}

/// A part of a file that small writes have torn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TornPart {
    pub(crate) file: InodeId,
    pub(crate) range: Range<u64>,
    /// The small writes came after this commit.
    pub(crate) since: Generation,
}

impl Ranked for Notes {
    const RANK: Rank = Rank::TornFiles;
}

impl TornFiles {
    /// Begins or ends to note files.
    pub(crate) fn set_on(&self, is_on: bool) {
        let mut notes = self.notes.lock();
        self.is_on.store(is_on, Ordering::Relaxed);
        if !is_on {
            *notes = Notes::default();
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Number of files that are noted, and of small writes that there was no room for.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let notes = self.notes.lock();
        let under_way = usize::from(notes.under_way.is_some());
        (notes.files.len() + under_way, self.unnoted.load(Ordering::Relaxed))
    }

    /// Returns true if a file is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.notes.lock().under_way.is_some()
    }

    /// Notes small writes to a file. `committed`: the last commit before them.
    pub(crate) fn note(&self, file: InodeId, ranges: &[Range<u64>], committed: Generation, now: Instant) {
        let mut notes = self.notes.lock();
        // Looked at with the lock held, so that nothing is noted after the end.
        if !self.is_on() {
            return;
        }
        let Notes { files, ranges: count, .. } = &mut *notes;
        let is_known = files.contains_key(&file);
        if !is_known && files.len() >= FILES_MAX {
            self.count_unnoted(ranges.len());
            return;
        }
        let new = || Note { ranges: IntervalSet::default(), since: committed, first: now, last: now };
        let note = files.entry(file).or_insert_with(new);
        note.last = note.last.max(now);
        for range in ranges {
            let before = note.ranges.len();
            if before >= RANGES_MAX || *count >= ALL_RANGES_MAX {
                self.count_unnoted(1);
                continue;
            }
            let start = range.start / RUN_BYTES * RUN_BYTES;
            note.ranges.insert(start..range.end.next_multiple_of(RUN_BYTES));
            *count = *count + note.ranges.len() - before;
        }
        if note.ranges.is_empty() {
            files.remove(&file);
        }
    }

    /// Noted files with small writes that are part of a commit, the one that has waited for the longest time first.
    pub(crate) fn waiting(&self, committed: Generation, now: Instant) -> Vec<(InodeId, TornFile)> {
        let notes = self.notes.lock();
        let committed = notes.files.iter().filter(|(_, note)| note.since < committed);
        let facts = |note: &Note| TornFile {
            since_first: now.saturating_duration_since(note.first),
            since_last: now.saturating_duration_since(note.last),
            is_dirty: false,
        };
        let mut waiting: Vec<_> = committed.map(|(file, note)| (*file, facts(note))).collect();
        waiting.sort_unstable_by_key(|(file, facts)| (std::cmp::Reverse(facts.since_first), *file));
        waiting
    }

    /// Begins with a file, unless one is under way. Small writes to it are noted anew from here on.
    pub(crate) fn begin(&self, file: InodeId) {
        let mut notes = self.notes.lock();
        if notes.under_way.is_none() {
            notes.under_way = notes.remove(file).map(|note| (file, note));
        }
    }

    /// Takes the next part of the file that is under way.
    pub(crate) fn take_part(&self) -> Option<TornPart> {
        let mut notes = self.notes.lock();
        let (file, note) = notes.under_way.as_mut()?;
        let part = note.ranges.iter().next().map(|first: Interval<u64>| {
            let range = first.start..first.end.min(first.start.saturating_add(PART_BYTES));
            TornPart { file: *file, range, since: note.since }
        });
        if let Some(part) = &part {
            note.ranges.remove(part.range.clone());
        }
        if note.ranges.is_empty() {
            notes.under_way = None;
        }
        part
    }

    /// Puts a part back, with all that is left of its file, behind the other files that are due.
    pub(crate) fn postpone(&self, part: &TornPart, now: Instant) {
        let under_way = self.notes.lock().under_way.take();
        let left = under_way.map(|(_, note)| note.ranges).unwrap_or_default();
        let ranges: Vec<Range<u64>> = left.iter().map(Range::from).collect();
        let parts = std::iter::once(part.range.clone()).chain(ranges);
        let first = now.checked_sub(PAUSE).unwrap_or(now);
        self.note(part.file, &parts.collect::<Vec<_>>(), part.since, first);
        if let Some(note) = self.notes.lock().files.get_mut(&part.file) {
            note.since = note.since.min(part.since);
        }
    }

    /// Forgets a file, also if it is under way.
    pub(crate) fn forget(&self, file: InodeId) {
        let mut notes = self.notes.lock();
        notes.remove(file);
        if notes.under_way.as_ref().is_some_and(|(under_way, _)| *under_way == file) {
            notes.under_way = None;
        }
    }

    fn count_unnoted(&self, writes: usize) {
        self.unnoted.fetch_add(brindle_ondisk::to_u64(writes), Ordering::Relaxed);
    }
}

impl Notes {
    fn remove(&mut self, file: InodeId) -> Option<Note> {
        let note = self.files.remove(&file)?;
        self.ranges -= note.ranges.len();
        Some(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::{ObjectId, RootId};
    use std::time::Duration;

    const BEFORE: Generation = Generation::new(7);
    const AFTER: Generation = Generation::new(8);

    fn switched_on() -> TornFiles {
        let torn = TornFiles::default();
        torn.set_on(true);
        torn
    }

    fn file(number: u64) -> InodeId {
        InodeId { tree: RootId::FS_TREE, number: ObjectId::new(number) }
    }

    fn small(block: u64) -> Range<u64> {
        block * RUN_BYTES + 4096..block * RUN_BYTES + 8192
    }

    #[test]
    fn parts_are_whole_blocks_around_small_writes_and_none_is_long() {
        let (torn, now) = (switched_on(), Instant::now());
        torn.note(file(300), &[small(0), small(1), small(7)], BEFORE, now);
        torn.note(file(300), &[small(1), small(2), small(3), small(4)], AFTER, now);
        let part = |blocks: Range<u64>| TornPart {
            file: file(300),
            range: blocks.start * RUN_BYTES..blocks.end * RUN_BYTES,
            since: BEFORE,
        };
        assert_eq!(torn.take_part(), None);
        torn.begin(file(300));
        assert_eq!((torn.counts(), torn.notes.lock().ranges), ((1, 0), 0));
        torn.note(file(301), &[small(0)], BEFORE, now);
        torn.begin(file(301));
        let taken = std::iter::from_fn(|| torn.take_part()).collect::<Vec<_>>();
        assert_eq!(taken, [part(0..4), part(4..5), part(7..8)]);
        assert!(!torn.is_under_way() && torn.counts() == (1, 0));
        torn.begin(file(301));
        torn.forget(file(301));
        assert_eq!((torn.take_part(), torn.counts()), (None, (0, 0)));
    }

    #[test]
    fn small_writes_to_the_file_under_way_are_noted_for_later() {
        let (torn, now) = (switched_on(), Instant::now());
        torn.note(file(300), &[small(0), small(9)], BEFORE, now);
        torn.begin(file(300));
        torn.note(file(300), &[small(0)], AFTER, now);
        let taken = std::iter::from_fn(|| torn.take_part()).map(|part| part.since);
        assert_eq!(taken.collect::<Vec<_>>(), [BEFORE, BEFORE]);
        torn.begin(file(300));
        assert_eq!(torn.take_part().map(|part| part.since), Some(AFTER));
    }

    #[test]
    fn files_wait_for_a_commit_and_come_in_the_order_of_their_first_small_writes() {
        let (torn, now) = (switched_on(), Instant::now());
        let second = Duration::from_secs(1);
        torn.note(file(301), &[small(0)], BEFORE, now);
        torn.note(file(300), &[small(0)], BEFORE, now + second);
        torn.note(file(302), &[small(0)], AFTER, now);
        torn.note(file(301), &[small(3)], AFTER, now + second * 3);
        assert_eq!(torn.waiting(BEFORE, now + second * 5), []);
        let facts = |since_first, since_last| TornFile {
            since_first: second * since_first,
            since_last: second * since_last,
            is_dirty: false,
        };
        let waiting = [(file(301), facts(5, 2)), (file(300), facts(4, 4))];
        assert_eq!(torn.waiting(AFTER, now + second * 5), waiting);
        torn.forget(file(301));
        assert_eq!(torn.counts().0, 2);
        torn.set_on(false);
        assert_eq!((torn.counts().0, torn.notes.lock().ranges), (0, 0));
    }

    #[test]
    fn a_file_that_is_postponed_waits_behind_others_with_all_that_is_left_of_it() {
        let (torn, now) = (switched_on(), Instant::now() + PAUSE * 4);
        torn.note(file(300), &[small(0), small(9)], BEFORE, now - PAUSE * 3);
        torn.note(file(301), &[small(0)], BEFORE, now - PAUSE * 2);
        torn.begin(file(300));
        let part = torn.take_part().expect("noted");
        torn.note(file(300), &[small(20)], AFTER, now - PAUSE);
        torn.postpone(&part, now);
        let waiting: Vec<_> = torn.waiting(AFTER, now).into_iter().map(|(file, _)| file).collect();
        assert_eq!(waiting, [file(301), file(300)]);
        torn.begin(file(300));
        let taken =
            std::iter::from_fn(|| torn.take_part()).map(|part| (part.range.start / RUN_BYTES, part.since));
        assert_eq!(taken.collect::<Vec<_>>(), [(0, BEFORE), (9, BEFORE), (20, BEFORE)]);
    }

    #[test]
    fn nothing_is_noted_once_it_is_off_not_even_what_was_under_way() {
        let (torn, now) = (switched_on(), Instant::now());
        torn.note(file(300), &[small(0), small(9)], BEFORE, now);
        torn.begin(file(300));
        let part = torn.take_part().expect("noted");
        torn.set_on(false);
        torn.postpone(&part, now);
        torn.note(file(301), &[small(0)], BEFORE, now);
        assert_eq!(torn.counts(), (0, 0));
    }

    #[test]
    fn notes_take_no_more_memory_than_there_is_for_them() {
        let (torn, now) = (switched_on(), Instant::now());
        for number in 0..10 + FILES_MAX as u64 {
            torn.note(file(number), &[small(0)], BEFORE, now);
        }
        assert_eq!(torn.counts(), (FILES_MAX, 10));
        for block in 0..=RANGES_MAX as u64 {
            torn.note(file(0), &[small(block * 2)], BEFORE, now);
        }
        assert_eq!(torn.counts(), (FILES_MAX, 11));
        for number in 0..100 {
            let blocks: Vec<_> = (0..RANGES_MAX as u64).map(|block| small(block * 2)).collect();
            torn.note(file(number), &blocks, BEFORE, now);
        }
        let ranges: usize = torn.notes.lock().files.values().map(|note| note.ranges.len()).sum();
        assert_eq!((ranges, torn.notes.lock().ranges), (ALL_RANGES_MAX, ALL_RANGES_MAX));
    }
}
