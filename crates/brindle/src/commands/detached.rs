//! A command that goes on in a process of its own, which outlives the terminal.

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Seek, Write, stderr};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Time between two looks at the process.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Time after which a process is left that works still, and was not seen at work.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The beginning of a process in the background.
#[derive(Debug)]
pub(super) enum Beginning {
    /// At work, or done with it already.
    Seen,
    /// Going on, and not seen at work within the time for that.
    NotSeen,
    /// Ended with this exit code: its words were printed, for nothing goes on.
    Failed(ExitCode),
}

/// Starts the process, and waits until `has_begun` says, of its id, that it is at work; half a minute at most.
pub(super) fn start(
    command: &mut Command,
    has_begun: &mut dyn FnMut(u32) -> Result<bool>,
) -> Result<Beginning> {
    start_within(command, has_begun, WAIT_MAX)
}

fn start_within(
    command: &mut Command,
    has_begun: &mut dyn FnMut(u32) -> Result<bool>,
    limit: Duration,
) -> Result<Beginning> {
    // What the process says later is read by nothing, and must not stop it as a pipe without a reader would.
    let mut said = File::from(memfd_create("words", MemfdFlags::CLOEXEC).context("memory for a message")?);
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?);
    // Apart from the terminal's signals.
    command.process_group(0);
    let mut process = command.spawn().context("cannot start a process in the background")?;
    let begun = Instant::now();
    loop {
        if let Some(status) = process.try_wait().context("a process in the background")? {
            if status.success() {
                return Ok(Beginning::Seen);
            }
            let mut words = Vec::new();
            said.rewind().and_then(|()| said.read_to_end(&mut words)).context("the words of a process")?;
            // With standard error closed there is no reader.
            let _ = stderr().write_all(&words);
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(Beginning::Failed(code.map_or(ExitCode::FAILURE, ExitCode::from)));
        }
        if has_begun(process.id())? {
            return Ok(Beginning::Seen);
        }
        if begun.elapsed() >= limit {
            return Ok(Beginning::NotSeen);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_seen_at_work_is_left_to_itself_in_time() {
        let mut id = 0;
        let mut never = |process| {
            id = process;
            Ok(false)
        };
        let mut command = Command::new("sleep");
        command.arg("1000");
        let found = start_within(&mut command, &mut never, Duration::from_millis(50));
        assert!(matches!(found, Ok(Beginning::NotSeen)), "{found:?}");
        let pid = rustix::process::Pid::from_raw(i32::try_from(id).expect("a process")).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it goes on");
        let seen = start_within(Command::new("sleep").arg("0.1"), &mut |_| Ok(true), Duration::ZERO);
        assert!(matches!(seen, Ok(Beginning::Seen)), "{seen:?}");
        let ended = start_within(&mut Command::new("true"), &mut |_| Ok(false), Duration::from_secs(60));
        assert!(matches!(ended, Ok(Beginning::Seen)), "{ended:?}");
        let failed = start_within(&mut Command::new("false"), &mut |_| Ok(false), Duration::from_secs(60));
        assert!(matches!(failed, Ok(Beginning::Failed(_))), "{failed:?}");
    }
}
