//! Contents of devices that are about to become parts of a cache.

use anyhow::{Result, bail};
use brindle_admin::health::find_ssds;
use brindle_cache::CacheFacts;
use brindle_care::mkfs::signature;
use brindle_device::{Device, is_remote};
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
    match signature::find(disk)? {
        Some(signature::FLASH_CACHE) => {
            bail!("{} is the SSD of a cache: `brindle cache destroy` takes that off it", disk.name())
        }
        Some(signature::QCOW2) => bail!(
            "{} holds {}, whose own data a cache would overwrite: attach it (qemu-nbd), and give that; --force takes the file as it is",
            disk.name(),
            signature::QCOW2
        ),
        _ => Ok(()),
    }
}

/// Refuses a disk for which another SSD has a cache: each of the two would miss what is written by way of the other. The SSDs of the
/// new cache are none of these.
pub(super) fn check_sole(disk: &dyn Device, own: &[Option<&str>]) -> Result<()> {
    let path = Path::new(disk.name());
    let place = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_own = |ssd: &Path| own.iter().flatten().any(|own| place(Path::new(own)) == place(ssd));
    let ssds = own.iter().flatten().map(|ssd| Path::new(*ssd));
    let named: Vec<&Path> = ssds.chain((!is_remote(path)).then_some(path)).collect();
    let is_wanted =
        |ssd: &Path, facts: &CacheFacts| place(Path::new(&facts.disk)) == place(path) && !is_own(ssd);
    if let [(ssd, facts), ..] = &find_ssds(&named, is_wanted)[..] {
        bail!(
            "{} has the cache {} on {} already: `brindle cache destroy` takes that off it; --force makes another one all the same",
            disk.name(),
            facts.name,
            ssd.display()
        );
    }
    Ok(())
}
