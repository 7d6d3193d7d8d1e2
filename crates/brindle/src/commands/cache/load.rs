//! `cache load`: opens a cache and serves it.

use super::contents::check_apart;
use crate::commands::mount::background;
use crate::commands::shown::{EndSignals, Showing, print_path, show_until_end, status_text};
use anyhow::{Context, Result, bail};
use brindle_cache::{Cache, CacheError, CacheKeeper, CacheWord, guard_disk, inspect, load_files};
use brindle_device::{FileDevice, WritableDevice, is_remote};
use brindle_lab::{Client, ShownDevice};
use clap::Args;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const MANUAL: &str = "\
THE DIRECTORY
  shows four files: disk, the cached disk; status, settings and counters as
  text; control, which takes what `brindle cache set` writes; and activity,
  which is empty but for modelled disks. All are for the user that loaded the
  cache.

AFTER A CRASH
  Everything that was flushed is there. Clean blocks are cached anew, as the
  disk may have newer ones.

AFTER A CLEAN END
  The disk may have been used alone: the first read of a cached block comes from
  the disk and is compared, the SSD answers the next ones. With fast_remove=1
  set before the end, at once.

REFUSED
  A disk of another size; damage of the cache's own data; dirty blocks for a
  disk that was written without the cache, as far as samples of it tell; an SSD
  whose mirror may have newer blocks. With --force the damaged parts, or the
  dirty blocks, are left out: what was written last is lost.

TWO SSDS
  Give both, the second one with --mirror. One that was away is brought up to
  date first: its dirty blocks are copied, clean ones are cached anew. One that
  is lost is left out, with a message; the cache goes on with the other one if
  the mark on the disk tells that it is the newest. A single SSD of two that was
  given without the other is the only one from then on, until both are given
  again. Two that were each used alone are refused together.

EXAMPLES
    brindle cache load --attach /dev/sda2 /dev/sdc /run/fsdc
    brindle cache load --attach --mirror /dev/sdb2 /dev/sda2 /dev/sdc /run/fsdc
    brindle cache load ssd.img disk.img place
    brindle cache load --attach /dev/sda2 fsdc

AS FLASHCACHE
  With SSD alone, or SSD and NAME, the SSD tells its disk, and the directory is
  /run/brindle/cache/NAME, for users other than root in XDG_RUNTIME_DIR. NAME
  must be that of the cache.

EXIT STATUS
  0  the cache is served; with --foreground: it was, and has ended
  1  it could not be loaded
  2  wrong usage";

/// Names of disks of this length may be cut off, in bytes.
const DISK_NAME_BYTES: usize = 128;
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
    /// The disk, or the URI of an export; without MOUNTPOINT, the name of the cache
    #[arg(value_name = "DISK|NAME")]
    disk: Option<PathBuf>,
    /// Directory to mount it on
    mountpoint: Option<PathBuf>,
}

/// The disk of a cache, and the directory that shows it.
struct Place {
    disk: PathBuf,
    mountpoint: PathBuf,
}

impl LoadCommand {
    /// Disk and directory as they are given, or as the SSD tells.
    fn place(&self) -> Result<Place> {
        if let (Some(disk), Some(mountpoint)) = (&self.disk, &self.mountpoint) {
            check_apart(&self.ssd, disk)?;
            check_unused(mountpoint)?;
            return Ok(Place { disk: disk.clone(), mountpoint: mountpoint.clone() });
        }
        let ssd = self.ssd.display();
        let facts = inspect(&FileDevice::open(&self.ssd)?)?;
        if let Some(name) = self.disk.as_ref().filter(|name| name.as_os_str() != &*facts.name) {
            bail!(
                "{ssd} holds the cache {}, not {}; to name the disk, give MOUNTPOINT too",
                facts.name,
                name.display()
            );
        }
        // The SSD has room for the last bytes of a name alone.
        let disk = PathBuf::from(&facts.disk);
        if !(disk.is_absolute() || is_remote(&disk)) || facts.disk.len() >= DISK_NAME_BYTES {
            bail!("{ssd} does not tell the path of its disk ({}): give DISK and MOUNTPOINT", facts.disk);
        }
        let mountpoint = runtime_directory()?.join("brindle/cache").join(file_name(&facts.name)?);
        std::fs::create_dir_all(&mountpoint).with_context(|| mountpoint.display().to_string())?;
        check_unused(&mountpoint)?;
        Ok(Place { disk, mountpoint })
    }
}

