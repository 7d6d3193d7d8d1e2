//! A few bits for each sector of data, kept in pages, of which those that are all alike take no room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Mark of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The sector belongs to an extent of data.
    Allocated = 0,
    /// The sector has a checksum.
    Summed = 1,
    /// A file needs its checksum.
    Needed = 2,
    /// The sector itself can't be read, or does not match its checksum.
    Bad = 3,
    /// Rebuilt from P it does not match, while the sector itself does.
    BadFromP = 4,
    /// Rebuilt from Q it does not match, while the sector itself does.
    BadFromQ = 5,
}

const MARKS: usize = 6;

const SECTORS_PER_PAGE: u64 = 1 << 15;
const WORDS: usize = 1 << 9;
/// More pages than this are not kept: 128 TiB of sectors of 4 KiB.
const PAGES_MAX: usize = 1 << 20;

/// Bits for a page of sectors.
#[derive(Debug, Default)]
enum Bits {
    #[default]
    None,
    Some(Box<[u64; WORDS]>, u32),
    All,
}

#[derive(Debug, Default)]
struct Page([Bits; MARKS]);

/// Bits for all sectors.
#[derive(Debug)]
pub(crate) struct SectorMap {
    sectorsize: u64,
    pages: RwLock<BTreeMap<u64, Arc<Mutex<Page>>>>,
}

impl SectorMap {
    pub(crate) fn new(sectorsize: u32) -> Self {
        Self { sectorsize: u64::from(sectorsize).max(1), pages: RwLock::default() }
    }

    /// Bytes in a sector.
    pub(crate) fn sectorsize(&self) -> u64 {
        self.sectorsize
    }

    /// Marks a range; whether there was room to.
    pub(crate) fn mark(&self, mark: Mark, start: u64, length: u64) -> bool {
        let mut sector = start / self.sectorsize;
        let end = start.saturating_add(length).div_ceil(self.sectorsize);
        while sector < end {
            let number = sector / SECTORS_PER_PAGE;
            let Some(page) = self.page(number) else { return false };
            let first = sector % SECTORS_PER_PAGE;
            let count = (SECTORS_PER_PAGE - first).min(end - sector);
            lock(&page).0[mark as usize].set(first, count);
            sector += count;
        }
        true
    }

    /// Returns true if the sector at an address has a mark.
    pub(crate) fn has(&self, mark: Mark, at: u64) -> bool {
        let sector = at / self.sectorsize;
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let Some(page) = pages.get(&(sector / SECTORS_PER_PAGE)) else { return false };
        let within = sector % SECTORS_PER_PAGE;
        let word = lock(page).0[mark as usize].word(brindle_ondisk::to_usize(within / 64));
        word >> (within % 64) & 1 == 1
    }

    /// The ranges that have one mark and lack another. No lock is held while `found` runs.
    pub(crate) fn difference(&self, has: Mark, lacks: Mark, mut found: impl FnMut(u64, u64)) {
        let pages: Vec<_> = {
            let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
            pages.iter().map(|(number, page)| (*number, Arc::clone(page))).collect()
        };
        let mut open: Option<(u64, u64)> = None;
        for (number, page) in pages {
            let Some(words) = lock(&page).difference(has, lacks) else { continue };
            for (word, bits) in words.iter().enumerate() {
                let base = number * SECTORS_PER_PAGE + brindle_ondisk::to_u64(word) * 64;
                for (start, length) in runs(*bits) {
                    let start = base + start;
                    open = Some(match open {
                        Some((first, count)) if first + count == start => (first, count + length),
                        Some((first, count)) => {
                            found(first * self.sectorsize, count * self.sectorsize);
                            (start, length)
                        }
                        None => (start, length),
                    });
                }
            }
        }
        if let Some((first, count)) = open {
            found(first * self.sectorsize, count * self.sectorsize);
        }
    }

    fn page(&self, number: u64) -> Option<Arc<Mutex<Page>>> {
        let known = self.pages.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned();
        if known.is_some() {
            return known;
        }
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= PAGES_MAX && !pages.contains_key(&number) {
            return None;
        }
        Some(Arc::clone(pages.entry(number).or_default()))
    }
}

