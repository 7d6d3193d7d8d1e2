//! Servers that suites run in the background, by a user of their own where the caller is root. They end with the caller, also if that is
//! killed.

use super::program::{command, end_of, find};
use rustix::fs::{Gid, Uid, chown};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest time for a server to start or to end: the recovery of a large one is slow.
const PATIENCE: Duration = Duration::from_secs(600);
/// Pause between two looks at a server that starts or ends.
const PAUSE: Duration = Duration::from_millis(20);
/// Shell command that runs a program, unless the process of the first number has ended before its end was to be told.
const UNLESS_ORPHANED: &str = r#"[ "$PPID" = "$1" ] || exit 1; shift; exec "$@""#;

/// User that a server and its clients run as.
pub(super) struct Account {
    user: Option<(u32, u32)>,
}

impl Account {
    /// The caller, or the user of this name where the caller is root.
    pub(super) fn of(name: &str) -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self { user: None });
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let missing = || {
            io::Error::other(format!("the server is to run as the user {name}, not as root; there is none"))
        };
        Ok(Self { user: Some(numbers_of(&users, name).ok_or_else(missing)?) })
    }

    /// Makes a directory that belongs to it.
    pub(super) fn make_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        self.own(path)
    }

    /// Gives it a file or a directory.
    pub(super) fn own(&self, path: &Path) -> io::Result<()> {
        let Some((user, group)) = self.user else { return Ok(()) };
        Ok(chown(path, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?)
    }

    /// A program of this user, which gets a signal when the thread that started it ends.
    pub(super) fn command(&self, program: &str, signal: &str) -> io::Result<Command> {
        let mut command = command("setpriv")?;
        if let Some((user, group)) = self.user {
            command.arg(format!("--reuid={user}")).arg(format!("--regid={group}")).arg("--clear-groups");
        }
        command.arg(format!("--pdeathsig={signal}"));
        // A shell without job control has what it starts beside it ignore SIGQUIT, and so would the server until it is up.
        command.args(["--", "env", "--default-signal=QUIT,TERM", "sh", "-c", UNLESS_ORPHANED, "sh"]);
        let path = find(program).unwrap_or_else(|| program.into());
        command.arg(std::process::id().to_string()).arg(path);
        Ok(command)
    }
}

fn numbers_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let fields = fields.into_iter().find(|fields| fields.first() == Some(&name))?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

/// A server that runs. When this is dropped, it gets its last signal, and is waited for.
pub(super) struct Daemon {
    name: &'static str,
    process: Child,
    log: PathBuf,
    last: Signal,
}

impl Daemon {
    /// Starts a server, whose output goes to the end of a file.
    pub(super) fn start(
        name: &'static str,
        mut command: Command,
        log: PathBuf,
        last: Signal,
    ) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(&log)?;
        let process = command.stdout(file.try_clone()?).stderr(file).spawn()?;
        Ok(Self { name, process, log, last })
    }

    /// Returns when it is ready.
    ///
    /// # Errors
    /// Its own words where it ends before, or is not ready in time.
    pub(super) fn wait_until(&mut self, is_ready: impl Fn() -> io::Result<bool>) -> io::Result<()> {
        let begin = Instant::now();
        while !is_ready()? {
            if self.process.try_wait()?.is_some() || begin.elapsed() > PATIENCE {
                return Err(self.failed("does not start"));
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Fails with its own words if it has ended.
    pub(super) fn check(&mut self) -> io::Result<()> {
        if self.process.try_wait()?.is_some() { Err(self.failed("has failed")) } else { Ok(()) }
    }

    /// Ends it by a signal that lets it end in order.
    pub(super) fn stop(mut self, signal: Signal) -> io::Result<()> {
        self.signal(signal)?;
        let begin = Instant::now();
        loop {
            match self.process.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => return Err(self.failed("has failed")),
                None if begin.elapsed() > PATIENCE => return Err(self.failed("does not end")),
                None => sleep(PAUSE),
            }
        }
    }

    fn failed(&self, reason: &str) -> io::Error {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        io::Error::other(format!("{} {reason}: {}", self.name, end_of(&said)))
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let number = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        Ok(number.map_or(Ok(()), |number| kill_process(number, signal))?)
    }

    /// Number of its process.
    #[cfg(test)]
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            // After an error, which is told.
            let _ = self.signal(self.last);
            let _ = self.process.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_names() {
        let users = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104::/var/lib:/bin/sh\nodd\n";
        assert_eq!(numbers_of(users, "postgres"), Some((101, 104)));
        assert_eq!(numbers_of(users, "odd"), None);
        assert_eq!(numbers_of(users, "daemon"), None);
    }

    #[test]
    fn a_server_that_ends_early_is_told_with_its_words() {
        let scratch = tempfile::tempdir().expect("room");
        let start = |script: &str| {
            let mut shell = command("sh").expect("there");
            shell.args(["-c", script]);
            Daemon::start("the store", shell, scratch.path().join("log"), Signal::KILL).expect("it starts")
        };
        let error = start("echo no room; exit 3").wait_until(|| Ok(false)).expect_err("it ends").to_string();
        assert_eq!(error, "the store does not start: no room");
        let mut runs = start("exec sleep 1000");
        runs.check().expect("it runs");
        runs.signal(Signal::KILL).expect("ours");
        runs.process.wait().expect("our child");
        assert!(runs.check().expect_err("it has ended").to_string().starts_with("the store has failed: "));
        start("exec sleep 1000").stop(Signal::TERM).expect_err("a signal has ended it");
        let asked = start("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done");
        while !fs::read_to_string(scratch.path().join("log")).expect("there").contains("ready") {
            sleep(PAUSE);
        }
        asked.stop(Signal::TERM).expect("it ends in order");
        let dropped = start("exec sleep 1000");
        let process = dropped.id();
        drop(dropped);
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "nothing of it is left");
    }
}
