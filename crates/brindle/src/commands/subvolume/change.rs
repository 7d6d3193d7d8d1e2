//! Making and deleting subvolumes.

use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::Mounted;
use clap::Args;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle subvolume create /mnt/home
    brindle subvolume snapshot -r /mnt/home /mnt/home-before
    brindle subvolume delete --commit /mnt/home-before
    brindle subvolume set-default /mnt/home

EXIT STATUS
  0  success
  1  failure; with several paths: of any of them, the others are dealt with all the same
  2  wrong usage";

/// Make subvolumes
///
/// In a pool that is mounted, by brindle or by the kernel. The permission to make a directory there is enough.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CreateCommand {
    /// Path of each new subvolume; its parent directory must exist
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Make a snapshot of a subvolume
///
/// It holds what the subvolume holds, shares all of it, and goes its own way from then on. Subvolumes below are not
/// taken along.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SnapshotCommand {
    /// A snapshot that can't be written
    #[arg(short, long = "read-only")]
    read_only: bool,
    /// The subvolume
    source: PathBuf,
    /// Path of the snapshot, or a directory to make it in under the name of the source
    target: PathBuf,
}

/// Delete subvolumes and snapshots
///
/// With all that they hold; refused while they hold other subvolumes. Their space comes back bit by bit.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DeleteCommand {
    /// Return when the deletion is durable
    #[arg(short, long)]
    commit: bool,
    /// Subvolume to delete
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Set the subvolume that is mounted unless another is asked for
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SetDefaultCommand {
    /// Its path; or its id, and then a path of the pool behind it
    #[arg(value_name = "PATH|ID")]
    subvolume: PathBuf,
    /// Any path of the pool, if the first is an id
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
}

/// Runs `subvolume create`.
pub(crate) fn create(command: &CreateCommand) -> Result<ExitCode> {
    for_each(&command.paths, |path| {
        let (directory, name) = place(path)?;
        Ok(Mounted::open(directory)?.create_subvolume(name.as_bytes())?)
    })
}

/// Runs `subvolume delete`.
pub(crate) fn delete(command: &DeleteCommand) -> Result<ExitCode> {
    for_each(&command.paths, |path| {
        let (directory, name) = place(path)?;
        let directory = Mounted::open(directory)?;
        directory.delete_subvolume(name.as_bytes())?;
        if command.commit {
            directory.sync()?;
        }
        Ok(())
    })
}

/// Runs `subvolume snapshot`.
pub(crate) fn snapshot(command: &SnapshotCommand) -> Result<ExitCode> {
    let source = Mounted::open(&command.source)?;
    let (directory, name) = if command.target.is_dir() {
        let canonical =
            command.source.canonicalize().with_context(|| command.source.display().to_string())?;
        let name = canonical.file_name().context("the source has no name: give the snapshot a name")?;
        (command.target.as_path(), name.to_owned())
    } else {
        let (directory, name) = place(&command.target)?;
        (directory, name.to_owned())
    };
    Mounted::open(directory)?.snapshot(&source, name.as_bytes(), command.read_only)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `subvolume set-default`.
pub(crate) fn set_default(command: &SetDefaultCommand) -> Result<ExitCode> {
    let mounted = Mounted::open(command.path.as_deref().unwrap_or(&command.subvolume))?;
    let id = match &command.path {
        Some(_) => {
            let id = command.subvolume.to_str().and_then(|id| id.parse().ok());
            id.with_context(|| format!("{}: not the id of a subvolume", command.subvolume.display()))?
        }
        None => mounted.subvolume()?.id,
    };
    mounted.set_default_subvolume(id)?;
    Ok(ExitCode::SUCCESS)
}

/// Directory and name of what is to be made or deleted.
fn place(path: &Path) -> Result<(&Path, &OsStr)> {
    let Some(name) = path.file_name() else {
        bail!("{}: no name for a subvolume", path.display());
    };
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    Ok((directory.unwrap_or(Path::new(".")), name))
}

/// Does it for each; what fails is told, and does not keep the others from being done.
fn for_each(paths: &[PathBuf], act: impl Fn(&Path) -> Result<()>) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for path in paths {
        if let Err(error) = act(path) {
            output::complain(&error.context(path.display().to_string()));
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_is_in_this_directory() {
        assert_eq!(place(Path::new("a")).expect("a name"), (Path::new("."), OsStr::new("a")));
        assert_eq!(place(Path::new("/mnt/a/")).expect("a name"), (Path::new("/mnt"), OsStr::new("a")));
        assert!(place(Path::new("/")).is_err() && place(Path::new("a/..")).is_err());
    }
}
