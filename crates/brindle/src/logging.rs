//! What is logged, to standard error.

use crate::cli::Verbosity;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging at the level that the options, or `BRINDLE_LOG`, ask for.
pub(crate) fn start(verbosity: &Verbosity) {
    let level = match (verbosity.quiet, verbosity.verbose) {
        (true, _) => "off",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    let filter = std::env::var("BRINDLE_LOG").ok().and_then(|text| EnvFilter::try_new(text).ok());
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|| EnvFilter::new(level)))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(verbosity.verbose > 1)
        .init();
}
