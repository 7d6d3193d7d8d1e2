//! `brindle send`: a stream of subvolumes, by [`brindle_care::send`].

use crate::commands::pool::PoolOptions;
use crate::commands::stop::Stop;
use crate::commands::usage::wrong_usage;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::Reach;
use brindle_care::job::Control;
use brindle_care::send::{SendError, SendEvent, SendOptions, send};
use brindle_fs::{Filesystem, InodeId, RootId, Subvolume};
use brindle_stream::{StreamError, StreamProblem};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Unit of writing, in bytes.
const WRITE_BYTES: usize = 1 << 20;

const EXAMPLES: &str = "\
EXAMPLES
  A snapshot of a pool that is not mounted, into a mount of the kernel:
    brindle send disk1.img disk2.img --path home.monday | sudo btrfs receive /mnt/backups

  Only the difference, a day later:
    brindle send disk1.img disk2.img --path home.tuesday -p home.monday | sudo btrfs receive /mnt/backups

  Into a file, compressed extents as they lie:
    brindle send --compressed-data -f home.stream disk1.img disk2.img --path home.monday

  Three snapshots, each as the difference from the one before:
    brindle send -e pool.img --path mon --path tue --path wed | brindle receive backup.img

EXIT STATUS
  0  the stream is whole
  1  it is not, and has no end command: no receiver takes it for whole
  2  wrong usage
  130, 143, 129  interrupted by SIGINT, SIGTERM, SIGHUP";

/// Send subvolumes as a stream
///
/// The stream is one that `btrfs receive` and `brindle receive` take. It goes to standard output, unless that is a terminal.
///
/// A subvolume must be read-only (subvolume snapshot -r). What is sent is the last commit of the pool. Subvolumes within it are not part of it, and
/// neither are inode flags (chattr), fs-verity, or (in version 1) space that is preallocated.
///
/// With -p, only the difference from that subvolume is sent, which the receiver must have. The comparison reads only what differs. When
/// several subvolumes are sent, each later one is sent as the difference from a related one before it.
///
/// Files that share extents with each other, with the parent, or with a subvolume of -c, share them at the receiver too.
///
/// A stream without its end command is cut off: after any failure, no receiver takes the subvolume for whole.
#[derive(Args, Debug)]
#[command(override_usage = "brindle send [OPTIONS] <DEVICE>... --path <PATH>...", after_long_help = EXAMPLES)]
pub(crate) struct SendCommand {
    /// A subvolume to send, by its path from the root of the subvolume that is entered; may be given several times
    #[arg(long, value_name = "PATH", required = true)]
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
    /// The devices of a pool that is not mounted
    #[arg(value_name = "DEVICE", required = true)]
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
    let devices = match Reach::of(&command.places)? {
        Reach::Devices(devices) => devices,
        Reach::Kernel(_) => bail!("this is a mount of the kernel: `btrfs send` sends there"),
        Reach::Brindle(_) => bail!("this is a mount of brindle: unmount it, and name its devices"),
    };
    let filesystem = command.pool.open(&devices)?;
    let find = |path: &OsString| find(&filesystem, path);
    let options = SendOptions {
        subvolumes: command.path.iter().map(find).collect::<Result<_>>()?,
        parent: command.parent.as_ref().map(find).transpose()?,
        sources: command.clone_source.iter().map(find).collect::<Result<_>>()?,
        version,
        compressed: command.compressed_data,
        no_data: command.no_data,
        one_stream: command.one_stream,
    };
    let stop = Stop::on_signals()?;
    let sent = match &command.file {
        None => {
            write(&filesystem, &options, &stop, quiet, &mut BufWriter::with_capacity(WRITE_BYTES, stdout()))
        }
        Some(path) => {
            let name = || path.display().to_string();
            let file = File::create(path).with_context(name)?;
            let is_file = file.metadata().with_context(name)?.is_file();
            let mut target = BufWriter::with_capacity(WRITE_BYTES, file);
            let sent = write(&filesystem, &options, &stop, quiet, &mut target);
            if sent.is_ok() && is_file {
                target.get_ref().sync_all().with_context(name)?;
            }
            // What is left after a failure is not worth a further one.
            drop(target.into_parts());
            sent
        }
    };
    match sent {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => complain(error, &stop),
    }
}

/// The subvolume whose root a path leads to.
fn find(filesystem: &Filesystem, path: &OsStr) -> Result<RootId> {
    let name = || path.to_string_lossy().into_owned();
    let id = filesystem.resolve(filesystem.root(), path.as_bytes()).with_context(name)?;
    if id != InodeId::root_of(id.tree) {
        bail!("{}: not a subvolume", name());
    }
    Ok(id.tree)
}

fn write(
    filesystem: &Filesystem,
    options: &SendOptions,
    stop: &Stop,
    quiet: bool,
    target: &mut dyn Write,
) -> Result<(), SendError> {
    let progress = if !quiet && stderr().is_terminal() {
        ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8))
    } else {
        ProgressBar::hidden()
    };
    let style = ProgressStyle::with_template("{spinner} {binary_bytes} {binary_bytes_per_sec} {wide_msg}");
    progress.set_style(style.expect("the template is right"));
    let sent = send(filesystem, options, target, &mut |event| {
        match event {
            SendEvent::Begun { subvolume, parent } => {
                if !quiet {
                    progress.suspend(|| tell_begin(subvolume, *parent));
                }
            }
            SendEvent::Command { command, bytes } => {
                tracing::debug!("{command}");
                progress.set_position(*bytes);
                if let Some(path) = command.path().filter(|_| !progress.is_hidden()) {
                    progress.set_message(String::from_utf8_lossy(path).into_owned());
                }
            }
            SendEvent::Sent(sent) => {
                let (inodes, read, shared) = (sent.inodes, sent.compared.read, sent.compared.shared);
                tracing::info!(
                    "{inodes} inodes; compared: {read} blocks read, {shared} shared ones passed over"
                );
            }
        }
        if stop.is_set() { Control::Cancel } else { Control::Continue }
    });
    progress.finish_and_clear();
    sent.map(|_| ())
}

/// Names the subvolume on standard error, in the words of btrfs-progs.
fn tell_begin(subvolume: &Subvolume, parent: Option<&Subvolume>) {
    let path = |one: &Subvolume| String::from_utf8_lossy(&one.path).into_owned();
    let from = parent.map(|parent| format!(", the difference from {}", path(parent))).unwrap_or_default();
    // With standard error closed there is no reader.
    let _ = writeln!(stderr(), "At subvol {}{from}", path(subvolume));
}

/// Tells of a failure; the exit code.
fn complain(error: SendError, stop: &Stop) -> Result<ExitCode> {
    match (&error, stop.name_and_code()) {
        (SendError::Cancelled, Some((signal, code))) => {
            output::complain_line(&format!("interrupted: {signal}: the stream has no end"));
            Ok(ExitCode::from(code))
        }
        (SendError::Stream(StreamError { problem: StreamProblem::Io(cause), .. }), _)
            if cause.kind() == ErrorKind::BrokenPipe =>
        {
            output::complain_line("the reader of the stream has gone before its end");
            Ok(ExitCode::FAILURE)
        }
        _ => Err(error.into()),
    }
}
