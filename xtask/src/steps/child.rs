//! The child process of a step: it is waited for until it ends, is overdue, or the chore is interrupted. All waits end.

use super::processes::{self, Process};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time to end in peace after SIGTERM, and to vanish after SIGKILL: a process in an uninterruptible wait never does.
const END: Duration = Duration::from_secs(10);
/// The longest single wait: what `poll` takes has a limit.
const WAIT: Duration = Duration::from_secs(3600);

/// Circumstances of a step.
pub(super) struct Step<'a> {
    /// `TMPDIR` of the step.
    pub(super) folder: &'a Path,
    pub(super) limit: Duration,
    /// One is readable as soon as the step is to end.
    pub(super) interrupts: &'a [&'a UnixStream],
}

/// The process group of a step, which doesn't outlive it, however the step ends.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            signal_group(&self.0, Signal::KILL);
        }
    }
}

/// Ends of a wait.
pub(super) enum Ended {
    Exited(ExitStatus),
    Overdue,
    Interrupted,
}

impl Step<'_> {
    /// Runs a command until it ends. If it is overdue, its threads are listed in `report` and it is killed.
    pub(super) fn run(&self, command: &mut Command, report: &mut dyn Write) -> Result<ExitStatus> {
        // Not in the group that Ctrl-C reaches and that may read from the terminal.
        let mut child = Group(command.process_group(0).stdin(Stdio::null()).spawn().context("cannot start")?);
        match wait(&mut child.0, self.limit, self.interrupts)? {
            Ended::Exited(status) => Ok(status),
            Ended::Overdue => {
                writeln!(report, "overdue after {} s", self.limit.as_secs())?;
                let members = self.members(&child.0);
                processes::report(&members, report)?;
                self.kill(&mut child.0);
                bail!("overdue: stuck for up to {} s, its threads are listed above", self.limit.as_secs())
            }
            Ended::Interrupted => {
                signal_group(&child.0, Signal::TERM);
                if !matches!(wait(&mut child.0, END, &[]), Ok(Ended::Exited(_))) {
                    self.kill(&mut child.0);
                }
                bail!("interrupted")
            }
        }
    }

    fn members(&self, child: &Child) -> Vec<Process> {
        processes::members(Some(Pid::from_child(child)), self.folder)
    }

    /// Kills the group of a step, and the processes that left it.
    fn kill(&self, child: &mut Child) {
        let members = self.members(child);
        signal_group(child, Signal::KILL);
        for member in members {
            member.kill();
        }
        // One that can't be killed stays: the step fails all the same.
        let _ = wait(child, END, &[]);
    }
}

fn signal_group(child: &Child, signal: Signal) {
    // One that has ended in the meantime is what is wanted.
    let _ = kill_process_group(Pid::from_child(child), signal);
}

/// Waits for a child at most as long as the limit.
pub(super) fn wait(child: &mut Child, limit: Duration, interrupts: &[&UnixStream]) -> Result<Ended> {
    let begun = Instant::now();
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context("cannot watch a child")?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Exited(status));
        }
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(Ended::Overdue);
        }
        let mut watched = vec![PollFd::new(&pidfd, PollFlags::IN)];
        watched.extend(interrupts.iter().map(|stream| PollFd::new(*stream, PollFlags::IN)));
        let timeout = Timespec::try_from(left.min(WAIT)).expect("an hour at most");
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for a child"),
        }
        if watched.iter().skip(1).any(|interrupt| !interrupt.revents().is_empty()) {
            return Ok(Ended::Interrupted);
        }
    }
}