/// Refuses a directory in which a cache is served already, which the new one would hide.
fn check_unused(mountpoint: &Path) -> Result<()> {
    let Ok(status) = Client::of_any(mountpoint).and_then(|client| client.status_text()) else {
        return Ok(());
    };
    let find = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("a device");
    bail!(
        "{}: {} is served there already (SSD {}): `brindle cache stop` ends it; or give DISK and another MOUNTPOINT",
        mountpoint.display(),
        find("name "),
        find("ssd ")
    )
}

/// Directory of things that end with the system's run.
fn runtime_directory() -> Result<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()).map(PathBuf::from);
    match own {
        _ if rustix::process::geteuid().is_root() => Ok(PathBuf::from("/run")),
        Some(own) => Ok(own),
        None => bail!("XDG_RUNTIME_DIR is not set: give DISK and MOUNTPOINT"),
    }
}

/// A name that is one part of a path.
fn file_name(name: &str) -> Result<&str> {
    if Path::new(name).file_name().is_some_and(|part| part == name) {
        return Ok(name);
    }
    bail!("the name {name} is none of a directory: give DISK and MOUNTPOINT")
}

/// Runs the command.
pub(crate) fn run(command: &LoadCommand) -> Result<ExitCode> {
    if command.foreground || background::is_served() {
        return serve(command);
    }
    let place = command.place()?;
    let code = background::start()?;
    if code == ExitCode::SUCCESS {
        let client = Client::of_any(&place.mountpoint)?;
        let status = client.status_text()?;
        let attached = status.lines().find_map(|line| line.strip_prefix("loop_device "));
        print_path(&attached.map_or_else(|| client.disk(), PathBuf::from))?;
    }
    Ok(code)
}

fn serve(command: &LoadCommand) -> Result<ExitCode> {
    let place = command.place()?;
    let word = CacheWord { flash: command.ssd.clone(), mirror: command.mirror.clone(), disk: place.disk };
    let signals = EndSignals::new()?;
    let cache = Arc::new(load_files(&word, command.force)?);
    let shown = show_until_stopped(&cache, &place.mountpoint, command.attach, signals);
    // Also if it was not shown: the disk is not to keep the mark.
    let closed = cache.close();
    shown?;
    Ok(closed.map(|()| ExitCode::SUCCESS)?)
}

/// Shows a cache in a directory until it is stopped.
fn show_until_stopped(
    cache: &Arc<Cache>,
    mountpoint: &Path,
    is_attached: bool,
    signals: EndSignals,
) -> Result<()> {
    cache.veil()?;
    guard_disk(cache);
    let _keeper = CacheKeeper::start(cache).context("cannot start the thread that cleans")?;
    let (shown, commanded) = (Arc::clone(cache), Arc::clone(cache));
    let device = ShownDevice::new(
        Arc::clone(cache) as Arc<dyn WritableDevice>,
        move |loop_device| status_text(shown.status().lines(), loop_device),
        move |line| carry_out(&commanded, line),
    );
    let name = cache.status().name;
    show_until_end(device, Showing { mountpoint, name, subtype: SUBTYPE, is_attached }, signals)
}

/// Carries out a line of the control file.
fn carry_out(cache: &Cache, line: &[u8]) -> Result<(), Errno> {
    let line = std::str::from_utf8(line).map_err(|_| Errno::INVAL)?.trim_end();
    let (name, value) = line.split_once('=').ok_or(Errno::INVAL)?;
    cache.change(name, value).map_err(|error| {
        tracing::warn!("{error}");
        if matches!(error, CacheError::Setting { .. }) { Errno::INVAL } else { Errno::IO }
    })
}
