//! `brindle lab`: modelled disks that any program can use.

mod compare;
mod disk;
mod models;
mod plan;
mod power;
mod record;
mod report;
mod run;
mod stats;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

const MANUAL: &str = "\
EXAMPLES
  A hard disk that stops after 10 minutes without work, with a loop device; a
  filesystem on it:
    mkdir /run/disk
    device=$(brindle lab disk --attach hdd,spindown=600 /run/disk)
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0,nodiscard \"$device\"
    mount \"$device\" /mnt
    brindle lab stats --reset /run/disk

  Its power is cut; the log of the filesystem is replayed after that:
    brindle lab cut --mode reordered --seed 7 /run/disk
    umount /mnt
    brindle lab restore /run/disk
    mount \"$device\" /mnt

  The end:
    umount /mnt
    brindle lab stop /run/disk

A figure that was measured on such a disk is that of a modelled drive, and is to
be told with the line of its model.";

/// Use modelled disks: hard disks, SSDs and NVMe drives that exist in software alone
///
/// A modelled disk is a file in a directory, served by a process of brindle: each request takes the time that the drive
/// would take, and its contents are in memory or in a sparse file. A loop device makes a block device of it, for any
/// filesystem. Seeks, flushes and times of platters that start are counted, and the power can be cut.
#[derive(Subcommand, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) enum LabCommand {
    Models(models::ModelsCommand),
    Disk(disk::DiskCommand),
    Stats(stats::StatsCommand),
    Cut(power::CutCommand),
    Restore(power::RestoreCommand),
    Stop(power::StopCommand),
    Run(run::RunCommand),
    Compare(compare::CompareCommand),
    Report(report::ReportCommand),
    Record(record::RecordCommand),
    Plan(plan::PlanCommand),
}

/// Runs one of the commands.
pub(crate) fn run(command: &LabCommand) -> Result<ExitCode> {
    match command {
        LabCommand::Models(command) => models::run(command),
        LabCommand::Disk(command) => disk::run(command),
        LabCommand::Stats(command) => stats::run(command),
        LabCommand::Cut(command) => power::cut(command),
        LabCommand::Restore(command) => power::restore(command),
        LabCommand::Stop(command) => power::stop(command),
        LabCommand::Run(command) => run::run(command),
        LabCommand::Compare(command) => compare::run(command),
        LabCommand::Report(command) => report::run(command),
        LabCommand::Record(command) => record::run(command),
        LabCommand::Plan(command) => plan::run(command),
    }
}
