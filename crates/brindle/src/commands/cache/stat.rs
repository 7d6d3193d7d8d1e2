//! `cache stat`: settings and counters of a cache in use, or facts of one that is not.

use crate::cli::JsonOption;
use crate::format::{Align, write_table};
use crate::output;
use anyhow::Result;
use brindle_cache::inspect;
use brindle_device::FileDevice;
use brindle_lab::Client;
use clap::Args;
use serde_json::{Map, Value};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle cache stat /run/fsdc
    brindle cache stat --json /run/fsdc
    brindle cache stat /dev/sda2

EXIT STATUS
  0  success
  1  no cache there
  2  wrong usage";

/// Show settings and counters of a cache
///
/// Counters begin when the cache is loaded, and with `brindle cache set zero_stats=1`; those of blocks count blocks. Of an SSD
/// that is not in use, the facts of the cache on it are shown.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Directory on which the cache is mounted, or an SSD
    #[arg(value_name = "MOUNTPOINT|SSD")]
    path: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &StatCommand) -> Result<ExitCode> {
    let lines = if command.path.is_dir() { served(&command.path)? } else { on_flash(&command.path)? };
    if command.json.json {
        let value = |text: &String| text.parse::<u64>().map_or_else(|_| text.clone().into(), Value::from);
        let object: Map<String, Value> =
            lines.iter().map(|(name, text)| (name.clone(), value(text))).collect();
        output::print_json(&object.into())?;
    } else {
        let rows: Vec<Vec<String>> = lines.into_iter().map(|(name, value)| vec![name, value]).collect();
        let mut out = output::stdout();
        write_table(&mut out, &[Align::Left, Align::Left], &rows)?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn served(mountpoint: &Path) -> Result<Vec<(String, String)>> {
    let text = Client::of_any(mountpoint)?.status_text()?;
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn on_flash(path: &Path) -> Result<Vec<(String, String)>> {
    let facts = inspect(&FileDevice::open(path)?)?;
    let line = |name: &str, value: &dyn std::fmt::Display| (name.to_owned(), value.to_string());
    Ok(vec![
        line("name", &facts.name),
        line("mode", &facts.mode),
        line("disk", &facts.disk),
        line("state", &if facts.is_closed { "closed" } else { "in use, or after a crash" }),
        line("disk_bytes", &facts.disk_bytes),
        line("block_bytes", &facts.block_bytes),
        line("associativity", &facts.associativity),
        line("blocks", &facts.slots),
    ])
}
