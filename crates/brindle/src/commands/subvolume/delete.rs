//! `subvolume delete`.

use super::change::{EXAMPLES, for_each, place, tell};
use super::list::is_within;
use super::refusal::explain_deletion;
use anyhow::{Context, Result, bail};
use brindle_admin::Mounted;
use brindle_admin::subvolumes::{SubvolumeFacts, subvolumes};
use clap::Args;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Delete subvolumes and snapshots
///
/// With all that they hold; refused while they hold other subvolumes, unless -R deletes these first. Their space comes back
/// bit by bit: `brindle subvolume sync` waits for it.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DeleteCommand {
    /// Return when all deletions are durable
    #[arg(short, long = "commit-after", visible_alias = "commit")]
    commit: bool,
    /// Make each deletion durable before the next
    #[arg(short = 'C', long, conflicts_with = "commit")]
    commit_each: bool,
    /// Delete the subvolume of this id, in the pool of the path
    #[arg(short = 'i', long, value_name = "ID", conflicts_with = "recursive")]
    subvolid: Option<u64>,
    /// Delete the subvolumes below as well, the deepest first
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Only say what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Subvolume to delete
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &DeleteCommand, is_quiet: bool) -> Result<ExitCode> {
    if command.subvolid.is_some() && command.paths.len() > 1 {
        bail!("--subvolid takes one path of the pool");
    }
    let (deletion, touched) = (Deletion { command, is_quiet }, RefCell::new(Vec::new()));
    let code = for_each(&command.paths, |path| {
        touched.borrow_mut().push(deletion.of_path(path)?);
        Ok(())
    })?;
    if command.commit && !command.dry_run {
        for directory in touched.into_inner() {
            directory.sync()?;
        }
    }
    Ok(code)
}

struct Deletion<'c> {
    command: &'c DeleteCommand,
    is_quiet: bool,
}

impl Deletion<'_> {
    /// Deletes the subvolume of a path; returns the directory that it was in.
    fn of_path(&self, path: &Path) -> Result<Mounted> {
        if let Some(id) = self.command.subvolid {
            return self.by_id(id, path);
        }
        let shown = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (directory, name) = place(&shown)?;
        let mounted = match Mounted::open(directory) {
            // A mount point: what is mounted there is asked about itself.
            Err(error) => {
                let itself = Mounted::open(path)?;
                return Err(explain_deletion(error, path, &itself));
            }
            mounted => mounted?,
        };
        if self.command.recursive {
            self.below(&shown)?;
        }
        if !self.command.dry_run {
            let deleted = mounted.delete_subvolume(name.as_bytes());
            deleted.map_err(|error| explain_deletion(error, path, &mounted))?;
            self.settle(&mounted)?;
        } else if !super::refusal::is_subvolume(path) {
            bail!("{}: not a subvolume", path.display());
        }
        self.say(&shown)?;
        Ok(mounted)
    }

    /// Deletes what lies below a subvolume, the deepest first.
    fn below(&self, path: &Path) -> Result<()> {
        let mounted = Mounted::open(path)?;
        let here = mounted.subvolume()?.id;
        let (all, _) = subvolumes(&mounted)?;
        let Some(above) = all.iter().find(|one| one.id == here) else { return Ok(()) };
        let mut inner: Vec<&SubvolumeFacts> =
            all.iter().filter(|one| !one.is_deleted && is_within(one, here, &all)).collect();
        inner.sort_by_key(|one| std::cmp::Reverse(one.path.iter().filter(|byte| **byte == b'/').count()));
        for one in inner {
            let within = one.path.get(above.path.len()..).unwrap_or_default();
            let within = within.strip_prefix(b"/").unwrap_or(within);
            let shown = path.join(OsStr::from_bytes(within));
            if !self.command.dry_run {
                let (directory, name) = place(&shown)?;
                let directory = Mounted::open(directory)?;
                let deleted = directory.delete_subvolume(name.as_bytes());
                deleted.map_err(|error| explain_deletion(error, &shown, &directory))?;
                self.settle(&directory)?;
            }
            self.say(&shown)?;
        }
        Ok(())
    }

    fn by_id(&self, id: u64, path: &Path) -> Result<Mounted> {
        let mounted = Mounted::open(path)?;
        let (all, _) = subvolumes(&mounted)?;
        let facts = all.iter().find(|one| one.id == id && !one.is_deleted);
        let facts = facts.with_context(|| format!("{}: no subvolume has the id {id}", path.display()))?;
        if !self.command.dry_run {
            mounted.delete_subvolume_by_id(id).map_err(|error| explain_deletion(error, path, &mounted))?;
            self.settle(&mounted)?;
        }
        self.say(Path::new(OsStr::from_bytes(&facts.path)))?;
        Ok(mounted)
    }

    fn say(&self, path: &Path) -> Result<()> {
        let how = if self.command.commit || self.command.commit_each { "commit" } else { "no-commit" };
        let how = if self.command.dry_run { "dry run" } else { how };
        tell(self.is_quiet, &format!("Delete subvolume ({how}): '{}'", path.display()))
    }

    fn settle(&self, mounted: &Mounted) -> Result<()> {
        if self.command.commit_each {
            mounted.sync()?;
        }
        Ok(())
    }
}
