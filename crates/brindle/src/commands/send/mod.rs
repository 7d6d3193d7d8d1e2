//! `brindle send`: a stream of subvolumes, by [`brindle_care::send`]: here of devices (`devices.rs`), or in the server of a mount
//! (`mount.rs`), or in the kernel (`kernel.rs`).

mod devices;
mod kernel;
mod mount;

use crate::commands::pool::PoolOptions;
use crate::commands::stop::Stop;
use crate::commands::usage::wrong_usage;
use crate::output;
use anyhow::{Context, Error, Result, bail};
use brindle_admin::streams::{pass_on, widen};
use brindle_admin::{ControlError, Mounted, Reach};
use brindle_cache::is_no_path;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

/// Unit of writing, in bytes.
const WRITE_BYTES: usize = 1 << 20;

const EXAMPLES: &str = "\
EXAMPLES
  A snapshot of a mount, to another machine:
    brindle send /mnt/home.monday | ssh backup brindle receive /mnt/backups

  Only the difference, a day later:
    brindle send -p /mnt/home.monday /mnt/home.tuesday |
        ssh backup brindle receive /mnt/backups

  A snapshot of a pool that is not mounted, into a mount of the kernel:
    brindle send disk1.img disk2.img --path home.monday |
        sudo btrfs receive /mnt/backups

  Into a file, compressed extents as they lie:
    brindle send --compressed-data -f home.stream disk1.img disk2.img \\
        --path home.monday

  Three snapshots, each as the difference from the one before:
    brindle send -e pool.img --path mon --path tue --path wed |
        brindle receive backup.img

EXIT STATUS
  0  the stream is whole
  1  it is not, and has no end command: no receiver takes it for whole
  2  wrong usage
  130, 143, 129  interrupted by SIGINT, SIGTERM, SIGHUP";

/// Send subvolumes as a stream
///
/// The stream is one that `btrfs receive` and `brindle receive` take. It goes to standard output, unless that is a terminal.
///
/// Subvolumes of a mount are named by their paths: the server of a mount of brindle sends them, or, for root, the kernel those of its
/// own. Of a pool that is not
/// mounted, the devices are named, and the subvolumes by --path, as -p and -c name theirs.
///
/// A subvolume must be read-only (subvolume snapshot -r), and can't be made writable or deleted while it is sent, nor can those of
/// -p and -c. Subvolumes within it are not part of it, and
/// neither are inode flags (chattr), fs-verity, or (in version 1) space that is preallocated.
///
/// With -p, only the difference from that subvolume is sent, which the receiver must have. The comparison reads only what differs. When
/// several subvolumes are sent, each later one is sent as the difference from a related one before it.
///
/// Files that share extents with each other, with the parent, or with a subvolume of -c, share them at the receiver too.
///
/// A stream without its end command is cut off: after any failure, no receiver takes the subvolume for whole.
#[derive(Args, Debug)]
#[command(override_usage = "brindle send [OPTIONS] <SUBVOLUME>...\n       brindle send [OPTIONS] <DEVICE>... --path <PATH>...", after_long_help = EXAMPLES)]
pub(crate) struct SendCommand {
    /// A subvolume to send of devices, by its path from the root of the subvolume that is entered; may be given several times
    #[arg(long, value_name = "PATH")]
    path: Vec<OsString>,
    /// Send the difference from this subvolume, which the receiver has
    #[arg(short, long, value_name = "PATH")]
    parent: Option<OsString>,
    /// Clone from this subvolume, which the receiver has; may be given several times
    #[arg(short = 'c', long = "clone-source", value_name = "PATH")]
    clone_source: Vec<OsString>,
    /// Write the stream to this file, not to standard output
    #[arg(short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Send several subvolumes as one stream with a single end
    #[arg(short = 'e')]
    one_stream: bool,
    /// Version of the format: 1, which all receivers take, or 2; 0 for the newest. [default: 1, with --compressed-data 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=2))]
    proto: Option<u32>,
    /// Send compressed extents as they lie, where that is not longer. Needs version 2
    #[arg(long)]
    compressed_data: bool,
    /// Send ranges that changed without their contents, for `receive --dump`; such a stream can't be received
    #[arg(long)]
    no_data: bool,
    #[command(flatten)]
    pool: PoolOptions,
    /// Read-only subvolumes of a mount, or the devices of a pool that is not mounted
    #[arg(value_name = "SUBVOLUME|DEVICE", required = true)]
    places: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &SendCommand, quiet: bool) -> Result<ExitCode> {
    let version = match command.proto {
        None => 1 + u32::from(command.compressed_data),
        Some(0) => 2,
        Some(1) if command.compressed_data => {
            return wrong_usage("--compressed-data needs --proto 2".to_owned());
        }
        Some(version) => version,
    };
    if command.file.is_none() && stdout().is_terminal() {
        return wrong_usage(
            "the stream goes to standard output, which is a terminal: -f takes a file".to_owned(),
        );
    }
    if let Some(gone) = command.places.iter().find(|place| !is_no_path(place) && !place.exists()) {
        if let Some(ended) = ControlError::of_dead_mount(gone) {
            return Err(ended.into());
        }
        bail!("{}: no such file or directory", gone.display());
    }
    let is_mount = command.places.iter().all(|place| place.is_dir());
    if is_mount {
        let subvolumes = mounted(&command.places)?;
        command.refuse_words_of_devices()?;
        if subvolumes.iter().any(Mounted::is_of_kernel) {
            let sending = kernel::Sending::begin(command, version, subvolumes)?;
            let stop = Stop::on_signals()?;
            return end(into_target(command, |target| sending.write(target, &stop, quiet)), &stop);
        }
        let sending = mount::Sending::begin(command, version, &subvolumes)?;
        let stop = Stop::on_signals()?;
        return end(into_target(command, |target| sending.write(target, &stop, quiet)), &stop);
    }
    let devices = match Reach::of(&command.places)? {
        Reach::Devices(devices) => devices,
        Reach::Kernel(_) | Reach::Brindle(_) => return wrong_usage("a mount and devices".to_owned()),
    };
    if command.path.is_empty() {
        return wrong_usage("--path names the subvolume of these devices".to_owned());
    }
    let sending = devices::Sending::begin(command, version, &devices)?;
    let stop = Stop::on_signals()?;
    end(into_target(command, |target| sending.write(target, &stop, quiet)), &stop)
}

