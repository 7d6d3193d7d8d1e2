//! Mount options, as `-o` takes them.
//!
//! [`table`] has a row for each: its names, its value, its line of the manual, what a remount does with it, and how it
//! changes [`MountOptions`]. The parser below, the manual ([`help`]), the suggestions for a word that is misspelt
//! ([`suggest`]) and remounts all read that table, so that an option is stated once.

mod given;
mod help;
mod suggest;
mod table;
mod value;
mod without_effect;
mod write;

pub(crate) use given::given;
pub(crate) use help::manual;
pub(crate) use table::{Remount, remount_of};
pub(crate) use value::small_files as parse_small_files;
pub(crate) use without_effect::is_without_effect;
pub(crate) use write::WriteChoices;

use crate::commands::usage::OrWrongUsage;
use anyhow::{Result, bail};
use brindle_fs::{DestageSettings, LeaseMode, SubvolumeChoice};
use brindle_fuse::{RingUse, Synchronous};
use brindle_ondisk::RootId;
use brindle_policy::defragment::idle::AutoDefragment;
use brindle_volume::Rescue;
use std::path::PathBuf;
use std::time::Duration;
use table::{Kind, Value};

/// The choices that `-o` made. An `Option` is `None` where it said nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountOptions {
    /// Go on without missing devices.
    pub(crate) degraded: bool,
    /// The devices that are named are used, and no others looked for (`degraded=named`).
    pub(crate) named_alone: bool,
    /// The pool is written although data is lost with the missing devices. No word of `-o` says so.
    pub(crate) accepts_loss: bool,
    /// The path of the subvolume that is the root.
    pub(crate) subvol: Option<Vec<u8>>,
    /// Its id. It may be given with the path, as mount tables have it; then both must mean the same.
    pub(crate) subvolid: Option<RootId>,
    /// More devices of the pool.
    pub(crate) devices: Vec<PathBuf>,
    /// The source that the mount table is to show.
    pub(crate) source: Option<String>,
    /// The choice of one of several copies.
    pub(crate) read_policy: Option<String>,
    /// The memory that tree blocks may take, in bytes (`metadata_memory=`).
    pub(crate) metadata_bytes: Option<usize>,
    /// The log is not to be replayed.
    pub(crate) leaves_log: bool,
    /// The choice of a lease.
    pub(crate) lease: LeaseChoice,
    /// Assurances that are given up to read a damaged pool (`rescue=`).
    pub(crate) rescue: Rescue,
    /// A chunk tree that can't be read is made anew in memory (`rescue=chunks`).
    pub(crate) recovers_chunks: bool,
    /// The choices of how the pool is written.
    pub(crate) write: WriteChoices,
    /// The choices of the mount itself.
    pub(crate) mount: MountChoices,
    /// The first option given that makes sense for a mount alone.
    first_of_mount: Option<&'static str>,
}

/// The choice of a lease: a record on the devices of the holder of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseChoice {
    /// Pools that get one.
    pub(crate) mode: LeaseMode,
    /// Time from one renewal to the next, if it was given.
    pub(crate) interval: Option<Duration>,
}

/// The choices that concern the mount and the host, not the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountChoices {
    /// `ro` or `rw`.
    pub(crate) read_only: Option<bool>,
    /// Device nodes work (`dev`).
    pub(crate) devices: Option<bool>,
    /// Set-user-id bits work (`suid`).
    pub(crate) set_user_id: Option<bool>,
    /// Programs can't be started (`noexec`).
    pub(crate) no_execute: bool,
    /// Other users may look inside (`allow_other`), or not (`noallow_other`).
    pub(crate) allow_other: Option<bool>,
    /// The mount is made on a block device (`blkdev`), or not (`noblkdev`).
    pub(crate) on_block_device: Option<bool>,
    /// The mount goes away when its server dies (`auto_unmount`).
    pub(crate) auto_unmount: bool,
    /// Use of FUSE over `io_uring` (`io_uring=`).
    pub(crate) rings: RingUse,
    /// Every change is durable before the call returns (`sync`).
    pub(crate) sync: bool,
    /// Every change of a name is (`dirsync`).
    pub(crate) sync_names: bool,
    /// The time of the last access is not kept of directories (`nodiratime`).
    pub(crate) no_directory_atime: bool,
    /// The longest time between two commits (`commit=`).
    pub(crate) commit_interval: Option<Duration>,
    /// Defragmentation of metadata while the mount is idle (`metadata_defrag`).
    pub(crate) auto_defragment: AutoDefragment,
    /// Files that small writes tear are laid together again (`autodefrag`).
    pub(crate) autodefrag: bool,
    /// When waiting data is destaged (`writeback_age`, `wake_interval`).
    pub(crate) destage: DestageSettings,
    /// The owner of a subvolume may delete it (`user_subvol_rm_allowed`).
    pub(crate) owners_delete_subvolumes: bool,
}

/// A longer commit interval is warned of, as by the kernel.
const COMMIT_SECONDS_LONG: u64 = 300;

