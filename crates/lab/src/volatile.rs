//! Writes that a power cut may take, and the cut.
//!
//! A write changes the contents at once; before that, the bytes that it replaces are kept here, until a flush that was
//! asked for later is answered. A drive's cache is bounded: of more than its write cache holds, the oldest writes are
//! durable, in their order. A cut takes back all that is kept, the newest first, which gives the contents that no cut takes
//! away, and makes those writes again that chance has spared, in their order, whole or in part. A discard is durable at
//! once: the contents of a discarded range are nothing to rely on.

use crate::Store;
use brindle_sim::{LossMode, Random, WriteOutcome};
use std::collections::VecDeque;
use std::io;
use std::str::FromStr;

/// Bytes that a drive writes whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// Way in which a power cut takes what was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutMode {
    /// All is lost.
    Lost,
    /// Nothing is lost.
    Kept,
    /// The writes up to any of them are there; that one may be torn.
    Torn,
    /// Each write has its own fate: it is there, lost or torn, and so a later one may be there without an earlier one.
    Reordered,
}

/// Number of writes by their fates in a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Writes that were not flushed and are there.
    pub kept: u64,
    /// Writes that are lost.
    pub lost: u64,
    /// Writes of which some sectors are there.
    pub torn: u64,
}

/// Writes that were not flushed.
#[derive(Debug)]
pub(crate) struct Volatile {
    /// Most bytes that are kept.
    bytes_max: u64,
    bytes: u64,
    /// Number of writes until now.
    writes: u64,
    replaced: VecDeque<Replaced>,
}

/// Bytes that a write has replaced.
#[derive(Debug)]
struct Replaced {
    offset: u64,
    bytes: Vec<u8>,
}

impl CutMode {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Lost, "lost"), (Self::Kept, "kept"), (Self::Torn, "torn"), (Self::Reordered, "reordered")];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(mode, _)| *mode == self).map_or("", |(_, name)| name)
    }

    fn loss(self) -> LossMode {
        match self {
            Self::Lost => LossMode::Everything,
            Self::Kept => LossMode::Nothing,
            Self::Torn => LossMode::InOrder,
            Self::Reordered => LossMode::Scattered,
        }
    }
}

impl FromStr for CutMode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let mode = Self::ALL.iter().find(|(_, name)| *name == word);
        mode.map(|(mode, _)| *mode).ok_or_else(|| "a cut is one of lost, kept, torn, reordered".to_owned())
    }
}

impl Volatile {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, bytes: 0, writes: 0, replaced: VecDeque::new() }
    }

    /// Makes a write.
    pub(crate) fn write(&mut self, store: &Store, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.bytes_max > 0 {
            let mut before = vec![0; bytes.len()];
            store.read(offset, &mut before)?;
            self.replaced.push_back(Replaced { offset, bytes: before });
            self.bytes += bytes.len() as u64;
        }
        self.writes += 1;
        while self.bytes > self.bytes_max {
            self.settle_first();
        }
        store.write(offset, bytes)
    }

    /// Number of writes until now, for [`settle`](Self::settle).
    pub(crate) fn writes(&self) -> u64 {
        self.writes
    }

    /// A flush after this number of writes was answered.
    pub(crate) fn settle(&mut self, writes: u64) {
        while self.replaced.len() as u64 > self.writes.saturating_sub(writes) {
            self.settle_first();
        }
    }

    /// Number of writes that a cut could take, and of their bytes.
    pub(crate) fn pending(&self) -> (u64, u64) {
        (self.replaced.len() as u64, self.bytes)
    }

    fn settle_first(&mut self) {
        if let Some(first) = self.replaced.pop_front() {
            self.bytes -= first.bytes.len() as u64;
        }
    }

    /// Cuts the power.
    pub(crate) fn cut(&mut self, store: &Store, mode: CutMode, seed: u64) -> io::Result<CutReport> {
        let sectors = |replaced: &Replaced| {
            let end = replaced.offset + replaced.bytes.len() as u64;
            end.div_ceil(SECTOR_BYTES) - replaced.offset / SECTOR_BYTES
        };
        let pending: Vec<u64> = self.replaced.iter().map(sectors).collect();
        let fates = mode.loss().fates(&[pending], &mut Random::new(seed)).remove(0);
        // Each takes its place with what it had replaced, and so holds what it wrote.
        for replaced in self.replaced.iter_mut().rev() {
            let mut written = vec![0; replaced.bytes.len()];
            store.read(replaced.offset, &mut written)?;
            store.write(replaced.offset, &replaced.bytes)?;
            replaced.bytes = written;
        }
        let mut report = CutReport::default();
        for (written, fate) in self.replaced.drain(..).zip(fates) {
            match fate {
                WriteOutcome::Kept => {
                    report.kept += 1;
                    store.write(written.offset, &written.bytes)?;
                }
                WriteOutcome::Lost => report.lost += 1,
                WriteOutcome::Torn(tear) => {
                    report.torn += 1;
                    written.write_sectors(store, &tear.kept(sectors(&written)))?;
                }
            }
        }
        self.bytes = 0;
        Ok(report)
    }
}

