//! `tier watch`: keeps metadata on the fast devices.

mod keep;

use super::apply::Show;
use super::facts::{ClassOptions, Facts};
use super::recover::PATIENCE;
use super::state;
use crate::commands::quantity::parse_rate;
use crate::commands::quantity::parse_size;
use crate::commands::stop::Stop;
use anyhow::{Context, Result, bail};
use brindle_admin::Reach;
use brindle_admin::tier::{ApplyOptions, WatchOptions, watch};
use brindle_policy::tier::plan::Wanted;
use brindle_policy::tier::watch::Marks;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
EXAMPLES
    brindle tier watch /mnt

  As a service of systemd, by contrib/brindle-tier@.service:
    systemctl enable --now brindle-tier@$(systemd-escape --path /mnt)

EXIT STATUS
  0  stopped by SIGINT, SIGTERM or SIGHUP, or the pool was unmounted; sizes of
     devices are as before
  1  failure; likewise, unless the message says that `tier recover` is needed
  2  wrong usage";

/// Keep everything on the devices where it belongs, until stopped
///
/// Runs in the foreground. Needs root.
///
/// On a mount of brindle, which puts new data where it belongs as long as there is room, this moves misplaced data all the
/// same (as `tier apply` does): block groups when there are any, because a class was full, or a hint has changed; data of
/// files, for which all of them are looked at, when it begins, and from time to time.
///
/// On a mount of the kernel it keeps metadata on the fast devices, or as many copies as there are such devices. The kernel makes
/// a new metadata chunk when it finds no place in those that there are. Shortly before, the bulk devices are fenced (see `tier apply`), and the fence comes down when there is a new chunk. Metadata that has ended on bulk devices
/// all the same is moved by what `tier apply --only metadata` does.
///
/// A mount of brindle can be unmounted meanwhile, and this ends then. A mount of the kernel is in use as long as this runs.
///
/// What a run before this one has left fenced is restored first. When the devices of the pool change it ends with a
/// failure, to be started anew.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct WatchCommand {
    /// Interval of looking, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// On a mount of brindle: how often to look at files, in minutes; 0 for never
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    files_interval: u64,
    /// On a mount of the kernel: fence when metadata chunks have less than this to spare
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = parse_size)]
    low_water: u64,
    /// On a mount of the kernel: do not fence while data chunks have less than this to spare
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_size)]
    data_reserve: u64,
    /// Move no more than this in a second on the average, such as 20M
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    rate: Option<u64>,
    #[command(flatten)]
    classes: ClassOptions,
    /// A directory of a mounted pool
    #[arg(value_name = "MOUNTPOINT")]
    pool: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &WatchCommand) -> Result<ExitCode> {
    if !command.pool.is_dir() {
        bail!("{}: tier watch is for a mounted pool", command.pool.display());
    }
    let stop = Stop::on_signals()?;
    if let Reach::Brindle(mount) = Reach::of_mount(&command.pool)? {
        return keep::run(command, mount, &stop);
    }
    let facts = Facts::gather(std::slice::from_ref(&command.pool), &command.classes)?;
    let mounted = facts.kernel_mount().context("the pool is not mounted by the kernel")?;
    let wanted = Wanted { metadata: true, data: false };
    let options = WatchOptions {
        interval: Duration::from_secs(command.interval),
        marks: Marks { metadata_bytes: command.low_water, data_bytes: command.data_reserve },
        apply: ApplyOptions { wanted, rate: command.rate, patience: PATIENCE },
    };
    let classify = |inventory: &_| facts.pool_of(inventory);
    watch(mounted, &state::directory(), &classify, &options, &mut Show::new(&stop))?;
    Ok(ExitCode::SUCCESS)
}
