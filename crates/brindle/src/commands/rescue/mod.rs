//! `brindle rescue`: repairs of a pool that is not mounted, by the words of btrfs(8).

mod chunks;
pub(crate) mod consent;
mod undo;
mod words;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;
use words::{Treatment, TreatmentCommand, run as treat};

const NOTE: &str = "\
A repair is rehearsed in memory first, and shown. Before the first byte is
written, old contents of every page that will be written go to an undo file,
which `brindle rescue undo` gives back. docs/user/rescue.md has the order in
which to try things. `brindle check --repair` sets counts, free space and
references right.";

/// Repair a pool that can't be mounted
///
/// All devices of the pool are given, in any order; of block devices one is enough. Pools that are mounted, or held by another system, are refused.
#[derive(Subcommand, Debug)]
#[command(after_help = NOTE)]
pub(crate) enum RescueCommand {
    /// Give up the log: what was synced after the last commit is lost
    ///
    /// For a pool that can't be mounted because its log can't be replayed. Superblocks alone are written. Look first at what a mount
    /// with -o ro,rescue=nologreplay shows: the pool will be as it is there.
    ZeroLog(TreatmentCommand),
    /// Write bad copies of superblocks anew from good ones of the same device
    SuperRecover(TreatmentCommand),
    /// Set sizes of devices, their used bytes, and the totals of the superblock right
    ///
    /// For a pool that the kernel refuses because a device is smaller than the pool has it, or sums don't agree. A device on which a
    /// chunk ends behind its own end is refused: make it as large as it was.
    FixDeviceSize(TreatmentCommand),
    /// Remove the free space cache (v1), or make the free space tree anew (v2)
    ClearSpaceCache(ClearSpaceCacheCommand),
    /// Make the UUID tree anew from the root items
    ClearUuidTree(TreatmentCommand),
    /// Make a chunk tree that can't be read anew, from what proves it
    ///
    /// Reads all devices whole. A chunk counts if its block group, its device extents and the order of its stripes agree; the order is
    /// proved by the profile, by a chunk item of an older tree, or by contents. What is not proved is named. The tree is
    /// written if the whole map is proved and all devices are given, over the blocks of the old one: no other tree changes. Otherwise
    /// files can be read with -o rescue=chunks, which makes the tree in memory.
    ChunkRecover(TreatmentCommand),
    Readmit(ReadmitCommand),
    Undo(undo::UndoCommand),
}

/// Give a device that was left behind, and lacks nothing, the superblock of the last commit
///
/// For a pool that is refused because a device is stale, and that can't do without it (single, raid0). All copies of all tree blocks and
/// of all data, and parity, are read and compared with what the last commit says; if one thing differs, nothing is written. A
/// device of a mirrored pool that has missed something is taken in by `brindle device rejoin`.
#[derive(clap::Args, Debug)]
pub(crate) struct ReadmitCommand {
    /// Take data without checksums for what was written last: nothing tells
    #[arg(long)]
    trust_unverified: bool,
    #[command(flatten)]
    treatment: TreatmentCommand,
}

/// Remove the free space cache (v1), or make the free space tree anew (v2)
///
/// The tree is made from the extent tree, at once and in one transaction. Caches of version 1 are only removed: the kernel makes
/// what it needs.
#[derive(clap::Args, Debug)]
pub(crate) struct ClearSpaceCacheCommand {
    /// v1 or v2
    #[arg(value_name = "v1|v2")]
    cache: Version,
    #[command(flatten)]
    treatment: TreatmentCommand,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Version {
    V1,
    V2,
}

/// Runs one of the commands.
pub(crate) fn run(command: &RescueCommand) -> Result<ExitCode> {
    match command {
        RescueCommand::ZeroLog(command) => treat(command, Treatment::ZeroLog),
        RescueCommand::SuperRecover(command) => treat(command, Treatment::SuperRecover),
        RescueCommand::FixDeviceSize(command) => treat(command, Treatment::FixDeviceSize),
        RescueCommand::ClearSpaceCache(command) => {
            let version = match command.cache {
                Version::V1 => brindle_rescue::trees::SpaceCache::V1,
                Version::V2 => brindle_rescue::trees::SpaceCache::V2,
            };
            treat(&command.treatment, Treatment::ClearSpaceCache(version))
        }
        RescueCommand::ClearUuidTree(command) => treat(command, Treatment::ClearUuidTree),
        RescueCommand::ChunkRecover(command) => chunks::run(command),
        RescueCommand::Readmit(command) => {
            treat(&command.treatment, Treatment::Readmit { trusts_unverified: command.trust_unverified })
        }
        RescueCommand::Undo(command) => undo::run(command),
    }
}
