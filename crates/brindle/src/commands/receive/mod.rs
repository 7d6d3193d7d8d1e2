//! `brindle receive`: subvolumes from a stream, by [`brindle_care::receive`]: here into devices or a mount of the kernel, or in the
//! server of a mount (`mount.rs`).

mod mount;

use crate::commands::mount_options::MountOptions;
use crate::commands::path::{PathOption, name_json};
use crate::commands::place::open_devices_to_write;
use crate::commands::stop::Stop;
use crate::commands::usage::wrong_usage;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::kernel_receive::receive_by_kernel;
use brindle_admin::streams::widen;
use brindle_admin::{Mounted, Reach};
use brindle_care::job::Control;
use brindle_care::receive::{
    ReceiveError, ReceiveEvent, ReceiveFailure, ReceiveObserver, ReceiveOptions, receive,
};
use brindle_stream::{Command, StreamReader};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write, stdin};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

/// Unit of reading, in bytes.
const READ_BYTES: usize = 1 << 20;

/// Longest time for which a signal waits while nothing comes.
const SIGNAL_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

const EXAMPLES: &str = "\
EXAMPLES
  A snapshot of another machine, into a mount of brindle:
    ssh server sudo btrfs send /mnt/home.monday |
        sudo brindle receive /mnt/backups

  A snapshot of a kernel's mount, into a pool that is not mounted:
    sudo btrfs send /mnt/home.monday |
        brindle receive -p backups disk1.img disk2.img

  Only the difference, a day later:
    sudo btrfs send -p /mnt/home.monday /mnt/home.tuesday |
        brindle receive -p backups disk1.img disk2.img

  The commands of a stream:
    brindle receive --dump -f home.stream

EXIT STATUS
  0  every subvolume of the stream was received
  1  one was not: it stays under its name, writable and not marked as received;
     those before it are whole
  2  wrong usage
  130, 143, 129  interrupted by SIGINT, SIGTERM, SIGHUP";

/// Receive subvolumes from a stream of `send`
///
/// The stream is one of `btrfs send`, version 1 or 2. Each subvolume of it becomes a read-only subvolume of the pool, with the contents,
/// names, owners, modes, extended attributes and times of the source. It is marked as received, which incremental streams build
/// on, in one step with its end: a subvolume that has the mark is whole and durable.
///
/// Into a mount of the kernel it receives too, by the calls that any program has there (root may): a subvolume that has the mark is
/// durable, but a crash may leave it writable; times of birth are those of receiving, and compressed contents stay as they come.
///
/// An incremental stream (`send -p`) needs the subvolume that it builds on, unchanged, in the same pool. It is found by its UUID.
///
/// Paths of a stream never lead out of its subvolume.
#[derive(Args, Debug)]
#[command(
    override_usage = "brindle receive [OPTIONS] <DIRECTORY>\n       brindle receive [OPTIONS] <DEVICE>...\n       brindle receive --dump [-f FILE]",
    after_long_help = EXAMPLES
)]
pub(crate) struct ReceiveCommand {
    /// Read the stream from this file, not from standard input
    #[arg(short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// End at the first end of a stream, even if more follows
    #[arg(short = 'e')]
    one_stream: bool,
    /// Go on after failed commands until there are this many; 0 for no limit. A subvolume with failures is never marked as received
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1)]
    max_errors: u64,
    /// Print the commands of the stream, and receive nothing
    #[arg(long)]
    dump: bool,
    /// Decompress contents that come compressed, as a pool of ours does in any case
    #[arg(long)]
    force_decompress: bool,
    /// For scripts that are written for btrfs-progs: paths of a stream never lead out of its subvolume
    #[arg(short = 'C', long)]
    chroot: bool,
    /// For scripts that are written for btrfs-progs: the mount of the pool is found by itself
    #[arg(short = 'm', value_name = "MOUNTPOINT")]
    root_mount: Option<PathBuf>,
    /// Comma-separated: subvol=PATH and subvolid=ID (enter by it), compress=ALGORITHM, degraded, device=PATH
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    #[command(flatten)]
    path: PathOption,
    #[command(flatten)]
    json: JsonOption,
    /// A directory of a mount, or the devices of a pool that is not mounted
    #[arg(value_name = "DIRECTORY|DEVICE", required_unless_present = "dump")]
    places: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &ReceiveCommand) -> Result<ExitCode> {
    let _ = (command.chroot, &command.root_mount);
    let source = match &command.file {
        Some(path) => File::open(path).with_context(|| path.display().to_string())?,
        None if stdin().is_terminal() => {
            return wrong_usage(
                "the stream comes from standard input, which is a terminal: -f takes a file".to_owned(),
            );
        }
        None => stdin().as_fd().try_clone_to_owned().context("standard input")?.into(),
    };
    widen(&source);
    if command.dump {
        return dump(BufReader::with_capacity(READ_BYTES, source));
    }
    match Reach::of(&command.places)? {
        Reach::Devices(devices) => on_devices(command, &devices, &source),
        Reach::Kernel(mounted) => on_kernel(command, &mounted.0, &source),
        Reach::Brindle(mounted) => mount::run(command, &mounted.0, &source),
    }
}

