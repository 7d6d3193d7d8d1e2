//! `cache load`: opens a cache and serves it.

use crate::commands::mount::background;
use crate::{logging, output};
use anyhow::{Context, Result};
use brindle_cache::{Cache, CacheError, CacheKeeper, CacheWord, guard_disk, load_files};
use brindle_device::WritableDevice;
use brindle_lab::{Client, Ending, ShowOptions, ShownDevice, show};
use clap::Args;
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const MANUAL: &str = "\
THE DIRECTORY
  shows three files: disk, the cached disk; status, settings and counters as text; and control, which
  takes what `brindle cache set` writes. All are for the user that loaded the cache.

AFTER A CRASH
  Everything that was flushed is there. Clean blocks are cached anew, as the disk may have newer ones.

AFTER A CLEAN END
  The disk may have been used alone: the first read of a cached block comes from the disk and is
  compared, the SSD answers the next ones. With fast_remove=1 set before the end, at once.

REFUSED
  A disk of another size; damage of the cache's own data; dirty blocks for a disk that was written
  without the cache, as far as samples of it tell; an SSD whose mirror may have newer blocks. With --force the damaged parts, or the dirty
  blocks, are left out: what was written last is lost.

TWO SSDS
  Give both, the second one with --mirror. One that was away is brought up to date first: its dirty
  blocks are copied, clean ones are cached anew. One that is lost is left out, with a message; the
  cache goes on with the other one if the mark on the disk tells that it is the newest. A single SSD of
  two that was given without the other is the only one from then on, until both are given again. Two that
  were each used alone are refused together.

EXAMPLES
    brindle cache load --attach /dev/sda2 /dev/sdc /run/fsdc
    brindle cache load --attach --mirror /dev/sdb2 /dev/sda2 /dev/sdc /run/fsdc
    brindle cache load ssd.img disk.img place

EXIT STATUS
  0  the cache is served; with --foreground: it was, and has ended
  1  it could not be loaded
  2  wrong usage";

/// Threads that take requests: each waits for the devices.
const THREADS: usize = 32;
/// Subtype of the mount.
const SUBTYPE: &str = "brindle-cache";

/// Use a cache: show SSD and disk as one device
///
/// The device is there when the command returns; a process stays in the background to serve it. Prints its path:
/// MOUNTPOINT/disk, or with --attach that of the loop device.
#[derive(Args, Debug)]
#[command(visible_alias = "serve", after_long_help = MANUAL)]
pub(crate) struct LoadCommand {
    /// Stay in the foreground, until the cache is stopped or Ctrl-C is typed
    #[arg(long)]
    foreground: bool,
    /// Attach a loop device to it (root)
    #[arg(short, long)]
    attach: bool,
    /// Do without what is damaged or stale
    #[arg(short, long)]
    force: bool,
    /// The second SSD of a cache on two
    #[arg(long, value_name = "SSD")]
    mirror: Option<PathBuf>,
    /// The SSD
    ssd: PathBuf,
    /// The disk, or the URI of an export
    disk: PathBuf,
    /// Directory to mount it on
    mountpoint: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &LoadCommand) -> Result<ExitCode> {
    if command.foreground || background::is_served() {
        return serve(command);
    }
    let code = background::start()?;
    if code == ExitCode::SUCCESS {
        let client = Client::of_any(&command.mountpoint)?;
        let status = client.status_text()?;
        let attached = status.lines().find_map(|line| line.strip_prefix("loop_device "));
        print_path(&attached.map_or_else(|| client.disk(), PathBuf::from))?;
    }
    Ok(code)
}

fn print_path(path: &Path) -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{}", path.display())?;
    Ok(out.flush()?)
}

fn serve(command: &LoadCommand) -> Result<ExitCode> {
    let LoadCommand { ssd, mirror, disk, .. } = command;
    let word = CacheWord { flash: ssd.clone(), mirror: mirror.clone(), disk: disk.clone() };
    // Signals must not kill us between the mount and the thread that waits for them.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
    let cache = Arc::new(load_files(&word, command.force)?);
    cache.veil()?;
    guard_disk(&cache);
    let keeper = CacheKeeper::start(&cache).context("cannot start the thread that cleans")?;
    let (shown, commanded) = (Arc::clone(&cache), Arc::clone(&cache));
    let device = ShownDevice::new(
        Arc::clone(&cache) as Arc<dyn WritableDevice>,
        move |loop_device| status_text(&shown, loop_device),
        move |line| carry_out(&commanded, line),
    );
    let options = ShowOptions {
        mountpoint: command.mountpoint.clone(),
        source: cache.status().name,
        subtype: SUBTYPE,
        is_attached: command.attach,
        threads: THREADS,
    };
    let served = show(Arc::new(device), &options)?;
    end_on_signal(signals, served.ending());
    let path = served.loop_device().map_or_else(|| served.mountpoint().join("disk"), Path::to_path_buf);
    logging::serve(served.mountpoint().display().to_string(), background::is_served())?;
    if background::is_served() {
        background::report_ready()?;
    } else {
        print_path(&path)?;
    }
    tracing::info!("serving {}, the cache {}", path.display(), options.source);
    served.wait()?;
    drop(keeper);
    cache.close()?;
    Ok(ExitCode::SUCCESS)
}

/// State, settings and counters, a line each.
fn status_text(cache: &Cache, loop_device: Option<&Path>) -> String {
    let mut lines = cache.status().lines();
    lines.push(("process".to_owned(), std::process::id().to_string()));
    lines.extend(loop_device.map(|device| ("loop_device".to_owned(), device.display().to_string())));
    lines.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}

/// Carries out a line of the control file.
fn carry_out(cache: &Cache, line: &[u8]) -> Result<(), Errno> {
    let line = str::from_utf8(line).map_err(|_| Errno::INVAL)?.trim_end();
    let (name, value) = line.split_once('=').ok_or(Errno::INVAL)?;
    cache.change(name, value).map_err(|error| {
        tracing::warn!("{error}");
        if matches!(error, CacheError::Setting { .. }) { Errno::INVAL } else { Errno::IO }
    })
}

/// Ends it when a signal asks us to go. While it is used it is served on; a second signal does not wait for that.
fn end_on_signal(mut signals: Signals, ending: Ending) {
    std::thread::spawn(move || {
        let mut arrived = signals.forever();
        if arrived.next().is_some() {
            ending.end_by_force();
        }
        if arrived.next().is_some() {
            logging::end();
            std::process::exit(1);
        }
    });
}
