//! `tier recover`: gives devices their sizes back after a crash.

use super::state;
use crate::commands::place::{Loss, administer_devices, administer_reached};
use crate::commands::silent::answering;
use crate::format::UnitMode;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::Uuid;
use brindle_admin::tier::{Journal, Restored, recover};
use brindle_admin::{Mounted, PoolAdmin, Reach};
use clap::Args;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
EXAMPLES
  Is there anything to be done, for any pool?
    brindle tier recover

  For one pool, wherever it is mounted:
    brindle tier recover 1b4c7a70-0a2a-4f9a-9a0e-7f2d6c8e1d35

  For one that is not mounted:
    brindle tier recover /dev/sdb /dev/sdc /dev/nvme0n1

EXIT STATUS
  0  the devices have their sizes, or had them all the while
  1  failure: the message says of which pool
  2  wrong usage";

/// Give devices their sizes back that `tier apply` or `tier watch` had fenced when it was killed
///
/// Data that was moved until then stays moved; run `tier apply` again for the rest, which does this first. A device that was
/// resized otherwise meanwhile is left as it is. A balance of a single chunk that a crash has left is cancelled. The pool may
/// be mounted by the kernel or by brindle, or not at all.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RecoverCommand {
    /// A directory of the pool, its UUID, or its devices if it is not mounted; without any, all pools that have a journal. A
    /// pool is found by its UUID, wherever it is mounted
    #[arg(value_name = "MOUNTPOINT|UUID|DEVICE")]
    pool: Vec<PathBuf>,
}

/// A pool that may have something to restore.
enum Wanted {
    /// Mounted here.
    At(PathBuf),
    /// Mounted anywhere; last seen at this path, if a journal has it.
    Anywhere(Uuid, Option<PathBuf>),
    /// On these devices.
    On(Vec<PathBuf>),
}

impl Wanted {
    /// The pool of some operands.
    fn of_operands(words: &[PathBuf]) -> Result<Self> {
        if let [word] = words {
            if word.is_dir() {
                return Ok(Self::At(word.clone()));
            }
            if let Some(uuid) = word.to_str().filter(|_| !word.exists()).and_then(Uuid::parse) {
                let journal = state::directory().read(&uuid)?;
                return Ok(Self::Anywhere(uuid, journal.map(|journal| journal.path)));
            }
        }
        match words.iter().find(|word| word.is_dir()) {
            Some(directory) if words.len() > 1 => {
                bail!("{}: give either one directory of a mounted pool, or devices", directory.display())
            }
            _ => Ok(Self::On(words.to_vec())),
        }
    }

    /// Pools that have a journal.
    fn all() -> Result<Vec<Self>> {
        let journals = state::directory().all()?.into_iter();
        let pool = |journal: Journal| match Uuid::parse(&journal.fsid) {
            Some(uuid) => Self::Anywhere(uuid, Some(journal.path)),
            None => Self::At(journal.path),
        };
        Ok(journals.map(pool).collect())
    }

    /// Its UUID.
    fn fsid(&self) -> Result<Uuid> {
        match self {
            Self::At(path) => {
                let reach = Reach::of_mount(path);
                let reach = reach.with_context(|| format!("{}: mount the pool there", path.display()))?;
                Ok(reach.fsid()?.expect("a mount has one"))
            }
            Self::Anywhere(uuid, _) => Ok(*uuid),
            Self::On(devices) => match Reach::Devices(devices.clone()).fsid()? {
                Some(uuid) => Ok(uuid),
                None => bail!("{self}: no device of a pool, and no directory of one"),
            },
        }
    }

    /// Administration of the pool.
    fn pool(&self, fsid: &Uuid) -> Result<Box<dyn PoolAdmin>> {
        let reach = match self {
            Self::At(path) => Reach::of_mount(path)?,
            Self::On(devices) => {
                Mounted::find(&answering(), fsid).map_or(Reach::Devices(devices.clone()), Reach::from)
            }
            Self::Anywhere(uuid, path) => Mounted::find(&answering(), uuid).map(Reach::from).with_context(|| {
                let path = path.iter().map(|path| format!(", last seen at {}", path.display()));
                let last_seen: String = path.collect();
                format!(
                    "pool {uuid} is not mounted{last_seen}: mount it, and run this again, or name its devices: `brindle \
                     tier recover DEVICE...`"
                )
            })?,
        };
        match reach {
            Reach::Devices(devices) => administer_devices(&devices, &[], &[], Loss::Refused),
            mount => administer_reached(mount),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(path) | Self::Anywhere(_, Some(path)) => write!(f, "{}", path.display()),
            Self::Anywhere(uuid, None) => write!(f, "{uuid}"),
            Self::On(devices) => {
                let names: Vec<String> = devices.iter().map(|path| path.display().to_string()).collect();
                f.write_str(&names.join(" "))
            }
        }
    }
}

/// Time to wait for a killed process to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the command.
pub(crate) fn run(command: &RecoverCommand) -> Result<ExitCode> {
    let pools = match command.pool.as_slice() {
        [] => Wanted::all()?,
        words => vec![Wanted::of_operands(words)?],
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
                        Restored::Gone(devid) => {
                            writeln!(out, "device {devid}: its fence is gone, as it has left the pool")?;
                        }
                        Restored::Left(devid, bytes) => writeln!(
                            out,
                            "device {devid}: left at {}, for it was resized otherwise meanwhile",
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

/// Takes down the fences that a run before has left, of the pool that is mounted at a directory, or on devices.
pub(super) fn before_work(paths: &[PathBuf]) -> Result<()> {
    if !one(&Wanted::of_operands(paths)?)?.is_empty() {
        tracing::warn!("restored sizes that a run before this one had left fenced");
    }
    Ok(())
}

fn one(pool: &Wanted) -> Result<Vec<Restored>> {
    let directory = state::directory();
    let fsid = pool.fsid()?;
    if directory.read(&fsid)?.is_none() {
        return Ok(Vec::new());
    }
    let _lock = directory.lock(&fsid, PATIENCE)?;
    let pool = pool.pool(&fsid)?;
    let restored = recover(&*pool, &directory, &fsid)?;
    pool.close()?;
    Ok(restored)
}