impl Page {
    /// Bits of the sectors that have one mark and lack another; `None` where it is plain that there are none.
    fn difference(&self, has: Mark, lacks: Mark) -> Option<Vec<u64>> {
        let (has, lacks) = (&self.0[has as usize], &self.0[lacks as usize]);
        let is_empty = matches!(has, Bits::None) || matches!(lacks, Bits::All);
        (!is_empty).then(|| (0..WORDS).map(|word| has.word(word) & !lacks.word(word)).collect())
    }
}

impl Bits {
    fn set(&mut self, first: u64, count: u64) {
        if matches!(self, Self::All) {
            return;
        }
        if count == SECTORS_PER_PAGE {
            *self = Self::All;
            return;
        }
        if matches!(self, Self::None) {
            *self = Self::Some(Box::new([0; WORDS]), 0);
        }
        let Self::Some(words, set) = self else { return };
        let (mut at, end) = (first, first + count);
        while at < end {
            let within = at % 64;
            let length = (64 - within).min(end - at);
            let mask = (u64::MAX >> (64 - length)) << within;
            let word = &mut words[brindle_ondisk::to_usize(at / 64)];
            *set += (mask & !*word).count_ones();
            *word |= mask;
            at += length;
        }
        if u64::from(*set) == SECTORS_PER_PAGE {
            *self = Self::All;
        }
    }

    fn word(&self, index: usize) -> u64 {
        match self {
            Self::None => 0,
            Self::Some(words, _) => words[index],
            Self::All => u64::MAX,
        }
    }
}

fn lock(page: &Mutex<Page>) -> MutexGuard<'_, Page> {
    page.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The runs of bits that are set, each with its first and its length.
pub(crate) fn runs(mut bits: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut base = 0u64;
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let zeros = bits.trailing_zeros();
        let ones = (bits >> zeros).trailing_ones();
        let start = base + u64::from(zeros);
        base = start + u64::from(ones);
        bits = bits.checked_shr(zeros + ones).unwrap_or(0);
        Some((start, u64::from(ones)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(map: &SectorMap, has: Mark, lacks: Mark) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        map.difference(has, lacks, |start, length| found.push((start, length)));
        found
    }

    #[test]
    fn ranges_that_lack_a_mark_are_found_across_pages() {
        let map = SectorMap::new(4096);
        let page = SECTORS_PER_PAGE * 4096;
        assert!(map.mark(Mark::Needed, page - 8192, page * 2));
        assert!(map.mark(Mark::Summed, page - 8192, 4096));
        assert!(map.mark(Mark::Summed, page * 2, 12288));
        let expected = [(page - 4096, page + 4096), (page * 2 + 12288, page - 8192 - 12288)];
        assert_eq!(difference(&map, Mark::Needed, Mark::Summed), expected);
        assert_eq!(difference(&map, Mark::Allocated, Mark::Summed), []);
    }

    #[test]
    fn pages_that_are_full_take_no_room_and_still_answer() {
        let map = SectorMap::new(4096);
        let page = SECTORS_PER_PAGE * 4096;
        map.mark(Mark::Summed, 0, page / 2);
        map.mark(Mark::Summed, page / 2, page / 2);
        assert_eq!(difference(&map, Mark::Summed, Mark::Allocated), [(0, page)]);
        assert!(matches!(lock(&map.page(0).unwrap()).0[Mark::Summed as usize], Bits::All));
    }

    #[test]
    fn a_mark_is_of_its_sector_alone() {
        let map = SectorMap::new(4096);
        map.mark(Mark::Bad, 4096 * 65, 4096);
        let marked: Vec<u64> = (0..200).filter(|sector| map.has(Mark::Bad, sector * 4096)).collect();
        assert_eq!(marked, [65]);
        assert!(map.has(Mark::Bad, 4096 * 65 + 100) && !map.has(Mark::BadFromP, 4096 * 65));
        // `found` may ask, and mark.
        map.difference(Mark::Bad, Mark::BadFromP, |start, _| {
            assert!(map.has(Mark::Bad, start) && map.mark(Mark::BadFromP, start, 4096));
        });
        assert_eq!(difference(&map, Mark::Bad, Mark::BadFromP), []);
    }

    #[test]
    fn runs_of_bits() {
        assert_eq!(runs(0b1011).collect::<Vec<_>>(), [(0, 2), (3, 1)]);
        assert_eq!(runs(u64::MAX).collect::<Vec<_>>(), [(0, 64)]);
        assert_eq!(runs(1 << 63).collect::<Vec<_>>(), [(63, 1)]);
        assert_eq!(runs(0).next(), None);
    }
}
