//! A mount in the background, without fork: the command starts itself again with a pipe as standard error. All
//! that the second process has to say goes through it, warnings and the one line of an error, and is passed on;
//! one special line says that the mount answers. If the pipe ends before that, the mount has failed.

use crate::output;
use anyhow::{Context, Result};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

/// Set for the process that serves.
const SERVED: &str = "BRINDLE_MOUNT_REPORTS";
/// Line that announces readiness; no logged line is equal to it.
const READY: &str = "\u{1}brindle mount ready\u{1}";

/// Returns true in the second process.
pub(crate) fn is_served() -> bool {
    std::env::var_os(SERVED).is_some()
}

/// Starts the second process with our own arguments; returns when the mount answers, or has failed.
pub(crate) fn start() -> Result<ExitCode> {
    let failed = "cannot start the process that serves the mount";
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).context(failed)?;
    let program = std::env::current_exe().context(failed)?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(SERVED, "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
    set_name(&mut command);
    let mut child = command.spawn().context(failed)?;
    // The command holds the other end of the pipe; only without it does the pipe end with the process.
    drop(command);
    for line in BufReader::new(File::from(reader)).split(b'\n') {
        let line = line.context(failed)?;
        if line == READY.as_bytes() {
            return Ok(ExitCode::SUCCESS);
        }
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(&line).and_then(|()| stderr.write_all(b"\n"));
    }
    let status = child.wait().context(failed)?;
    if status.code().is_none() {
        output::complain_line(&format!("the process that serves the mount died: {status}"));
    }
    Ok(ExitCode::FAILURE)
}

/// The name we were called by says how our arguments are to be read.
fn set_name(command: &mut Command) {
    if let Some(name) = std::env::args_os().next() {
        std::os::unix::process::CommandExt::arg0(command, name);
    }
}

/// Says that the mount answers, if anyone waits for that, and lets go of the terminal and the directory.
pub(crate) fn report_ready() -> Result<()> {
    if !is_served() {
        return Ok(());
    }
    // Ctrl-C in the terminal is not meant for us any more, and the directory may be unmounted.
    rustix::process::setsid().context("cannot leave the terminal")?;
    rustix::process::chdir("/").context("cannot leave the directory")?;
    writeln!(std::io::stderr(), "{READY}").context("the command that waits for the mount is gone")?;
    Ok(())
}
