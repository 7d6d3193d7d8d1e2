//! Counters of a mounted pool at one moment.

use crate::commands::device_contents::{DeviceContents, contents_of};
use crate::commands::silent::answering;
use crate::commands::status::gather;
use crate::commands::status::gather::Judged;
use crate::commands::usage::wrong_usage;
use anyhow::{Result, bail};
use brindle_admin::health::{FoundPool, PoolHealth, PoolServer, State, on_mounts};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Interval at which the contents of devices are asked for: each chunk is an item that is searched.
const CONTENTS_EVERY: Duration = Duration::from_secs(30);

/// Counters at one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Time since the first one.
    pub(super) at: Duration,
    /// Seconds since 1970.
    pub(super) now: u64,
    /// Label or UUID.
    pub(super) name: String,
    /// State in a word.
    pub(super) state: State,
    /// Facts.
    pub(super) health: PoolHealth,
    /// Contents of devices by their ids; `None` where the caller may not ask.
    pub(super) contents: Option<BTreeMap<u64, DeviceContents>>,
}

/// A mounted pool that is asked again and again.
pub(super) struct Source {
    path: PathBuf,
    begin: Instant,
    contents: Option<BTreeMap<u64, DeviceContents>>,
    contents_due: Instant,
}

impl Source {
    /// The pool of a path, or the only one that is mounted.
    pub(super) fn of(path: Option<&Path>) -> Result<Self> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => only_mount()?,
        };
        let now = Instant::now();
        Ok(Self { path, begin: now, contents: None, contents_due: now })
    }

    /// Its counters now.
    pub(super) fn sample(&mut self) -> Result<Sample> {
        let Some(judged) = gather::pools(std::slice::from_ref(&self.path))?.pop() else {
            bail!("{}: no pool", self.path.display())
        };
        let (name, state) = (judged.name(), judged.state());
        let health = match judged {
            Judged::Known { health, .. } if health.server != PoolServer::None => *health,
            Judged::Known { .. } => {
                return wrong_usage(format!("{}: the pool is not mounted", self.path.display()));
            }
            Judged::Unknown(unknown) => bail!("{}: {}", unknown.name, unknown.text),
        };
        let now = Instant::now();
        if now >= self.contents_due {
            self.contents_due = now + CONTENTS_EVERY;
            self.contents = contents_of(&self.path);
        }
        Ok(Sample {
            at: now.duration_since(self.begin),
            now: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            name,
            state,
            health,
            contents: self.contents.clone(),
        })
    }
}

fn only_mount() -> Result<PathBuf> {
    let found = on_mounts(answering()).into_iter().filter_map(|found| match found {
        FoundPool::Mounted(_, mounts) => mounts.into_iter().next().map(|mount| mount.mountpoint),
        _ => None,
    });
    let places: Vec<PathBuf> = found.collect();
    match places.as_slice() {
        [] => bail!("no pool is mounted"),
        [one] => Ok(one.clone()),
        several => {
            let names: Vec<_> = several.iter().map(|place| place.display().to_string()).collect();
            wrong_usage(format!("which of {}?", names.join(", ")))
        }
    }
}
