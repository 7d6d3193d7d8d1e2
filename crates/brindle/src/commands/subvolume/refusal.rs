//! Reasons for which a mount refuses to make or delete a subvolume, in words: an ioctl has a number alone.

use anyhow::{Error, Result, anyhow, bail};
use brindle_admin::subvolumes::subvolumes;
use brindle_admin::{ControlError, Mounted};
use brindle_uapi::mount_table;
use rustix::io::Errno;
use std::path::Path;

/// Id of the top level.
const TOP_LEVEL: u64 = 5;

/// The id of the subvolume at a path. A path within one is refused, with the command that may be meant, which `meant` makes of the id
/// of the one that it lies in.
pub(in crate::commands) fn subvolume_at(
    path: &Path,
    mounted: &Mounted,
    meant: impl Fn(u64) -> String,
) -> Result<u64> {
    let id = mounted.subvolume()?.id;
    if !mounted.is_subvolume_root() {
        let kind = if path.is_dir() { "a directory" } else { "a file" };
        bail!("{}: {kind} in the subvolume of id {id}, not a subvolume: {}", path.display(), meant(id));
    }
    Ok(id)
}

/// Refuses to make a subvolume where something is already.
pub(super) fn refuse_existing(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let (shown, mounts) = (path.display(), mount_table::read().unwrap_or_default());
    if path.canonicalize().is_ok_and(|path| mounts.iter().any(|mount| mount.mountpoint == path)) {
        bail!(
            "{shown}: exists, it is a mount point: a new subvolume has a name below it, such as {}",
            path.join("NAME").display()
        );
    }
    bail!("{shown}: there is something of that name")
}

/// Explains why nothing was made at a path.
pub(super) fn explain_creation(error: ControlError, path: &Path) -> Error {
    let shown = path.display();
    match errno(&error) {
        Some(Errno::EXIST) => anyhow!("{shown}: there is something of that name"),
        Some(Errno::ROFS) => {
            anyhow!("{shown}: its directory is read-only: a subvolume with `ro`, or the mount")
        }
        Some(Errno::NOTDIR) => anyhow!("{shown}: what is above it is no directory"),
        Some(Errno::XDEV) => anyhow!("{shown}: the snapshot and its source are of different pools"),
        _ => with_path(error, path),
    }
}

/// Explains why a subvolume could not be made the default one.
pub(super) fn explain_default(error: ControlError, id: u64) -> Error {
    match errno(&error) {
        Some(Errno::NOENT) => anyhow!("the pool has no subvolume of id {id}"),
        Some(Errno::PERM) => anyhow!("only root and the mounting user may set the default subvolume"),
        _ => error.into(),
    }
}

/// Explains why a subvolume was not deleted. `directory` is the one that it is in.
pub(super) fn explain_deletion(error: ControlError, path: &Path, directory: &Mounted) -> Error {
    let shown = path.display();
    let id =
        Mounted::open(path).ok().filter(|_| is_subvolume(path)).and_then(|it| Some(it.subvolume().ok()?.id));
    if id == Some(TOP_LEVEL) {
        return anyhow!("{shown}: the top level of a pool can't be deleted");
    }
    match errno(&error) {
        Some(Errno::NOENT) => anyhow!("{shown}: there is nothing of that name"),
        _ if matches!(error, ControlError::NotBtrfs(_)) && id.is_some() => {
            anyhow!(
                "{shown}: a pool or subvolume is mounted there: unmount it first, and delete it by its path in another mount"
            )
        }
        Some(Errno::NOTDIR) => anyhow!("{shown}: a file, not a subvolume"),
        Some(Errno::INVAL) if !is_subvolume(path) => {
            anyhow!("{shown}: a directory, not a subvolume: rm -r deletes it")
        }
        Some(Errno::NOTEMPTY) => {
            let inner = id.and_then(|id| names_below(directory, id)).unwrap_or_default();
            anyhow!("{shown}: it holds other subvolumes{inner}: delete those first, or all with -R")
        }
        Some(Errno::PERM) if id.is_some_and(|id| is_default(directory, id)) => anyhow!(
            "{shown}: it is the default subvolume: choose another one with `brindle subvolume set-default` first"
        ),
        Some(Errno::PERM | Errno::ACCESS) => anyhow!(
            "{shown}: not permitted: its owner may delete it where the mount has user_subvol_rm_allowed, else root"
        ),
        Some(Errno::BUSY) => {
            anyhow!("{shown}: in use: it is mounted, or being sent, or what is being received builds on it")
        }
        _ => with_path(error, path),
    }
}

/// Returns true if a path is the root of a subvolume.
pub(super) fn is_subvolume(path: &Path) -> bool {
    Mounted::open(path).is_ok_and(|mounted| mounted.is_subvolume_root())
}

fn is_default(mounted: &Mounted, id: u64) -> bool {
    subvolumes(mounted).is_ok_and(|(_, default)| default == id)
}

/// The first subvolumes directly below, in brackets.
fn names_below(mounted: &Mounted, id: u64) -> Option<String> {
    const SHOWN_MAX: usize = 3;
    let (all, _) = subvolumes(mounted).ok()?;
    let inner: Vec<String> = all
        .iter()
        .filter(|one| one.parent == Some(id) && !one.is_deleted)
        .map(|one| String::from_utf8_lossy(&one.path).into_owned())
        .collect();
    let more = if inner.len() > SHOWN_MAX { ", ..." } else { "" };
    let shown: Vec<&str> = inner.iter().take(SHOWN_MAX).map(String::as_str).collect();
    (!inner.is_empty()).then(|| format!(" ({}{more})", shown.join(", ")))
}

fn errno(error: &ControlError) -> Option<Errno> {
    match error {
        ControlError::Refused { source, .. } => Some(*source),
        _ => None,
    }
}

fn with_path(error: ControlError, path: &Path) -> Error {
    Error::new(error).context(path.display().to_string())
}
