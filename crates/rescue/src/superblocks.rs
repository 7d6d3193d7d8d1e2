//! Repairs of superblocks alone.

use crate::Step;
use crate::error::RescueError;
use crate::patient::Patient;
use brindle_device::{Device, WritableDevice};
use brindle_ondisk::{Logical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, SuperblockDefect, to_u64};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A copy of the superblock of a device.
pub(crate) struct SuperblockCopy {
    offset: u64,
    parsed: Result<Box<Superblock>, String>,
}

/// A way to take a copy.
type Parse = fn(&[u8; SUPERBLOCK_SIZE], u64) -> Result<Box<Superblock>, SuperblockDefect>;

/// The copies that a device has room for.
pub(crate) fn copies(device: &dyn Device) -> Result<Vec<SuperblockCopy>, RescueError> {
    copies_by(device, Superblock::parse)
}

fn copies_by(device: &dyn Device, parse: Parse) -> Result<Vec<SuperblockCopy>, RescueError> {
    let mut copies = Vec::new();
    let fits = |offset: &u64| *offset + to_u64(SUPERBLOCK_SIZE) <= device.size_bytes();
    for offset in SUPERBLOCK_OFFSETS.into_iter().filter(fits) {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let parsed = match device.read_at(offset, &mut bytes) {
            Err(error) => Err(error.to_string()),
            Ok(()) => match parse(&bytes, offset) {
                Ok(superblock) => Ok(superblock),
                Err(defect @ (SuperblockDefect::Features(_) | SuperblockDefect::SectorSize(_))) => {
                    return Err(RescueError::Refused(format!("{}: {defect}", device.name())));
                }
                Err(defect) => Err(defect.to_string()),
            },
        };
        copies.push(SuperblockCopy { offset, parsed });
    }
    Ok(copies)
}

/// The best copy: of the highest generation, and among equals the first, which alone has the log.
pub(crate) fn best(copies: &[SuperblockCopy]) -> Option<&Superblock> {
    let valid = copies.iter().filter_map(|copy| copy.parsed.as_deref().ok());
    valid.reduce(|best, next| if next.generation > best.generation { next } else { best })
}

/// Writes a copy for a place, with its checksum.
pub(crate) fn put(
    device: &dyn WritableDevice,
    offset: u64,
    superblock: &Superblock,
) -> Result<(), RescueError> {
    let mut copy = Superblock::clone(superblock);
    copy.bytenr.set(offset);
    let checksum = copy.compute_checksum(copy.checksum_type());
    copy.csum = [0; 32];
    copy.csum[..checksum.as_bytes().len()].copy_from_slice(checksum.as_bytes());
    Ok(device.write_at(offset, copy.as_bytes())?)
}

/// Writes bad copies of superblocks anew from the best copy of the same device (`super-recover`).
///
/// # Errors
/// A device that has no good copy.
pub fn super_recover(patient: &Patient) -> Result<Vec<Step>, RescueError> {
    let mut steps = Vec::new();
    for device in patient.writable() {
        let name = device.name().to_owned();
        let copies = copies(device.as_device())?;
        let Some(good) = best(&copies) else {
            let why = format!("{name}: no copy of its superblock is good");
            return Err(RescueError::Refused(why));
        };
        for copy in &copies {
            let problem = match &copy.parsed {
                Err(problem) => problem.clone(),
                Ok(found) if (found.fsid, found.dev_item.uuid) != (good.fsid, good.dev_item.uuid) => {
                    "it is that of another device".to_owned()
                }
                Ok(found) if found.generation < good.generation => {
                    format!("generation {}, that of another copy is {}", found.generation, good.generation)
                }
                Ok(_) => continue,
            };
            put(device.as_ref(), copy.offset, good)?;
            let (offset, generation) = (copy.offset, good.generation);
            let change =
                format!("{name}: superblock at offset {offset} is written anew, of generation {generation}");
            steps.push(Step::new(change, problem));
        }
    }
    Ok(steps)
}

/// Takes the log out of every superblock (`zero-log`): what was synced after the last commit is given up.
///
/// # Errors
/// A device that has no good superblock.
pub fn zero_log(patient: &Patient) -> Result<Vec<Step>, RescueError> {
    let mut steps = Vec::new();
    for device in patient.writable() {
        let name = device.name().to_owned();
        let copies = copies(device.as_device())?;
        if best(&copies).is_none() {
            let why = format!(
                "{name}: no copy of its superblock is good: `brindle rescue super-recover` comes first"
            );
            return Err(RescueError::Refused(why));
        }
        for copy in &copies {
            let Ok(found) = &copy.parsed else { continue };
            if found.log_root.get() == 0 {
                continue;
            }
            let reason = format!("a log tree at logical {}, level {}", found.log_root, found.log_root_level);
            let mut without = Superblock::clone(found);
            (without.log_root, without.log_root_level) = (Logical::new(0), 0);
            put(device.as_ref(), copy.offset, &without)?;
            let change = format!("{name}: superblock at offset {} names no log any more", copy.offset);
            steps.push(Step::new(change, reason));
        }
    }
    Ok(steps)
}

/// Refuses devices that are not all of one pool: by the best superblock of each, whatever its system chunks are.
///
/// # Errors
/// Devices of several pools; none that has a superblock.
pub fn one_pool(devices: &[Arc<dyn Device>]) -> Result<Box<Superblock>, RescueError> {
    let mut newest: Option<Box<Superblock>> = None;
    for device in devices {
        let copies = copies_by(device.as_ref(), Superblock::parse_but_system_chunks)?;
        let Some(found) = best(&copies) else { continue };
        if let Some(other) = newest.as_ref().filter(|other| other.fsid != found.fsid) {
            let why = format!("{} belongs to the pool {}, not to {}", device.name(), found.fsid, other.fsid);
            return Err(RescueError::Refused(why));
        }
        if newest.as_ref().is_none_or(|newest| newest.generation < found.generation) {
            newest = Some(Box::new(found.clone()));
        }
    }
    newest.ok_or_else(|| RescueError::Refused("no device has a good superblock".to_owned()))
}
