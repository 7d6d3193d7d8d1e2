//! The commands, a module each.

pub(crate) mod balance;
mod cache;
mod cat;
mod check;
mod companions;
mod completions;
mod damaged_list;
mod detached;
mod device;
mod device_change;
mod device_contents;
mod device_property;
mod device_word;
mod examination_bar;
mod export;
mod filesystem;
pub(crate) mod health;
mod holder;
mod in_use;
mod inspect;
#[cfg(feature = "lab")]
mod lab;
mod ls;
mod man;
mod map;
mod metrics;
mod mkfs;
pub(crate) mod mount;
mod mount_options;
mod no_pool;
mod operands;
mod path;
mod place;
mod pool;
mod processes;
mod property;
mod qgroup;
mod quantity;
mod quota;
mod reached;
mod receive;
mod refused;
mod rescue;
mod restore;
mod scrub;
mod send;
mod shown;
mod silent;
mod stat;
mod state_directory;
mod status;
mod stop;
mod subvolume;
mod tier;
mod tier_warning;
mod top;
mod umount;
pub(crate) mod usage;

use crate::options::Verbosity;
use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Command.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    #[command(subcommand, visible_alias = "fi")]
    Filesystem(filesystem::FilesystemCommand),
    #[command(subcommand, visible_alias = "su")]
    Subvolume(subvolume::SubvolumeCommand),
    #[command(subcommand, visible_alias = "dev")]
    Device(device::DeviceCommand),
    #[command(subcommand, hide = true)]
    Replace(device::ReplaceCommand),
    #[command(subcommand)]
    Balance(balance::BalanceCommand),
    #[command(subcommand)]
    Scrub(scrub::ScrubCommand),
    #[command(subcommand)]
    Quota(quota::QuotaCommand),
    #[command(subcommand)]
    Qgroup(qgroup::QgroupCommand),
    #[command(subcommand)]
    Property(property::PropertyCommand),
    #[command(subcommand)]
    Tier(tier::TierCommand),
    #[command(subcommand, name = "inspect-internal", visible_alias = "inspect")]
    Inspect(inspect::InspectCommand),
    Export(export::ExportCommand),
    #[command(subcommand)]
    Cache(cache::CacheCommand),
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(lab::LabCommand),
    Status(status::StatusCommand),
    Top(top::TopCommand),
    Map(map::MapCommand),
    Metrics(metrics::MetricsCommand),
    Ls(ls::LsCommand),
    Cat(cat::CatCommand),
    Stat(stat::StatCommand),
    Restore(restore::RestoreCommand),
    Send(send::SendCommand),
    Receive(receive::ReceiveCommand),
    Check(check::CheckCommand),
    #[command(subcommand)]
    Rescue(rescue::RescueCommand),
    Mkfs(mkfs::MkfsCommand),
    Mount(mount::MountCommand),
    Umount(umount::UmountCommand),
    Completions(completions::CompletionsCommand),
    Man(man::ManCommand),
}

/// Does it. An error ends with exit code 1, wrong usage with 2.
pub(crate) fn run(command: Command, verbosity: Verbosity, tree: &clap::Command) -> Result<ExitCode> {
    match command {
        Command::Filesystem(command) => filesystem::run(command),
        Command::Subvolume(command) => subvolume::run(command, verbosity.quiet),
        Command::Device(command) => device::run(&command, verbosity.quiet),
        Command::Replace(command) => device::replace(&command),
        Command::Balance(command) => balance::run(&command),
        Command::Scrub(command) => scrub::run(&command),
        Command::Quota(command) => quota::run(&command, verbosity.quiet),
        Command::Qgroup(command) => qgroup::run(&command, verbosity.quiet),
        Command::Property(command) => property::run(&command),
        Command::Tier(command) => tier::run(&command),
        Command::Inspect(command) => inspect::run(command),
        Command::Cache(command) => cache::run(&command),
        Command::Export(command) => export::run(&command),
        #[cfg(feature = "lab")]
        Command::Lab(command) => lab::run(&command),
        Command::Status(command) => status::run(&command, verbosity.verbose > 0),
        Command::Top(command) => top::run(&command),
        Command::Map(command) => map::run(&command),
        Command::Metrics(command) => metrics::run(&command),
        Command::Ls(command) => ls::run(&command),
        Command::Cat(command) => cat::run(&command),
        Command::Stat(command) => stat::run(&command),
        Command::Restore(command) => restore::run(&command, verbosity.quiet, tree),
        Command::Send(command) => send::run(&command, verbosity.quiet),
        Command::Receive(command) => receive::run(&command),
        Command::Check(command) => check::run(&command),
        Command::Rescue(command) => rescue::run(&command),
        Command::Mkfs(command) => mkfs::run(&command, verbosity.quiet),
        Command::Mount(command) => mount::run(&command, tree),
        Command::Umount(command) => umount::run(&command),
        Command::Completions(command) => completions::run(&command, tree),
        Command::Man(command) => man::run(&command, tree),
    }
}
