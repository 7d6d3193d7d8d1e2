//! `brindle receive`: subvolumes from a stream, by [`brindle_care::receive`].

use crate::commands::mount_options::MountOptions;
use crate::commands::path::{PathOption, name_json};
use crate::commands::place::open_devices_to_write;
use crate::commands::stop::Stop;
use crate::commands::usage::wrong_usage;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::Reach;
use brindle_care::job::Control;
use brindle_care::receive::{ReceiveError, ReceiveEvent, ReceiveFailure, ReceiveOptions, receive};
use brindle_stream::{Command, StreamReader};
use clap::Args;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufReader, IsTerminal, Read, Write, stdin};
use std::path::PathBuf;
use std::process::ExitCode;

/// Unit of reading, in bytes.
const READ_BYTES: usize = 1 << 20;

const EXAMPLES: &str = "\
EXAMPLES
  A snapshot of a kernel's mount, into a pool that is not mounted:
    sudo btrfs send /mnt/home.monday | brindle receive -p backups disk1.img disk2.img

  Only the difference, a day later:
    sudo btrfs send -p /mnt/home.monday /mnt/home.tuesday | brindle receive -p backups disk1.img disk2.img

  The commands of a stream:
    brindle receive --dump -f home.stream

EXIT STATUS
  0  every subvolume of the stream was received
  1  one was not: it stays under its name, writable and not marked as received; those before it are whole
  2  wrong usage
  130, 143, 129  interrupted by SIGINT, SIGTERM, SIGHUP";

/// Receive subvolumes from a stream of `send`
///
/// The stream is one of `btrfs send`, version 1 or 2. Each subvolume of it becomes a read-only subvolume of the pool, with the contents,
/// names, owners, modes, extended attributes and times of the source. It is marked as received, which incremental streams build
/// on, in one step with its end: a subvolume that has the mark is whole and durable.
///
/// An incremental stream (`send -p`) needs the subvolume that it builds on, unchanged, in the same pool. It is found by its UUID.
///
/// Paths of a stream never lead out of its subvolume.
#[derive(Args, Debug)]
#[command(
    override_usage = "brindle receive [OPTIONS] <DEVICE>...\n       brindle receive --dump [-f FILE]",
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
    /// For scripts that are written for btrfs-progs: paths of a stream never lead out of its subvolume
    #[arg(short = 'C', long)]
    chroot: bool,
    /// Comma-separated: subvol=PATH and subvolid=ID (enter by it), compress=ALGORITHM, degraded, device=PATH
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    #[command(flatten)]
    path: PathOption,
    #[command(flatten)]
    json: JsonOption,
    /// The devices of a pool that is not mounted
    #[arg(value_name = "DEVICE", required_unless_present = "dump")]
    places: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &ReceiveCommand) -> Result<ExitCode> {
    let _ = command.chroot;
    let source: Box<dyn Read> = match &command.file {
        Some(path) => Box::new(File::open(path).with_context(|| path.display().to_string())?),
        None if stdin().is_terminal() => {
            return wrong_usage(
                "the stream comes from standard input, which is a terminal: -f takes a file".to_owned(),
            );
        }
        None => Box::new(stdin().lock()),
    };
    let source = BufReader::with_capacity(READ_BYTES, source);
    if command.dump {
        return dump(source);
    }
    match Reach::of(&command.places)? {
        Reach::Devices(devices) => on_devices(command, &devices, source),
        Reach::Kernel(_) => {
            bail!("this is a mount of the kernel: `btrfs receive` receives there")
        }
        Reach::Brindle(_) => {
            bail!("this is a mount of brindle: unmount it, and name its devices")
        }
    }
}

fn on_devices(command: &ReceiveCommand, devices: &[PathBuf], source: impl Read) -> Result<ExitCode> {
    let mount = MountOptions::parse(&command.options)?;
    let devices: Vec<PathBuf> = devices.iter().chain(&mount.devices).cloned().collect();
    let filesystem = open_devices_to_write(&devices, &mount)?;
    let directory = command.path.resolve(&filesystem)?;
    let stop = Stop::on_signals()?;
    let options = ReceiveOptions { errors_max: command.max_errors, one_stream: command.one_stream };
    let mut names: Vec<Value> = Vec::new();
    let mut observer = |event: &ReceiveEvent<'_>| {
        match event {
            ReceiveEvent::Command(placed) => tracing::debug!("{}", placed.command),
            ReceiveEvent::Failed(error) => output::complain_line(&error.to_string()),
            ReceiveEvent::Finished(received) => {
                names.push(json!({ "name": name_json(&received.name), "id": received.id.get() }));
                if !command.json.json {
                    let mut out = output::stdout();
                    let name = String::from_utf8_lossy(&received.name);
                    // A reader that has gone is no reason to stop.
                    let _ = writeln!(out, "Received subvolume {name}, id {}", received.id)
                        .and_then(|()| out.flush());
                }
            }
        }
        if stop.is_set() { Control::Cancel } else { Control::Continue }
    };
    let received = receive(&filesystem, directory, source, &options, &mut observer);
    // Also after a failure: subvolumes before it are durable already, and the rest is to be looked at.
    filesystem.shutdown()?;
    if command.json.json {
        output::print_json(
            &json!({ "received": names, "error": received.as_ref().err().map(ToString::to_string) }),
        )?;
    }
    match received {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) => Ok(ExitCode::from(complain(&error, &stop))),
    }
}

/// Tells of a failure; the exit code.
fn complain(error: &ReceiveError, stop: &Stop) -> u8 {
    match (&error.failure, stop.name_and_code()) {
        (ReceiveFailure::Cancelled, Some((signal, code))) => {
            output::complain_line(&format!("interrupted: {signal}: {error}"));
            code
        }
        _ => {
            output::complain_line(&error.to_string());
            1
        }
    }
}

/// Prints the commands, a line each.
fn dump(source: impl Read) -> Result<ExitCode> {
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
