//! `brindle mount`: a pool as a directory tree.
//!
//! A mount needs a process that serves it. Unless `--foreground` was given, that is a second process: we start
//! ourselves again ([`background`]) and wait until it reports that the mount answers, or why it doesn't.

mod background;
pub(crate) mod helper;

use crate::commands::operands::Operands;
use crate::commands::options::MountOptions;
use crate::commands::pool::open_filesystem;
use anyhow::{Context, Result, bail};
use brindle_fuse::{MountError, MountHandle, UnmountHandle};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const EXAMPLES: &str = "\
MOUNT OPTIONS
  ro                   the default, and all that there is
  degraded             go on without missing devices if everything can be read without them
  subvol=PATH          the subvolume at PATH, from the top level, is the root
  subvolid=ID          the subvolume of this id is the root; 5 is the top level
  device=PATH          one more device of the pool; can be given several times
  allow_other          other users may look inside (an ordinary user may allow that only if
                       /etc/fuse.conf says user_allow_other)
  default_permissions  the kernel checks permissions; the default
  auto_unmount         the mount goes away when the serving process dies
  dev, suid            device nodes and set-user-id programs work; for root
  noexec, noatime, and others of mount(8) that change nothing here

EXAMPLES
  A pool of two devices:
    brindle mount a.img b.img /mnt

  A subvolume of a pool that lost a disk:
    brindle mount -o degraded,subvol=home /dev/sdb /mnt

  By mount(8), and so by a line of /etc/fstab (`/dev/sdb /mnt fuse.brindle ro,device=/dev/sdc`):
    mount -t fuse.brindle -o ro,device=/dev/sdc /dev/sdb /mnt

EXIT STATUS
  0  the filesystem is mounted; with --foreground: it was, and is unmounted
  1  it could not be mounted
  2  wrong usage";

/// Mount a pool, read-only
///
/// The filesystem is there when the command returns. A process stays in the background to serve it, until
/// it is unmounted: by `brindle umount`, `umount`, `fusermount3 -u`, or SIGTERM to that process.
///
/// No privileges are needed beyond those to read the devices, as long as fusermount3 is installed.
#[derive(Args, Debug)]
#[command(
    override_usage = "brindle mount [OPTIONS] <DEVICE>... <MOUNTPOINT>",
    after_long_help = EXAMPLES
)]
pub(crate) struct MountCommand {
    /// Stay in the foreground, until the filesystem is unmounted or Ctrl-C is typed
    #[arg(short, long)]
    foreground: bool,
    /// Comma-separated mount options, see below
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// How many requests are worked on at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Called by mount(8), which asks for rw unless told otherwise
    #[arg(long, hide = true)]
    helper: bool,
    /// Do everything but mount
    #[arg(long, hide = true)]
    fake: bool,
    #[command(flatten)]
    operands: Operands,
}

/// Runs the command.
pub(crate) fn run(command: &MountCommand) -> Result<ExitCode> {
    command.operands.require("mount");
    let options = MountOptions::parse(&command.options)?;
    if options.has("rw", "ro") {
        if !command.helper {
            bail!("this version mounts read-only: leave out the option rw");
        }
        if !background::is_served() {
            tracing::warn!("mounting read-only: this version does not write");
        }
    }
    if command.foreground || command.fake || background::is_served() {
        serve(command, &options)
    } else {
        background::start()
    }
}

fn serve(command: &MountCommand, options: &MountOptions) -> Result<ExitCode> {
    let paths: Vec<&Path> =
        command.operands.devices().iter().chain(&options.devices).map(PathBuf::as_path).collect();
    let filesystem = open_filesystem(&paths, options)?;
    if command.fake {
        return Ok(ExitCode::SUCCESS);
    }
    // Signals must not kill us between the mount and the thread that waits for them.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
    let fuse_options = fuse_options(command, options);
    let handle = brindle_fuse::mount(Arc::new(filesystem), command.operands.last(), &fuse_options)?;
    unmount_on_signal(signals, handle.unmount_handle());
    background::report_ready()?;
    wait(handle)?;
    Ok(ExitCode::SUCCESS)
}

fn wait(handle: MountHandle) -> Result<(), MountError> {
    tracing::info!("serving {}", handle.mountpoint().display());
    handle.wait()
}

fn fuse_options(command: &MountCommand, options: &MountOptions) -> brindle_fuse::MountOptions {
    let defaults = brindle_fuse::MountOptions::for_devices(command.operands.devices());
    brindle_fuse::MountOptions {
        source: options.source.clone().unwrap_or(defaults.source),
        allow_other: options.has("allow_other", ""),
        auto_unmount: options.has("auto_unmount", ""),
        devices: options.has("dev", "nodev"),
        set_user_id: options.has("suid", "nosuid"),
        execute: !options.has("noexec", "exec"),
        access_times: !options.has("noatime", "atime"),
        threads: command.threads.map_or(defaults.threads, usize::from),
        ..defaults
    }
}

/// Unmounts when a signal asks us to go. What is busy is taken out of the tree, and served until its last user
/// has gone; a second signal does not wait for that.
fn unmount_on_signal(mut signals: Signals, handle: UnmountHandle) {
    std::thread::spawn(move || {
        let mut arrived = signals.forever();
        if arrived.next().is_some()
            && let Err(error) = handle.unmount()
        {
            tracing::warn!("{error}; it disappears now, and ends when nobody uses it any more");
            if let Err(error) = handle.detach() {
                tracing::warn!("{error}");
            }
        }
        if arrived.next().is_some() {
            std::process::exit(1);
        }
    });
}
