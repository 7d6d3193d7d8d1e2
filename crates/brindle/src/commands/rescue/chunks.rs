//! `rescue chunk-recover`.

use super::consent::{Outcome, Ward};
use super::words::TreatmentCommand;
use crate::commands::companions::with_others;
use crate::commands::examination_bar::Bar;
use crate::output;
use anyhow::Result;
use brindle_policy::tier::Content;
use brindle_rescue::chunks::{ChunkRecovery, search};
use brindle_rescue::{RescueError, Step};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Searches for the map, shows it, and writes it.
pub(super) fn run(command: &TreatmentCommand) -> Result<ExitCode> {
    let devices = with_others(&command.devices);
    let paths: Vec<&Path> = devices.iter().map(PathBuf::as_path).collect();
    let ward = Ward::open(&paths, &command.consent)?;
    let is_json = command.json.json;
    let bar = Bar::new(!is_json);
    let recovery = search(ward.patient.readable(), &bar)?;
    bar.clear();
    if !is_json {
        show(&recovery)?;
    }
    let steps = match recovery.put(&ward.patient.writable()) {
        Err(RescueError::Refused(why)) if is_json => {
            let mut value = as_json(&ward, &recovery, &[], &Outcome::NotWritten);
            value["refused"] = why.into();
            output::print_json(&value)?;
            return Ok(ExitCode::FAILURE);
        }
        steps => steps?,
    };
    let outcome = match &steps[..] {
        [] => Outcome::Nothing,
        steps => ward.settle(steps, &command.consent, is_json)?,
    };
    if is_json {
        output::print_json(&as_json(&ward, &recovery, &steps, &outcome))?;
    } else {
        let mut out = output::stdout();
        writeln!(out, "{}", ward.in_words(&outcome))?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(recovery: &ChunkRecovery) -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "chunks that are proved: {}", recovery.chunks().count())?;
    for line in recovery.summary() {
        writeln!(out, "  {line}")?;
    }
    let left = recovery.left();
    if !left.is_empty() {
        writeln!(out, "not proved:")?;
    }
    for Step { change, reason } in left {
        writeln!(out, "  {change}\n    because: {reason}")?;
    }
    out.flush()?;
    Ok(())
}

fn as_json(ward: &Ward, recovery: &ChunkRecovery, steps: &[Step], outcome: &Outcome) -> Value {
    let mut value = ward.as_json(steps, &recovery.left(), outcome);
    value["refused"] = Value::Null;
    let chunks = recovery.chunks().map(|(start, chunk)| {
        let stripes = chunk.stripes().iter();
        let stripes =
            stripes.map(|stripe| json!({ "devid": stripe.devid.get(), "physical": stripe.offset.get() }));
        json!({
            "logical": start.get(),
            "total_bytes": chunk.length(),
            "content": Content::of(chunk.kind()).to_string(),
            "profile": chunk.kind().profile().map(|profile| profile.attributes().name),
            "stripes": stripes.collect::<Vec<_>>(),
            "proof": chunk.proof.to_string(),
        })
    });
    value["chunks"] = chunks.collect();
    value
}
