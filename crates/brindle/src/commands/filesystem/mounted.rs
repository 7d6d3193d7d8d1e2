//! `filesystem sync` and `label`: of a mounted pool, asked of the process that serves it.

use crate::commands::path::shown_name;
use crate::commands::usage::wrong_usage;
use crate::output;
use anyhow::Result;
use brindle_admin::{ControlError, Mounted, Synced};
use clap::Args;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle filesystem sync /mnt
    brindle filesystem label /mnt backup

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Make everything durable that was written to a mounted pool
///
/// What sync(1) does for other filesystems: FUSE does not pass that on to the process that serves a mount. Contents that
/// found no room are those of files whose writers hear of it, by fsync(2) or when they write on; here it is a warning, and
/// everything else is durable.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SyncCommand {
    /// Any path of the mounted pool
    path: PathBuf,
}

/// Show or change the label of a mounted pool
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LabelCommand {
    /// Any path of the mounted pool
    path: PathBuf,
    /// The new label, of at most 255 bytes; without it the label is shown
    label: Option<OsString>,
}

/// Runs `filesystem sync`.
pub(crate) fn sync(command: &SyncCommand) -> Result<ExitCode> {
    sync_what_fits(&Mounted::open(&command.path)?, &command.path)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes durable all that was written to a mounted pool; warns if some of it found no room.
pub(crate) fn sync_what_fits(mounted: &Mounted, path: &Path) -> Result<(), ControlError> {
    if mounted.sync()? == Synced::WhatFits {
        tracing::warn!(
            "{}: there was no room for some of what was written, which is not in the pool; all else is",
            path.display()
        );
    }
    Ok(())
}

/// Runs `filesystem label`.
pub(crate) fn label(command: &LabelCommand) -> Result<ExitCode> {
    let mounted = Mounted::open(&command.path)?;
    match &command.label {
        Some(label) => set_label(&mounted, label.as_bytes())?,
        None => {
            let mut out = output::stdout();
            out.write_all(&shown_name(&mounted.label()?))?;
            writeln!(out)?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Gives a pool another label.
pub(crate) fn set_label(mounted: &Mounted, label: &[u8]) -> Result<()> {
    /// Bytes of a label, at most.
    const LABEL_MAX: usize = 255;
    if label.len() > LABEL_MAX {
        return wrong_usage(format!(
            "a label has {LABEL_MAX} bytes at most, and this one has {}",
            label.len()
        ));
    }
    if label.contains(&b'\n') {
        return wrong_usage(format!("'{}': a label has no line breaks", label.escape_ascii()));
    }
    Ok(mounted.set_label(label)?)
}