impl SendCommand {
    /// Refuses what is for devices alone.
    fn refuse_words_of_devices(&self) -> Result<()> {
        if !self.path.is_empty() {
            return wrong_usage("--path is for devices: subvolumes of a mount are operands".to_owned());
        }
        if self.pool.is_given() {
            return wrong_usage("--subvol, --subvolid and -o are for devices".to_owned());
        }
        Ok(())
    }
}

/// Opens directories of mounts.
fn mounted(paths: &[impl AsRef<std::path::Path>]) -> Result<Vec<Mounted>> {
    Ok(paths.iter().map(|path| Mounted::open(path.as_ref())).collect::<Result<_, _>>()?)
}

/// Copies the stream of another thread, or of a server, to its end.
fn copy(stream: &File, target: &File, stop: &Stop, progress: &ProgressBar) -> Result<(), Failure> {
    while !stop.is_set() {
        match pass_on(stream, target, WRITE_BYTES) {
            Ok(0) => return Ok(()),
            Ok(length) => progress.inc(length as u64),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(Failure::NoReader),
            Err(error) => return Err(Error::new(error).context("write the stream").into()),
        }
    }
    Err(Failure::Stopped)
}

/// Writes the stream to where it is to go.
fn into_target(
    command: &SendCommand,
    write: impl FnOnce(&File) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(path) = &command.file else {
        let target = stdout().as_fd().try_clone_to_owned().context("standard output")?;
        widen(&target);
        return write(&target.into());
    };
    let name = || path.display().to_string();
    let file = File::create(path).with_context(name)?;
    let is_file = file.metadata().with_context(name)?.is_file();
    let written = write(&file);
    if written.is_ok() && is_file {
        file.sync_all().with_context(name)?;
    }
    written
}

/// Reason for which there is no whole stream.
enum Failure {
    /// A signal has come.
    Stopped,
    /// The reader of the stream has gone.
    NoReader,
    /// Anything else.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Tells of a failure; the exit code.
fn end(written: Result<(), Failure>, stop: &Stop) -> Result<ExitCode> {
    match (written, stop.name_and_code()) {
        (Ok(()), _) => Ok(ExitCode::SUCCESS),
        (Err(Failure::Stopped), Some((signal, code))) => {
            output::complain_line(&format!("interrupted: {signal}: the stream has no end"));
            Ok(ExitCode::from(code))
        }
        (Err(Failure::Stopped), None) => Err(Error::msg("the mount ends: the stream has no end")),
        (Err(Failure::NoReader), _) => {
            output::complain_line("the reader of the stream has gone before its end");
            Ok(ExitCode::FAILURE)
        }
        (Err(Failure::Other(error)), _) => Err(error),
    }
}

/// A bar that shows the bytes that were sent, on a terminal.
fn progress_bar(quiet: bool) -> ProgressBar {
    let progress = if !quiet && stderr().is_terminal() {
        ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8))
    } else {
        ProgressBar::hidden()
    };
    let style = ProgressStyle::with_template("{spinner} {binary_bytes} {binary_bytes_per_sec} {wide_msg}");
    progress.set_style(style.expect("the template is right"));
    progress
}

/// Names the subvolume on standard error, in the words of btrfs-progs.
fn tell_begin(progress: &ProgressBar, path: &[u8], parent: Option<&[u8]>) {
    let path = String::from_utf8_lossy(path);
    let from = parent.map(|parent| format!(", the difference from {}", String::from_utf8_lossy(parent)));
    // With standard error closed there is no reader.
    progress.suspend(|| {
        let _ = writeln!(stderr(), "At subvol {path}{}", from.unwrap_or_default());
    });
}