fn on_devices(command: &ReceiveCommand, devices: &[PathBuf], source: &File) -> Result<ExitCode> {
    let mount = MountOptions::parse(&command.options)?;
    let devices: Vec<PathBuf> = devices.iter().chain(&mount.devices).cloned().collect();
    let filesystem = open_devices_to_write(&devices, &mount)?;
    let directory = command.path.resolve(&filesystem)?;
    let stop = Stop::on_signals()?;
    carry_out(command, &stop, &mut |options, observer| {
        let source = Interruptible { source, stop: &stop };
        let received = receive(&filesystem, directory, source, options, observer);
        // Also after a failure: subvolumes before it are durable already, and the rest is to be looked at.
        filesystem.shutdown()?;
        Ok(received)
    })
}

fn on_kernel(command: &ReceiveCommand, mounted: &Mounted, source: &File) -> Result<ExitCode> {
    refuse_options_of_devices(command)?;
    let stop = Stop::on_signals()?;
    carry_out(command, &stop, &mut |options, observer| {
        let source = Interruptible { source, stop: &stop };
        Ok(receive_by_kernel(mounted, source, command.force_decompress, options, observer))
    })
}

/// Refuses what makes sense for devices alone.
fn refuse_options_of_devices(command: &ReceiveCommand) -> Result<()> {
    if command.options.is_empty() && command.path.as_bytes() == b"/" {
        return Ok(());
    }
    wrong_usage("-o and -p are for devices: name the directory of the mount".to_owned())
}

/// Receives in this process; the outer error is one that has nothing to do with the stream.
type Receive<'r> =
    &'r mut dyn FnMut(&ReceiveOptions, ReceiveObserver<'_>) -> Result<Result<u64, ReceiveError>>;

/// Receives in this process, and tells of it.
fn carry_out(command: &ReceiveCommand, stop: &Stop, receive: Receive<'_>) -> Result<ExitCode> {
    let options = ReceiveOptions { errors_max: command.max_errors, one_stream: command.one_stream };
    let mut names: Vec<Value> = Vec::new();
    let mut observer = |event: &ReceiveEvent<'_>| {
        match event {
            ReceiveEvent::Reserved(_) => {}
            ReceiveEvent::Begun(begun) => {
                tracing::debug!("subvolume {}, id {}", String::from_utf8_lossy(&begun.name), begun.id);
            }
            ReceiveEvent::Command(placed) => tracing::debug!("{}", placed.command),
            ReceiveEvent::Failed(error) => output::complain_line(&error.to_string()),
            ReceiveEvent::Finished(received) => names.push(tell(command, &received.name, received.id.get())),
        }
        if stop.is_set() { Control::Cancel } else { Control::Continue }
    };
    let received = receive(&options, &mut observer)?;
    let failure = received.as_ref().err().map(ToString::to_string);
    sum_up(command, &names, failure.as_deref())?;
    match received {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) => Ok(ExitCode::from(complain(&error, stop))),
    }
}

/// The stream, of which no more is waited for after a signal.
struct Interruptible<'s> {
    source: &'s File,
    stop: &'s Stop,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if self.stop.is_set() {
                return Err(std::io::Error::other("interrupted"));
            }
            let mut wanted = [PollFd::new(self.source, PollFlags::IN)];
            match poll(&mut wanted, Some(&SIGNAL_PAUSE)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return self.source.read(bytes),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Tells of a subvolume that was received; what the report is to say of it.
fn tell(command: &ReceiveCommand, name: &[u8], id: u64) -> Value {
    if !command.json.json {
        let mut out = output::stdout();
        // A reader that has gone is no reason to stop.
        let _ = writeln!(out, "Received subvolume {}, id {id}", String::from_utf8_lossy(name))
            .and_then(|()| out.flush());
    }
    json!({ "name": name_json(name), "id": id })
}

/// Prints the report, if it was asked for.
fn sum_up(command: &ReceiveCommand, received: &[Value], error: Option<&str>) -> Result<()> {
    if command.json.json {
        output::print_json(&json!({ "received": received, "error": error }))?;
    }
    Ok(())
}

/// Tells of a failure; the exit code.
fn complain(error: &ReceiveError, stop: &Stop) -> u8 {
    let is_stopped = matches!(error.failure, ReceiveFailure::Cancelled | ReceiveFailure::Stream(_));
    match stop.name_and_code().filter(|_| is_stopped) {
        Some((signal, code)) => {
            output::complain_line(&format!("interrupted: {signal}: {error}"));
            code
        }
        None => {
            output::complain_line(&error.to_string());
            1
        }
    }
}

/// Prints the commands, a line each.
fn dump(source: impl BufRead) -> Result<ExitCode> {
    let mut out = output::stdout();
    let mut reader = StreamReader::new(source)?;
    loop {
        loop {
            let end = reader.offset();
            let Some(placed) = reader.next()? else {
                out.flush()?;
                bail!("the stream ends at offset {end} without the command that ends it: it is cut off");
            };
            writeln!(out, "{}", placed.command)?;
            if placed.command == Command::End {
                break;
            }
        }
        match reader.next_stream()? {
            Some(next) => reader = next,
            None => break,
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
