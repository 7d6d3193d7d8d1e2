//! Devices that fsyncs write superblocks of.

use super::facts::Facts;
use brindle_policy::log::LogEverywhere;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Prints the devices that an fsync writes beside those of its data, where the pool has both classes and brindle writes it.
pub(super) fn print(out: &mut dyn Write, facts: &Facts) -> io::Result<()> {
    match facts.pool.log_devices() {
        _ if !facts.pool.is_ours => Ok(()),
        Err(LogEverywhere::OneClass) => Ok(()),
        Err(why) => writeln!(out, "fsync writes every device: {why}"),
        Ok(devids) => {
            let devids: Vec<String> = devids.iter().map(u64::to_string).collect();
            writeln!(out, "fsync writes devid {}, and devices that have got data since", devids.join(", "))
        }
    }
}

/// The same in JSON.
pub(super) fn json(facts: &Facts) -> Value {
    match facts.pool.log_devices() {
        _ if !facts.pool.is_ours => Value::Null,
        Ok(devids) => json!({ "devices": devids, "reason": null }),
        Err(why) => json!({ "devices": null, "reason": why.to_string() }),
    }
}
