//! `brindle metrics`: the facts of `brindle status` for Prometheus, on standard output or in a file of a textfile collector.
//!
//! # The walk
//!
//! `status` gathers the pools; [`families`], [`served`] and [`activity`] make samples of them, and [`exposition`] writes these in the text
//! format, each family once. A file is written under another name first, so that a collector reads the old one or the new one.

mod activity;
mod exposition;
mod families;
mod served;

use crate::commands::status::silent;
use crate::output;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle metrics /mnt
    brindle -q metrics --output /var/lib/prometheus/node-exporter/brindle.prom

EXIT STATUS
  0  success, whatever the state of the pools
  1  failure
  2  wrong usage";

/// Write the health and the counters of pools as metrics of Prometheus
///
/// The text is that of the exposition format 0.0.4: bytes and seconds, counters end in `_total`. The label `uuid` names the pool in all of
/// them, `devid` the device; `brindle_pool_info` and `brindle_device_info` have the names. Histograms of fsyncs and counters of commits
/// are those of a mount of brindle since it was made. As with `brindle status`, mounts are asked for what they have in memory.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MetricsCommand {
    /// Write this file instead of standard output; it is replaced as a whole
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Directories of mounted pools, or devices; without any, all pools that are mounted, and with root those on block devices
    #[arg(value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &MetricsCommand) -> Result<ExitCode> {
    let text = families::of_pools(&silent::pools(&command.paths)?);
    output::print_or_replace(command.output.as_deref(), &text)?;
    Ok(ExitCode::SUCCESS)
}
