//! Writes of mkfs, and their order.
//!
//! 1. Images get their size. What a device held before is made unrecognisable: its beginning, its end and every place of a superblock
//!    become zeros. Flush.
//! 2. The stripes of every chunk. Flush.
//! 3. Superblocks, the first copy last. Flush.
//!
//! Whatever is lost when it stops half way, there is either a whole pool, or nothing that looks like one:
//! until step 3 no device has a superblock, and a superblock is written only when what it refers to is there.
//! Of several devices some may have theirs: the pool then lacks devices, and mkfs is to be run again.

use super::plan::{Plan, PlannedDevice};
use super::superblock::for_device;
use super::trees::Trees;
use super::{MkfsOptions, NewDevice};
use crate::bulk::BlockFormat;
use crate::spread::spread;
use brindle_device::{DeviceError, WritableDevice};
use brindle_ondisk::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, to_u64};
use zerocopy::IntoBytes;

/// Bytes wiped at the beginning and at the end of a device: the places of partition tables, boot sectors, and the
/// metadata of RAID and volume managers.
const WIPE_BYTES: u64 = 1 << 20;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Writes the pool.
pub(super) fn write(
    given: &[NewDevice],
    plan: &Plan,
    trees: &Trees,
    format: &BlockFormat,
    superblock: &Superblock,
    options: &MkfsOptions,
) -> Result<(), DeviceError> {
    let device_of = |device: &PlannedDevice| given[device.given].device.as_ref();
    let flush_all = || plan.devices.iter().try_for_each(|device| device_of(device).flush());
    for new in given {
        if let Some(size_bytes) = new.resize_bytes {
            new.device.set_size(size_bytes)?;
        }
    }
    for device in &plan.devices {
        wipe(device_of(device), options.discard)?;
    }
    flush_all()?;
    for chunk in &plan.chunks {
        let bytes = trees.encode(chunk, format);
        assert_eq!(to_u64(bytes.len()), trees.used_bytes(chunk), "blocks lie where they are accounted");
        if bytes.is_empty() {
            continue;
        }
        for (stripe, bytes) in chunk.stripes.iter().zip(spread(chunk.profile, chunk.stripes.len(), &bytes)) {
            let device = plan.devices.iter().find(|device| device.devid == stripe.devid);
            device_of(device.expect("chunks lie on planned devices"))
                .write_at(stripe.offset.get(), &bytes)?;
        }
    }
    flush_all()?;
    for device in &plan.devices {
        for offset in superblock_offsets(device_of(device).size_bytes()).rev() {
            let copy = for_device(superblock, device, options, offset);
            device_of(device).write_at(offset, copy.as_bytes())?;
        }
    }
    flush_all()
}

/// Offsets of the superblocks that fit.
fn superblock_offsets(size_bytes: u64) -> impl DoubleEndedIterator<Item = u64> {
    SUPERBLOCK_OFFSETS.into_iter().filter(move |offset| offset + to_u64(SUPERBLOCK_SIZE) <= size_bytes)
}

/// Makes what was there unrecognisable; with `discard`, gives back the space too.
pub(crate) fn wipe(device: &dyn WritableDevice, discard: bool) -> Result<(), DeviceError> {
    let size_bytes = device.size_bytes();
    if discard && device.discard(0, size_bytes)? {
        return Ok(());
    }
    zero(device, 0, WIPE_BYTES.min(size_bytes))?;
    let tail = size_bytes.saturating_sub(WIPE_BYTES);
    zero(device, tail, size_bytes - tail)?;
    for offset in superblock_offsets(size_bytes) {
        zero(device, offset, to_u64(SUPERBLOCK_SIZE))?;
    }
    Ok(())
}

fn zero(device: &dyn WritableDevice, offset: u64, length: u64) -> Result<(), DeviceError> {
    let mut at = offset;
    while at < offset + length {
        let piece = to_u64(ZEROS.len()).min(offset + length - at);
        device.write_at(at, &ZEROS[..brindle_ondisk::to_usize(piece)])?;
        at += piece;
    }
    Ok(())
}
