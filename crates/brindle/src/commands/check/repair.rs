//! `check --repair`.

use super::files::Named;
use super::{CheckCommand, print_report, report_json};
use crate::commands::examination_bar::Bar;
use crate::commands::pool::explain_incomplete;
use crate::commands::rescue::consent::{Outcome, Ward};
use crate::output;
use anyhow::Result;
use brindle_check::{CheckOptions, NoProgress, Report, check};
use brindle_rescue::Step;
use brindle_rescue::repair::{Rehearsal, rehearse};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Examines a pool, repairs what can be, and examines it again.
pub(super) fn run(command: &CheckCommand, options: &CheckOptions, paths: &[&Path]) -> Result<ExitCode> {
    let mut ward = Ward::open(paths, &command.consent)?;
    let bar = Bar::new(command.progress || !command.json.json);
    let rehearsal =
        rehearse(&mut ward.patient, options, &bar).map_err(|error| explain_incomplete(error, paths))?;
    bar.clear();
    let is_json = command.json.json;
    if !is_json {
        show(&rehearsal)?;
    }
    let outcome = match rehearsal.steps.as_slice() {
        [] => Outcome::Nothing,
        steps => ward.settle(steps, &command.consent, is_json)?,
    };
    let report = match outcome {
        // The devices themselves, not the rehearsal.
        Outcome::Written(_) => {
            ward.patient.reset();
            check(ward.patient.readable(), options, &NoProgress)?
        }
        _ => rehearsal.before.clone(),
    };
    if is_json {
        let mut value = ward.as_json(&rehearsal.steps, &rehearsal.left, &outcome);
        value["before"] = report_json(&rehearsal.before);
        value["after"] = report_json(&rehearsal.after);
        output::print_json(&value)?;
    } else {
        say(&ward, &rehearsal, &outcome, &report)?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(rehearsal: &Rehearsal) -> Result<()> {
    let mut out = output::stdout();
    print_report(&mut out, &rehearsal.before, &Named::none())?;
    if rehearsal.before.has_log {
        writeln!(out, "the log stays as it is")?;
    }
    if !rehearsal.left.is_empty() {
        writeln!(out, "left as it is:")?;
    }
    for Step { change, reason } in &rehearsal.left {
        writeln!(out, "  {change}\n    because: {reason}")?;
    }
    if !rehearsal.steps.is_empty() {
        writeln!(out, "to be repaired:")?;
    }
    out.flush()?;
    Ok(())
}

fn say(ward: &Ward, rehearsal: &Rehearsal, outcome: &Outcome, report: &Report) -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{}", ward.in_words(outcome))?;
    match outcome {
        Outcome::Written(_) => writeln!(out, "errors found now: {}", report.error_count())?,
        Outcome::NotWritten => {
            writeln!(out, "errors that would be left: {}", rehearsal.after.error_count())?;
        }
        Outcome::Nothing => {}
    }
    out.flush()?;
    Ok(())
}
