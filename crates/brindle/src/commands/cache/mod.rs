//! `brindle cache`: a flash device in front of a disk.

mod change;
mod contents;
mod create;
mod destroy;
mod grow;
mod load;
mod mirror;
mod served;
mod stat;
mod used;

pub(crate) use used::UsedCache;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

const MANUAL: &str = "\
EXAMPLES
  An SSD partition as write-back cache of a hard disk, and a filesystem on both:
    brindle cache create -p back fsdc /dev/sda2 /dev/sdc
    mkdir /run/fsdc
    device=$(brindle cache load --attach /dev/sda2 /dev/sdc /run/fsdc)
    mkfs.xfs \"$device\"
    mount \"$device\" /mnt
    brindle cache set skip_seq_thresh_kb=32 /run/fsdc
    brindle cache stat /run/fsdc

  The end; after it the disk alone has all contents:
    umount /mnt
    brindle cache stop /run/fsdc
    brindle cache destroy /dev/sda2

  A cached disk as a device of a pool, and its counters:
    brindle mkfs cache:/dev/sda2:/dev/sdc
    brindle mount cache:/dev/sda2:/dev/sdc /mnt
    brindle cache stat /mnt

The design, and what it does after a crash, is in docs/design/cache.md.";

/// Use a fast device as the cache of a slow one
///
/// The two are one device for any filesystem or pool, served by a process of brindle as a file in a directory, with a loop
/// device on it if that is wanted. Arguments, settings and counters are those of flashcache; the format on the SSD is not.
#[derive(Subcommand, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) enum CacheCommand {
    Create(create::CreateCommand),
    Load(load::LoadCommand),
    Stat(stat::StatCommand),
    Set(change::SetCommand),
    Grow(grow::GrowCommand),
    Stop(change::StopCommand),
    Mirror(mirror::MirrorCommand),
    Destroy(destroy::DestroyCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: &CacheCommand) -> Result<ExitCode> {
    match command {
        CacheCommand::Create(command) => create::run(command),
        CacheCommand::Load(command) => load::run(command),
        CacheCommand::Stat(command) => stat::run(command),
        CacheCommand::Set(command) => change::set(command),
        CacheCommand::Grow(command) => grow::run(command),
        CacheCommand::Stop(command) => change::stop(command),
        CacheCommand::Mirror(command) => mirror::run(command),
        CacheCommand::Destroy(command) => destroy::run(command),
    }
}
