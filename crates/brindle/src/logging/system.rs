//! The log of the system: the journal, or else syslog, or else the log of the kernel.
//!
//! `tracing-journald` speaks to the journal at its usual place alone, and not to the two others; what is needed of its
//! protocol is a dozen lines.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tracing::Level;

/// The journal's socket, unless `BRINDLE_LOG_SOCKET` names another one.
const JOURNAL: &str = "/run/systemd/journal/socket";
const SYSLOG: &str = "/dev/log";
const KERNEL: &str = "/dev/kmsg";
/// Name of the program in the log.
const IDENTIFIER: &str = "brindle";
/// The facility of daemons, as syslog has it.
const DAEMON: u8 = 3 << 3;
/// Longest time that a daemon that does not read keeps a line from being passed on.
const PATIENCE: Duration = Duration::from_secs(1);
/// A daemon that did not read is left alone for so long: a process that ends must not wait for it with each line.
const AVOIDED: Duration = Duration::from_secs(10);
/// Longer lines are cut, so that each fits in a datagram, in bytes.
const LINE_BYTES_MAX: usize = 8 << 10;
/// The kernel takes no more in one line, in bytes.
const KERNEL_LINE_BYTES_MAX: usize = 900;

/// The log of the system.
#[derive(Debug)]
pub(super) struct SystemLog {
    journal: Daemon,
    syslog: Daemon,
    /// The mount that logs, in front of each line.
    place: String,
    socket: Option<UnixDatagram>,
}

/// A daemon that takes lines.
#[derive(Debug)]
struct Daemon {
    path: PathBuf,
    /// The moment at which it did not read.
    stuck: Cell<Option<Instant>>,
}

impl Daemon {
    fn at(path: PathBuf) -> Self {
        Self { path, stuck: Cell::new(None) }
    }

    fn send(&self, socket: Option<&UnixDatagram>, datagram: &[u8]) -> io::Result<()> {
        let socket = socket.ok_or(io::ErrorKind::Unsupported)?;
        if self.stuck.get().is_some_and(|stuck| stuck.elapsed() < AVOIDED) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = socket.send_to(datagram, &self.path);
        let is_stuck = sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        self.stuck.set(is_stuck.then(Instant::now));
        sent.map(drop)
    }
}

impl SystemLog {
    /// For a mount at this place.
    pub(super) fn new(place: String) -> Self {
        let journal = std::env::var_os("BRINDLE_LOG_SOCKET").filter(|path| !path.is_empty());
        let socket = UnixDatagram::unbound().ok();
        let socket = socket.filter(|socket| socket.set_write_timeout(Some(PATIENCE)).is_ok());
        let journal = Daemon::at(journal.map_or_else(|| JOURNAL.into(), PathBuf::from));
        Self { journal, syslog: Daemon::at(SYSLOG.into()), place, socket }
    }

    /// Passes a line on. A daemon may have been restarted since the last one, so each finds its way anew.
    pub(super) fn tell(&self, level: Level, text: &str) {
        let line = cut(format!("{}: {text}", self.place), LINE_BYTES_MAX);
        let priority = priority(level);
        let socket = self.socket.as_ref();
        let sent = self.journal.send(socket, &entry(priority, &line, &self.place));
        let sent = sent.or_else(|_| self.syslog.send(socket, syslog_line(priority, &line).as_bytes()));
        // An ordinary user may not; then there is no place left where anything could be said.
        let _ = sent.or_else(|_| tell_kernel(priority, line));
    }
}

fn tell_kernel(priority: u8, line: String) -> io::Result<()> {
    let line = syslog_line(priority, &cut(line, KERNEL_LINE_BYTES_MAX));
    OpenOptions::new().write(true).open(KERNEL)?.write_all(line.as_bytes())
}

/// Priority by the count of syslog.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// An entry of the journal, in its native protocol.
fn entry(priority: u8, line: &str, place: &str) -> Vec<u8> {
    let mut entry = Vec::new();
    field(&mut entry, "PRIORITY", &priority.to_string());
    field(&mut entry, "SYSLOG_IDENTIFIER", IDENTIFIER);
    field(&mut entry, "SYSLOG_PID", &std::process::id().to_string());
    field(&mut entry, "BRINDLE_MOUNT", place);
    field(&mut entry, "MESSAGE", line);
    entry
}

/// A value with line breaks has its length in front.
fn field(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend((value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend(value.as_bytes());
    entry.push(b'\n');
}

/// A line as RFC 3164 has it, without the time: the daemon adds that, and knows the zone.
fn syslog_line(priority: u8, line: &str) -> String {
    format!("<{}>{IDENTIFIER}[{}]: {}", DAEMON | priority, std::process::id(), line.replace('\n', "\\n"))
}

fn cut(mut line: String, length: usize) -> String {
    let end = (0..=length.min(line.len())).rev().find(|end| line.is_char_boundary(*end));
    line.truncate(end.unwrap_or(0));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_journal_has_its_fields() {
        let text = String::from_utf8(entry(4, "/mnt: bad", "/mnt")).expect("text");
        let fields: Vec<&str> = text.lines().filter(|line| !line.starts_with("SYSLOG_PID=")).collect();
        assert_eq!(
            fields,
            ["PRIORITY=4", "SYSLOG_IDENTIFIER=brindle", "BRINDLE_MOUNT=/mnt", "MESSAGE=/mnt: bad"]
        );
        let mut lines = Vec::new();
        field(&mut lines, "MESSAGE", "a\nb");
        assert_eq!(lines, b"MESSAGE\n\x03\0\0\0\0\0\0\0a\nb\n");
    }

    #[test]
    fn lines_of_syslog_say_how_grave_it_is_and_are_no_longer_than_they_may_be() {
        let line = syslog_line(priority(Level::ERROR), "a\nb");
        assert_eq!(line, format!("<27>brindle[{}]: a\\nb", std::process::id()));
        assert_eq!(cut("aé".to_owned(), 2), "a");
        assert_eq!(cut("aé".to_owned(), 3), "aé");
    }

    #[test]
    fn a_daemon_that_is_absent_or_does_not_read_is_passed_over() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("journal");
        let sender = UnixDatagram::unbound().expect("a socket");
        sender.set_write_timeout(Some(Duration::from_millis(1))).expect("a time");
        let daemon = Daemon::at(path.clone());
        assert!(daemon.send(Some(&sender), b"a").is_err(), "it is not there");
        assert!(daemon.stuck.get().is_none(), "and may come");
        let reader = UnixDatagram::bind(&path).expect("a new socket");
        let sent = (0..1_000_000).take_while(|_| daemon.send(Some(&sender), b"a").is_ok()).count();
        assert!(sent > 0 && daemon.stuck.get().is_some(), "{sent} lines before it is full");
        reader.recv(&mut [0]).expect("a line");
        assert!(daemon.send(Some(&sender), b"a").is_err(), "it is left alone for a while");
        daemon.stuck.set(None);
        daemon.send(Some(&sender), b"a").expect("there is room again");
    }
}
