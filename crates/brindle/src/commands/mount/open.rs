//! Opening a pool for a mount: to read and write it, or only to read it where that is all it allows.

use super::ending::Patience;
use crate::commands::mount_options::MountOptions;
use crate::commands::pool::{greet, open_filesystem, open_shown, open_to_read, open_writable};
use anyhow::{Context, Result, anyhow};
use brindle_cache::{open_pool_device_to_write, open_pool_device_with_claim, path_of};
use brindle_device::{Claim, DeviceError, WritableDevice};
use brindle_fs::{Filesystem, FsError, PlacementClass, TreeError, tree_name};
use brindle_volume::VolumeError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Default read policy.
const READ_POLICY: &str = "auto";

/// Advice for a pool that is mounted and lacks a tree.
const WHAT_IS_LEFT: &str = "; what is left of it may be read with -o ro,rescue=all";

/// Advice for a pool that has a device which was found, and can't be written.
const WITHOUT_IT: &str =
    ": it is a device of the pool that was not named; with -o degraded the pool is written without it";

/// A filesystem that is to be mounted.
pub(super) struct Opened {
    pub(super) filesystem: Filesystem,
    /// The reason for which it can only be read, if that was not asked for.
    pub(super) read_only_reason: Option<String>,
    /// The first device that is used.
    pub(super) first: PathBuf,
    /// The claim on the first device, if it is a block device that is written.
    pub(super) claim: Option<Claim>,
}

impl Opened {
    fn to_read(filesystem: Filesystem, first: &Path, read_only_reason: Option<String>) -> Self {
        Self { filesystem, read_only_reason, first: first.to_owned(), claim: None }
    }
}

/// Opens the filesystem. A pool that can't be written is opened to be read, with a warning, unless the user insists. `found`: those
/// of the devices that were not named.
pub(super) fn filesystem(
    devices: &[(PathBuf, Option<PlacementClass>)],
    found: &[PathBuf],
    options: &MountOptions,
    insists: bool,
) -> Result<Opened> {
    let paths: Vec<&Path> = devices.iter().map(|(path, _)| path.as_path()).collect();
    if options.is_read_only() {
        let filesystem = read_only(devices, &paths, options)?;
        warn_of_damage(&filesystem);
        return Ok(Opened::to_read(check_root(filesystem)?, paths[0], None));
    }
    let error = match without_protected(devices, found, options) {
        Ok(opened) => return Ok(Opened { filesystem: check_root(opened.filesystem)?, ..opened }),
        Err(error) => error,
    };
    let advice = match protected(&error, devices) {
        Some(path) if found.contains(path) && !options.degraded => WITHOUT_IT,
        _ if is_damaged(&error) => WHAT_IS_LEFT,
        _ => "",
    };
    if insists || !can_only_be_read(&error) {
        return Err(if advice == WITHOUT_IT { anyhow!("{error}{advice}") } else { error });
    }
    let filesystem = open_shown(&paths, options)?;
    tracing::warn!("mounting read-only: {error}{advice}");
    Ok(Opened::to_read(check_root(filesystem)?, paths[0], Some(error.to_string())))
}

/// Opens the filesystem to write it. With `degraded` a device that was not named, and can't be written, is as one that is
/// missing, if the pool can be written without.
fn without_protected(
    devices: &[(PathBuf, Option<PlacementClass>)],
    found: &[PathBuf],
    options: &MountOptions,
) -> Result<Opened> {
    let (mut devices, mut refusals) = (devices.to_vec(), Vec::new());
    loop {
        let error = match writable(&devices, options) {
            Ok(opened) => {
                for refusal in refusals {
                    tracing::warn!(
                        "{refusal}; the pool is written without it, and `brindle device rejoin` takes it in again"
                    );
                }
                return Ok(opened);
            }
            Err(error) => error,
        };
        let dispensable = protected(&error, &devices).filter(|path| options.degraded && found.contains(path));
        match dispensable.cloned() {
            Some(path) if devices.len() > 1 => {
                devices.retain(|(other, _)| *other != path);
                refusals.push(error);
            }
            _ if can_only_be_read(&error) => return Err(error),
            // The pool can't do without it.
            _ => return Err(refusals.into_iter().next().unwrap_or(error)),
        }
    }
}

/// The device that can't be written, if that is the error.
fn protected<'d>(
    error: &anyhow::Error,
    devices: &'d [(PathBuf, Option<PlacementClass>)],
) -> Option<&'d PathBuf> {
    let Some(DeviceError::Open { device, source }) = error.downcast_ref::<DeviceError>() else { return None };
    let is_protected = matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem);
    let is_it = |path: &&PathBuf| is_protected && path.display().to_string() == *device;
    devices.iter().map(|(path, _)| path).find(is_it)
}

/// Refuses a filesystem whose root directory can't be read, which would be a mount that answers nothing.
fn check_root(filesystem: Filesystem) -> Result<Filesystem> {
    filesystem.attributes(filesystem.root()).context("the root directory can't be read")?;
    Ok(filesystem)
}

