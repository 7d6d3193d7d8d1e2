//! `lab report`: a page of the results of a comparison.

use crate::output;
use anyhow::Result;
use brindle_lab::Report;
use brindle_lab::compare::Results;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle lab report results.jsonl
    brindle lab report --html report.html --markdown report.md results.jsonl

EXIT STATUS
  0  success
  1  failure: the results cannot be read, or the report not written
  2  wrong usage";

/// Make a report of the results of `brindle lab compare`
///
/// Medians and ranges of all rounds, ratios, the published figures beside ours, and for each figure the counts that explain it:
/// seeks, flushes, bytes. The page of HTML also has drawings, needs nothing but itself, and follows the light or dark theme of its
/// reader. Without --html and --markdown, prints Markdown.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ReportCommand {
    /// Write a page of HTML to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write Markdown to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Results of a comparison
    results: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &ReportCommand) -> Result<ExitCode> {
    let report = Report::new(&Results::read(&command.results)?);
    if let Some(path) = &command.html {
        output::print_or_replace(Some(path), &report.to_html())?;
    }
    if command.markdown.is_some() || command.html.is_none() {
        output::print_or_replace(command.markdown.as_deref(), &report.to_markdown())?;
    }
    Ok(ExitCode::SUCCESS)
}
