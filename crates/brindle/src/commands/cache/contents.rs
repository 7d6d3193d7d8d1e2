//! Contents of devices that are about to become parts of a cache.

use anyhow::{Result, bail};
use brindle_care::mkfs::signature;
use brindle_device::Device;
use std::path::Path;

/// Refuses one device in both places: it would be said to be in use by another program.
pub(super) fn check_apart(ssd: &Path, other: &Path) -> Result<()> {
    match (ssd.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(two)) if one == two => bail!("{} is given twice", ssd.display()),
        _ => Ok(()),
    }
}

/// Refuses an SSD that holds what is no cache, for all of that would be lost. The words of the command may also be in the
/// wrong order.
pub(super) fn check_ssd(ssd: &dyn Device) -> Result<()> {
    match signature::find(ssd)? {
        Some(found) if found != signature::FLASH_CACHE => bail!(
            "{} holds {found}, which would be lost: the SSD comes before the disk; --force overwrites it",
            ssd.name()
        ),
        _ => Ok(()),
    }
}

/// Refuses the SSD of another cache as a disk, which that cache would go on to write.
pub(super) fn check_disk(disk: &dyn Device) -> Result<()> {
    if signature::find(disk)? == Some(signature::FLASH_CACHE) {
        bail!("{} is the SSD of a cache: `brindle cache destroy` takes that off it", disk.name());
    }
    Ok(())
}
