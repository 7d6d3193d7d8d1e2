//! `tier recover`: gives devices their sizes back after a crash.

use super::apply::PATIENCE;
use super::state;
use crate::format::UnitMode;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_kernel::Mounted;
use brindle_kernel::tier::{Journal, Restored, recover};
use brindle_ondisk::Uuid;
use clap::Args;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  Is there anything to be done, for any pool?
    brindle tier recover

  For one pool, wherever it is mounted:
    brindle tier recover 1b4c7a70-0a2a-4f9a-9a0e-7f2d6c8e1d35

EXIT STATUS
  0  the devices have their sizes, or had them all the while
  1  failure: the message says of which pool
  2  wrong usage";

/// Give devices their sizes back that `tier apply` or `tier watch` had fenced when it was killed
///
/// What was moved until then stays moved; run `tier apply` again for the rest. A device that somebody has resized
/// meanwhile is left as it is. A balance of a single chunk that the kernel goes on with after a crash is cancelled.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RecoverCommand {
    /// A directory of the pool, or its UUID; without it, all pools that have a journal. A pool is found by its UUID,
    /// wherever it is mounted
    #[arg(value_name = "MOUNTPOINT|UUID")]
    pool: Option<PathBuf>,
}

/// A pool that may have something to restore.
enum Wanted {
    /// Mounted here.
    At(PathBuf),
    /// Mounted anywhere; last seen at this path, if a journal has it.
    Anywhere(Uuid, Option<PathBuf>),
}

impl Wanted {
    /// The pool of an operand.
    fn of_operand(word: &Path) -> Result<Self> {
        let uuid = word.to_str().filter(|_| !word.exists()).and_then(Uuid::parse);
        let Some(uuid) = uuid else { return Ok(Self::At(word.to_owned())) };
        let journal = state::directory().read(&uuid)?;
        Ok(Self::Anywhere(uuid, journal.map(|journal| journal.path)))
    }

    /// All pools that have a journal.
    fn all() -> Result<Vec<Self>> {
        let journals = state::directory().all()?.into_iter();
        let pool = |journal: Journal| match Uuid::parse(&journal.fsid) {
            Some(uuid) => Self::Anywhere(uuid, Some(journal.path)),
            None => Self::At(journal.path),
        };
        Ok(journals.map(pool).collect())
    }

    /// Its mount.
    fn mounted(&self) -> Result<Mounted> {
        match self {
            Self::At(path) => {
                Mounted::open(path).with_context(|| format!("{}: mount the pool there", path.display()))
            }
            Self::Anywhere(uuid, path) => Mounted::find(uuid).with_context(|| {
                let path = path.iter().map(|path| format!(", last seen at {}", path.display()));
                let last_seen: String = path.collect();
                format!("pool {uuid} is not mounted{last_seen}: mount it, and run this again")
            }),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(path) | Self::Anywhere(_, Some(path)) => write!(f, "{}", path.display()),
            Self::Anywhere(uuid, None) => write!(f, "{uuid}"),
        }
    }
}

/// Runs the command.
pub(crate) fn run(command: &RecoverCommand) -> Result<ExitCode> {
    let pools = match &command.pool {
        Some(word) => vec![Wanted::of_operand(word)?],
        None => Wanted::all()?,
    };
    let mut out = output::stdout();
    let mut failed = None;
    for pool in pools {
        match one(&pool) {
            Ok(restored) if restored.is_empty() => writeln!(out, "{pool}: nothing is fenced")?,
            Ok(restored) => {
                for device in restored {
                    match device {
                        Restored::Size(devid, bytes) => {
                            writeln!(out, "device {devid}: {}", UnitMode::DEFAULT.format(bytes))?;
                        }
                        Restored::Left(devid, bytes) => writeln!(
                            out,
                            "device {devid}: left at {}, which somebody else has given it",
                            UnitMode::DEFAULT.format(bytes)
                        )?,
                    }
                }
            }
            Err(error) => {
                output::complain(&error);
                failed = Some(pool);
            }
        }
    }
    out.flush()?;
    match failed {
        None => Ok(ExitCode::SUCCESS),
        Some(pool) => bail!("{pool}: sizes of devices are not restored"),
    }
}

fn one(pool: &Wanted) -> Result<Vec<Restored>> {
    let directory = state::directory();
    if let Wanted::Anywhere(uuid, None) = pool
        && directory.read(uuid)?.is_none()
    {
        return Ok(Vec::new());
    }
    let mounted = pool.mounted()?;
    let fsid = Uuid(mounted.filesystem()?.fsid);
    if !mounted.is_of_kernel() {
        if directory.read(&fsid)?.is_some() {
            bail!("{}: a mount of brindle; have the kernel mount the pool", mounted.path().display());
        }
        // There are no fences on a mount of ours.
        return Ok(Vec::new());
    }
    let _lock = directory.lock(&fsid, PATIENCE)?;
    Ok(recover(&mounted, &directory, &fsid)?)
}
