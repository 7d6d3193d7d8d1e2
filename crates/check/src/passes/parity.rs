//! Rows of raid5 and raid6 whose parity and data do not agree: the part of the row that is wrong.

use crate::Finding;
use crate::ledger::Ledger;
use crate::page;
use crate::sectors::{Mark, SectorMap};
use brindle_ondisk::Logical;
use brindle_volume::Volume;

/// The mark of each parity of a row, in their order, and its name.
const PARITIES: [(Mark, &str); 2] = [(Mark::BadFromP, "P"), (Mark::BadFromQ, "Q")];

/// Reports parity that gives wrong data, once for each sector of it, where all data of the row matches its checksums. A
/// sector of the row that does not match has its own finding, and explains why other sectors are rebuilt wrong.
pub(super) fn judge(volume: &Volume, sectors: &SectorMap, ledger: &Ledger) {
    for (index, (mark, parity)) in PARITIES.into_iter().enumerate() {
        sectors.difference(mark, Mark::Bad, |start, length| {
            let mut at = start;
            while at < start + length {
                if let Some(finding) = blame(volume, sectors, Logical::new(at), index, mark, parity) {
                    ledger.report(page::DATA, finding);
                }
                at += sectors.sectorsize();
            }
        });
    }
}

/// The finding about the parity of one sector, if this sector is the first of its row with the mark, and no other
/// sector of the row is bad.
fn blame(
    volume: &Volume,
    sectors: &SectorMap,
    at: Logical,
    index: usize,
    mark: Mark,
    parity: &'static str,
) -> Option<Finding> {
    let row = volume.parity_row(at)?;
    let first = row.data.iter().find(|data| sectors.has(mark, data.get()));
    if first != Some(&at) || row.data.iter().any(|data| sectors.has(Mark::Bad, data.get())) {
        return None;
    }
    let unsummed = row.data.iter().filter(|data| !sectors.has(Mark::Summed, data.get())).count();
    let (device, byte) = row.parity.into_iter().nth(index)?;
    Some(Finding::Parity { at, parity, device, byte, unsummed })
}
