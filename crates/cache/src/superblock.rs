//! The superblock of a cache on its flash device, and the sample of the disk that it has.

use crate::CacheError;
use crate::format::{NoSuperblock, PAGE_BYTES, Superblock, TABLE_OFFSET};
use brindle_device::{Device, DeviceError, WritableDevice};

/// Samples of the disk, other than its begin and its end.
const SAMPLES: u64 = 14;
const SAMPLE_BYTES: u64 = 4096;
const BEGIN_BYTES: u64 = 128 << 10;
const END_BYTES: u64 = 64 << 10;

/// The superblock of a flash device: the later one of its two copies.
pub(crate) fn read_superblock(flash: &dyn Device) -> Result<Superblock, CacheError> {
    let mut best: Option<Superblock> = None;
    let mut refused = None;
    for offset in [0, TABLE_OFFSET / 2] {
        let mut page = vec![0; PAGE_BYTES];
        if flash.size_bytes() < TABLE_OFFSET {
            return Err(CacheError::NoCache { flash: flash.name().to_owned() });
        }
        flash.read_at(offset, &mut page)?;
        match Superblock::parse(&page) {
            Ok(found) if best.as_ref().is_none_or(|best| found.sequence.get() > best.sequence.get()) => {
                best = Some(found);
            }
            Ok(_) => {}
            Err(why) => {
                let error = refusal(flash, why, offset);
                let is_worse = matches!(refused, None | Some(CacheError::NoCache { .. }));
                refused = if is_worse { Some(error) } else { refused };
            }
        }
    }
    best.ok_or_else(|| refused.expect("two copies, and none is whole"))
}

/// Writes both copies of the superblock, one after the other, so that one of them is whole at any time.
pub(crate) fn write_superblock(
    flash: &dyn WritableDevice,
    superblock: &Superblock,
) -> Result<(), DeviceError> {
    let page = superblock.to_page();
    for copy in [0, TABLE_OFFSET / 2] {
        flash.write_at(copy, &page)?;
        flash.flush()?;
    }
    Ok(())
}

/// Refuses a device that has not the size that it had.
pub(crate) fn check_size(device: &dyn Device, is_right: bool, expected: u64) -> Result<(), CacheError> {
    let (name, found) = (device.name().to_owned(), device.size_bytes());
    if is_right { Ok(()) } else { Err(CacheError::Size { device: name, found, expected }) }
}

/// Text that is padded with zeros.
pub(crate) fn text(padded: &[u8]) -> String {
    let end = padded.iter().position(|byte| *byte == 0).unwrap_or(padded.len());
    String::from_utf8_lossy(&padded[..end]).into_owned()
}

/// Checksum of parts of the first bytes of a disk that a filesystem writes whenever it is mounted, and of some others.
pub(crate) fn sample(disk: &dyn WritableDevice, size: u64) -> Result<u32, DeviceError> {
    let spread =
        (1..=SAMPLES).map(|part| (size / (SAMPLES + 1) * part / SAMPLE_BYTES * SAMPLE_BYTES, SAMPLE_BYTES));
    let parts = [(0, BEGIN_BYTES), (size.saturating_sub(END_BYTES), END_BYTES)].into_iter().chain(spread);
    let mut checksum = crc32c::crc32c(&size.to_le_bytes());
    for (offset, length) in parts {
        let length = length.min(size.saturating_sub(offset));
        let mut bytes = vec![0; usize::try_from(length).expect("small")];
        disk.read_at(offset, &mut bytes)?;
        checksum = crc32c::crc32c_append(checksum, &bytes);
    }
    Ok(checksum)
}

/// Error of bytes that are no superblock.
fn refusal(flash: &dyn Device, found: NoSuperblock, offset: u64) -> CacheError {
    let flash = flash.name().to_owned();
    match found {
        NoSuperblock::Foreign => CacheError::NoCache { flash },
        NoSuperblock::Damaged => CacheError::Corrupt { flash, what: "superblock", offset },
        NoSuperblock::Version(found) => CacheError::Version { flash, found },
        NoSuperblock::Nonsense(what) => CacheError::Corrupt { flash, what, offset },
    }
}