impl Replaced {
    /// Writes some sectors.
    fn write_sectors(&self, store: &Store, is_kept: &[bool]) -> io::Result<()> {
        let mut rest = &self.bytes[..];
        let mut at = self.offset;
        for is_kept in is_kept {
            let left = usize::try_from(SECTOR_BYTES - at % SECTOR_BYTES).expect("a sector fits memory");
            let (sector, after) = rest.split_at(left.min(rest.len()));
            if *is_kept {
                store.write(at, sector)?;
            }
            at += sector.len() as u64;
            rest = after;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 64 << 10;

    #[derive(Clone, Debug)]
    enum Step {
        Write { sector: u64, sectors: u64, fill: u8 },
        Flush { writes_before: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (0..100u64, 1..20u64, 1..=255u8)
                .prop_map(|(sector, sectors, fill)| Step::Write { sector, sectors, fill }),
            1 => (0..4u64).prop_map(|writes_before| Step::Flush { writes_before }),
        ]
    }

    fn contents(store: &Store) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(SIZE).expect("small")];
        store.read(0, &mut bytes).expect("within");
        bytes
    }

    /// Makes writes; returns the contents after each that was not flushed, the flushed ones first.
    fn make(steps: &[Step], store: &Store, volatile: &mut Volatile) -> Vec<Vec<u8>> {
        let mut states = vec![contents(store)];
        for step in steps {
            match *step {
                Step::Write { sector, sectors, fill } => {
                    let bytes = vec![fill; usize::try_from(sectors * SECTOR_BYTES).expect("small")];
                    volatile.write(store, sector * SECTOR_BYTES, &bytes).expect("room");
                    states.push(contents(store));
                }
                Step::Flush { writes_before } => {
                    let writes = volatile.writes().saturating_sub(writes_before);
                    volatile.settle(writes);
                    let keep = usize::try_from(volatile.pending().0).expect("few") + 1;
                    states.drain(..states.len() - keep);
                }
            }
        }
        states
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn cut_leaves_what_its_mode_says(steps in prop::collection::vec(step(), 0..30), seed: u64) {
            for (mode, _) in CutMode::ALL {
                let (store, mut volatile) = (Store::in_memory(SIZE).expect("memory"), Volatile::new(SIZE * 8));
                let states = make(&steps, &store, &mut volatile);
                let writes = states.len() - 1;
                let report = volatile.cut(&store, mode, seed).expect("room");
                prop_assert_eq!(report.kept + report.lost + report.torn, writes as u64);
                prop_assert_eq!(volatile.pending(), (0, 0));
                let found = contents(&store);
                match mode {
                    CutMode::Lost => prop_assert_eq!(&found, &states[0]),
                    CutMode::Kept => prop_assert_eq!(&found, &states[writes]),
                    CutMode::Torn => {
                        let kept = usize::try_from(report.kept).expect("few");
                        let next = states.get(kept + 1).unwrap_or(&states[kept]);
                        for at in 0..found.len() {
                            let is_either = found[at] == states[kept][at] || found[at] == next[at];
                            prop_assert!(is_either, "byte {}", at);
                        }
                        prop_assert!(report.torn > 0 || found == states[kept]);
                    }
                    CutMode::Reordered => {
                        for at in 0..found.len() {
                            prop_assert!(states.iter().any(|state| state[at] == found[at]), "byte {}", at);
                        }
                    }
                }
                let mut again = Volatile::new(SIZE * 8);
                let other = Store::in_memory(SIZE).expect("memory");
                make(&steps, &other, &mut again);
                again.cut(&other, mode, seed).expect("room");
                prop_assert_eq!(contents(&other), found, "the same by the same seed");
            }
        }
    }

    #[test]
    fn reordered_writes_are_there_without_earlier_ones_and_in_parts() {
        let (mut without, mut parts) = (0, 0);
        for seed in 0..200 {
            let (store, mut volatile) = (Store::in_memory(SIZE).expect("memory"), Volatile::new(SIZE));
            volatile.write(&store, 0, &[1; 4096]).expect("room");
            volatile.write(&store, 8192, &[2; 4096]).expect("room");
            volatile.cut(&store, CutMode::Reordered, seed).expect("room");
            let found = contents(&store);
            without += usize::from(found[0] == 0 && found[8192] == 2);
            parts += usize::from(found[..4096].contains(&1) && found[..4096].contains(&0));
        }
        assert!(without > 5 && parts > 5, "{without} without, {parts} in parts, of 200");
    }

    #[test]
    fn no_more_is_lost_than_the_cache_holds() {
        let (store, mut volatile) = (Store::in_memory(SIZE).expect("memory"), Volatile::new(8192));
        for page in 0..5 {
            volatile.write(&store, page * 4096, &[7; 4096]).expect("room");
        }
        assert_eq!(volatile.pending(), (2, 8192));
        let report = volatile.cut(&store, CutMode::Lost, 1).expect("room");
        assert_eq!(report, CutReport { lost: 2, ..CutReport::default() });
        let found = contents(&store);
        assert_eq!((found[3 * 4096 - 1], found[3 * 4096]), (7, 0));
        let mut safe = Volatile::new(0);
        safe.write(&store, 0, &[9; 512]).expect("room");
        assert_eq!(safe.cut(&store, CutMode::Lost, 1).expect("room"), CutReport::default());
        assert_eq!(contents(&store)[0], 9);
    }
}
