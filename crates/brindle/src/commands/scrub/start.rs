//! `scrub start` and `scrub resume`.

use super::{NONE, UNCORRECTABLE, device_of_mount, reach_mount_of, show};
use crate::commands::companions::with_wanted;
use crate::commands::detached::{self, Beginning};
use crate::commands::mount_options::MountOptions;
use crate::commands::place::open_devices_to_write;
use crate::commands::pool::open_filesystem;
use crate::commands::state_directory::state_directory;
use crate::commands::stop::Stop;
use crate::commands::usage::wrong_usage;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result};
use brindle_admin::scrub::{is_scrubbed_by, scrub_here, scrub_mount, start_scrub};
use brindle_admin::{AdminError, DevId, Reach};
use brindle_care::job::Control;
use brindle_care::scrub::{ScrubError, ScrubJob, ScrubRecord};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const EXAMPLES: &str = "\
EXAMPLES
  In the background, on a mount:
    sudo brindle scrub start /mnt
    brindle scrub status /mnt

  Only looking, on a pool that is not mounted:
    brindle scrub start -r disk1.img disk2.img

  Gently, in the foreground:
    sudo brindle scrub start -B --limit 50M /mnt

EXIT STATUS
  0  success; errors may have been corrected
  1  failure
  2  nothing to resume, or wrong usage
  3  errors were found that could not be corrected, or that their device did not
     have corrected
  129, 130, 143  ended by SIGHUP, SIGINT or SIGTERM; `resume` goes on";

/// Options of a scrub.
#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    json: JsonOption,
    /// Wait for the end, and print the result
    #[arg(short = 'B')]
    foreground: bool,
    /// Print the result of each device
    #[arg(short = 'd')]
    by_device: bool,
    /// Look for errors without correcting them
    #[arg(short = 'r')]
    read_only: bool,
    /// Print all counters
    #[arg(short = 'R')]
    raw: bool,
    /// Read no more of each device in a second on the average, such as 50M
    #[arg(long, value_name = "BYTES", value_parser = crate::commands::quantity::parse_rate)]
    limit: Option<u64>,
    /// Leave devices that are asleep for later: those that commits have nothing for, as `brindle top` shows them. `resume`, or
    /// another start without this, wakes and scrubs them. For mounts of brindle
    #[arg(long)]
    leave_sleeping: bool,
    /// Comma-separated, for devices that are not mounted: degraded (go on without missing devices;
    /// degraded=named: without all others), device=PATH
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// A directory or a device of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Verify all data and metadata on all devices, and correct what is wrong
///
/// Data is held against its checksums, metadata against its own and its place, parity against its data. What is wrong is
/// written anew from another copy, or from parity. Each device is read in the order of its addresses, all of them at the same
/// time. Files remain usable meanwhile.
///
/// On a mount, this goes on in the background, without -B. A device of a mounted pool means that device alone. Devices that are not mounted are scrubbed in the foreground.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StartCommand {
    #[command(flatten)]
    run: RunOptions,
    /// Scrub this device alone, by its id; several times for several
    #[arg(long = "device", value_name = "ID")]
    devices: Vec<u64>,
    /// For scripts that are written for btrfs-progs: a scrub that was killed never keeps another one from starting
    #[arg(short = 'f', long)]
    force: bool,
}

/// Go on with a scrub that was cancelled or interrupted
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ResumeCommand {
    #[command(flatten)]
    run: RunOptions,
}

/// Begins one.
pub(crate) fn run(command: &StartCommand) -> Result<ExitCode> {
    let _ = command.force;
    let mut devices: Vec<DevId> = command.devices.iter().map(|devid| DevId::new(*devid)).collect();
    let reach = match device_of_mount(&command.run.paths) {
        Some((mounted, devid)) => {
            if !devices.contains(&devid) {
                devices.push(devid);
            }
            mounted.into()
        }
        None => Reach::of(&command.run.paths)?,
    };
    scrub(&command.run, reach, devices, false)
}

/// Goes on with one.
pub(crate) fn resume(command: &ResumeCommand) -> Result<ExitCode> {
    scrub(&command.run, reach_mount_of(&command.run.paths)?, Vec::new(), true)
}

fn scrub(options: &RunOptions, reach: Reach, devices: Vec<DevId>, resume: bool) -> Result<ExitCode> {
    let (read_only, leaves_sleeping) = (options.read_only, options.leave_sleeping);
    let job = ScrubJob { devices, read_only, limit: options.limit.unwrap_or(0), resume, leaves_sleeping };
    let done = match reach {
        Reach::Kernel(_) | Reach::Devices(_) if leaves_sleeping => {
            return wrong_usage(
                "--leave-sleeping is for mounts of brindle: elsewhere nothing tells which devices sleep"
                    .to_owned(),
            );
        }
        Reach::Devices(paths) => on_devices(options, &job, &paths),
        mount if options.foreground => on_mount(options, &job, &mount),
        mount => in_background(options, &job, &mount),
    };
    match done {
        Err(error) if is_nothing_to_resume(&error) => {
            output::complain(&error);
            Ok(ExitCode::from(NONE))
        }
        done => done,
    }
}

