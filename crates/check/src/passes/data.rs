//! All data that has checksums, every copy of it. A copy on a device that is missing is no bad one: only data of which
//! nothing else is left can't be read.
//!
//! Where there is parity, a sector that matches when it is read directly and does not when it is rebuilt shows that its
//! row is inconsistent, but not the place. Such sectors are marked, and judged after all data has been read (`parity`).

use crate::Finding;
use crate::Statistics;
use crate::examination::Examination;
use crate::ledger::Ledger;
use crate::page;
use crate::read::Reader;
use crate::regions::Regions;
use crate::sectors::{Mark, SectorMap};
use crate::walk::{Leaf, Visitor};
use brindle_ondisk::{Checksum, Item, Logical, Profile, RootId, to_u64, to_usize};
use brindle_volume::{AttemptFailure, ReadError};

/// Bytes read at once.
const READ_BYTES: u64 = 1 << 20;

pub(crate) fn run(examination: &mut Examination<'_>) {
    let Some(forest) = &examination.forest else { return };
    let Some(gathered) = &examination.gathered else { return };
    let data = |(region, space): (&crate::regions::Region, &crate::space::RegionSpace)| {
        region.kind.contains(brindle_ondisk::BlockGroupType::DATA).then_some(space.used)
    };
    let total = examination.regions.iter().zip(&gathered.space.regions).filter_map(data).sum();
    examination.progress.total(total);
    let verify = Verify {
        reader: examination.reader,
        regions: &examination.regions,
        sectors: &examination.sectors,
        ledger: examination.ledger,
        progress: examination.progress,
    };
    let walk = crate::walk::Walk { progress: &crate::NoProgress, ..examination.walk(forest, false) };
    for statistics in walk.leaves(|tree| tree.id == RootId::CSUM_TREE, &verify) {
        examination.ledger.count(page::DATA, statistics);
    }
    super::parity::judge(examination.reader.volume, &examination.sectors, examination.ledger);
}

/// Reads what the leaves of the checksum tree have checksums of.
struct Verify<'a> {
    reader: &'a Reader<'a>,
    regions: &'a Regions,
    sectors: &'a SectorMap,
    ledger: &'a Ledger,
    progress: &'a dyn crate::Progress,
}

impl Visitor for Verify<'_> {
    type State = Statistics;

    fn start(&self) -> Statistics {
        Statistics::default()
    }

    fn leaf(&self, state: &mut Statistics, leaf: &Leaf<'_>) {
        let mut ahead = 0;
        for slot in 0..leaf.node.len() {
            while ahead < leaf.node.len() && ahead < slot + 3 {
                self.prefetch(leaf, ahead);
                ahead += 1;
            }
            let Some((key, data)) = leaf.node.item(slot) else { continue };
            let Ok(Item::Csums(sums)) = Item::parse(&key, data) else { continue };
            self.range(state, key.offset(), sums);
        }
    }
}

