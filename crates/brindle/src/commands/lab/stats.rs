//! `lab stats`: the counts of a running disk.

use crate::format::{Align, UnitMode, write_table};
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_lab::{Client, Cut, Status};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
EXAMPLES
    brindle lab stats /run/disk
    brindle lab stats --reset /run/disk
    brindle lab stats --json /run/disk

EXIT STATUS
  0  success
  1  failure: no disk is mounted there, or its server has gone
  2  wrong usage";

/// Show the counts of a modelled disk
///
/// Counts begin when the power is turned on, and with --reset. A seek is an operation of a hard disk's head that does not go
/// on where the last one ended; a wake-up starts platters that had stopped; bands are those that a shingled disk has rewritten.
/// A drive is busy while a request has no answer; its queue is the number of requests without one, on average over all the time.
/// Writes that are not flushed are those that a power cut could take. Late answers came more than 1 ms after their modelled
/// time: of a measurement, no more than one in a thousand may be.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatsCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Set all counts to 0 after they are shown
    #[arg(long)]
    reset: bool,
    /// Directory on which the disk is mounted
    mountpoint: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &StatsCommand) -> Result<ExitCode> {
    let client = Client::at(&command.mountpoint)?;
    let status = client.status()?;
    if command.json.json {
        output::print_json(&counts_json(&status))?;
    } else {
        let mut out = output::stdout();
        print(&mut out, &status)?;
        out.flush()?;
    }
    if command.reset {
        client.reset()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A state as JSON.
fn counts_json(status: &Status) -> Value {
    let (counts, lateness) = (&status.counts, &status.lateness);
    json!({
        "model": status.model,
        "process": status.process,
        "size_bytes": status.size_bytes,
        "loop_device": status.loop_device,
        "power": status.is_on,
        "asleep": status.is_asleep,
        "in_flight": status.in_flight,
        "unflushed_writes": status.unflushed_writes,
        "unflushed_bytes": status.unflushed_bytes,
        "reads": counts.reads,
        "read_bytes": counts.read_bytes,
        "writes": counts.writes,
        "written_bytes": counts.written_bytes,
        "flushes": counts.flushes,
        "discards": counts.discards,
        "discarded_bytes": counts.discarded_bytes,
        "seeks": counts.seeks,
        "wake_ups": counts.wake_ups,
        "bands": counts.bands,
        "elapsed_ns": status.load.elapsed_ns,
        "busy_ns": status.load.busy_ns,
        "queue_mean": queue(status),
        "in_flight_max": status.load.most,
        "answers": lateness.answers,
        "late_answers": lateness.late,
        "lateness_mean_ns": mean_ns(status),
        "lateness_max_ns": lateness.max_ns,
        "cut": status.cut.as_ref().map(cut_json),
    })
}

/// A cut as JSON.
pub(super) fn cut_json(cut: &Cut) -> Value {
    json!({
        "mode": cut.mode.name(),
        "seed": cut.seed,
        "kept": cut.report.kept,
        "lost": cut.report.lost,
        "torn": cut.report.torn,
    })
}

fn mean_ns(status: &Status) -> u64 {
    status.lateness.total_ns / status.lateness.answers.max(1)
}

/// Requests at once, on average.
fn queue(status: &Status) -> f64 {
    let seconds = |ns| Duration::from_nanos(ns).as_secs_f64();
    let elapsed = seconds(status.load.elapsed_ns);
    if elapsed > 0.0 { seconds(status.load.queued_ns) / elapsed } else { 0.0 }
}

fn print(out: &mut dyn Write, status: &Status) -> io::Result<()> {
    let (counts, size) = (&status.counts, |bytes| UnitMode::DEFAULT.format(bytes));
    let state = match (status.is_on, status.is_asleep) {
        (false, _) => "off",
        (true, true) => "asleep",
        (true, false) => "on",
    };
    let row = |name: &str, number: u64, more: String| vec![name.to_owned(), number.to_string(), more];
    writeln!(out, "modelled {}, {}, power {state}", status.model, size(status.size_bytes))?;
    if let Some(device) = &status.loop_device {
        writeln!(out, "attached as {}", device.display())?;
    }
    let [busy, elapsed] =
        [status.load.busy_ns, status.load.elapsed_ns].map(|ns| Duration::from_nanos(ns).as_secs_f64());
    let in_flight = format!("{:.2} on average, at most {}", queue(status), status.load.most);
    let rows = [
        row("reads", counts.reads, size(counts.read_bytes)),
        row("writes", counts.writes, size(counts.written_bytes)),
        row("flushes", counts.flushes, String::new()),
        row("discards", counts.discards, size(counts.discarded_bytes)),
        row("seeks", counts.seeks, String::new()),
        row("wake-ups", counts.wake_ups, String::new()),
        row("bands", counts.bands, String::new()),
        vec!["busy".to_owned(), format!("{busy:.1} s"), format!("of {elapsed:.1} s")],
        row("in flight", status.in_flight, in_flight),
        row("not flushed", status.unflushed_writes, size(status.unflushed_bytes)),
        row("answers", status.lateness.answers, format!("{} us late on average", mean_ns(status) / 1000)),
        row("late answers", status.lateness.late, format!("at most {} us", status.lateness.max_ns / 1000)),
    ];
    write_table(out, &[Align::Left, Align::Right, Align::Left], &rows)?;
    if let Some(cut) = &status.cut {
        writeln!(out, "last cut: {}", cut_line(cut))?;
    }
    Ok(())
}

/// A cut in words.
pub(super) fn cut_line(cut: &Cut) -> String {
    let Cut { mode, seed, report } = cut;
    let (kept, lost, torn) = (report.kept, report.lost, report.torn);
    format!(
        "mode {}, seed {seed}: of the writes without a flush {kept} kept, {lost} lost, {torn} torn",
        mode.name()
    )
}
