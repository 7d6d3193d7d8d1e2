//! `device lease`: the holder of a pool.

use crate::commands::companions::with_others;
use crate::commands::holder;
use crate::commands::pool::look_at_devices;
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_cache::open_device_to_write;
use brindle_care::device::{LeaseFound, break_leases, find_leases};
use brindle_device::Device;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle device lease 'nbd://store/disk1' 'nbd://store/disk2'
    brindle device lease --break 'nbd://store/disk1' 'nbd://store/disk2'

EXIT STATUS
  0  no system holds the devices, or its lease was broken
  1  a system holds one of them, or failure
  2  wrong usage";

/// Show the system that writes a pool on shared devices, by its lease
///
/// A mount of a pool with exports of NBD, or with -o lease, leaves a record on each device, and renews it. Other machines that open
/// the pool to write are refused as long as it is renewed; a holder that is gone for three intervals is replaced without this command.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LeaseCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Take the pool away from the holder: if it still runs, it finds that before its next commit, and is read-only from then on
    #[arg(long = "break")]
    breaks: bool,
    /// The devices of the pool; of block devices one, the others are looked for
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &LeaseCommand) -> Result<ExitCode> {
    let named = with_others(&command.devices);
    let found = if command.breaks {
        let devices = named.iter().map(|path| open_device_to_write(path));
        break_leases(&devices.collect::<Result<Vec<_>, _>>()?)?
    } else {
        let paths: Vec<&Path> = named.iter().map(PathBuf::as_path).collect();
        let devices = look_at_devices(&paths)?;
        let found = find_leases(devices.iter().map(|device| device.as_ref() as &dyn Device));
        found.into_iter().filter(|found| found.record.is_held()).collect()
    };
    if command.json.json {
        let leases: Vec<Value> = found.iter().map(holder::as_json).collect();
        output::print_json(&json!({ "leases": leases, "broken": command.breaks }))?;
    } else {
        print(&found, command.breaks)?;
    }
    let is_held = !found.is_empty() && !command.breaks;
    Ok(if is_held { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(found: &[LeaseFound], is_broken: bool) -> Result<()> {
    let mut out = output::stdout();
    if found.is_empty() {
        writeln!(out, "no system holds the devices")?;
    }
    for found in found {
        let verb = if is_broken { "was taken from" } else { "is held by" };
        writeln!(out, "{} {verb} {}", found.device, holder::in_words(found))?;
    }
    out.flush()?;
    Ok(())
}
