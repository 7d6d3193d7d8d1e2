//! Changes of quota groups.

use super::EXAMPLES;
use crate::commands::quantity::parse_size;
use crate::commands::quota::explain;
use crate::commands::refused::explain_admin;
use crate::commands::subvolume::{subvolume_at, tell};
use crate::commands::usage::wrong_usage;
use anyhow::{Context, Error, Result, anyhow};
use brindle_admin::quotas::{NewLimit, quotas};
use brindle_admin::subvolumes::subvolumes;
use brindle_admin::{ControlError, Mounted, QgroupId};
use clap::Args;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Make a quota group
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CreateCommand {
    /// Its id: LEVEL/NUMBER
    #[arg(value_name = "QGROUPID")]
    id: QgroupId,
    /// A path of a mounted pool
    path: PathBuf,
}

/// Remove a quota group
///
/// One that has members, or is part of another one, is taken out first: `brindle qgroup remove`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DestroyCommand {
    /// Its id: LEVEL/NUMBER
    #[arg(value_name = "QGROUPID")]
    id: QgroupId,
    /// A path of a mounted pool
    path: PathBuf,
}

/// A group, and the one that it is or was part of.
#[derive(Args, Debug)]
struct Relation {
    /// Begin a rescan if the numbers are wrong afterwards (the default)
    #[arg(long, conflicts_with = "no_rescan")]
    rescan: bool,
    /// Begin no rescan; the numbers may be wrong until the next one
    #[arg(long)]
    no_rescan: bool,
    /// The group: LEVEL/NUMBER, or the path of a subvolume
    #[arg(value_name = "SRC")]
    child: String,
    /// The group of a higher level
    #[arg(value_name = "DST")]
    parent: QgroupId,
    /// A path of a mounted pool
    path: PathBuf,
}

/// Make a quota group part of another one
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct AssignCommand {
    #[command(flatten)]
    relation: Relation,
}

/// Take a quota group out of another one
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RemoveCommand {
    #[command(flatten)]
    relation: Relation,
}

/// Limit a quota group
///
/// Writes beyond the limit fail with EDQUOT.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LimitCommand {
    /// Limit the bytes after compression, as is done anyway
    #[arg(short)]
    compressed: bool,
    /// Limit the bytes that nothing outside of the group references
    #[arg(short)]
    exclusive: bool,
    /// Most bytes, with or without a suffix K, M, G, T, P or E; or none
    #[arg(value_name = "SIZE|none", value_parser = parse_limit)]
    size: Limit,
    /// The group, if it is not that of the subvolume of PATH; and a path of a mounted pool
    #[arg(value_name = "[QGROUPID] PATH", num_args = 1..=2, required = true)]
    place: Vec<PathBuf>,
}

/// Remove the groups of subvolumes that are gone
///
/// With simple quotas, of those that have no extents left.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ClearStaleCommand {
    /// Only say which
    #[arg(long)]
    dry_run: bool,
    /// A path of a mounted pool
    path: PathBuf,
}

/// A limit as a word.
#[derive(Clone, Copy, Debug)]
struct Limit(Option<u64>);

fn parse_limit(word: &str) -> Result<Limit> {
    match word {
        "none" => Ok(Limit(None)),
        size => parse_size(size).map(|bytes| Limit(Some(bytes))),
    }
}

/// Runs `qgroup create`.
pub(super) fn create(command: &CreateCommand) -> Result<()> {
    let made = Mounted::open(&command.path)?.create_quota_group(command.id);
    made.map_err(|error| match errno(&error) {
        Some(Errno::EXIST) => anyhow!("there is a quota group {} already", command.id),
        _ => explain(error),
    })
}

/// Runs `qgroup destroy`.
pub(super) fn destroy(command: &DestroyCommand) -> Result<()> {
    let gone = Mounted::open(&command.path)?.destroy_quota_group(command.id);
    gone.map_err(|error| explain_removal(error, command.id))
}

fn explain_removal(error: ControlError, id: QgroupId) -> Error {
    match errno(&error) {
        Some(Errno::NOENT) => anyhow!("there is no quota group {id}"),
        Some(Errno::BUSY) if id.level() == 0 => {
            anyhow!(
                "quota group {id} is that of a subvolume, in use by another group, or (simple quotas) of a subvolume \
                 that is gone and has extents left"
            )
        }
        Some(Errno::BUSY) => {
            anyhow!("quota group {id} has members, or is part of another one: `brindle qgroup remove` first")
        }
        _ => explain(error),
    }
}

/// Runs `qgroup assign`.
pub(super) fn assign(command: &AssignCommand, is_quiet: bool) -> Result<()> {
    relate(&command.relation, true, is_quiet)
}

