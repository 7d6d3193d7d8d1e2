//! `device stats`: error counters of devices, as the pool keeps them, in the words of btrfs-progs.

use crate::commands::path::shown_name;
use crate::commands::place::administer_reached;
use crate::commands::pool::open_pool;
use crate::format::{Align, write_ruled};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::pool::DeviceErrors;
use brindle_admin::{AdminError, Reach};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle device stats /mnt
    brindle device stats --check disk1.img disk2.img
    sudo brindle device stats --reset /mnt

EXIT STATUS
   0  success
   1  failure
   2  wrong usage
  64  with --check: a counter is not zero";

/// Exit code for counters that are not zero, as in btrfs-progs.
const NOT_ZERO: u8 = 64;
/// The counters, in the order of the format and of the kernel's answer.
const NAMES: [&str; 5] =
    ["write_io_errs", "read_io_errs", "flush_io_errs", "corruption_errs", "generation_errs"];

/// The counters at the head of a table.
const HEADS: [&str; 5] = ["Write", "Read", "Flush", "Corruption", "Generation"];

/// Show the error counters of the devices of a pool
///
/// Counted are failed writes, reads and flushes, contents that do not match their checksum, and tree blocks of a wrong
/// generation, since the pool was made or the counters were reset. The kernel keeps them in the same place.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatsCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Exit with 64 if a counter is not zero
    #[arg(short, long)]
    check: bool,
    /// Set the counters to zero after showing them
    #[arg(short = 'z', long)]
    reset: bool,
    /// Print a table
    #[arg(short = 'T')]
    table: bool,
    /// A directory of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &StatsCommand) -> Result<ExitCode> {
    let reach = match Reach::of(&command.paths) {
        Err(AdminError::Mixed) => bail!("give either one directory of a mounted pool, or devices"),
        reach => reach?,
    };
    let shown = if command.reset {
        let pool = administer_reached(reach)?;
        let before = pool.reset_device_errors()?;
        pool.close()?;
        before
    } else {
        reach.ask(open_pool)?.device_errors()?
    };
    if command.json.json {
        let device = |device: &DeviceErrors| {
            let counters = NAMES.into_iter().zip(device.counters);
            let mut value =
                json!({ "device": String::from_utf8_lossy(&device.name), "devid": device.devid.get() });
            counters.for_each(|(name, counter)| value[name] = counter.into());
            value
        };
        let devices: Vec<Value> = shown.iter().map(device).collect();
        output::print_json(&json!({ "device-stats": devices }))?;
    } else if command.table {
        print_table(&shown)?;
    } else {
        print(&shown)?;
    }
    let is_zero = shown.iter().all(|device| device.counters == [0; 5]);
    Ok(if command.check && !is_zero { ExitCode::from(NOT_ZERO) } else { ExitCode::SUCCESS })
}

/// Prints a row for each device.
fn print_table(shown: &[DeviceErrors]) -> Result<()> {
    let mut heads = vec!["Id".to_owned(), "Path".to_owned()];
    heads.extend(HEADS.map(|head| format!("{head} errors")));
    let row = |device: &DeviceErrors| {
        let name =
            if device.name.is_empty() { "missing".into() } else { String::from_utf8_lossy(&device.name) };
        let mut row = vec![device.devid.to_string(), name.into_owned()];
        row.extend(device.counters.map(|counter| counter.to_string()));
        row
    };
    let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    let mut out = output::stdout();
    write_ruled(&mut out, Align::Right, &[heads], &[&rows])?;
    out.flush()?;
    Ok(())
}

fn print(shown: &[DeviceErrors]) -> Result<()> {
    let mut out = output::stdout();
    for device in shown {
        for (name, counter) in NAMES.iter().zip(device.counters) {
            out.write_all(b"[")?;
            match device.name.as_slice() {
                b"" => write!(out, "devid:{}", device.devid)?,
                path => out.write_all(&shown_name(path))?,
            }
            writeln!(out, "].{name:<16} {counter}")?;
        }
    }
    out.flush()?;
    Ok(())
}
