//! Chunks, device items and device extents, each against the others.

use crate::Finding;
use crate::examination::Examination;
use crate::facts::{DevExtentFact, TreeFacts};
use crate::ledger::Ledger;
use crate::page;
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{DevId, Logical, Physical, Superblock, to_u64};
use std::collections::HashMap;

pub(crate) fn run(examination: &mut Examination<'_>) {
    let ledger = examination.ledger;
    for problem in &examination.pool.problems().list {
        ledger.report(page::CHUNKS, problem.clone());
    }
    let Some(gathered) = &mut examination.gathered else { return };
    let facts = &mut gathered.facts;
    facts.dev_extents.sort_by_key(|extent| (extent.devid, extent.offset));
    let superblock = &examination.pool.superblock();
    let is_seeded = examination.pool.volume().devices().iter().any(|device| device.is_seed);
    check_stripes(facts, is_seeded, ledger);
    check_overlaps(facts, ledger);
    check_devices(facts, superblock, is_seeded, ledger);
    check_system_chunks(facts, superblock, ledger);
    for note in std::mem::take(&mut facts.notes) {
        ledger.note(page::CHUNKS, note);
    }
}

fn by_id(facts: &TreeFacts) -> HashMap<DevId, &DevItem> {
    facts.devices.iter().map(|device| (device.devid, device)).collect()
}

/// Stripes and device extents, both ways. Device extents of a seed are in the seed's own trees.
fn check_stripes(facts: &TreeFacts, is_seeded: bool, ledger: &Ledger) {
    let mut extents: HashMap<(DevId, u64), (&DevExtentFact, bool)> =
        facts.dev_extents.iter().map(|extent| ((extent.devid, extent.offset), (extent, false))).collect();
    let devices = by_id(facts);
    for stripe in &facts.stripes {
        let problem = match extents.get_mut(&(stripe.devid, stripe.offset)) {
            None if is_seeded => None,
            None => Some("has no device extent"),
            Some((extent, is_used)) => {
                *is_used = true;
                if extent.chunk != stripe.chunk {
                    Some("its device extent is of another chunk")
                } else if extent.length != stripe.length {
                    Some("its device extent has another length")
                } else {
                    None
                }
            }
        };
        let problem = problem.or(match devices.get(&stripe.devid) {
            None => Some("there is no such device"),
            Some(device) if device.uuid != stripe.uuid => Some("the device has another uuid"),
            Some(_) => None,
        });
        if let Some(problem) = problem {
            ledger.report(
                page::CHUNKS,
                Finding::Stripe {
                    chunk: Logical::new(stripe.chunk),
                    devid: stripe.devid,
                    offset: Physical::new(stripe.offset),
                    length: stripe.length,
                    problem,
                },
            );
        }
    }
    for (extent, is_used) in extents.into_values() {
        if !is_used {
            report_extent(extent, "no chunk has it", ledger);
        }
    }
}

fn check_overlaps(facts: &TreeFacts, ledger: &Ledger) {
    let devices = by_id(facts);
    let mut before: Option<(DevId, u64)> = None;
    for extent in &facts.dev_extents {
        let end = extent.offset.saturating_add(extent.length);
        if let Some((devid, end)) =
            before.filter(|(devid, end)| *devid == extent.devid && *end > extent.offset)
        {
            let offset = Physical::new(extent.offset);
            ledger.report(page::CHUNKS, Finding::DeviceExtentOverlap { devid, offset, end });
        }
        before = Some((extent.devid, end));
        match devices.get(&extent.devid) {
            None => report_extent(extent, "there is no such device", ledger),
            Some(device) if end > device.total_bytes.get() => {
                report_extent(extent, "passes the end of the device", ledger);
            }
            Some(_) => {}
        }
    }
}

fn check_devices(facts: &TreeFacts, superblock: &Superblock, is_seeded: bool, ledger: &Ledger) {
    let mut total = 0u64;
    let mut used: HashMap<DevId, u64> = HashMap::new();
    for extent in &facts.dev_extents {
        let sum = used.entry(extent.devid).or_default();
        *sum = sum.saturating_add(extent.length);
    }
    for device in &facts.devices {
        total = total.saturating_add(device.total_bytes.get());
        let expected = used.get(&device.devid).copied().unwrap_or(0);
        let found = device.bytes_used.get();
        // What a seed's device item says is of its own pool, and so are its extents.
        if found != expected && !(is_seeded && expected == 0) {
            let (devid, field) = (device.devid, "bytes_used");
            ledger.report(page::CHUNKS, Finding::Device { devid, field, expected, found });
        }
    }
    for (field, expected, found) in [
        ("total_bytes", total, superblock.total_bytes.get()),
        ("num_devices", to_u64(facts.devices.len()), superblock.num_devices.get()),
    ] {
        if expected != found {
            ledger.report(page::CHUNKS, Finding::SuperblockTotal { field, expected, found });
        }
    }
}

/// Every system chunk of the superblock is in the chunk tree, and the other way round.
fn check_system_chunks(facts: &TreeFacts, superblock: &Superblock, ledger: &Ledger) {
    use brindle_ondisk::BlockGroupType;
    let mut in_superblock: Vec<(u64, u64)> = Vec::new();
    for (key, chunk) in superblock.system_chunks().flatten() {
        in_superblock.push((key.offset(), chunk.header.length.get()));
    }
    let in_tree = facts.chunks.iter().filter(|chunk| chunk.kind.contains(BlockGroupType::SYSTEM));
    let mut in_tree: Vec<(u64, u64)> = in_tree.map(|chunk| (chunk.start, chunk.length)).collect();
    in_superblock.sort_unstable();
    in_tree.sort_unstable();
    for (from, to) in [(&in_superblock, &in_tree), (&in_tree, &in_superblock)] {
        for (start, _) in from.iter().filter(|chunk| to.binary_search(chunk).is_err()) {
            ledger.report(page::CHUNKS, Finding::SystemChunk { start: Logical::new(*start) });
        }
    }
}

fn report_extent(extent: &DevExtentFact, problem: &'static str, ledger: &Ledger) {
    let DevExtentFact { devid, offset, length, chunk } = *extent;
    let (offset, chunk) = (Physical::new(offset), Logical::new(chunk));
    ledger.report(page::CHUNKS, Finding::DeviceExtent { devid, offset, length, chunk, problem });
}
