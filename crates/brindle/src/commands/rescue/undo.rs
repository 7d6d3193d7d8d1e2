//! `rescue undo`: a repair taken back.

use crate::commands::companions::with_others;
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_device::{WritableDevice, open_device_to_write};
use brindle_rescue::undo::UndoFile;
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Give back what a repair has overwritten
///
/// Each page must hold what the repair wrote, or what was there before it; otherwise the pool was written since, and nothing is
/// undone. A repair that was interrupted is undone as well.
#[derive(Args, Debug)]
pub(crate) struct UndoCommand {
    #[command(flatten)]
    json: JsonOption,
    /// The undo file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The devices, in any order; of block devices one, the others are looked for
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// Runs it.
pub(super) fn run(command: &UndoCommand) -> Result<ExitCode> {
    let file = UndoFile::read(&command.file)?;
    let devices: Vec<Arc<dyn WritableDevice>> = with_others(&command.devices)
        .iter()
        .map(|path| open_device_to_write(path))
        .collect::<Result<_, _>>()?;
    let undone = file.undo(&devices)?;
    if command.json.json {
        output::print_json(&json!({ "written_pages": undone.pages, "written_bytes": undone.bytes }))?;
    } else {
        let mut out = output::stdout();
        writeln!(out, "{} pages are as they were", undone.pages)?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}
