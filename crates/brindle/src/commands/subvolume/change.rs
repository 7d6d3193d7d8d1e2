//! Making subvolumes and snapshots, and choosing the default one.

use super::refusal::{explain_creation, explain_default, refuse_existing, subvolume_at};
use crate::commands::usage::OrWrongUsage;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::quotas::quotas;
use brindle_admin::{Mounted, QgroupId};
use clap::Args;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "\
EXAMPLES
    brindle subvolume create -p /mnt/a/b/home
    brindle subvolume snapshot -r /mnt/home /mnt/home-before
    brindle subvolume delete --commit /mnt/home-before
    brindle subvolume set-default /mnt/home

EXIT STATUS
  0  success
  1  failure; with several paths: of any of them, the others are dealt with all
     the same
  2  wrong usage";

/// Make subvolumes
///
/// In a pool that is mounted, by brindle or by the kernel. The permission to make a directory there is enough.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CreateCommand {
    /// Make the directories above as well, where they are missing
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    groups: Groups,
    /// Path of each new subvolume
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
    #[command(flatten)]
    groups: Groups,
    /// The subvolume
    source: PathBuf,
    /// Path of the snapshot, or a directory to make it in under the name of the source
    target: PathBuf,
}

/// Quota groups of what is made.
#[derive(Args, Debug)]
struct Groups {
    /// Make it part of this quota group; may be given several times
    #[arg(short = 'i', value_name = "QGROUPID")]
    groups: Vec<QgroupId>,
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

impl Groups {
    /// Refuses groups that there are not: the kernel, and others that mount the pool, pass over them. That takes the right to look into
    /// trees.
    fn check(&self, mounted: &Mounted) -> Result<()> {
        if self.groups.is_empty() {
            return Ok(());
        }
        match quotas(mounted) {
            Ok(Some(known)) => match self.groups.iter().find(|id| !known.groups.contains_key(id)) {
                Some(id) => bail!("there is no quota group {id}: `brindle qgroup create` makes one"),
                None => Ok(()),
            },
            Ok(None) => {
                tracing::warn!("quotas are off: -i makes no difference");
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }
}

/// Runs `subvolume create`.
pub(crate) fn create(command: &CreateCommand, is_quiet: bool) -> Result<ExitCode> {
    for_each(&command.paths, |path| {
        refuse_existing(path)?;
        let (directory, name) = place(path)?;
        if command.parents {
            std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        }
        let mounted = Mounted::open(directory)?;
        command.groups.check(&mounted)?;
        let made = mounted.create_subvolume_in(name.as_bytes(), &command.groups.groups);
        made.map_err(|error| explain_creation(error, path))?;
        tell(is_quiet, &format!("Create subvolume '{}'", directory.join(name).display()))
    })
}

/// Runs `subvolume snapshot`.
pub(crate) fn snapshot(command: &SnapshotCommand, is_quiet: bool) -> Result<ExitCode> {
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
    let path = directory.join(&name);
    let mounted = Mounted::open(directory)?;
    command.groups.check(&mounted)?;
    let made = mounted.snapshot_in(&source, name.as_bytes(), command.read_only, &command.groups.groups);
    made.map_err(|error| explain_creation(error, &path))?;
    let kind = if command.read_only { "readonly snapshot" } else { "snapshot" };
    tell(is_quiet, &format!("Create a {kind} of '{}' in '{}'", command.source.display(), path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `subvolume set-default`.
pub(crate) fn set_default(command: &SetDefaultCommand) -> Result<ExitCode> {
    let mounted = Mounted::open(command.path.as_deref().unwrap_or(&command.subvolume))?;
    let id = match &command.path {
        Some(_) => {
            let id = command.subvolume.to_str().and_then(|id| id.parse().ok());
            id.with_context(|| format!("{}: not the id of a subvolume", command.subvolume.display()))
                .or_wrong_usage()?
        }
        None => {
            let path = &command.subvolume;
            subvolume_at(path, &mounted, |id| {
                format!("`brindle subvolume set-default {id} {}` sets that one", path.display())
            })?
        }
    };
    mounted.set_default_subvolume(id).map_err(|error| explain_default(error, id))?;
    Ok(ExitCode::SUCCESS)
}

/// Says on standard output what was done, unless nothing is to be said.
pub(in crate::commands) fn tell(is_quiet: bool, text: &str) -> Result<()> {
    if !is_quiet {
        let mut out = output::stdout();
        writeln!(out, "{text}")?;
        out.flush()?;
    }
    Ok(())
}

/// Directory and name of what is to be made or deleted.
pub(super) fn place(path: &Path) -> Result<(&Path, &OsStr)> {
    let Some(name) = path.file_name() else {
        bail!("{}: no name for a subvolume", path.display());
    };
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    Ok((directory.unwrap_or(Path::new(".")), name))
}

/// Does it for each; what fails is told, and does not keep the others from being done.
pub(super) fn for_each(paths: &[PathBuf], mut act: impl FnMut(&Path) -> Result<()>) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for path in paths {
        if let Err(error) = act(path) {
            output::complain(&error);
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
