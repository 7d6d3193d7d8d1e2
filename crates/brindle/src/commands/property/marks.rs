//! Marks of files and directories: extended attributes that say where their data belongs.

use crate::commands::mount_options::parse_small_files;
use crate::commands::tier_warning;
use crate::commands::usage::{OrWrongUsage, wrong_usage};
use anyhow::{Context, Result};
use brindle_admin::{ControlError, Mounted};
use brindle_policy::tier::files::is_mark;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::path::Path;

/// Extended attributes of the marks.
pub(super) const TIER: &str = "user.brindle.tier";
pub(super) const SMALL_FILES: &str = "user.brindle.small_files";

/// Marks a file or directory; the empty mark takes the mark away.
pub(super) fn set_tier(path: &Path, mark: &str) -> Result<()> {
    if mark.is_empty() {
        return match rustix::fs::removexattr(path, TIER) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        };
    }
    if !is_mark(mark.as_bytes()) {
        return wrong_usage(format!("'{mark}': a tier is fast, bulk or the name of a class"));
    }
    require_class(path, mark)?;
    rustix::fs::setxattr(path, TIER, mark.as_bytes(), XattrFlags::empty())
        .with_context(|| format!("{}: tier {mark}", path.display()))?;
    warn(path, &format!("tier {mark}"), mark != "bulk");
    Ok(())
}

/// Sets the limit of small files of a file, or for new files of a directory.
pub(super) fn set_small_files(path: &Path, value: &str) -> Result<()> {
    if value.is_empty() {
        return match rustix::fs::removexattr(path, SMALL_FILES) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        };
    }
    let bytes = parse_small_files(value).or_wrong_usage()?;
    rustix::fs::setxattr(path, SMALL_FILES, bytes.to_string().as_bytes(), XattrFlags::empty())
        .with_context(|| format!("{}: small_files {value}", path.display()))?;
    warn(path, "small_files", bytes > 0);
    Ok(())
}

/// Refuses a mark of a class that the pool does not have.
fn require_class(path: &Path, mark: &str) -> Result<()> {
    if matches!(mark, "fast" | "bulk") {
        return Ok(());
    }
    let classes = Mounted::open(path)?.stored_classes()?.unwrap_or_default();
    if classes.named(mark.as_bytes()).is_none() {
        let names: Vec<String> = classes.all().into_iter().map(|class| class.name).collect();
        return wrong_usage(format!(
            "'{mark}': a tier is fast, bulk or the name of a class ({})",
            names.join(", ")
        ));
    }
    Ok(())
}

/// Warns of a mark for fast devices that makes no difference where it is, and of any mark outside of pools: a pool that should have
/// been mounted there may not be.
fn warn(path: &Path, what: &str, wants_fast: bool) {
    match Mounted::open(path) {
        Ok(mounted) if wants_fast => tier_warning::of_mount(&mounted, what),
        Err(ControlError::NotBtrfs(path)) => tracing::warn!(
            "{} is on no mounted btrfs: the mark makes a difference only where it is copied to, `brindle mkfs --rootdir` for one",
            path.display()
        ),
        _ => {}
    }
}
