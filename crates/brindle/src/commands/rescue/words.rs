//! Treatments that need no more than devices.

use super::consent::{ConsentOptions, Ward};
use crate::commands::companions::with_others;
use crate::commands::examination_bar::Bar;
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_rescue::readmit::readmit;
use brindle_rescue::superblocks::{super_recover, zero_log};
use brindle_rescue::trees::{SpaceCache, clear_space_cache, clear_uuid_tree, fix_device_size};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of a treatment.
#[derive(Args, Debug)]
pub(crate) struct TreatmentCommand {
    #[command(flatten)]
    pub(super) consent: ConsentOptions,
    #[command(flatten)]
    pub(super) json: JsonOption,
    /// All devices of the pool; of block devices one, the others are looked for
    #[arg(required = true, value_name = "DEVICE")]
    pub(super) devices: Vec<PathBuf>,
}

/// A treatment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Treatment {
    ZeroLog,
    SuperRecover,
    FixDeviceSize,
    ClearSpaceCache(SpaceCache),
    ClearUuidTree,
    Readmit { trusts_unverified: bool },
}

/// Runs it.
pub(super) fn run(command: &TreatmentCommand, treatment: Treatment) -> Result<ExitCode> {
    let devices = with_others(&command.devices);
    let paths: Vec<&Path> = devices.iter().map(PathBuf::as_path).collect();
    let ward = Ward::open(&paths, &command.consent)?;
    let steps = match treatment {
        Treatment::ZeroLog => zero_log(&ward.patient),
        Treatment::SuperRecover => super_recover(&ward.patient),
        Treatment::FixDeviceSize => fix_device_size(&ward.patient),
        Treatment::ClearSpaceCache(version) => clear_space_cache(&ward.patient, version),
        Treatment::ClearUuidTree => clear_uuid_tree(&ward.patient),
        Treatment::Readmit { trusts_unverified } => {
            let bar = Bar::new(!command.json.json);
            let steps = readmit(&ward.patient, trusts_unverified, &bar);
            bar.clear();
            steps
        }
    }?;
    if steps.is_empty() {
        // A transaction without a reason is not written.
        return say(command, &ward, &steps, &super::consent::Outcome::Nothing);
    }
    let outcome = ward.settle(&steps, &command.consent, command.json.json)?;
    say(command, &ward, &steps, &outcome)
}

fn say(
    command: &TreatmentCommand,
    ward: &Ward,
    steps: &[brindle_rescue::Step],
    outcome: &super::consent::Outcome,
) -> Result<ExitCode> {
    if command.json.json {
        output::print_json(&ward.as_json(steps, &[], outcome))?;
    } else {
        let mut out = output::stdout();
        writeln!(out, "{}", ward.in_words(outcome))?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}
