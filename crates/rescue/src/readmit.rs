//! Devices that were left behind: they get the superblock of the last commit (`readmit`).
//!
//! A device with an older superblock has missed commits, or nothing but their superblocks: a system that is not ours may have written all
//! but its superblock, or an older one was put back. It is refused when the pool is to be written. Where others hold all that lies on it, it
//! rejoins. Where they do not (`single`, `raid0`), the pool could not have been written without it; so what it lacks, if anything, was
//! lost. What it holds is compared with what the last commit says: each copy of each tree block by checksum, place and generation,
//! each copy of data by checksums, parity by both. If one thing differs, nothing is written. Data without checksums can't be
//! compared.

use crate::Step;
use crate::error::RescueError;
use crate::patient::Patient;
use crate::superblocks::{best, copies, one_pool, put};
use brindle_check::{CheckOptions, Finding, Progress, check};
use brindle_device::WritableDevice;
use brindle_ondisk::item::{DevItem, ExtentFlags};
use brindle_ondisk::{
    DevId, Generation, Item, Key, KeyType, Logical, ObjectId, RootId, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE,
    Superblock, to_u64,
};
use brindle_tree::{OpenOptions, Pool, Readahead};
use std::sync::Arc;

/// A device with an older superblock.
struct Behind {
    device: Arc<dyn WritableDevice>,
    superblock: Superblock,
}

/// Gives devices that were left behind, and lack nothing, the superblock of the last commit. `trusts_unverified`: data without
/// checksums is taken for what was written last.
///
/// # Errors
/// Devices that are missing, or lack something; a log; data without checksums.
pub fn readmit(
    patient: &Patient,
    trusts_unverified: bool,
    progress: &dyn Progress,
) -> Result<Vec<Step>, RescueError> {
    let newest = one_pool(&patient.readable())?;
    let behind = devices_behind(patient, &newest)?;
    if behind.is_empty() {
        return Ok(Vec::new());
    }
    let pool = Pool::open(patient.readable(), &OpenOptions::default())?;
    if let Some(missing) = pool.volume().devices().into_iter().find(|device| device.missing) {
        return refuse(format!("devid {} is missing: all devices are to be given", missing.devid));
    }
    let items = behind.iter().map(|one| item_of(&pool, one)).collect::<Result<Vec<_>, _>>()?;
    examine(patient, &behind, progress)?;
    let unverified = unverified_bytes(&pool, &behind)?;
    if unverified > 0 && !trusts_unverified {
        return refuse(format!(
            "{unverified} bytes without checksums are in chunks that lie on it, and nothing tells whether they are those that were \
             written last: --trust-unverified takes them for right"
        ));
    }
    drop(pool);
    let steps = behind.iter().zip(items).map(|(one, item)| renew(one, item, &newest, unverified));
    let steps = steps.collect::<Result<Vec<_>, _>>()?;
    judge(patient)?;
    Ok(steps)
}

/// Devices of which each superblock is older than that of the pool.
fn devices_behind(patient: &Patient, newest: &Superblock) -> Result<Vec<Behind>, RescueError> {
    let mut behind = Vec::new();
    for device in patient.writable() {
        let copies = copies(device.as_device())?;
        let Some(superblock) = best(&copies) else {
            let name = device.name();
            return refuse(format!(
                "{name}: no copy of its superblock is good: `brindle rescue super-recover` comes first"
            ));
        };
        if superblock.generation < newest.generation {
            behind.push(Behind { superblock: superblock.clone(), device });
        } else if superblock.log_root.get() != 0 {
            let name = device.name();
            return refuse(format!(
                "{name} names a log of what was synced after the last commit: copy files out, then `brindle rescue zero-log`"
            ));
        }
    }
    Ok(behind)
}

/// The device's item in the chunk tree.
fn item_of(pool: &Pool, behind: &Behind) -> Result<DevItem, RescueError> {
    let (own, name) = (&behind.superblock.dev_item, behind.device.name());
    let mut cursor = pool.cursor(&pool.tree(RootId::CHUNK_TREE)?, Readahead::None);
    cursor.seek(&Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, own.devid.get()))?;
    let found = cursor.item().and_then(|(key, data)| match Item::parse(&key, data) {
        Ok(Item::Device(item)) if (item.devid, item.uuid) == (own.devid, own.uuid) => Some(*item),
        _ => None,
    });
    let Some(item) = found else {
        return refuse(format!("{name} (devid {}) is no device of the pool any more", own.devid));
    };
    if item.generation > behind.superblock.generation {
        return refuse(format!(
            "{name} (devid {}) lacks writes, by its mark in the chunk tree: `brindle device rejoin` takes it in",
            own.devid
        ));
    }
    Ok(item)
}

