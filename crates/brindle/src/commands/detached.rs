//! A command that goes on in a process of its own, which outlives the terminal.

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Seek, Write, stderr};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Time between two looks at the process.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Starts the process, and waits until `has_begun` says, of its id, that it is at work. Returns the exit code of a process that has
/// failed before: its words are printed then, for nothing goes on.
pub(super) fn start(
    command: &mut Command,
    has_begun: &mut dyn FnMut(u32) -> Result<bool>,
) -> Result<Option<ExitCode>> {
    // What the process says later is read by nothing, and must not stop it as a pipe without a reader would.
    let mut said = File::from(memfd_create("words", MemfdFlags::CLOEXEC).context("memory for a message")?);
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?);
    // Apart from the terminal's signals.
    command.process_group(0);
    let mut process = command.spawn().context("cannot start a process in the background")?;
    loop {
        if let Some(status) = process.try_wait().context("a process in the background")? {
            if status.success() {
                return Ok(None);
            }
            let mut words = Vec::new();
            said.rewind().and_then(|()| said.read_to_end(&mut words)).context("the words of a process")?;
            // With standard error closed there is no reader.
            let _ = stderr().write_all(&words);
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(Some(code.map_or(ExitCode::FAILURE, ExitCode::from)));
        }
        if has_begun(process.id())? {
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
