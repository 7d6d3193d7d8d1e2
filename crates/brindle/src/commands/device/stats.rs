//! `device stats`: error counters of devices, as the pool keeps them, in the words of btrfs-progs.

use crate::cli::JsonOption;
use crate::commands::mount_options::MountOptions;
use crate::commands::path::shown_name;
use crate::commands::pool::{open_pool, open_writable};
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::Mounted;
use brindle_device::{FileDevice, WritableDevice};
use brindle_uapi::message::text;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

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
    /// A directory of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// A device and its counters.
struct Shown {
    devid: u64,
    name: Vec<u8>,
    counters: [u64; 5],
}

/// Runs it.
pub(crate) fn run(command: &StatsCommand) -> Result<ExitCode> {
    let shown = match command.paths.as_slice() {
        [path] if path.is_dir() => of_mounted(path, command.reset)?,
        paths if paths.iter().any(|path| path.is_dir()) => {
            bail!("give either one directory of a mounted pool, or devices");
        }
        paths => of_devices(paths, command.reset)?,
    };
    if command.json.json {
        let device = |device: &Shown| {
            let counters = NAMES.into_iter().zip(device.counters);
            let mut value = json!({ "device": String::from_utf8_lossy(&device.name), "devid": device.devid });
            counters.for_each(|(name, counter)| value[name] = counter.into());
            value
        };
        let devices: Vec<Value> = shown.iter().map(device).collect();
        output::print_json(&json!({ "device-stats": devices }))?;
    } else {
        print(&shown)?;
    }
    let is_zero = shown.iter().all(|device| device.counters == [0; 5]);
    Ok(if command.check && !is_zero { ExitCode::from(NOT_ZERO) } else { ExitCode::SUCCESS })
}

fn print(shown: &[Shown]) -> Result<()> {
    let mut out = output::stdout();
    for device in shown {
        for (name, counter) in NAMES.iter().zip(device.counters) {
            out.write_all(b"[")?;
            out.write_all(&shown_name(&device.name))?;
            writeln!(out, "].{name:<16} {counter}")?;
        }
    }
    out.flush()?;
    Ok(())
}

fn of_mounted(path: &Path, reset: bool) -> Result<Vec<Shown>> {
    let mounted = Mounted::open(path)?;
    let of_one = |device: brindle_uapi::message::DeviceInfo| {
        let counters = mounted.device_statistics(device.devid, reset)?;
        Ok(Shown { devid: device.devid, name: text(&device.path).to_vec(), counters })
    };
    mounted.device_infos()?.into_iter().map(of_one).collect()
}

fn of_devices(paths: &[PathBuf], reset: bool) -> Result<Vec<Shown>> {
    let shown = |(device, counters): (brindle_volume::DeviceStatus, brindle_ondisk::item::DevStats)| Shown {
        devid: device.devid.get(),
        name: device.name.into_bytes(),
        counters: counters.values(),
    };
    if !reset {
        return Ok(open_pool(paths)?.device_statistics()?.into_iter().map(shown).collect());
    }
    let open = |path: &PathBuf| -> Result<Arc<dyn WritableDevice>> {
        Ok(Arc::new(FileDevice::open_writable(path)?))
    };
    let devices = paths.iter().map(open).collect::<Result<Vec<_>>>()?;
    let filesystem = open_writable(devices, &MountOptions::parse::<&str>(&[])?)?;
    let pool = filesystem.pool();
    let before = pool.device_statistics()?;
    for (device, _) in &before {
        pool.reset_device_statistics(device.devid)?;
    }
    filesystem.sync()?;
    Ok(before.into_iter().map(shown).collect())
}