impl MountOptions {
    /// Takes the values of any number of `-o`, each a comma-separated list. Of options that exclude each other the last
    /// one counts. An unknown option is refused by its name.
    pub(crate) fn parse<S: AsRef<str>>(lists: &[S]) -> Result<Self> {
        let mut options = Self::default();
        let all = lists.iter().flat_map(|list| list.as_ref().split(','));
        for option in all.map(str::trim).filter(|option| !option.is_empty()) {
            options.add(option).or_wrong_usage()?;
        }
        Ok(options)
    }

    /// Refuses to mount a pool to be written whose log is to stay, or that is to be rescued.
    pub(crate) fn check_read_only(&self) -> Result<()> {
        if self.is_rescue() && !self.is_read_only() {
            bail!(
                "options 'rescue=' and 'usebackuproot' go with 'ro' only: what they show must not be written"
            );
        }
        if self.leaves_log && !self.is_read_only() {
            bail!(
                "option 'nologreplay' goes with 'ro' only: a log that is not replayed is lost with the next commit"
            );
        }
        Ok(())
    }

    /// Returns true if a log is not replayed.
    pub(crate) fn keeps_log(&self) -> bool {
        self.leaves_log || self.is_rescue()
    }

    /// Returns true if a damaged pool is to be read.
    pub(crate) fn is_rescue(&self) -> bool {
        self.rescue.is_any() || self.recovers_chunks
    }

    /// Returns true if these options say nothing of the pool, only of a mount of it.
    pub(crate) fn is_of_mount_alone(&self) -> bool {
        let plain = Self::default();
        let of_pool = (&self.write, &self.read_policy, self.metadata_bytes, self.keeps_log(), self.lease);
        let mount = &self.mount;
        of_pool == (&plain.write, &plain.read_policy, self.metadata_bytes, false, plain.lease)
            && (mount.commit_interval, mount.sync, mount.sync_names) == (None, false, false)
            && (mount.auto_defragment, mount.autodefrag) == (plain.mount.auto_defragment, false)
            && (mount.destage, mount.rings) == (plain.mount.destage, plain.mount.rings)
    }

    /// Returns true if the mount is to be read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.mount.read_only == Some(true)
    }

    /// The changes that are to be durable before the call that makes them returns.
    pub(crate) fn synchronous(&self) -> Synchronous {
        match (self.mount.sync, self.mount.sync_names) {
            (true, _) => Synchronous::Everything,
            (false, true) => Synchronous::Names,
            (false, false) => Synchronous::Nothing,
        }
    }

    /// The subvolume that is the root.
    pub(crate) fn subvolume(&self) -> SubvolumeChoice {
        match (&self.subvol, self.subvolid) {
            (Some(path), _) => SubvolumeChoice::Path(path.clone()),
            (None, Some(id)) => SubvolumeChoice::Id(id),
            (None, None) => SubvolumeChoice::default(),
        }
    }

    /// Refuses a root that is not the one that was also asked for by its id.
    pub(crate) fn check_root(&self, root: RootId) -> Result<()> {
        match (&self.subvol, self.subvolid) {
            (Some(path), Some(id)) if id != root => bail!(
                "subvol={} is subvolume {root}, and subvolid={id} is another: give one of them",
                String::from_utf8_lossy(path)
            ),
            _ => Ok(()),
        }
    }

    /// The first option given that makes sense for a mount alone.
    pub(crate) fn first_of_mount(&self) -> Option<&'static str> {
        self.first_of_mount
    }

    /// Warns of choices that are allowed and may be regretted.
    pub(crate) fn warn(&self) {
        let seconds = self.mount.commit_interval.map_or(0, |interval| interval.as_secs());
        if seconds > COMMIT_SECONDS_LONG {
            tracing::warn!("commit={seconds}: a crash may lose the writes of the last {seconds} seconds");
        }
    }

    fn add(&mut self, option: &str) -> Result<()> {
        let (name, value) = split(option);
        let Some(row) = table::find(name) else {
            return match suggest::similar(option) {
                _ if is_without_effect(option) => Ok(()),
                Some(similar) => bail!("unknown option '{option}'; is '{similar}' meant?"),
                None => bail!("unknown option '{option}'"),
            };
        };
        match (row.value, value) {
            _ if row.kind == Kind::Refused => bail!("option '{name}' is refused: {}", row.help),
            (Value::No(set), None) => set(self),
            (Value::No(_), Some(_)) => bail!("option '{option}': {name} takes no value"),
            (Value::Needed(..), None | Some("")) => bail!("option '{name}' needs a value: {name}=..."),
            (Value::Allowed(_, take) | Value::Needed(_, take), value) => {
                take(self, value.unwrap_or_default())?;
            }
        }
        if row.kind == Kind::OfMount {
            self.first_of_mount.get_or_insert(row.name);
        }
        Ok(())
    }
}

/// The name of an option, and its value.
fn split(option: &str) -> (&str, Option<&str>) {
    option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)))
}

#[cfg(test)]
mod tests;
