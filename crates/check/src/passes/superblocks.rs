//! Every copy of the superblock on every device of the pool.

use crate::Finding;
use crate::Statistics;
use crate::examination::Examination;
use crate::page;
use brindle_device::Device;
use brindle_ondisk::{
    Generation, Logical, RootBackup, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, SuperblockDefect,
    to_u64,
};
use brindle_volume::Warning;

pub(crate) fn run(examination: &mut Examination<'_>) {
    let ledger = examination.ledger;
    let of_pool = examination.pool.last_superblock();
    let (examined, last) = (examination.pool.superblock().generation, of_pool.generation);
    if examined != last {
        let note = format!("generation {examined} is examined, by a backup root: the last commit is {last}");
        ledger.note(page::SUPERBLOCKS, note);
    }
    for device in examination.pool.devices() {
        check_device(examination, device.as_ref(), of_pool);
    }
    for (slot, backup) in of_pool.super_roots.iter().enumerate() {
        if let Some((problem, found)) = backup_problem(backup, of_pool) {
            ledger.report(page::SUPERBLOCKS, Finding::BackupRoot { slot, problem, found });
        }
    }
    for warning in examination.pool.volume().warnings() {
        match warning {
            // The copies themselves have been looked at above.
            Warning::Superblock { .. } | Warning::Stale { .. } => {}
            // Missing devices are tolerated by the caller; what is read of the chunks is an error there.
            Warning::LostChunks { .. } => ledger.note(page::SUPERBLOCKS, warning.to_string()),
            _ => ledger.report(page::SUPERBLOCKS, Finding::Opening(warning.to_string())),
        }
    }
    for unused in examination.pool.volume().unused_devices() {
        ledger.note(page::SUPERBLOCKS, format!("not used: {unused}"));
    }
    for device in examination.pool.volume().devices() {
        if device.missing {
            ledger.note(page::SUPERBLOCKS, format!("{} is not there", device.name));
        }
    }
}

fn check_device(examination: &Examination<'_>, device: &dyn Device, of_pool: &Superblock) {
    let ledger = examination.ledger;
    let size = to_u64(SUPERBLOCK_SIZE);
    for offset in SUPERBLOCK_OFFSETS {
        if offset + size > device.size_bytes() {
            break;
        }
        ledger.count(page::SUPERBLOCKS, Statistics { blocks: 0, bytes: size, items: 1 });
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let read = device.read_at(offset, &mut bytes).map_err(|error| error.to_string());
        let parsed = read.and_then(|()| Superblock::parse(&bytes, offset).map_err(|defect| text(&defect)));
        let device = device.name().to_owned();
        match parsed {
            // What belongs to a seed, or to no pool of ours, is not ours to judge.
            Ok(copy) if copy.fsid != of_pool.fsid => {}
            Ok(copy) => check_copy(examination, device, offset, &copy, of_pool),
            Err(problem) => {
                ledger.report(page::SUPERBLOCKS, Finding::Superblock { device, offset, problem });
            }
        }
    }
}

fn text(defect: &SuperblockDefect) -> String {
    defect.to_string()
}

/// Returns true if a device has all blocks of the pool, whatever the generation of its superblock: the mark in its item, which a
/// commit makes that the device lacks something of, is no newer, and only the last commit's superblock is missing.
fn is_complete(examination: &Examination<'_>, copy: &Superblock) -> bool {
    let devices = examination.pool.volume().devices();
    let device = devices.iter().find(|device| device.devid == copy.dev_item.devid);
    device.is_some_and(|device| !device.is_incomplete)
}

/// Reason for which a copy is older than the pool's superblock, if that is no error.
fn reason_to_be_behind(
    examination: &Examination<'_>,
    offset: u64,
    copy: &Superblock,
    of_pool: &Superblock,
) -> Option<String> {
    let (expected, found) = (of_pool.generation, copy.generation);
    // Copies behind the first one are written after it is durable, and first ones of several devices one after the other.
    let is_just_behind = match offset == SUPERBLOCK_OFFSETS[0] {
        true => found < expected && is_complete(examination, copy) && !copy.is_of_series(of_pool),
        false => found.get() + 1 == expected.get(),
    };
    let has_slept = || found < expected && copy.is_of_series(of_pool) && is_complete(examination, copy);
    match is_just_behind {
        true => Some("one behind, as a crash leaves it, until the next commit".to_owned()),
        false => {
            has_slept().then(|| format!("of generation {found}: commits since had nothing for the device"))
        }
    }
}

fn check_copy(
    examination: &Examination<'_>,
    device: String,
    offset: u64,
    copy: &Superblock,
    of_pool: &Superblock,
) {
    let ledger = examination.ledger;
    let (expected, found) = (of_pool.generation, copy.generation);
    if let Some(why) = reason_to_be_behind(examination, offset, copy, of_pool) {
        ledger.note(page::SUPERBLOCKS, format!("{device}: superblock at offset {offset} is {why}"));
        return;
    }
    if expected != found {
        let finding = Finding::SuperblockGeneration { device, offset, expected, found };
        ledger.report(page::SUPERBLOCKS, finding);
        return;
    }
    // A log sync writes the first copy alone, so the log's root may differ.
    for (field, expected, found) in [
        ("root", of_pool.root.get(), copy.root.get()),
        ("chunk_root", of_pool.chunk_root.get(), copy.chunk_root.get()),
        ("total_bytes", of_pool.total_bytes.get(), copy.total_bytes.get()),
        ("bytes_used", of_pool.bytes_used.get(), copy.bytes_used.get()),
        ("num_devices", of_pool.num_devices.get(), copy.num_devices.get()),
        ("incompat_flags", of_pool.incompat_flags.get(), copy.incompat_flags.get()),
        ("compat_ro_flags", of_pool.compat_ro_flags.get(), copy.compat_ro_flags.get()),
        ("nodesize", of_pool.nodesize.get().into(), copy.nodesize.get().into()),
    ] {
        if expected != found {
            let device = device.clone();
            let finding = Finding::SuperblockField { device, offset, field, expected, found };
            ledger.report(page::SUPERBLOCKS, finding);
        }
    }
}

/// Checks a backup root. Backups are of the last four commits; a pool with fewer commits has empty ones.
fn backup_problem(backup: &RootBackup, of_pool: &Superblock) -> Option<(&'static str, u64)> {
    if backup.tree_root.get() == 0 && backup.tree_root_gen.get() == 0 {
        return None;
    }
    let sector = of_pool.sectorsize.get().into();
    let generations: [(&'static str, Generation, Logical); 6] = [
        ("root tree", backup.tree_root_gen, backup.tree_root),
        ("chunk tree", backup.chunk_root_gen, backup.chunk_root),
        ("extent tree", backup.extent_root_gen, backup.extent_root),
        ("top-level subvolume", backup.fs_root_gen, backup.fs_root),
        ("device tree", backup.dev_root_gen, backup.dev_root),
        ("checksum tree", backup.csum_root_gen, backup.csum_root),
    ];
    // A log sync writes the superblock while the next commit prepares its backup.
    let next = of_pool.generation.get().saturating_add(1);
    for (_, generation, bytenr) in generations {
        if generation.get() > next {
            return Some(("generation lies in the future", generation.get()));
        }
        if !bytenr.is_aligned(sector) {
            return Some(("root is not aligned", bytenr.get()));
        }
    }
    let levels = [backup.tree_root_level, backup.chunk_root_level, backup.fs_root_level];
    let too_high = levels.into_iter().find(|level| *level > brindle_ondisk::MAX_LEVEL);
    too_high.map(|level| ("level of a root", level.into()))
}
