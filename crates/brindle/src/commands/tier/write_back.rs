//! Data that waits in the write-back tier.

use super::facts::{Facts, Source};
use crate::format::UnitMode;
use anyhow::Result;
use brindle_admin::WriteBack;
use brindle_policy::writeback::WriteBackMode;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// State of the tier, in a pool that brindle writes.
pub(super) fn state(facts: &Facts) -> Result<Option<WriteBack>> {
    Ok(match &facts.source {
        Source::Mounted(mounted) if mounted.is_of_kernel() => None,
        // A mount that is only read has no tier to speak of.
        Source::Mounted(mounted) => mounted.write_back().ok(),
        Source::Open(pool) => Some(WriteBack::of_pool(pool)?),
    })
}

/// Prints the state, where the pool has both classes.
pub(super) fn print(out: &mut dyn Write, tier: &WriteBack, units: UnitMode) -> io::Result<()> {
    match &tier.obstacle {
        Some(why) if tier.waiting_bytes == 0 => return writeln!(out, "write-back: none: {why}"),
        Some(why) => write!(out, "write-back: none any more: {why}; ")?,
        None if tier.mode == WriteBackMode::Off && tier.waiting_bytes == 0 => {
            return writeln!(out, "write-back: off");
        }
        None => write!(out, "write-back: {}, {}; ", tier.mode, tier.profile)?,
    }
    let (waiting, capacity) = (units.format(tier.waiting_bytes), units.format(tier.capacity_bytes));
    write!(out, "{waiting} of {capacity} wait on fast devices")?;
    if let Some(age) = age(tier) {
        write!(out, ", for {} s", age.as_secs())?;
    }
    if let Some((bytes, time)) = tier.destaged.filter(|(bytes, _)| *bytes > 0) {
        write!(out, "; {} moved to bulk devices since it was mounted", units.format(bytes))?;
        if let Some(rate) = rate(bytes, time) {
            write!(out, ", {} a second", units.format(rate))?;
        }
    }
    writeln!(out)
}

/// The same in JSON.
pub(super) fn json(tier: &WriteBack) -> Value {
    json!({
        "mode": tier.mode.to_string(),
        "profile": tier.profile.to_string(),
        "obstacle": tier.obstacle,
        "waiting_bytes": tier.waiting_bytes,
        "capacity_bytes": tier.capacity_bytes,
        "waiting_since": tier.since,
        "destaged_bytes": tier.destaged.map(|(bytes, _)| bytes),
        "destaged_bytes_per_second": tier.destaged.and_then(|(bytes, time)| rate(bytes, time)),
    })
}

/// Age of the oldest data that waits.
fn age(tier: &WriteBack) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.saturating_sub(Duration::from_secs(tier.since?)))
}

/// Bytes a second.
fn rate(bytes: u64, time: Duration) -> Option<u64> {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    (bytes > 0).then(|| u64::try_from(rate).unwrap_or(u64::MAX))
}
