//! `lab models`: presets, their sources, and the parameters of a model line.

use crate::format::{Align, write_table};
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_lab::{KEYS, PRESETS};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle lab models
    brindle lab models --json

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// List the models of drives, the sources of their figures, and the parameters that a model line can set
///
/// A model line is the name of a model, and changes to it: `hdd,rpm=5400,wcache=8m`. Bytes take the suffixes k, m and g,
/// of base 1024.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ModelsCommand {
    #[command(flatten)]
    json: JsonOption,
}

/// Runs the command.
pub(crate) fn run(command: &ModelsCommand) -> Result<ExitCode> {
    if command.json.json {
        let models = PRESETS.iter().map(|preset| {
            json!({
                "name": preset.name,
                "drive": preset.drive,
                "title": preset.title,
                "source": preset.source,
                "size_bytes": preset.size_bytes,
                "write_cache_bytes": preset.write_cache_bytes,
            })
        });
        let keys = KEYS.iter().map(|key| json!({ "name": key.name, "unit": key.unit, "about": key.about }));
        output::print_json(
            &json!({ "models": models.collect::<Vec<_>>(), "parameters": keys.collect::<Vec<_>>() }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    for preset in &PRESETS {
        let drive = preset.drive.map_or_else(String::new, |drive| format!("; also {drive}"));
        writeln!(out, "{:13} {}{drive}", preset.name, preset.title)?;
        writeln!(out, "{:13} {}", "", preset.source)?;
    }
    writeln!(out)?;
    let head = ["PARAMETER", "UNIT", "MEANING"].map(str::to_owned).to_vec();
    let row = |key: &brindle_lab::Key| [key.name, key.unit, key.about].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(head).chain(KEYS.iter().map(row)).collect();
    write_table(&mut out, &[Align::Left; 3], &rows)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
