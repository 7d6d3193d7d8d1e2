//! `brindle property`: what files, directories and subvolumes of a mounted pool can be told to be.

use crate::commands::path::shown_name;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_kernel::Mounted;
use clap::{Args, Subcommand, ValueEnum};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle property set /mnt/snapshot ro false
    brindle property set /mnt/logs compression zstd
    brindle property get /mnt/logs compression

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Show and change properties of files, directories and subvolumes of a mounted pool
#[derive(Subcommand, Debug)]
pub(crate) enum PropertyCommand {
    Get(GetCommand),
    Set(SetCommand),
}

/// Show a property
///
/// `ro`: whether a subvolume is read-only. `compression`: how a file, or what is made in a directory, is compressed.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct GetCommand {
    /// Whose
    path: PathBuf,
    /// Which
    property: Property,
}

/// Change a property
///
/// `ro` of a subvolume is true or false. `compression` of a file or directory is zlib, lzo, zstd, or none; it counts for
/// what is written from then on, and for what is made in the directory.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SetCommand {
    /// Whose
    path: PathBuf,
    /// Which
    property: Property,
    /// What it is to be
    value: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Property {
    Ro,
    Compression,
}

/// Where the property lies.
const COMPRESSION: &str = "btrfs.compression";

/// Runs one of the commands.
pub(crate) fn run(command: &PropertyCommand) -> Result<ExitCode> {
    match command {
        PropertyCommand::Get(GetCommand { path, property }) => get(path, *property)?,
        PropertyCommand::Set(SetCommand { path, property, value }) => set(path, *property, value)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn get(path: &Path, property: Property) -> Result<()> {
    let mut out = output::stdout();
    match property {
        Property::Ro => writeln!(out, "ro={}", Mounted::open(path)?.is_read_only()?)?,
        Property::Compression => {
            let mut value = [0; 64];
            match rustix::fs::getxattr(path, COMPRESSION, &mut value[..]) {
                Ok(length) => {
                    out.write_all(b"compression=")?;
                    out.write_all(&shown_name(&value[..length]))?;
                    writeln!(out)?;
                }
                Err(Errno::NODATA) => {}
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
        }
    }
    out.flush()?;
    Ok(())
}

fn set(path: &Path, property: Property, value: &str) -> Result<()> {
    match (property, value) {
        (Property::Ro, "true" | "false") => Mounted::open(path)?.set_read_only(value == "true")?,
        (Property::Ro, _) => bail!("'{value}': ro is true or false"),
        (Property::Compression, _) => {
            let value = if value.is_empty() { "none" } else { value };
            rustix::fs::setxattr(path, COMPRESSION, value.as_bytes(), XattrFlags::empty())
                .with_context(|| format!("{}: compression {value}", path.display()))?;
        }
    }
    Ok(())
}
