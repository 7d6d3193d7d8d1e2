//! The process that this is, told from all others of all machines, and its clock.

use crate::{Tally, Traffic};
use rustix::process::{Pid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

/// A process of this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostProcess {
    /// Number of the namespace in which the process has its id.
    pub pid_namespace: u64,
    /// Its id.
    pub pid: u32,
    /// Time at which it began, in ticks since the kernel did; 0 if the host does not say.
    pub started: u64,
}

impl HostProcess {
    /// This process.
    pub fn this() -> Self {
        let pid = std::process::id();
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
        Self { pid_namespace: namespace, pid, started: started(pid).unwrap_or(0) }
    }

    /// Returns true if the process still runs, `None` if that can't be seen from here: it is one of another namespace.
    pub fn is_running(&self) -> Option<bool> {
        let this = Self::this();
        if this.pid_namespace == 0 || this.pid_namespace != self.pid_namespace {
            return None;
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw)?;
        // Another user's process is there, too.
        let is_there = test_kill_process(pid) != Err(rustix::io::Errno::SRCH);
        let is_it = || match started(self.pid) {
            Some(started) if self.started != 0 => started == self.started,
            _ => true,
        };
        Some(is_there && is_it())
    }
}

/// Requests of a block device by the kernel's counters: those of all processes, as they reach the device. `None` of anything else.
pub fn block_traffic(device: &Path) -> Option<Traffic> {
    let found = fs::metadata(device).ok().filter(|found| found.file_type().is_block_device())?;
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    parse_traffic(&fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
}

/// The fields of a `stat` file: number, merges, sectors and milliseconds of reads and of writes, then requests under way, two times, and
/// those of discards and flushes.
fn parse_traffic(stat: &str) -> Option<Traffic> {
    const SECTOR_BYTES: u64 = 512;
    let fields: Vec<u64> = stat.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let field = |index: usize| fields.get(index).copied();
    let tally = |first: usize| {
        Some(Tally {
            requests: field(first)?,
            bytes: field(first + 2)?.saturating_mul(SECTOR_BYTES),
            time_ns: field(first + 3)?.saturating_mul(1_000_000),
        })
    };
    let flushes = Tally {
        requests: field(15).unwrap_or(0),
        bytes: 0,
        time_ns: field(16).unwrap_or(0).saturating_mul(1_000_000),
    };
    let tallies = [tally(0)?, tally(4)?, flushes, tally(11).unwrap_or_default()];
    Some(Traffic { tallies, in_flight: field(8)?, idle_ns: 0 })
}

/// Time at which a process began, in ticks.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything; 19 fields lie between it and the time.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Id of this machine (`/etc/machine-id`); zeros if it has none.
pub fn machine_id() -> [u8; 16] {
    id_of("/etc/machine-id")
}

/// Id of this run of the kernel.
pub fn boot_id() -> [u8; 16] {
    id_of("/proc/sys/kernel/random/boot_id")
}

/// Name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Time since the kernel began, suspended or not.
pub fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}

fn id_of(path: &str) -> [u8; 16] {
    let text = fs::read_to_string(path).unwrap_or_default();
    let digits: Vec<u8> = text.trim().bytes().filter(|byte| *byte != b'-').collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok();
        *byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or(0);
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_run_are_told_from_those_that_have_ended() {
        let this = HostProcess::this();
        assert_eq!(this.is_running(), Some(true));
        assert!(this.started > 0);
        assert_eq!(
            HostProcess { started: this.started + 1, ..this }.is_running(),
            Some(false),
            "another one"
        );
        assert_eq!(HostProcess { pid_namespace: 1, ..this }.is_running(), None);
        let mut child = std::process::Command::new("true").spawn().expect("it is there");
        let ended = HostProcess { pid: child.id(), ..this };
        child.wait().expect("it ends");
        assert_eq!(ended.is_running(), Some(false));
        assert!(boot_id() != [0; 16] && boot_time() > Duration::ZERO);
    }
}
