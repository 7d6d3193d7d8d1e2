//! What is logged, to standard error.

use crate::cli::Verbosity;
use anyhow::{Result, bail};
use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use tracing_subscriber::EnvFilter;

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
                text.display()
            ),
        },
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Once::default)
        // A mount in the background outlives whoever read what it says. To complain of that, too, would be a panic.
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

/// Standard error, which is told each thing once: a pool that is opened twice has the same to say.
#[derive(Default)]
struct Once;

/// Lines that are remembered; what is said after so many may be said again.
const LINES_MAX: usize = 1000;
static SAID: Mutex<Option<HashSet<Vec<u8>>>> = Mutex::new(None);

impl Write for Once {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut said = SAID.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let said = said.get_or_insert_default();
        if said.contains(line) {
            return Ok(line.len());
        }
        if said.len() < LINES_MAX {
            said.insert(line.to_vec());
        }
        io::stderr().write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
