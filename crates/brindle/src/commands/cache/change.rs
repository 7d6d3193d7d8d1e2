//! `cache set` and `cache stop`.

use super::served::{client_at, lines_at};
use super::stat::{caches_of, pool_at};
use super::used::UsedCache;
use crate::commands::shown::explain_end;
use anyhow::{Context, Error, Result, anyhow, bail};
use brindle_cache::Change;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const MANUAL: &str = "\
SETTINGS
  skip_seq_thresh_kb    KiB from which on a stream goes around the cache; 0:
                        never (default)
  skip_seq_read_kb, skip_seq_write_kb
                        the same of reads, and of writes
  dirty_thresh_pct      percent of a set that may be dirty, 10 to 95 (20)
  dirty_thresh_total_pct
                        percent of all blocks that may be dirty, 1 to 100 (100)
  fallow_delay          seconds after which a dirty block that is not written
                        any more is cleaned; 0: never (900)
  fallow_clean_speed    blocks of each set that are cleaned so in a second, 1 to
                        100; 0: as many as the disk takes (default)
  max_clean_ios_total   runs of 1 MiB that one round of cleaning writes, 1 to
                        128 (4)
  max_clean_ios_set     the same of one set, 1 to 128 (2)
  reclaim_policy        block that makes way: 0 or fifo, 1 or lru, 2 or s3fifo
                        (default)
  cache_all             0: no further blocks are taken in (1)
  fast_remove           1: the cache is closed with its dirty blocks (0)
  io_latency_hist       0: times of requests are not counted (1)
  wear_bytes_per_day    bytes a day that may be written to the SSD; 0: no limit
                        (default). An hour's worth can be saved up. It is kept
                        on the SSD, and holds for later loads too. A block
                        beyond it goes to the disk, and leaves the cache; only
                        the two blocks in the place of the mark, and the cache's
                        own data, may make a debt
  do_sync=1             writes all dirty blocks to the disk, now
  stop_sync=1           ends a do_sync that is under way
  zero_stats=1          sets all counters to 0

  Other settings of flashcache are taken with values that change nothing, and
  refused else, with the reason. docs/user/cache.md has the table.

EXAMPLES
    brindle cache set skip_seq_thresh_kb=32 /run/fsdc
    brindle cache set do_sync=1 /run/fsdc
    brindle cache set wear_bytes_per_day=50000000000 /mnt

EXIT STATUS
  0  success
  1  no cache is served there; or dirty blocks stay on the SSD after do_sync=1,
     which is said
  2  wrong usage: no such setting, or a value that it can't have";

/// Change a setting of a cache in use
///
/// It holds until the cache is stopped, or the pool unmounted; wear_bytes_per_day holds for good. At the mount point of a pool, it is a setting of all caches among its devices.
#[derive(Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct SetCommand {
    /// Name and value
    #[arg(value_name = "NAME=VALUE", value_parser = parse_setting)]
    setting: String,
    /// Directory on which the cache or a pool is mounted
    mountpoint: PathBuf,
}

/// End the use of a cache
///
/// All dirty blocks are written to the disk first, unless fast_remove is set; then the loop device is detached and the
/// directory unmounted. Refused while the device is in use.
#[derive(Args, Debug)]
pub(crate) struct StopCommand {
    /// End it although dirty blocks can't be written to the disk, as after a crash: what was flushed stays on the SSD
    #[arg(short, long)]
    force: bool,
    /// Directory on which the cache is mounted
    mountpoint: PathBuf,
}

fn parse_setting(word: &str) -> Result<String, String> {
    let (name, value) = word.split_once('=').ok_or("must be NAME=VALUE")?;
    match Change::parse(name, value) {
        Ok(Change::Grow) => Err("the command for it is `brindle cache grow`".to_owned()),
        Ok(_) => Ok(word.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs `cache set`.
pub(crate) fn set(command: &SetCommand) -> Result<ExitCode> {
    if let Some(mounted) = pool_at(&command.mountpoint) {
        let (name, value) = command.setting.split_once('=').context("must be NAME=VALUE")?;
        for (devid, _) in caches_of(&mounted)? {
            mounted.set_cache(devid, name, value).or_else(|error| {
                let caches = caches_of(&mounted)?;
                let lines = caches.into_iter().find(|(other, _)| *other == devid).map(|(_, lines)| lines);
                explain_sync(&command.setting, error.into(), &lines.unwrap_or_default())
            })?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let client = client_at(&command.mountpoint)?;
    if !lines_at(&command.mountpoint)?.iter().any(|(name, _)| name == "mode") {
        bail!("{}: the device that is shown there has no cache", command.mountpoint.display());
    }
    client
        .send(&command.setting)
        .or_else(|error| explain_sync(&command.setting, error.into(), &lines_at(&command.mountpoint)?))?;
    Ok(ExitCode::SUCCESS)
}

/// The error of a setting; that of a cleaning that failed tells what waits.
fn explain_sync(setting: &str, error: Error, lines: &[(String, String)]) -> Result<()> {
    match UsedCache::of(lines).filter(|_| setting == "do_sync=1") {
        Some(cache) => bail!("{setting}: {error}: {}", cache.waiting()),
        None => Err(error.context(setting.to_owned())),
    }
}

/// Runs `cache stop`.
pub(crate) fn stop(command: &StopCommand) -> Result<ExitCode> {
    let client = client_at(&command.mountpoint)?;
    let lines = lines_at(&command.mountpoint)?;
    let find = |name: &str| lines.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
    let Some(process) = find("process").and_then(|process| process.parse().ok()) else {
        bail!("{}: no cache is served there", command.mountpoint.display());
    };
    if find("mode") == Some("back") && find("fast_remove") != Some("1") {
        let cleaned = client.send("do_sync=1");
        if let Err(error) = cleaned {
            if !command.force {
                let waiting = UsedCache::of(&lines_at(&command.mountpoint)?).map(|cache| cache.waiting());
                return Err(anyhow!(
                    "cannot clean the cache; with --force it ends as by a crash, and what was flushed stays on the SSD: {error}; {}",
                    waiting.unwrap_or_default()
                ));
            }
        }
    }
    let cache = UsedCache::of(&lines_at(&command.mountpoint)?);
    client.end(process, find("loop_device").map(PathBuf::from)).map_err(explain_end)?;
    match cache.map_or(Ok(()), |cache| cache.check_closed()) {
        Err(error) if command.force => tracing::warn!("{error}"),
        closed => closed?,
    }
    Ok(ExitCode::SUCCESS)
}
