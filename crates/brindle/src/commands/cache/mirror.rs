//! `cache mirror`: gives the cache of an SSD a second one.

use super::contents::{check_apart, check_ssd};
use super::create::random_uuid;
use anyhow::Result;
use brindle_cache::add_mirror;
use brindle_device::FileDevice;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  A second SSD for a cache that has one, or in the place of a lost one:
    brindle cache stop /run/fsdc
    brindle cache mirror /dev/sda2 /dev/sdb2
    brindle cache load --attach --mirror /dev/sdb2 /dev/sda2 /dev/sdc /run/fsdc

EXIT STATUS
  0  both are the SSDs of the cache
  1  one of them is in use, too short, or holds a cache or a filesystem already
  2  wrong usage";

/// Have a second SSD mirror that of a cache
///
/// Everything on the second SSD is lost. Neither may be in use. Blocks are copied when the cache is loaded with both; until then
/// the first SSD has them alone. A mirror that the cache had before is none any more.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MirrorCommand {
    /// Take an SSD that holds a cache, with its dirty blocks, or a filesystem
    #[arg(short, long)]
    force: bool,
    /// The SSD with the cache
    ssd: PathBuf,
    /// The second SSD
    mirror: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &MirrorCommand) -> Result<ExitCode> {
    check_apart(&command.ssd, &command.mirror)?;
    let [flash, mirror] = [&command.ssd, &command.mirror].map(|path| FileDevice::open_writable(path));
    let (flash, mirror) = (flash?, mirror?);
    if !command.force {
        check_ssd(&mirror)?;
    }
    add_mirror(&flash, &mirror, random_uuid()?, command.force)?;
    Ok(ExitCode::SUCCESS)
}
