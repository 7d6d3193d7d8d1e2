//! The record of a scrub, for people and as JSON.

use crate::commands::path::shown_name;
use crate::format::{Civil, UnitMode};
use crate::output;
use anyhow::Result;
use brindle_care::scrub::{DeviceProgress, DeviceState, Fault, ScrubCounts, ScrubRecord};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// Prints a record: the sum, or each device.
pub(super) fn print(record: &ScrubRecord, is_running: bool, by_device: bool, raw: bool) -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "UUID:             {}", record.fsid)?;
    if by_device {
        for device in &record.report.devices {
            writeln!(out, "\nScrub device {} (id {})", device.name, device.devid)?;
            part(&mut out, record, std::slice::from_ref(device), is_running, raw)?;
        }
    } else {
        part(&mut out, record, &record.report.devices, is_running, raw)?;
        for device in &record.report.devices {
            if let Some(why) = failure(device) {
                writeln!(out, "Not scrubbed:     {} (id {}): {why}", device.name, device.devid)?;
            }
        }
        for device in record.report.left() {
            writeln!(out, "Left asleep:      {} (id {}): `resume` scrubs it", device.name, device.devid)?;
        }
    }
    for fault in &record.report.faults {
        writeln!(out, "{}", fault.text)?;
        for (path, offset) in &fault.files {
            write!(out, "\t")?;
            out.write_all(&shown_name(path))?;
            writeln!(out, " offset {offset}")?;
        }
    }
    let more = record.report.left_out();
    if more > 0 {
        writeln!(out, "and {more} more")?;
    }
    out.flush()?;
    Ok(())
}

/// Prints what is known of some devices.
fn part(
    out: &mut output::Stdout,
    record: &ScrubRecord,
    devices: &[DeviceProgress],
    is_running: bool,
    raw: bool,
) -> Result<()> {
    let (total, done) = (sum(devices, |it| it.total_bytes), sum(devices, |it| it.done_bytes));
    let duration = devices.iter().map(|device| device.duration).max().unwrap_or_default();
    let mut counts = ScrubCounts::default();
    devices.iter().for_each(|device| counts.add(&device.counts));
    let scrubbed = counts.data_bytes + counts.tree_bytes;
    let (rate, pace) = (rate(scrubbed, duration), rate(done, duration));
    let size = |bytes: u64| UnitMode::DEFAULT.format(bytes);
    let started = Civil::from_epoch(i64::try_from(record.started).unwrap_or(i64::MAX));
    writeln!(out, "Scrub started:    {started}")?;
    writeln!(out, "Status:           {}", state_of(devices, is_running))?;
    writeln!(out, "Duration:         {}", clock(duration))?;
    if is_running && pace > 0 {
        writeln!(out, "Time left:        {}", clock(Duration::from_secs((total - done.min(total)) / pace)))?;
    }
    writeln!(out, "Total to scrub:   {}", size(total))?;
    if is_running || done < total {
        #[expect(clippy::cast_precision_loss, reason = "a percentage")]
        let percent = if total == 0 { 100.0 } else { done as f64 * 100.0 / total as f64 };
        writeln!(out, "Bytes scrubbed:   {}  ({percent:.2}%)", size(scrubbed))?;
    }
    writeln!(out, "Rate:             {}/s", size(rate))?;
    if raw {
        for (name, count) in named(&counts) {
            writeln!(out, "\t{name}: {count}")?;
        }
        let last = devices.iter().map(|device| device.last_physical).max().unwrap_or(0);
        writeln!(out, "\tlast_physical: {last}")?;
        return Ok(());
    }
    summary(out, &counts)
}

/// Errors by their kinds, and what became of them.
fn summary(out: &mut output::Stdout, counts: &ScrubCounts) -> Result<()> {
    let kinds = [
        ("read", counts.read_errors),
        ("super", counts.super_errors),
        ("verify", counts.verify_errors),
        ("csum", counts.csum_errors),
        ("parity", counts.parity_errors),
    ];
    let found: Vec<String> =
        kinds.iter().filter(|(_, count)| *count > 0).map(|(kind, count)| format!("{kind}={count}")).collect();
    if found.is_empty() {
        writeln!(out, "Error summary:    no errors found")?;
        return Ok(());
    }
    writeln!(out, "Error summary:    {}", found.join(" "))?;
    writeln!(out, "  Corrected:      {}", counts.corrected_errors)?;
    writeln!(out, "  Uncorrectable:  {}", counts.uncorrectable_errors)?;
    if counts.correctable_errors > 0 {
        writeln!(out, "  Correctable:    {} (right elsewhere)", counts.correctable_errors)?;
    }
    Ok(())
}

