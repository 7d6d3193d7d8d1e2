//! `filesystem sync` and `label`: of a mounted pool, asked of the process that serves it; a label also of devices.

use crate::commands::no_pool::reasons_or;
use crate::commands::path::{name_json, shown_name};
use crate::commands::place::open_named;
use crate::commands::usage::wrong_usage;
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_admin::pool::DeviceIdentity;
use brindle_admin::{ControlError, Mounted, PoolAdmin, Synced};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::slice;

const EXAMPLES: &str = "\
EXAMPLES
    brindle filesystem sync /mnt
    brindle filesystem label /mnt backup
    brindle filesystem label -o device=b.img a.img backup

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

/// Show or change the label of a pool, mounted or not
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LabelCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Comma-separated, of a pool that is not mounted: device=PATH (another device of it; block devices are found), degraded
    /// (go on without missing devices)
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Any path of a mounted pool; or an image file or block device of one that is not
    #[arg(value_name = "PATH|DEVICE")]
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
    let superblock = match command.path.is_dir() {
        true => None,
        // A file that is no image may be one of a mount.
        false => DeviceIdentity::superblock(&command.path).ok().flatten(),
    };
    if superblock.is_none() && !command.options.is_empty() {
        return wrong_usage(
            "-o is for devices: the label of a mounted pool is that of all of them".to_owned(),
        );
    }
    match (&command.label, superblock) {
        (Some(label), Some(_)) => {
            require_label(label.as_bytes())?;
            let pool = open_named(slice::from_ref(&command.path), &command.options)?;
            pool.set_label(label.as_bytes())?;
            pool.close()?;
        }
        (Some(label), None) => set_label(&open_mount(&command.path)?, label.as_bytes())?,
        (None, Some(superblock)) => print_label(superblock.label(), command.json)?,
        (None, None) => print_label(&open_mount(&command.path)?.label()?, command.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a path of a mount; of a device that is none, and of no mount, it says so.
fn open_mount(path: &Path) -> Result<Mounted> {
    Mounted::open(path).map_err(|error| match error {
        error @ ControlError::NotBtrfs(_) => reasons_or(error, &[path]),
        error => error.into(),
    })
}

fn print_label(label: &[u8], json: JsonOption) -> Result<()> {
    if json.json {
        return output::print_json(&json!({ "label": name_json(label) }));
    }
    let mut out = output::stdout();
    out.write_all(&shown_name(label))?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Gives a mounted pool another label.
pub(crate) fn set_label(mounted: &Mounted, label: &[u8]) -> Result<()> {
    require_label(label)?;
    Ok(mounted.set_label(label)?)
}

/// Refuses bytes that are no label.
fn require_label(label: &[u8]) -> Result<()> {
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
    Ok(())
}
