//! `lab disk`: makes a modelled disk and serves it.

use crate::commands::mount::background;
use crate::commands::quantity::parse_size;
use crate::commands::shown::end_on_signal;
use crate::commands::usage::OrWrongUsage;
use crate::{logging, output};
use anyhow::{Context, Result};
use brindle_lab::{Client, DiskOptions, Model, serve};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const MANUAL: &str = "\
THE DISK
  The directory shows three files: disk, the disk itself; status, its state as
  text; and control, which takes the commands that cut, restore and stats
  --reset write. All of them are for the user that made the disk. The directory
  shows no free space, and nothing can be made in it.

  The time of a request is that of the model; many are under way at once. The
  next operation of a busy drive starts at the modelled end of the last one, so
  a machine that is busy otherwise delays answers, and never adds up delays.
  `brindle lab stats` tells how late answers were: where more than one in a
  thousand was over 1 ms late, measure again on a quieter machine.

  A disk that is smaller than its model's lies on its first bytes, the outer
  tracks of a hard disk.

THE LOOP DEVICE
  With --attach (root) a loop device is attached, whose name is printed: direct
  I/O, sectors of 512 bytes, rotational as the model is, mq-deadline, requests
  of 1 MiB, readahead of 128 KiB; a hard disk takes no discards. Loop devices do
  not pass on FUA: such a write is a write and a flush, as Linux sends it to
  SATA drives. They send a flush by their only worker, so reads that come behind
  a flush wait for it, as on SATA; on a modelled NVMe drive that is wrong.

MEMORY
  Contents in memory take the room of what is written; zeros take none. With
  --file they are in a sparse file, which keeps them for the next start. Neither
  may lie on a modelled disk.

ENDING
  `brindle lab stop`, or SIGTERM to the process that serves it: the loop device
  is detached, and the directory unmounted. While a filesystem on it is mounted,
  stop refuses to, and SIGTERM takes the disk out of the directory tree and
  serves it until its last user has gone; a second signal ends it. A server that
  is killed (SIGKILL) leaves errors for all requests, a dead mount, and the loop
  device: unmount what lies on it, then `losetup -d` and umount.

EXAMPLES
    brindle lab disk hdd /run/disk
    brindle lab disk --attach --size 200G ssd,flush=500 /run/ssd
    brindle lab disk --attach --file /var/tmp/disk.img --size 20G \\
        hdd,rpm=5400,spindown=600 /run/disk

EXIT STATUS
  0  the disk is there; with --foreground: it was, and has ended
  1  it could not be made
  2  wrong usage";

/// Make a modelled disk, as a file in a directory
///
/// The disk is there when the command returns; a process stays in the background to serve it. Prints the path of the disk:
/// MOUNTPOINT/disk, or with --attach that of the loop device.
#[derive(Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct DiskCommand {
    /// Stay in the foreground, until the disk is stopped or Ctrl-C is typed
    #[arg(short, long)]
    foreground: bool,
    /// Attach a loop device to it (root)
    #[arg(short, long)]
    attach: bool,
    /// Size of the disk, with an optional suffix (K, M, G, T); that of the model unless told otherwise
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Keep the contents in this sparse file, which is made if it is missing
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Model line, such as hdd or ssd,flush=500; see `brindle lab models`
    model: String,
    /// Directory to mount it on
    mountpoint: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &DiskCommand) -> Result<ExitCode> {
    let model = Model::parse(&command.model).or_wrong_usage()?;
    if command.foreground || background::is_served() {
        return serve_disk(command, model);
    }
    let code = background::start()?;
    if code == ExitCode::SUCCESS {
        let client = Client::at(&command.mountpoint)?;
        let path = client.status()?.loop_device.unwrap_or_else(|| client.disk());
        print_path(&path)?;
    }
    Ok(code)
}

fn print_path(path: &std::path::Path) -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{}", path.display())?;
    Ok(out.flush()?)
}

fn serve_disk(command: &DiskCommand, model: Model) -> Result<ExitCode> {
    let options = DiskOptions {
        model,
        size_bytes: command.size,
        file: command.file.clone(),
        mountpoint: command.mountpoint.clone(),
        is_attached: command.attach,
    };
    // Signals must not kill us between the mount and the thread that waits for them.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
    let disk = serve(&options)?;
    end_on_signal(signals, disk.ending());
    let path =
        disk.loop_device().map_or_else(|| disk.mountpoint().join("disk"), std::path::Path::to_path_buf);
    logging::serve(disk.mountpoint().display().to_string(), background::is_served())?;
    if background::is_served() {
        background::report_ready()?;
    } else {
        print_path(&path)?;
    }
    tracing::info!("serving {}, a modelled {}", path.display(), options.model);
    disk.wait()?;
    Ok(ExitCode::SUCCESS)
}