/// Runs `qgroup remove`.
pub(super) fn remove(command: &RemoveCommand, is_quiet: bool) -> Result<()> {
    relate(&command.relation, false, is_quiet)
}

fn relate(relation: &Relation, is_part: bool, is_quiet: bool) -> Result<()> {
    let mounted = Mounted::open(&relation.path)?;
    let (child, parent) = (group_of(&relation.child)?, relation.parent);
    if child.level() >= parent.level() {
        return wrong_usage(format!(
            "{child} can't be part of {parent}: the level of a group is above those of its members"
        ));
    }
    let needs_rescan =
        mounted.relate_quota_groups(child, parent, is_part).map_err(|error| match errno(&error) {
            Some(Errno::EXIST) => anyhow!("quota group {child} is part of {parent} already"),
            Some(Errno::NOENT) if is_part => anyhow!("there is no quota group {child} or {parent}"),
            Some(Errno::NOENT) => anyhow!("quota group {child} is not part of {parent}"),
            _ => explain(error),
        })?;
    match needs_rescan {
        true if relation.no_rescan => {
            let warning = "quotas may be inconsistent: `brindle quota rescan` counts them anew";
            crate::output::complain(&anyhow!(warning));
            Ok(())
        }
        true => {
            mounted.begin_quota_rescan().map_err(explain)?;
            tell(is_quiet, "Quota data changed, rescan scheduled")
        }
        false => Ok(()),
    }
}

/// The group of a word: an id, or the path of a subvolume.
fn group_of(word: &str) -> Result<QgroupId> {
    match word.parse() {
        Ok(id) => Ok(id),
        Err(error) => {
            let mounted = Mounted::open(word.as_ref()).map_err(|_| error)?;
            let meant = |id| format!("its quota group is 0/{id}");
            Ok(QgroupId::new(subvolume_at(word.as_ref(), &mounted, meant)?))
        }
    }
}

/// Runs `qgroup limit`.
pub(super) fn limit(command: &LimitCommand) -> Result<()> {
    let (id, path) = match command.place.as_slice() {
        [id, path] => {
            let id = id.to_str().context("a quota group is LEVEL/NUMBER")?;
            (Some(group_of(id)?), path)
        }
        [path] => (None, path),
        _ => return wrong_usage("a path of a mounted pool is needed".to_owned()),
    };
    let mounted = Mounted::open(path)?;
    if id.is_none() {
        subvolume_at(path, &mounted, |id| format!("its quota group is 0/{id}: name it before the path"))?;
    }
    let limit = NewLimit {
        bytes: command.size.0,
        is_exclusive: command.exclusive,
        is_compressed: command.compressed,
    };
    mounted.limit_quota_group(id, &limit).map_err(|error| match (errno(&error), id) {
        (Some(Errno::NOENT), Some(id)) => anyhow!("there is no quota group {id}"),
        _ => explain(error),
    })
}

/// Runs `qgroup clear-stale`.
pub(super) fn clear_stale(command: &ClearStaleCommand, is_quiet: bool) -> Result<()> {
    let mounted = Mounted::open(&command.path)?;
    // Groups first: a subvolume that is made meanwhile has none among them. One that is deleted and not yet gone has a group that is
    // still counted.
    let found = quotas(&mounted).map_err(explain_admin)?.context("quotas are off")?;
    let (all, _) = subvolumes(&mounted).map_err(explain_admin)?;
    let known: BTreeSet<u64> = all.iter().map(|one| one.id).collect();
    for id in found.stale(&known) {
        if !command.dry_run && !was_there(mounted.destroy_quota_group(id), id)? {
            continue;
        }
        let how = if command.dry_run { "Dry run: would delete" } else { "Delete" };
        tell(is_quiet, &format!("{how} stale qgroup {id}"))?;
    }
    Ok(())
}

/// Returns false if the group was gone already: the kernel removes groups of deleted subvolumes, too, at a time of its own.
fn was_there(removed: Result<(), ControlError>, id: QgroupId) -> Result<bool> {
    match removed {
        Ok(()) => Ok(true),
        Err(error) if errno(&error) == Some(Errno::NOENT) => Ok(false),
        Err(error) => Err(explain_removal(error, id)),
    }
}

fn errno(error: &ControlError) -> Option<Errno> {
    match error {
        ControlError::Refused { source, .. } => Some(*source),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_group_that_the_kernel_has_removed_meanwhile_is_no_failure() {
        let id: QgroupId = "0/257".parse().expect("an id");
        let refused =
            |source| Err(ControlError::Refused { path: "/mnt".into(), what: "qgroup destroy", source });
        assert!(was_there(Ok(()), id).expect("removed"));
        assert!(!was_there(refused(Errno::NOENT), id).expect("gone"));
        assert!(was_there(refused(Errno::BUSY), id).expect_err("in use").to_string().contains("in use"));
    }
}