/// Warns of trees that can't be entered, where none is given up.
fn warn_of_damage(filesystem: &Filesystem) {
    let pool = filesystem.pool();
    if pool.volume().rescue().bad_roots {
        return;
    }
    for (tree, error) in pool.damaged_trees() {
        tracing::warn!("the {} can't be read: {error}{WHAT_IS_LEFT}", tree_name(tree));
    }
}

/// Opens the filesystem to read it. As with the kernel, a log is replayed first where the devices can be written.
fn read_only(
    devices: &[(PathBuf, Option<PlacementClass>)],
    paths: &[&Path],
    options: &MountOptions,
) -> Result<Filesystem> {
    let filesystem = open_to_read(paths, options)?;
    if !filesystem.pool().has_log() || options.keeps_log() {
        greet(&filesystem, options)?;
        return Ok(filesystem);
    }
    // What it has read will change.
    drop(filesystem);
    match writable(devices, options).and_then(|opened| Ok(opened.filesystem.shutdown()?)) {
        Ok(()) => open_filesystem(paths, options),
        Err(error) if can_only_be_read(&error) => {
            tracing::info!("{error}");
            open_shown(paths, options)
        }
        Err(error) => {
            tracing::warn!("the log is not replayed: {error}");
            open_filesystem(paths, options)
        }
    }
}

fn writable(devices: &[(PathBuf, Option<PlacementClass>)], options: &MountOptions) -> Result<Opened> {
    let (mut options, patience) = (options.clone(), Patience::new());
    let mut claim = None;
    // In one order whatever they are named in: two processes that each had what the other waits for would never end.
    let mut order: Vec<_> = (0..devices.len()).collect();
    order.sort_by_cached_key(|index| path_of(&devices[*index].0).canonicalize().ok());
    let mut opened: Vec<Option<Arc<dyn WritableDevice>>> = vec![None; devices.len()];
    for index in order {
        let (path, class) = &devices[index];
        let device = if index == 0 {
            let (device, its_claim) = patient(path, &patience, open_pool_device_with_claim)?;
            claim = its_claim;
            device
        } else {
            patient(path, &patience, open_pool_device_to_write)?
        };
        options.write.classes.extend(class.map(|class| (device.name().to_owned(), class)));
        opened[index] = Some(device);
    }
    let opened = opened.into_iter().flatten().collect();
    let filesystem = open_writable(opened, &options)?;
    Ok(Opened { filesystem, read_only_reason: None, first: devices[0].0.clone(), claim })
}

/// Sets the read policy, which chooses one of several copies.
pub(super) fn choose_read_policy(filesystem: &Filesystem, options: &MountOptions) -> Result<()> {
    let policy = options.read_policy.as_deref().unwrap_or(READ_POLICY);
    let refused = || format!("option 'read_policy={policy}'");
    if let Some(rounded) = filesystem.pool().volume().choose_read_policy(policy).with_context(refused)? {
        tracing::warn!("option 'read_policy={policy}': rounded up to {} bytes, whole sectors", rounded.0);
    }
    Ok(())
}

/// Opens a device, and waits for a server that is on its way to the end.
fn patient<D>(
    path: &Path,
    patience: &Patience,
    open: impl Fn(&Path) -> Result<D, DeviceError>,
) -> Result<D, DeviceError> {
    loop {
        match open(path) {
            Err(DeviceError::Busy { .. }) if patience.wait(path) => {}
            opened => return opened,
        }
    }
}

/// Returns true if a tree that is needed to write can't be read: files may be there all the same.
fn is_damaged(error: &anyhow::Error) -> bool {
    error.downcast_ref().and_then(FsError::damage).is_some()
}

/// Returns true if it may be read all the same. A pool in use may not: its contents would change meanwhile.
fn can_only_be_read(error: &anyhow::Error) -> bool {
    let of_pool = error.downcast_ref::<FsError>();
    if let Some(
        FsError::Tree(TreeError::Volume(VolumeError::NotWritable(_)) | TreeError::UnderWay(_))
        | FsError::Log(_)
        | FsError::Relocation(_),
    ) = of_pool
    {
        return true;
    }
    if is_damaged(error) {
        return true;
    }
    let Some(DeviceError::Open { source, .. }) = error.downcast_ref::<DeviceError>() else {
        return false;
    };
    matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_protected_pools_may_be_read_and_pools_in_use_may_not() {
        let open = |kind: ErrorKind| DeviceError::Open { device: "a".to_owned(), source: kind.into() };
        assert!(can_only_be_read(&open(ErrorKind::ReadOnlyFilesystem).into()));
        assert!(can_only_be_read(&open(ErrorKind::PermissionDenied).into()));
        assert!(!can_only_be_read(&open(ErrorKind::NotFound).into()));
        let busy = DeviceError::Busy { device: "a".to_owned(), by: "b".to_owned() };
        assert!(!can_only_be_read(&busy.into()));
    }
}
