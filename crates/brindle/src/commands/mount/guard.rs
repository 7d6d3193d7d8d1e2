//! The guard of a mount: a small process that aborts the connection once the server is dead, for a server that was killed may be
//! unable to end otherwise ([`Abort`](brindle_fuse::Abort) says why), and then sync(2) of the whole machine would hang.
//!
//! A thread of the server starts the guard and waits for it, and nothing else, so that it ends as soon as the server is killed. The
//! kernel tells the guard of the end of its parent, which is that thread, not the process: the process may be kept by another
//! thread, and neither the end of a pipe nor a pidfd tell of it then. The guard has a name of its own, so that a server that is
//! killed by its name does not take the guard along, a session of its own, and ignores the signals that ask to end, which come to
//! all of a unit while the server makes its last commit.

use super::panic;
use brindle_fuse::MountHandle;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::ffi::{CStr, OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The name of the process, which is also its first argument.
const NAME: &CStr = c"mount-guard";
/// Time after the start, and after the signal, for which the thread's end is looked for: a signal may have come before it could be
/// taken, and comes a little before the end can be seen.
const LOOK: Duration = Duration::from_secs(1);
/// Interval of looking.
const PAUSE: Duration = Duration::from_millis(20);

/// Starts the guard of a mount. Where that can't be, the mount goes without.
pub(super) fn start(handle: &MountHandle) {
    if let Err(error) = try_to_start(handle) {
        tracing::info!(
            "the mount has no guard, and should its server be killed it may need `umount -f`: {error}"
        );
    }
}

fn try_to_start(handle: &MountHandle) -> io::Result<()> {
    let abort = handle.abort()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(OsStr::from_bytes(NAME.to_bytes())).current_dir("/");
    let place = handle.mountpoint().to_owned();
    command.stdin(Stdio::null()).stdout(abort.share()?).stderr(Stdio::null());
    panic::aborts(abort);
    let (started, has_started) = channel();
    std::thread::Builder::new().name("guard".to_owned()).spawn(move || {
        let numbers = [getpid(), rustix::thread::gettid()].map(|id| id.to_string());
        let spawned = command.args(numbers).arg(place).spawn();
        drop(command);
        match spawned {
            Err(error) => drop(started.send(Err(error))),
            Ok(mut child) => {
                drop(started.send(Ok(())));
                let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                tracing::info!("the guard of the mount has ended: {ended}");
            }
        }
    })?;
    has_started.recv().unwrap_or_else(|_| Err(io::Error::other("no thread to start it")))
}

/// Runs the guard, if this process was started as one.
pub(crate) fn run(arguments: &[OsString]) -> Option<ExitCode> {
    let [name, numbers @ ..] = arguments else { return None };
    if name.as_bytes() != NAME.to_bytes() {
        return None;
    }
    let done =
        Parent::new(numbers).ok_or(io::ErrorKind::InvalidInput.into()).and_then(|parent| guard(&parent));
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn guard(parent: &Parent) -> io::Result<()> {
    setsid().ok();
    let mut signals = Signals::new([SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGQUIT])?;
    set_parent_process_death_signal(Some(Signal::USR1))?;
    // For those that look on: it tells also that signals do not end it any more.
    rustix::thread::set_name(NAME).ok();
    while !parent.ends_within(LOOK) {
        while !signals.wait().any(|signal| signal == SIGUSR1) {}
    }
    // It fails where the mount has ended before its server, as it should.
    io::stdout().write_all(b"1").and_then(|()| io::stdout().flush()).ok();
    Ok(())
}

/// The thread of the server that is the parent of the guard.
struct Parent {
    server: Pid,
    /// Its directory in /proc.
    thread: PathBuf,
}

impl Parent {
    fn new(numbers: &[OsString]) -> Option<Self> {
        let number = |at: usize| Pid::from_raw(numbers.get(at)?.to_str()?.parse().ok()?);
        let (server, thread) = (number(0)?, number(1)?);
        Some(Self { server, thread: PathBuf::from(format!("/proc/{server}/task/{thread}")) })
    }

    /// Waits for its end; false if that has not come in this time.
    fn ends_within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.is_gone() {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    /// Returns true if it has ended. Where the server can't be seen, it has while none of the server is left: an abort while it lives
    /// would lose what was written.
    fn is_gone(&self) -> bool {
        let process = format!("/proc/{}", self.server);
        getppid() != Some(self.server)
            || sees_own_processes() && Path::new(&process).exists() && !self.thread.exists()
    }
}

/// Returns true if there is a /proc, and it is that of our PID namespace.
fn sees_own_processes() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == getpid().to_string().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_thread_is_seen_while_its_process_lives() {
        let own = getppid().expect("a parent");
        let parent = |thread: String| Parent::new(&[own.to_string().into(), thread.into()]).expect("numbers");
        assert!(!parent(own.to_string()).ends_within(PAUSE));
        let other = rustix::thread::gettid().to_string();
        assert!(parent(other).is_gone(), "it is none of the parent's");
        let stranger = getpid().to_string();
        let stranger = Parent::new(&[stranger.clone().into(), stranger.into()]).expect("numbers");
        assert!(stranger.is_gone(), "the parent has this number no more");
    }

    #[test]
    fn other_programs_are_no_guards() {
        let run = |words: &[&str]| run(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(run(&["brindle", "mount-guard", "7"]), None);
        assert_eq!(run(&["mount-guard"]), Some(ExitCode::FAILURE));
        assert_eq!(run(&["mount-guard", "7", "no number"]), Some(ExitCode::FAILURE));
    }
}
