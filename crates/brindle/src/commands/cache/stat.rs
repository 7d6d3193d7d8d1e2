//! `cache stat`: settings and counters of a cache in use, or facts of one that is not.

use super::served::lines_at;
use crate::format::{Align, Civil, write_table};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::{CacheLines, Mounted};
use brindle_cache::inspect;
use brindle_device::FileDevice;
use clap::Args;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle cache stat /run/fsdc
    brindle cache stat --json /run/fsdc
    brindle cache stat /dev/sda2
    brindle cache stat /mnt

EXIT STATUS
  0  success
  1  no cache there
  2  wrong usage";

/// Show settings and counters of a cache
///
/// `wear_left_bytes` may be written to the SSD by choice now (`wear_bytes_per_day`); less than 0 is a debt, to be paid first. `ssd_lifetime_write_bytes` counts since the cache was made, but for uses that ended in a crash. Other counters begin when the cache is loaded, and with `brindle cache set zero_stats=1`; those of blocks count blocks. `mirror` tells of a
/// cache on two SSDs if they are in sync, or one has the dirty blocks alone. Of an SSD that is not in use, the facts of the cache on it are shown; of a mounted pool, all caches among its devices. `ssd_read_errors` and its like count requests that the SSD, its mirror or the disk failed; an SSD that is not used any more since it failed is `given_up`, `given_up_since` a time. A line of latencies has the requests that took at most that number of microseconds.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Directory on which the cache or a pool is mounted, or an SSD
    #[arg(value_name = "MOUNTPOINT|SSD")]
    path: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &StatCommand) -> Result<ExitCode> {
    if let Some(mounted) = pool_at(&command.path) {
        return of_pool(&mounted, command.json.json);
    }
    let lines = if command.path.is_dir() { lines_at(&command.path)? } else { on_flash(&command.path)? };
    if command.json.json {
        output::print_json(&object(&lines).into())?;
    } else {
        let mut out = output::stdout();
        write_lines(&mut out, lines)?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The pool that is mounted at a directory; none if a cache is served there.
pub(super) fn pool_at(path: &Path) -> Option<Mounted> {
    let is_mount = path.is_dir() && !path.join("control").exists();
    Mounted::open(path).ok().filter(|mounted| is_mount && !mounted.is_of_kernel())
}

/// Caches among the devices of a mounted pool.
fn of_pool(mounted: &Mounted, is_json: bool) -> Result<ExitCode> {
    let caches = caches_of(mounted)?;
    if is_json {
        let with_id = |(devid, lines): &(u64, CacheLines)| {
            let mut object = object(lines);
            object.insert("devid".to_owned(), (*devid).into());
            Value::from(object)
        };
        output::print_json(&json!({ "caches": caches.iter().map(with_id).collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    for (number, (devid, lines)) in caches.into_iter().enumerate() {
        let separator = if number > 0 { "\n" } else { "" };
        writeln!(out, "{separator}devid {devid}")?;
        write_lines(&mut out, lines)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The same; an error if there is none.
pub(super) fn caches_of(mounted: &Mounted) -> Result<Vec<(u64, CacheLines)>> {
    let caches = mounted.caches()?;
    if caches.is_empty() {
        bail!("no device of the pool is a cache");
    }
    Ok(caches)
}

fn object(lines: &CacheLines) -> Map<String, Value> {
    let number =
        |text: &str| text.parse::<u64>().map(Value::from).or_else(|_| text.parse::<i64>().map(Value::from));
    let value = |text: &String| number(text).unwrap_or_else(|_| text.clone().into());
    lines.iter().map(|(name, text)| (name.clone(), value(text))).collect()
}

fn write_lines(out: &mut impl Write, lines: CacheLines) -> Result<()> {
    let row = |(name, value): (String, String)| {
        let value = as_time(&name, &value).unwrap_or(value);
        vec![name, value]
    };
    let rows: Vec<Vec<String>> = lines.into_iter().map(row).collect();
    Ok(write_table(out, &[Align::Left, Align::Left], &rows)?)
}

/// The time that a line tells in seconds, for people.
fn as_time(name: &str, value: &str) -> Option<String> {
    let seconds = (name == "given_up_since").then(|| value.parse().ok()).flatten()?;
    Some(format!("{} UTC", Civil::from_epoch(seconds)))
}

fn on_flash(path: &Path) -> Result<Vec<(String, String)>> {
    let facts = inspect(&FileDevice::open(path)?)?;
    let line = |name: &str, value: &dyn std::fmt::Display| (name.to_owned(), value.to_string());
    let mirror = facts.mirror.map(|mirror| line("mirror", &mirror));
    let begin = vec![line("name", &facts.name), line("mode", &facts.mode)];
    let rest = vec![
        line("disk", &facts.disk),
        line("state", &if facts.is_closed { "closed" } else { "in use, or after a crash" }),
        line("veiled", &u8::from(facts.is_veiled)),
        line("disk_bytes", &facts.disk_bytes),
        line("block_bytes", &facts.block_bytes),
        line("associativity", &facts.associativity),
        line("blocks", &facts.slots),
        line("wear_bytes_per_day", &facts.wear_bytes_per_day),
        line("ssd_lifetime_write_bytes", &facts.written_bytes),
    ];
    Ok(begin.into_iter().chain(mirror).chain(rest).collect())
}
