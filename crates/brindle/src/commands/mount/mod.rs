//! `brindle mount`: a pool as a directory tree.
//!
//! A mount needs a process that serves it. Unless `--foreground` was given, that is a second process: we start
//! ourselves again ([`background`]) and wait until it reports that the mount answers, or why it doesn't.

pub(crate) mod background;
mod block_device;
pub(crate) mod ending;
mod further;
pub(crate) mod guard;
pub(crate) mod helper;
mod memory;
mod open;
mod panic;
mod remount;

use crate::commands::companions::others;
use crate::commands::device_word::{real, refuse_twice, split_class};
use crate::commands::mount_options::{self, MountOptions};
use crate::commands::operands::Operands;
use crate::commands::pool::first_superblock;
use crate::commands::state_directory::state_directory;
use crate::commands::tier::log;
use crate::commands::tier_warning;
use crate::commands::usage::OrWrongUsage;
use crate::logging;
use anyhow::{Context, Result};
use brindle_cache::is_no_path;
use brindle_fs::PlacementClass;
use brindle_fuse::{MountError, MountHandle, UnmountHandle};
use clap::{Args, Command};
pub(crate) use memory::machine_bytes;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const MANUAL: &str = "\
WHAT IS DURABLE
  What fsync(2), fdatasync(2) or msync(2) returned for, and with notreelog
  everything else; what was written by a descriptor with O_SYNC or O_DSYNC, or
  by pwritev2(2) with RWF_SYNC or RWF_DSYNC; what was written before a commit;
  all of it once `brindle umount` returns. docs/user/semantics.md has a table of
  it. A name that a file was given after it was closed, in place of another
  file, has the old contents or the new ones after a crash, whole.

  A mount of root that is written is made on a block device (-o blkdev, type
  fuseblk.brindle): what was written before sync(1) or syncfs(2) is durable when
  these return, and umount(8) returns after the last commit. To other mounts
  sync(1) and syncfs(2) are not passed on: what they cover is durable with the
  next commit, after commit= seconds, or at once by `brindle filesystem sync`;
  and umount(8) returns before the last commit is on the devices, unless
  umount.fuse.brindle is installed. Wait for the serving process to end before
  the devices are used otherwise; the installed helpers do.

  A pool that root has mounted on a block device can be mounted again, also
  another subvolume of it, by any of its devices: at other places, with other
  options of the mount itself (ro, nodev, nosuid, noexec). All other options are
  those of the first mount. The command returns at once then, also with
  --foreground, and the process of the first mount serves all of them.

  When a write fails, of contents or of a commit, in more copies than the
  profile can spare, the mount becomes read-only: fsync(2) tells of the error,
  the reason is logged and shown by `brindle filesystem usage`, and the devices
  hold the last commit.

THE LOG
  In the foreground, standard error. A mount in the background logs to the
  journal; where there is none to syslog (/dev/log), and where there is neither,
  as root, to the log of the kernel (/dev/kmsg). An ordinary user on a machine
  without journal and syslog has the counters of `brindle device stats`, or
  --foreground. The identifier is brindle, and each line begins with the mount
  point: `journalctl -t brindle`. What is logged again is counted, and told
  again after a minute, ten minutes and then once an hour, and in the end.

ENVIRONMENT
  BRINDLE_LOG         what is logged, such as `info` or `brindle_volume=debug`;
                      warnings and errors unless told otherwise
  BRINDLE_LOG_SOCKET  the journal's socket; /run/systemd/journal/socket unless
                      told otherwise

EXAMPLES
  A pool of two devices:
    brindle mount a.img b.img /mnt

  A subvolume of a pool that lost a disk; the disks that are left are found:
    brindle mount -o degraded,subvol=home /dev/sdb /mnt

  One disk alone, though others of the pool are attached, which miss what is
  written:
    brindle mount -o degraded=named /dev/sdb /mnt

  Two disks, each with the flash cache that `brindle cache create` has made for
  it; they are complete without their SSDs when the mount has ended:
    brindle mount cache:/dev/sda2:/dev/sdc cache:/dev/sdb2:/dev/sdd /mnt

  As read-only, while it is in use:
    brindle mount -o remount,ro /mnt

  Two subvolumes of it, by one process, which ends with the last of the mounts
  (root):
    brindle mount -o subvol=@ /dev/sdb /dev/sdc /mnt
    brindle mount -o subvol=@home /dev/sdb /mnt/home

  A pool by its UUID, by its label, or by one of its block devices: the others
  are looked for among the block devices, also with -o degraded. Image files are
  all named:
    brindle mount UUID=8a0c7f5e-2f4e-4a51-9d0b-0e6f2b7c1d3a /mnt
    brindle mount LABEL=home /mnt

  By mount(8), and so by a line of /etc/fstab (`UUID=... /mnt fuse.brindle
  noatime,nofail`). It takes one device; the others of the pool are looked for
  in the same way, other ones are named by device=:
    mount -t fuse.brindle -o noatime /dev/sdb /mnt
    mount -t fuse.brindle -o device=b.img a.img /mnt

