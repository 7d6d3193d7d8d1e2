//! `tier recover`: gives devices their sizes back after a crash.

use super::apply::PATIENCE;
use super::state;
use crate::format::UnitMode;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_kernel::Mounted;
use brindle_kernel::tier::{Restored, recover};
use brindle_ondisk::Uuid;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  Is there anything to be done, for any pool?
    brindle tier recover

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
    /// A directory of the pool; without it, every pool that has a journal is looked for where it was mounted
    #[arg(value_name = "MOUNTPOINT")]
    pool: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &RecoverCommand) -> Result<ExitCode> {
    let paths = match &command.pool {
        Some(path) => vec![path.clone()],
        None => state::directory().all()?.into_iter().map(|journal| journal.path).collect(),
    };
    let mut out = output::stdout();
    let mut failed = None;
    for path in paths {
        match one(&path) {
            Ok(restored) if restored.is_empty() => writeln!(out, "{}: nothing is fenced", path.display())?,
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
                failed = Some(path);
            }
        }
    }
    out.flush()?;
    match failed {
        None => Ok(ExitCode::SUCCESS),
        Some(path) => bail!("{}: sizes of devices are not restored", path.display()),
    }
}

fn one(path: &std::path::Path) -> Result<Vec<Restored>> {
    let mounted = Mounted::open(path).with_context(|| format!("{}: mount the pool there", path.display()))?;
    if !mounted.is_of_kernel() {
        if state::directory().read(&Uuid(mounted.filesystem()?.fsid))?.is_some() {
            bail!("{}: a mount of brindle; have the kernel mount the pool", path.display());
        }
        // There are no fences on a mount of ours.
        return Ok(Vec::new());
    }
    let fsid = Uuid(mounted.filesystem()?.fsid);
    let directory = state::directory();
    let _lock = directory.lock(&fsid, PATIENCE)?;
    Ok(recover(&mounted, &directory, &fsid)?)
}
