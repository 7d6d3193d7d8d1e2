//! Steps of a chore: child processes that run one after another, or in lanes side by side, each within a limit, all within a budget. A step that is
//! overdue isn't slow but stuck: its threads are listed with their stacks, it is killed, and the chore fails.
//!
//! Each step is a process group of its own. Processes that leave the group (servers of mounts do) are found by `TMPDIR`, which
//! is a folder of this run alone; so are mounts and loop devices that a killed step leaves behind.

mod child;
mod lanes;
mod leftovers;
mod processes;

pub(crate) use lanes::{Lane, named};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt::Write as _;
use std::io::{Read, Seek};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Steps that the table at the end has.
const SLOWEST: usize = 5;

/// Time that steps may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// At most this for a step.
    pub(crate) step: Duration,
    /// At most this for all steps.
    pub(crate) all: Duration,
}

impl Limits {
    /// No limits: for chores that a person waits for.
    pub(crate) const NONE: Self = Self { step: Duration::MAX, all: Duration::MAX };

    /// Time that a step may take which begins now.
    fn left(&self, started: Instant, name: &str) -> Result<Duration> {
        let left = self.step.min(self.all.saturating_sub(started.elapsed()));
        if left.is_zero() {
            bail!("no time is left for {name}");
        }
        Ok(left)
    }
}

/// The steps of a chore. When it is dropped, it prints which took longest and removes what they left.
pub(crate) struct Steps {
    /// `TMPDIR` of every step.
    folder: TempDir,
    started: Instant,
    limits: Limits,
    /// Readable as soon as this process is asked to end.
    interrupt: UnixStream,
    done: Vec<(String, Duration)>,
}

impl Steps {
    /// Begins a chore; from here on SIGINT, SIGTERM and SIGHUP end the step that runs, and then the chore.
    pub(crate) fn begin(limits: Limits) -> Result<Self> {
        let (interrupt, signalled) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
        }
        Self::with(limits, interrupt)
    }

    fn with(limits: Limits, interrupt: UnixStream) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("xtask-").tempdir()?;
        Ok(Self { folder, started: Instant::now(), limits, interrupt, done: Vec::new() })
    }

    /// Runs a command, and fails unless it succeeds.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<()> {
        self.run_as(&words(command), command)
    }

    /// Runs a command as a step of the given name.
    pub(crate) fn run_as(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let status = self.status(name, command)?;
        if status.success() {
            return Ok(());
        }
        bail!("{name} failed: {status}")
    }

    /// Runs a command, and returns what it wrote to its standard output. A file takes it, as a pipe that a process in the
    /// background holds has no end.
    pub(crate) fn output(&mut self, command: &mut Command) -> Result<String> {
        let mut file = tempfile::tempfile()?;
        self.run(command.stdout(file.try_clone()?))?;
        file.rewind()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn status(&mut self, name: &str, command: &mut Command) -> Result<ExitStatus> {
        let begun = Instant::now();
        eprintln!("+ {} {name}", clock(self.started.elapsed()));
        let limit = self.limits.left(self.started, name)?;
        command.env("TMPDIR", self.folder.path());
        let step = child::Step { folder: self.folder.path(), limit, interrupts: &[&self.interrupt] };
        let ended = step.run(command, &mut std::io::stderr());
        self.done.push((name.to_owned(), begun.elapsed()));
        ended.with_context(|| format!("step {name}"))
    }

    /// A table of the steps that took longest; empty for a single step.
    fn slowest(&self) -> String {
        let mut table = String::new();
        if self.done.len() < 2 {
            return table;
        }
        let mut done: Vec<_> = self.done.iter().collect();
        done.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        writeln!(table, "{} steps in {}, slowest:", done.len(), clock(self.started.elapsed()))
            .expect("memory");
        for (name, took) in done.iter().take(SLOWEST) {
            writeln!(table, "{:>8} {name}", clock(*took)).expect("memory");
        }
        table
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        leftovers::clear(self.folder.path(), &mut std::io::stderr());
        eprint!("{}", self.slowest());
    }
}

/// A duration as minutes and seconds.
fn clock(time: Duration) -> String {
    format!("{:02}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

/// The program and arguments of a command.
fn words(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests;