EXIT STATUS
  0  the filesystem is mounted; with --foreground: it was, and is unmounted
  1  it could not be mounted; with --foreground also: the last writes are lost
  2  wrong usage";

/// Mount a pool
///
/// Changes are made durable by fsync(2), by sync(1) where root has mounted, and by itself every 30 seconds (-o commit=);
/// every 5 seconds where sync(1) is not passed on: `brindle filesystem sync` returns when all is durable.
///
/// The filesystem is there when the command returns. A process stays in the background to serve it, until
/// it is unmounted: by `brindle umount`, `umount`, `fusermount3 -u`, or SIGTERM to that process. While files on it are open
/// or it is the working directory of a process, SIGTERM detaches it and makes all writes durable, and the process ends with
/// the last of them, or at a second signal.
///
/// A pool that can't be written (its devices are write-protected, it uses features that this version can only read)
/// is mounted read-only, with a warning; with -o rw that is an error.
///
/// No privileges are needed beyond those to read and write the devices, as long as fusermount3 is installed.
#[derive(Args, Debug)]
#[command(
    override_usage = "brindle mount [OPTIONS] <DEVICE>... <MOUNTPOINT>",
    after_long_help = format!("{}\n{MANUAL}", mount_options::manual())
)]
pub(crate) struct MountCommand {
    /// Stay in the foreground, until the filesystem is unmounted or Ctrl-C is typed
    #[arg(short, long)]
    foreground: bool,
    /// Comma-separated mount options, see below
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Number of requests to work on at once
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
pub(crate) fn run(command: &MountCommand, tree: &Command) -> Result<ExitCode> {
    if remount::is_asked_for(&command.options) {
        return remount::run(&command.options, command.operands.place());
    }
    command.operands.require("mount", tree);
    let mut options = MountOptions::parse(&command.options)?;
    options.check_read_only().or_wrong_usage()?;
    options.metadata_bytes.get_or_insert_with(memory::budget_bytes);
    refuse_twice(devices(command, &options)?.iter().map(|(path, _)| path.as_path()))?;
    if command.foreground || command.fake || background::is_served() {
        serve(command, &options)
    } else {
        background::start()
    }
}

/// The devices, and their classes. Their paths are absolute: the process that serves the mount tells them to callers elsewhere.
/// `device=` may name an operand again, as in lines of fstab for the kernel's btrfs.
fn devices(command: &MountCommand, options: &MountOptions) -> Result<Vec<(PathBuf, Option<PlacementClass>)>> {
    let split = |word: &PathBuf| split_class(word).map(|(path, class)| (absolute(path), class));
    let mut devices = command.operands.devices().iter().map(split).collect::<Result<Vec<_>>>()?;
    for word in &options.devices {
        let (path, class) = split(word)?;
        match devices.iter_mut().find(|(known, _)| real(known) == real(&path)) {
            Some((_, said)) if said.is_none() || class.is_none() || *said == class => *said = said.or(class),
            _ => devices.push((path, class)),
        }
    }
    Ok(devices)
}

/// An absolute path of a device, links as they are; a URI of NBD, or the word of a cache, as it is.
fn absolute(path: PathBuf) -> PathBuf {
    if is_no_path(&path) { path } else { std::path::absolute(&path).unwrap_or(path) }
}

/// The others of the pool of these devices that the machine has.
fn others_of(devices: &[(PathBuf, Option<PlacementClass>)], options: &MountOptions) -> Vec<PathBuf> {
    let named: Vec<PathBuf> = devices.iter().map(|(path, _)| path.clone()).collect();
    others(&named, &[], options)
}

/// All of them.
fn with_others(
    devices: &[(PathBuf, Option<PlacementClass>)],
    others: &[PathBuf],
    options: &MountOptions,
) -> Vec<(PathBuf, Option<PlacementClass>)> {
    let others = others.iter().map(|path| (path.clone(), None));
    let mut all: Vec<_> = devices.iter().cloned().chain(others).collect();
    if options.degraded {
        stale_last(&mut all);
    }
    all
}

/// Puts devices last that lack commits: the mount claims the first one, and a device that the pool is left without is to be free.
fn stale_last(devices: &mut [(PathBuf, Option<PlacementClass>)]) {
    let generation = |path: &Path| first_superblock(path).map(|superblock| superblock.generation);
    let newest = devices.iter().filter_map(|(path, _)| generation(path)).max();
    devices.sort_by_cached_key(|(path, _)| generation(path) < newest);
}

fn serve(command: &MountCommand, options: &MountOptions) -> Result<ExitCode> {
    options.warn();
    let devices = devices(command, options)?;
    // mount(8) says rw when its user said nothing.
    let insists = options.mount.read_only == Some(false) && !command.helper;
    let mountpoint = command.operands.last();
    let of_kernel = fuse_options(command, options);
    let mut turn = further::Turn::new();
    let opened = loop {
        let paths: Vec<&Path> = devices.iter().map(|(path, _)| path.as_path()).collect();
        if !command.fake && further::mount(&paths, mountpoint, options, &of_kernel, command.helper)? {
            background::report_ready()?;
            return Ok(ExitCode::SUCCESS);
        }
        let found = others_of(&devices, options);
        match open::filesystem(&with_others(&devices, &found, options), &found, options, insists) {
            Ok(opened) => break opened,
            Err(error) if turn.wait(&error, devices.iter().map(|(path, _)| path.as_path()), options) => {}
            Err(error) => return Err(ending::name_abandoned(error)),
        }
    };
    let open::Opened { filesystem, read_only_reason, first, mut claim } = opened;
    open::choose_read_policy(&filesystem, options)?;
    if options.write.small_file_bytes.is_some_and(|bytes| bytes > 0) {
        tier_warning::of_pool(&filesystem, options.write.placement, "small_files");
    }
    if let (Some(profile), Ok(placement)) = (options.write.log_profile, filesystem.pool().log_placement()) {
        log::warn(profile, &placement);
    }
    if command.fake {
        return Ok(ExitCode::SUCCESS);
    }
    panic::ends_the_server();
    // Signals must not kill us between the mount and the thread that waits for them.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
    let fuse_options =
        brindle_fuse::MountOptions { read_only: !filesystem.is_writable(), read_only_reason, ..of_kernel };
    let label = String::from_utf8_lossy(filesystem.pool().superblock().label()).into_owned();
    let handle = block_device::mount(filesystem, mountpoint, options, &fuse_options, &first, &mut claim)?;
    unmount_on_signal(signals, handle.unmount_handle());
    guard::start(&handle);
    let place = handle.mountpoint().display();
    let place = if label.is_empty() { place.to_string() } else { format!("{place} ({label})") };
    logging::serve(place, background::is_served())?;
    background::report_ready()?;
    wait(handle)?;
    Ok(ExitCode::SUCCESS)
}

fn wait(handle: MountHandle) -> Result<(), MountError> {
    tracing::info!("serving {}", handle.mountpoint().display());
    handle.wait()
}

fn fuse_options(command: &MountCommand, options: &MountOptions) -> brindle_fuse::MountOptions {
    let path = |word: &PathBuf| absolute(split_class(word).map_or_else(|_| word.clone(), |(path, _)| path));
    let paths: Vec<PathBuf> = command.operands.devices().iter().map(path).collect();
    let defaults = brindle_fuse::MountOptions::for_devices(&paths);
    brindle_fuse::MountOptions {
        source: options.source.clone().unwrap_or(defaults.source),
        allow_other: options.mount.allow_other.unwrap_or_else(is_root),
        auto_unmount: options.mount.auto_unmount,
        devices: is_allowed(command, options.mount.devices),
        set_user_id: is_allowed(command, options.mount.set_user_id),
        execute: !options.mount.no_execute,
        atime: options.write.atime,
        directory_atime: !options.mount.no_directory_atime,
        state_directory: Some(state_directory()),
        auto_defragment: options.mount.auto_defragment,
        autodefrag: options.mount.autodefrag,
        destage: options.mount.destage,
        commit_interval: options.mount.commit_interval.unwrap_or(defaults.commit_interval),
        owners_delete_subvolumes: options.mount.owners_delete_subvolumes,
        process_ends_with_mount: true,
        synchronous: options.synchronous(),
        threads: command.threads.map_or(defaults.threads, usize::from),
        rings: options.mount.rings,
        given: mount_options::given(&command.options),
        ..defaults
    }
}

/// Returns true if something dangerous is to work on the mount: if that is asked for. mount(8) keeps to itself what is its default, so
/// that its silence means the same, where root mounts.
fn is_allowed(command: &MountCommand, asked_for: Option<bool>) -> bool {
    asked_for.unwrap_or(command.helper && is_root())
}

fn is_root() -> bool {
    rustix::process::getuid().is_root() && rustix::process::geteuid().is_root()
}

/// Unmounts when a signal asks us to go. What is busy is taken out of the tree, and served until its last user
/// has gone; a second signal does not wait for that. What was written is durable in any case.
fn unmount_on_signal(mut signals: Signals, handle: UnmountHandle) {
    std::thread::spawn(move || {
        let mut arrived = signals.forever();
        if arrived.next().is_some() {
            if let Err(error) = handle.unmount() {
                tracing::warn!("{error}; it disappears now, and ends with its last user");
                if let Err(error) = handle.detach() {
                    tracing::warn!("{error}");
                }
                sync(&handle);
            }
        }
        if arrived.next().is_some() {
            sync(&handle);
            logging::end();
            std::process::exit(1);
        }
    });
}

fn sync(handle: &UnmountHandle) {
    if let Err(error) = handle.sync() {
        tracing::error!("{error}");
    }
}
