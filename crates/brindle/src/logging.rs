//! The log. Commands log to standard error, each line once: a pool that is opened twice has the same to say.
//!
//! A process that serves a mount lives on ([`serve`]): from then on a thread takes the lines, counts repeats ([`repeats`]) and
//! lines that differ by numbers only ([`floods`]) and tells of them again, in the foreground on standard error, in the background, where that has no reader, in the log of the
//! system ([`system`]). The threads that serve the mount never wait for it: a log that lies on the mount itself would
//! otherwise wait for the log.

mod floods;
mod lines;
mod repeats;
mod system;

use crate::options::Verbosity;
use anyhow::{Result, bail};
use lines::Line;
use repeats::Repeats;
use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use system::SystemLog;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Starts logging at the level that the options, or `BRINDLE_LOG`, ask for.
pub(crate) fn start(verbosity: &Verbosity) -> Result<()> {
    let level = match (verbosity.quiet, verbosity.verbose) {
        (true, _) => "off",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    let filter = match std::env::var_os("BRINDLE_LOG").filter(|text| !text.is_empty()) {
        None => EnvFilter::new(level),
        Some(text) => match text.to_str().filter(|text| is_plausible(text)).map(EnvFilter::try_new) {
            Some(Ok(filter)) => filter,
            _ => bail!(
                "BRINDLE_LOG={}: not a level such as debug, nor like brindle_volume=trace",
                text.to_string_lossy()
            ),
        },
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Lines)
        // A mount in the background outlives the reader of its messages. To complain of that, too, would be a panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .with_target(verbosity.verbose > 1)
        .init();
    Ok(())
}

/// The filter takes any word for a part of the program; a level that is misspelt is one of none.
fn is_plausible(text: &str) -> bool {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = |word: &str| LEVELS.contains(&word.to_lowercase().as_str()) || word.parse::<u8>().is_ok();
    let parts = text.split(',').map(str::trim);
    parts
        .into_iter()
        .all(|part| is_level(part) || part.starts_with("brindle") || part.contains(['=', '[', ':']))
}

/// Number of lines that a command remembers; an older one may be said again.
const LINES_MAX: usize = 1000;
/// Lines that wait for the thread; any further ones are lost, and counted.
const QUEUE_LINES_MAX: usize = 1000;
/// Time between two looks for repeats that are to be told.
const TICK: Duration = Duration::from_secs(10);

static LOG: Mutex<Log> = Mutex::new(Log::Command(None));

/// Destination of lines.
enum Log {
    /// Standard error, each line once.
    Command(Option<HashSet<Vec<u8>>>),
    /// The thread of a process that serves a mount.
    Server(Server),
}

struct Server {
    lines: SyncSender<Line>,
    thread: JoinHandle<()>,
    place: String,
    is_in_background: bool,
    lost: u64,
}

fn log() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs as a process does that serves a mount: repeats are told again, and in the background all goes to the log of the
/// system. `place` is what the mount is called there.
pub(crate) fn serve(place: String, is_in_background: bool) -> Result<()> {
    let (lines, queue) = sync_channel(QUEUE_LINES_MAX);
    let system = is_in_background.then(|| SystemLog::new(place.clone()));
    let thread =
        std::thread::Builder::new().name("log".to_owned()).spawn(move || tell(&queue, system.as_ref()))?;
    *log() = Log::Server(Server { lines, thread, place, is_in_background, lost: 0 });
    Ok(())
}

/// Writes everything that was logged, repeats as well. To be called before a process that served a mount ends.
pub(crate) fn end() {
    let ended = std::mem::replace(&mut *log(), Log::Command(None));
    if let Log::Server(Server { lines, thread, lost, .. }) = ended {
        if lost > 0 {
            let _ = lines.send(told_of_lost(lost));
        }
        drop(lines);
        let _ = thread.join();
    }
}

/// Tells an error at once, past whatever waits: the process ends with it.
pub(crate) fn tell_last(text: &str) {
    let place = match &*log() {
        Log::Server(server) if server.is_in_background => Some(server.place.clone()),
        _ => None,
    };
    match place {
        Some(place) => SystemLog::new(place).tell(Level::ERROR, text),
        None => drop(writeln!(io::stderr(), "ERROR {text}")),
    }
}

/// Logs an error where standard error has no reader; false if it may have one.
pub(crate) fn tell_error(text: &str) -> bool {
    match &mut *log() {
        Log::Server(server) if server.is_in_background => {
            server.pass_on((Level::ERROR, text.to_owned()));
            true
        }
        _ => false,
    }
}

impl Server {
    fn pass_on(&mut self, line: Line) {
        if self.lost > 0 && self.lines.try_send(told_of_lost(self.lost)).is_ok() {
            self.lost = 0;
        }
        // In the foreground, where no daemon is waited for, nothing is lost.
        let is_sent = match self.is_in_background {
            true => self.lines.try_send(line).is_ok(),
            false => self.lines.send(line).is_ok(),
        };
        self.lost += u64::from(!is_sent);
    }
}

fn told_of_lost(lines: u64) -> Line {
    (Level::WARN, format!("{lines} lines of the log were lost: they came too fast"))
}

/// Tells lines until there are no more to come.
fn tell(queue: &Receiver<Line>, system: Option<&SystemLog>) {
    let out = |level: Level, text: &str| match system {
        Some(system) => system.tell(level, text),
        None => drop(writeln!(io::stderr(), "{text}")),
    };
    let mut repeats = Repeats::default();
    loop {
        match queue.recv_timeout(TICK) {
            Ok(line) => {
                let told = repeats.hear(&line, Instant::now());
                told.iter().for_each(|text| out(line.0, text));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        for (level, text) in repeats.due(Instant::now()) {
            out(level, &text);
        }
    }
    for (level, text) in repeats.rest(Instant::now()) {
        out(level, &text);
    }
}

/// Makes a writer for each line, which knows how grave it is.
struct Lines;

struct LineWriter(Level);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter(Level::INFO)
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LineWriter {
        LineWriter(*metadata.level())
    }
}

impl Write for LineWriter {
    /// Takes one line, whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut *log() {
            Log::Command(said) => {
                let said = said.get_or_insert_default();
                if said.contains(line) {
                    return Ok(line.len());
                }
                if said.len() < LINES_MAX {
                    said.insert(line.to_vec());
                }
                io::stderr().write_all(line)?;
            }
            Log::Server(server) => {
                let text = String::from_utf8_lossy(line);
                let text = text.trim_end();
                // The log of the system has a field for that.
                let text = match server.is_in_background {
                    true => text.trim_start().strip_prefix(self.0.as_str()).unwrap_or(text).trim_start(),
                    false => text,
                };
                server.pass_on((self.0, text.to_owned()));
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
