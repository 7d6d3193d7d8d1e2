//! The end of every repair: what it would write is shown, the user agrees, and it is written behind an undo file.

use crate::commands::no_pool::reasons_or;
use crate::format::UnitMode;
use crate::output;
use anyhow::{Result, bail};
use brindle_device::{Device, WritableDevice, open_device_to_write};
use brindle_rescue::superblocks::one_pool;
use brindle_rescue::{Patient, Step, Written};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of commands that repair.
#[derive(Args, Debug)]
pub(crate) struct ConsentOptions {
    /// Show what would be changed, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write without asking; without a terminal nothing is written otherwise
    #[arg(short, long)]
    yes: bool,
    /// The undo file, which must not exist [default: brindle-undo-UUID-GENERATION in the current directory]
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
}

/// A pool that is about to be repaired.
pub(crate) struct Ward {
    /// Its devices, with what is changed of them in memory.
    pub(crate) patient: Patient,
    /// UUID of the pool.
    pub(crate) uuid: String,
    undo_file: PathBuf,
}

/// Result of asking, and of writing.
pub(crate) enum Outcome {
    /// Nothing is to be written.
    Nothing,
    /// A dry run, or the user did not agree.
    NotWritten,
    /// Written.
    Written(Written),
}

impl Ward {
    /// Takes the devices of one pool for this process alone.
    pub(crate) fn open(paths: &[&Path], options: &ConsentOptions) -> Result<Self> {
        let devices: Vec<Arc<dyn WritableDevice>> =
            paths.iter().map(|path| open_device_to_write(path)).collect::<Result<_, _>>()?;
        let readable: Vec<Arc<dyn Device>> =
            devices.iter().map(|device| Arc::clone(device).share_device()).collect();
        let superblock = one_pool(&readable).map_err(|error| reasons_or(error, paths))?;
        if superblock.num_devices.get() > u64::try_from(readable.len())? {
            let (given, all) = (readable.len(), superblock.num_devices.get());
            tracing::warn!(
                "{given} of {all} devices are given: name the others too, what they hold is not looked at"
            );
        }
        let uuid = superblock.fsid.to_string();
        let undo_file = match &options.undo {
            Some(path) => path.clone(),
            None => PathBuf::from(format!("brindle-undo-{uuid}-{}", superblock.generation)),
        };
        Ok(Self { patient: Patient::new(devices)?, uuid, undo_file })
    }

    /// Shows changes, asks if it is to ask, and writes them.
    pub(crate) fn settle(&self, steps: &[Step], options: &ConsentOptions, is_json: bool) -> Result<Outcome> {
        let patches = self.patient.patches()?;
        if patches.is_empty() {
            return Ok(Outcome::Nothing);
        }
        if !is_json {
            let mut out = output::stdout();
            for Step { change, reason } in steps {
                writeln!(out, "  {change}\n    because: {reason}")?;
            }
            let bytes: usize = patches.iter().map(|patch| patch.new.len()).sum();
            let bytes = UnitMode::DEFAULT.format(u64::try_from(bytes)?);
            writeln!(out, "{} pages ({bytes}) would be written", patches.len())?;
            out.flush()?;
        }
        if options.dry_run || !self.is_agreed(options)? {
            return Ok(Outcome::NotWritten);
        }
        if self.undo_file.try_exists()? {
            bail!("{} exists: another name for the undo file is --undo FILE", self.undo_file.display());
        }
        match self.patient.carry_out(&self.undo_file) {
            Ok(written) => Ok(Outcome::Written(written)),
            Err(error) if self.undo_file.exists() => {
                let file = self.undo_file.display();
                bail!("{error}; `brindle rescue undo {file} DEVICE...` takes back what was written")
            }
            Err(error) => Err(error.into()),
        }
    }

    fn is_agreed(&self, options: &ConsentOptions) -> Result<bool> {
        if options.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() {
            bail!("nothing was written: --yes writes it, --dry-run shows it");
        }
        eprint!("Write this, with {} to undo it? [y/N] ", self.undo_file.display());
        io::stderr().flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    /// Result in a line.
    pub(crate) fn in_words(&self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Nothing => "nothing is to be repaired".to_owned(),
            Outcome::NotWritten => "nothing was written".to_owned(),
            Outcome::Written(Written { pages, .. }) => {
                format!("{pages} pages were written; {} undoes that", self.undo_file.display())
            }
        }
    }

    /// Result for programs.
    pub(crate) fn as_json(&self, steps: &[Step], left: &[Step], outcome: &Outcome) -> Value {
        let changes: Vec<Value> =
            steps.iter().map(|step| json!({ "change": step.change, "reason": step.reason })).collect();
        let left: Vec<Value> =
            left.iter().map(|step| json!({ "finding": step.change, "reason": step.reason })).collect();
        let (pages, bytes, undo_file) = match outcome {
            Outcome::Written(written) => {
                (written.pages, written.bytes, Some(self.undo_file.display().to_string()))
            }
            _ => (0, 0, None),
        };
        json!({
            "uuid": self.uuid,
            "changes": changes,
            "left": left,
            "written": matches!(outcome, Outcome::Written(_)),
            "written_pages": pages,
            "written_bytes": bytes,
            "undo_file": undo_file,
        })
    }
}