/// Examines all of the pool; refuses if anything but superblocks of the devices is wrong.
fn examine(patient: &Patient, behind: &[Behind], progress: &dyn Progress) -> Result<(), RescueError> {
    let options = CheckOptions { all_copies: true, check_data_csum: true, ..CheckOptions::default() };
    let report = check(patient.readable(), &options, progress)?;
    let is_known = |finding: &&Finding| match finding {
        Finding::SuperblockGeneration { device, .. } => {
            behind.iter().any(|one| one.device.name() == device.as_str())
        }
        _ => false,
    };
    let known = report.findings().filter(|(_, finding)| is_known(finding)).count();
    if let Some((_, finding)) = report.findings().find(|(_, finding)| !is_known(finding)) {
        return refuse(format!("not all is as the last commit says: {finding}"));
    }
    if report.error_count() != to_u64(known) {
        return refuse("there are more findings than are kept".to_owned());
    }
    Ok(())
}

/// Bytes of data without checksums, space that was preallocated included, in chunks that lie on the devices.
fn unverified_bytes(pool: &Pool, behind: &[Behind]) -> Result<u64, RescueError> {
    let is_on = |devid: DevId| behind.iter().any(|one| one.superblock.dev_item.devid == devid);
    let chunks = pool.volume().chunks();
    let sector = u64::from(pool.volume().tree_context().sectorsize);
    let mut bytes = 0;
    for chunk in chunks.iter().filter(|chunk| chunk.stripes.iter().any(|stripe| is_on(stripe.devid))) {
        let end = chunk.start.get().saturating_add(chunk.length);
        let mut cursor = pool.cursor(&pool.tree(RootId::EXTENT_TREE)?, Readahead::Forward);
        cursor.seek(&Key::first_of(ObjectId::new(chunk.start.get()), KeyType(0)))?;
        while let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid.get() < end) {
            if let Ok(Item::Extent(extent)) = Item::parse(&key, data) {
                if ExtentFlags::from_bits_retain(extent.header.flags.get()).contains(ExtentFlags::DATA) {
                    let (start, length) = (Logical::new(key.objectid.get()), key.offset());
                    bytes += length.saturating_sub(checksums(pool, start, length)? * sector);
                }
            }
            cursor.next()?;
        }
    }
    Ok(bytes)
}

/// Number of checksums of a range.
fn checksums(pool: &Pool, start: Logical, length: u64) -> Result<u64, RescueError> {
    let context = pool.volume().tree_context();
    let (sector, size) = (u64::from(context.sectorsize), to_u64(context.checksum_type.size()));
    let end = start.get().saturating_add(length);
    let key = |at: u64| Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at);
    let mut cursor = pool.cursor(&pool.tree(RootId::CSUM_TREE)?, Readahead::None);
    // The item that holds the first checksum may begin well before it.
    cursor.seek_last(&key(start.get()))?;
    if cursor.key().is_none() {
        cursor.seek(&key(start.get()))?;
    }
    let mut count = 0;
    while let Some((key, data)) = cursor.item().filter(|(key, _)| key.offset() < end) {
        if key.item_type == KeyType::EXTENT_CSUM {
            let behind = key.offset().saturating_add(to_u64(data.len()) / size * sector).min(end);
            count += behind.saturating_sub(key.offset().max(start.get())) / sector;
        }
        cursor.next()?;
    }
    Ok(count)
}

/// Writes the superblock of the last commit to a device.
fn renew(behind: &Behind, item: DevItem, newest: &Superblock, unverified: u64) -> Result<Step, RescueError> {
    let mut superblock = newest.clone();
    superblock.dev_item = item;
    let fits = |offset: &u64| *offset + to_u64(SUPERBLOCK_SIZE) <= behind.device.size_bytes();
    for offset in SUPERBLOCK_OFFSETS.into_iter().filter(fits) {
        put(behind.device.as_ref(), offset, &superblock)?;
    }
    let (name, before): (&str, Generation) = (behind.device.name(), behind.superblock.generation);
    let reason = match unverified {
        0 => format!("it has generation {before}, and all that generation {} has there", newest.generation),
        _ => format!(
            "it has generation {before}, and all that generation {} has there and has checksums",
            newest.generation
        ),
    };
    Ok(Step::new(
        format!("{name}: superblocks are written anew, of generation {}", newest.generation),
        reason,
    ))
}

/// Opens the pool with the new superblocks.
fn judge(patient: &Patient) -> Result<(), RescueError> {
    let pool = Pool::open(patient.readable(), &OpenOptions::default())?;
    match pool.volume().devices().into_iter().find(|device| device.is_stale || device.is_incomplete) {
        Some(device) => Err(RescueError::Worse(format!("{} is stale still", device.name))),
        None => Ok(()),
    }
}

fn refuse<T>(why: String) -> Result<T, RescueError> {
    Err(RescueError::Refused(why))
}