fn is_nothing_to_resume(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(AdminError::Scrub(ScrubError::NothingToResume)))
}

fn on_devices(options: &RunOptions, job: &ScrubJob, paths: &[PathBuf]) -> Result<ExitCode> {
    let mount = MountOptions::parse(&options.options)?;
    if let Some(option) = mount.first_of_mount() {
        return wrong_usage(format!("unknown option '{option}': here -o takes degraded and device=PATH"));
    }
    let paths: Vec<PathBuf> = paths.iter().chain(&mount.devices).cloned().collect();
    let filesystem = if job.read_only {
        let all = with_wanted(&paths, &mount);
        open_filesystem(&all.iter().map(PathBuf::as_path).collect::<Vec<&Path>>(), &mount)?
    } else {
        open_devices_to_write(&paths, &mount)?
    };
    finish(options, |observer| {
        let record = scrub_here(&filesystem, job, &state_directory(), observer)?;
        if !job.read_only {
            filesystem.shutdown()?;
        }
        Ok(record)
    })
}

fn on_mount(options: &RunOptions, job: &ScrubJob, mount: &Reach) -> Result<ExitCode> {
    refuse_options(options)?;
    finish(options, |observer| {
        let record = scrub_mount(mount, job, &state_directory(), observer)?;
        record.context("a mount has a record")
    })
}

/// Options of opening devices say nothing of a mount.
fn refuse_options(options: &RunOptions) -> Result<()> {
    if options.options.is_empty() {
        Ok(())
    } else {
        wrong_usage("-o is for devices that are not mounted".to_owned())
    }
}

/// The process that serves a mount goes on by itself; for the kernel, another process of ours waits.
fn in_background(options: &RunOptions, job: &ScrubJob, mount: &Reach) -> Result<ExitCode> {
    refuse_options(options)?;
    if !start_scrub(mount, job)? {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new(program);
        command.args(["scrub", if job.resume { "resume" } else { "start" }, "-B"]);
        command.args(job.read_only.then_some("-r"));
        for devid in &job.devices {
            command.args(["--device", &devid.to_string()]);
        }
        if job.limit != 0 {
            command.args(["--limit", &job.limit.to_string()]);
        }
        command.arg("--").args(&options.paths);
        let mut has_begun = |process| Ok(is_scrubbed_by(mount, &state_directory(), process)?);
        match detached::start(&mut command, &mut has_begun)? {
            Beginning::Seen => {}
            Beginning::NotSeen => tracing::warn!(
                "{}: the scrub has begun, and the kernel was not seen at work on it yet: `brindle scrub status` tells",
                options.paths[0].display()
            ),
            Beginning::Failed(code) => return Ok(code),
        }
    }
    let mut out = output::stdout();
    writeln!(
        out,
        "scrub {} on {}",
        if job.resume { "resumed" } else { "started" },
        options.paths[0].display()
    )?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Carries a scrub out with its progress shown, and prints its result.
fn finish(
    options: &RunOptions,
    scrub: impl FnOnce(&mut dyn FnMut(&ScrubRecord) -> Control) -> Result<ScrubRecord>,
) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let bar = progress_bar();
    let done = scrub(&mut |record| {
        show_progress(&bar, record);
        if stop.is_set() { Control::Cancel } else { Control::Continue }
    });
    bar.finish_and_clear();
    let record = done?;
    if options.json.json {
        output::print_json(&show::json(&record, false))?;
    } else {
        show::print(&record, false, options.by_device, options.raw)?;
    }
    match stop.name_and_code().filter(|_| record.report.is_cancelled()) {
        Some((_, code)) => Ok(ExitCode::from(code)),
        None => Ok(exit_code(&record)),
    }
}

/// Exit code of a scrub that has ended.
fn exit_code(record: &ScrubRecord) -> ExitCode {
    let counts = record.report.counts();
    // What a device did not take is right elsewhere, and yet not corrected.
    if counts.uncorrectable_errors > 0 || (counts.correctable_errors > 0 && !record.read_only) {
        return ExitCode::from(UNCORRECTABLE);
    }
    let has_failed = record.report.devices.iter().any(|device| show::failure(device).is_some());
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn progress_bar() -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let template = "{bar:24} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} eta {eta} {wide_msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is right"));
    bar
}

fn show_progress(bar: &ProgressBar, record: &ScrubRecord) {
    let devices = &record.report.devices;
    bar.set_length(devices.iter().map(|device| device.total_bytes).sum());
    bar.set_position(devices.iter().map(|device| device.done_bytes).sum());
    bar.set_message(format!("{} errors", record.report.counts().errors()));
}