impl Verify<'_> {
    fn prefetch(&self, leaf: &Leaf<'_>, slot: usize) {
        let Some((key, data)) = leaf.node.item(slot) else { return };
        let context = &self.reader.context;
        let sectors = to_u64(data.len() / context.checksum_type.size());
        self.reader.volume.prefetch(Logical::new(key.offset()), sectors * u64::from(context.sectorsize));
    }

    /// Verifies consecutive sectors, which may lie in several chunks.
    fn range(&self, state: &mut Statistics, start: u64, sums: &[u8]) {
        let context = &self.reader.context;
        let (sectorsize, sum_size) = (u64::from(context.sectorsize), context.checksum_type.size());
        let (mut at, mut rest) = (start, sums);
        while !rest.is_empty() {
            let region = self.regions.find(at).and_then(|index| self.regions.get(index));
            // What lies nowhere has been found to be unused.
            let Some(region) = region else { return };
            let most = (region.end() - at).min(READ_BYTES) / sectorsize;
            let count = to_usize(most).min(rest.len() / sum_size);
            if count == 0 {
                return;
            }
            let (now, later) = rest.split_at(count * sum_size);
            let copies = self.reader.volume.copies(Logical::new(at)).unwrap_or(0);
            let mut absent = vec![0; count];
            for mirror in 0..copies {
                self.mirror(state, at, mirror, now, &mut absent);
            }
            self.report_lost(at, copies, &absent);
            let length = to_u64(count) * sectorsize;
            self.progress.advance(length);
            state.items += to_u64(count);
            at += length;
            rest = later;
        }
    }

    /// Verifies one copy; of sectors that a missing device has, it is counted how many copies are `absent`.
    fn mirror(&self, state: &mut Statistics, start: u64, mirror: usize, sums: &[u8], absent: &mut [usize]) {
        let context = &self.reader.context;
        let sum_size = context.checksum_type.size();
        let sectorsize = to_usize(context.sectorsize.into());
        let mut buffer = vec![0; sums.len() / sum_size * sectorsize];
        state.bytes += to_u64(buffer.len());
        if self.reader.volume.read_mirror(Logical::new(start), mirror, &mut buffer).is_ok() {
            self.verify(start, mirror, &buffer, sums);
            return;
        }
        // Sector by sector, to say which.
        for (index, (sector, sum)) in buffer.chunks_mut(sectorsize).zip(sums.chunks(sum_size)).enumerate() {
            let at = start + to_u64(index * sectorsize);
            match self.reader.volume.read_mirror(Logical::new(at), mirror, sector) {
                Ok(()) => self.verify(at, mirror, sector, sum),
                Err(error) => {
                    if mirror == 0 && self.has_parity(Logical::new(at)) {
                        self.sectors.mark(Mark::Bad, at, context.sectorsize.into());
                    }
                    if is_absent(&error) {
                        absent[index] += 1;
                        continue;
                    }
                    let (at, error) = (Logical::new(at), error.to_string());
                    self.ledger.report(page::DATA, Finding::DataUnreadable { at, mirror, error });
                }
            }
        }
    }

    /// Reports the sectors that no device has that is there.
    fn report_lost(&self, start: u64, copies: usize, absent: &[usize]) {
        for (index, absent) in absent.iter().enumerate() {
            if *absent > 0 && *absent == copies {
                let at = Logical::new(start + to_u64(index) * u64::from(self.reader.context.sectorsize));
                let error = "every device that has a copy is missing".to_owned();
                self.ledger.report(page::DATA, Finding::DataUnreadable { at, mirror: 0, error });
            }
        }
    }

    fn verify(&self, start: u64, mirror: usize, data: &[u8], sums: &[u8]) {
        let context = &self.reader.context;
        let sum_size = context.checksum_type.size();
        let sectorsize = to_usize(context.sectorsize.into());
        for (index, (sector, sum)) in data.chunks(sectorsize).zip(sums.chunks(sum_size)).enumerate() {
            if context.checksum_type.matches(sector, sum) {
                continue;
            }
            let at = Logical::new(start + to_u64(index * sectorsize));
            if self.is_left_to_parity(at, mirror) {
                continue;
            }
            let found = context.checksum_type.compute(sector).to_string();
            let expected = Checksum::from_slice(sum).to_string();
            let place = self.place(at, mirror);
            self.ledger.report(page::DATA, Finding::Data { at, mirror, place, found, expected });
        }
    }

    /// Marks a sector with parity that does not match in one way. Returns true if the judgement of its row reports the
    /// cause. Requires that ways are gone in their order, so that the mark of the sector itself is there before.
    fn is_left_to_parity(&self, at: Logical, mirror: usize) -> bool {
        let mark = |mark| self.sectors.mark(mark, at.get(), self.reader.context.sectorsize.into());
        let has = |mark| self.sectors.has(mark, at.get());
        if !self.has_parity(at) {
            return false;
        }
        match mirror {
            0 => {
                mark(Mark::Bad);
                false
            }
            _ if has(Mark::Bad) => false,
            1 => mark(Mark::BadFromP),
            2 => mark(Mark::BadFromQ),
            // From both, which fails if one of them does.
            _ => has(Mark::BadFromP) || has(Mark::BadFromQ),
        }
    }

    fn has_parity(&self, at: Logical) -> bool {
        let region = self.regions.find(at.get()).and_then(|index| self.regions.get(index));
        region.and_then(|region| region.kind.profile()).is_some_and(Profile::has_parity)
    }

    /// The place of a sector in one way, in words.
    fn place(&self, at: Logical, mirror: usize) -> String {
        let rebuilt = if mirror > 0 && self.has_parity(at) { "rebuilt in place of " } else { "" };
        let place = self.reader.volume.mirror_place(at, mirror);
        place.map_or_else(String::new, |(device, byte)| format!(" ({rebuilt}{device} at {byte})"))
    }
}

/// Returns true if a copy can't be read only because its device is missing.
fn is_absent(error: &ReadError) -> bool {
    let ReadError::Failed { attempts, .. } = error else { return false };
    attempts.iter().all(|attempt| matches!(attempt.failure, AttemptFailure::Missing))
}
