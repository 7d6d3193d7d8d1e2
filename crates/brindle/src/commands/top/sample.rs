//! Counters of a mounted pool at one moment.

use crate::commands::status::gather;
use crate::commands::status::gather::Judged;
use crate::commands::usage::wrong_usage;
use anyhow::{Result, bail};
use brindle_admin::Mounted;
use brindle_admin::health::{FoundPool, PoolHealth, PoolServer, State, on_mounts};
use brindle_policy::tier::{Content, TierChunk};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Interval at which the contents of devices are asked for: each chunk is an item that is searched.
const CONTENTS_EVERY: Duration = Duration::from_secs(30);

/// Bytes of a device by content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceContents {
    /// Chunks of data, but for the write-back tier.
    pub(super) data_bytes: u64,
    /// Chunks of metadata and of the system.
    pub(super) metadata_bytes: u64,
    /// Chunks of the write-back tier.
    pub(super) write_back_bytes: u64,
}

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
            // Only administrators may search trees.
            self.contents = Mounted::open(&self.path)?.inventory().ok().map(|found| contents(&found.chunks));
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
    let found = on_mounts()?.into_iter().filter_map(|found| match found {
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

/// Bytes by device and content.
fn contents(chunks: &[TierChunk]) -> BTreeMap<u64, DeviceContents> {
    let mut all: BTreeMap<u64, DeviceContents> = BTreeMap::new();
    for chunk in chunks {
        // Each stripe has its share of the chunk's contents, copies and parity.
        let bytes = chunk.stripe_bytes();
        for stripe in &chunk.stripes {
            let device = all.entry(stripe.devid.get()).or_default();
            match chunk.content() {
                _ if chunk.is_write_back => device.write_back_bytes += bytes,
                Content::Data | Content::Mixed => device.data_bytes += bytes,
                Content::Metadata | Content::System => device.metadata_bytes += bytes,
            }
        }
    }
    all
}
