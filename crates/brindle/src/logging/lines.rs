//! A line of the log, and the limits of those that count lines.

use std::time::Duration;
use tracing::Level;

/// Lines that are remembered; any further one is told each time.
pub(super) const LINES_MAX: usize = 1000;
/// Times between two tellings of the same line; the last one stays.
pub(super) const INTERVALS: [Duration; 3] =
    [Duration::from_secs(60), Duration::from_secs(600), Duration::from_secs(3600)];

/// A line and its level.
pub(super) type Line = (Level, String);

/// A length of time, roughly.
pub(super) fn span(since: Duration) -> String {
    let seconds = since.as_secs();
    let (number, unit) = match seconds {
        ..120 => (seconds, "second"),
        120..7200 => (seconds / 60, "minute"),
        7200..172_800 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{s}")
}
