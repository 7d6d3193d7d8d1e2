//! `brindle top`: a mounted pool at work, on a screen that moves, or as JSON.
//!
//! # The walk
//!
//! [`sample`] asks the mount for its counters, the ones of `brindle status` and `brindle metrics`. [`view`] makes rates of two samples:
//! a pure function. [`screen`] makes lines of a view, for a width and a height; [`document`] makes JSON of it. [`terminal`] shows lines, and
//! listens to keys.

mod document;
mod sample;
mod screen;
mod terminal;
mod view;

use crate::commands::usage::wrong_usage;
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use clap::Args;
use sample::Source;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use terminal::{Key, Screen};
use view::View;

const EXAMPLES: &str = "\
COLUMNS
  READ/s, WRIT/s, FLSH/s  requests of the last interval, a second
  MB/s                    bytes of these
  QUE                     requests without an answer now
  LATENCY                 mean time of the requests of the interval, flushes
                          aside
  STATE                   busy; idle; asleep: commits leave it alone; missing;
                          failing

KEYS
  q  quit        space  a new sample now

EXAMPLES
    brindle top /mnt
    brindle top --interval 10 --json /mnt >> /var/log/pool.jsonl
    brindle top -n 1 /mnt | head -20

EXIT STATUS
  0  success
  1  failure: no mount, or it has ended
  2  wrong usage";

/// Shortest interval, in seconds.
const INTERVAL_MIN: f64 = 0.01;
/// Longest interval, in seconds.
const INTERVAL_MAX: f64 = 86_400.0;

/// Watch a mounted pool at work
///
/// Devices with their class, load and latency; the contents of each; the cache of metadata; data that waits on fast devices, and its
/// age; fsyncs and commits with the percentiles of their time; jobs. Requests of block devices are counted by the kernel, and are those
/// of all processes; of image files, the mount counts its own. Of a pool that the kernel has mounted, syncs and caches are not known.
///
/// Asking wakes no disk. The contents of devices are shown to root, and are asked for every 30 seconds.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TopCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Seconds between samples
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = parse_interval)]
    interval: Duration,
    /// End after this many intervals
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Any path of a mounted pool; may be left out if only one is mounted
    #[arg(value_name = "MOUNT")]
    path: Option<PathBuf>,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text} is no number"))?;
    match (INTERVAL_MIN..=INTERVAL_MAX).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(format!("between {INTERVAL_MIN} and {INTERVAL_MAX} seconds")),
    }
}

/// Runs it.
pub(crate) fn run(command: &TopCommand) -> Result<ExitCode> {
    if command.count == Some(0) {
        return wrong_usage("--count is at least 1".to_owned());
    }
    let source = Source::of(command.path.as_deref())?;
    if !command.json.json && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        watch(command, source)?;
    } else {
        write_each(command, source)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows a screen, until a key ends it.
fn watch(command: &TopCommand, mut source: Source) -> Result<()> {
    let mut before = source.sample()?;
    let screen = Screen::open()?;
    let mut view = View::between(&before, &before);
    let mut shown = 0;
    loop {
        screen.show(|width, height| screen::lines(&view, width, height))?;
        if command.count.is_some_and(|count| shown >= count) {
            return Ok(());
        }
        match screen.wait(command.interval)? {
            Key::Quit => return Ok(()),
            Key::Resized => continue,
            Key::Now | Key::None => {}
        }
        let after = source.sample()?;
        view = View::between(&before, &after);
        before = after;
        shown += 1;
    }
}

/// Writes an object of JSON, or a screen of text, for each interval.
fn write_each(command: &TopCommand, mut source: Source) -> Result<()> {
    let mut before = source.sample()?;
    let mut written = 0;
    while command.count.is_none_or(|count| written < count) {
        std::thread::sleep(command.interval);
        let after = source.sample()?;
        let view = View::between(&before, &after);
        before = after;
        let mut out = output::stdout();
        if command.json.json {
            writeln!(out, "{}", document::line(&view))?;
        } else {
            if written > 0 {
                writeln!(out)?;
            }
            for line in screen::lines(&view, screen::WIDTH, usize::MAX) {
                writeln!(out, "{}", line.text)?;
            }
        }
        out.flush()?;
        written += 1;
    }
    Ok(())
}
