//! Devices that hold no pool, and directories where devices are needed: what there is instead, and the next step.

use anyhow::{Error, anyhow};
use brindle_admin::{ControlError, Mounted};
use brindle_cache::{disk_mark, look_at_device};
use brindle_care::mkfs::signature;
use brindle_device::{Device, DeviceError};
use brindle_ondisk::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, to_u64};
use brindle_uapi::message::text;
use brindle_volume::{UnusedDevice, VolumeError};
use std::path::Path;

/// Says it in plain words if there is no pool at all.
pub(crate) fn without_pool(error: VolumeError) -> Error {
    let VolumeError::NoPool { fsid: None, devices } = &error else { return error.into() };
    let why = |unused: &UnusedDevice| reason(Path::new(&unused.device));
    if devices.iter().all(|unused| why(unused).is_none()) {
        return error.into();
    }
    let words = |unused: &UnusedDevice| why(unused).unwrap_or_else(|| unused.to_string());
    anyhow!(devices.iter().map(words).collect::<Vec<_>>().join("; "))
}

/// The reasons for which devices hold no pool; the error if each of them may.
pub(crate) fn reasons_or(error: impl Into<Error>, paths: &[&Path]) -> Error {
    let reasons: Vec<String> = paths.iter().filter_map(|path| reason(path)).collect();
    if reasons.is_empty() { error.into() } else { anyhow!(reasons.join("; ")) }
}

/// The reason for which a device holds no pool, and the next step; `None` if it may hold one, or can't be read.
fn reason(path: &Path) -> Option<String> {
    let (device, shown) = (look_at_device(path).ok()?, path.display());
    if device.size_bytes() == 0 {
        return Some(format!("{shown} is empty: `brindle mkfs` makes a pool on it"));
    }
    if let Ok(Some(mark)) = disk_mark(&*device) {
        let (name, flash) = (mark.name, mark.flash);
        return Some(format!(
            "{shown}: the disk of the flash cache {name}, and not complete without it: give cache:{flash}:{shown}"
        ));
    }
    if SUPERBLOCK_OFFSETS.iter().any(|offset| may_be_superblock(&*device, *offset)) {
        return None;
    }
    Some(match signature::find(&*device) {
        Ok(Some(format)) => format!("{shown}: not a btrfs device: it holds {format}"),
        _ if device.size_bytes() < SUPERBLOCK_OFFSETS[0] + to_u64(SUPERBLOCK_SIZE) => format!(
            "{shown}: not a btrfs device, or cut off: it has {} bytes, and a superblock lies at 64 KiB",
            device.size_bytes()
        ),
        _ => format!(
            "{shown}: not a btrfs device (no superblock magic at 64 KiB), and no copy of a superblock is there: \
             `brindle mkfs` makes a pool on it"
        ),
    })
}

/// Returns true if there is a copy of a superblock, good or bad, or a place of one can't be read.
fn may_be_superblock(device: &dyn Device, offset: u64) -> bool {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    offset + to_u64(SUPERBLOCK_SIZE) <= device.size_bytes()
        && device.read_at(offset, &mut bytes).map_or(true, |()| Superblock::from_bytes(&bytes).has_magic())
}

/// Explains that devices are needed, if a directory was named: of a mount, with those of its pool.
pub(crate) fn explain_open(error: DeviceError, path: &Path) -> Error {
    if let Some(ended) = ControlError::of_dead_mount(path) {
        return ended.into();
    }
    if !path.is_dir() {
        return error.into();
    }
    let shown = path.display();
    let infos = Mounted::open(path).and_then(|mounted| mounted.device_infos()).unwrap_or_default();
    let names: Vec<_> = infos.iter().map(|info| String::from_utf8_lossy(text(&info.path))).collect();
    match names.as_slice() {
        [] => anyhow!("{shown}: a directory: image files or block devices, those of one pool, are needed"),
        names => anyhow!("{shown}: a directory of a mounted pool: give its devices ({})", names.join(" ")),
    }
}