/// The record as JSON.
pub(super) fn json(record: &ScrubRecord, is_running: bool) -> Value {
    let device = |device: &DeviceProgress| {
        json!({
            "devid": device.devid.get(),
            "path": device.name,
            "status": state_of(std::slice::from_ref(device), is_running),
            "failure": failure(device),
            "duration_seconds": device.duration.as_secs_f64(),
            "total_bytes": device.total_bytes,
            "done_bytes": device.done_bytes,
            "limit": device.limit,
            "last_physical": device.last_physical,
            "counts": named(&device.counts).into_iter().collect::<serde_json::Map<_, _>>(),
        })
    };
    let files = |files: &[(Vec<u8>, u64)]| -> Vec<Value> {
        let one = |(path, offset): &(Vec<u8>, u64)| json!({ "path": String::from_utf8_lossy(path), "offset": offset });
        files.iter().map(one).collect()
    };
    let one =
        |fault: &Fault| json!({ "text": fault.text, "errors": fault.errors, "files": files(&fault.files) });
    let faults = record.report.faults.iter();
    let devices = &record.report.devices;
    json!({
        "uuid": record.fsid,
        "started": record.started,
        "status": state_of(devices, is_running),
        "read_only": record.read_only,
        "duration_seconds": record.duration().as_secs_f64(),
        "total_bytes": sum(devices, |it| it.total_bytes),
        "done_bytes": sum(devices, |it| it.done_bytes),
        "counts": named(&record.report.counts()).into_iter().collect::<serde_json::Map<_, _>>(),
        "devices": devices.iter().map(device).collect::<Vec<_>>(),
        "uncorrected": faults.map(one).collect::<Vec<_>>(),
        "uncorrected_count": record.report.fault_count,
    })
}

/// Reason why a device was not scrubbed.
pub(super) fn failure(device: &DeviceProgress) -> Option<String> {
    match &device.state {
        DeviceState::Failed(why) => Some(why.clone()),
        DeviceState::Missing => Some("it is missing".to_owned()),
        _ => None,
    }
}

fn state_of(devices: &[DeviceProgress], is_running: bool) -> &'static str {
    let any = |state: &DeviceState| devices.iter().any(|device| device.state == *state);
    match () {
        () if is_running && any(&DeviceState::Running) => "running",
        () if any(&DeviceState::Running) || any(&DeviceState::Cancelled) => "aborted",
        () if devices.iter().any(|device| matches!(device.state, DeviceState::Failed(_))) => "failed",
        () if devices.iter().all(|device| device.state == DeviceState::Missing) => "missing",
        () if devices.iter().all(|device| device.state == DeviceState::Asleep) => "asleep",
        () if any(&DeviceState::Asleep) => "incomplete",
        () => "finished",
    }
}

/// The counters by the kernel's names, and ours.
fn named(counts: &ScrubCounts) -> Vec<(String, Value)> {
    let all = [
        ("data_extents_scrubbed", counts.data_extents),
        ("tree_extents_scrubbed", counts.tree_extents),
        ("data_bytes_scrubbed", counts.data_bytes),
        ("tree_bytes_scrubbed", counts.tree_bytes),
        ("read_errors", counts.read_errors),
        ("csum_errors", counts.csum_errors),
        ("verify_errors", counts.verify_errors),
        ("no_csum", counts.no_csum),
        ("super_errors", counts.super_errors),
        ("parity_errors", counts.parity_errors),
        ("uncorrectable_errors", counts.uncorrectable_errors),
        ("corrected_errors", counts.corrected_errors),
        ("correctable_errors", counts.correctable_errors),
    ];
    all.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect()
}

fn sum(devices: &[DeviceProgress], of: impl Fn(&DeviceProgress) -> u64) -> u64 {
    devices.iter().map(of).sum()
}

/// Bytes in a second.
fn rate(bytes: u64, duration: Duration) -> u64 {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1);
    bytes.saturating_mul(1000) / millis
}

/// `1:02:03`
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_a_clock() {
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
        assert_eq!(rate(1 << 20, Duration::from_millis(500)), 2 << 20);
        assert_eq!(rate(7, Duration::ZERO), 7000);
    }
}
