//! The pools that operands mean, with the judgement on each.

use crate::commands::device_word::refuse_twice;
use crate::commands::holder::holder_of;
use crate::commands::no_pool::reasons_or;
use crate::commands::pool::open_pool;
use crate::commands::silent::answering;
use crate::commands::state_directory::state_directory;
use crate::commands::tier::journals;
use crate::output::explain;
use anyhow::Result;
use brindle_admin::health::{
    Finding, FoundPool, PoolHealth, PoolServer, Severity, State, findings, on_block_devices, on_devices,
    on_mounts, pool_at, seeds_of, severity_of, state_of,
};
use brindle_admin::{AdminError, Reach};
use brindle_care::device::LeaseFound;
use brindle_fs::TreeError;
use brindle_uapi::mount_table::Mount;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A pool with its judgement.
pub(crate) enum Judged {
    /// A pool of which the facts are known.
    Known {
        /// The facts.
        health: Box<PoolHealth>,
        /// Judgement on them.
        findings: Vec<Finding>,
        /// The system that holds a pool that is not mounted here.
        holder: Option<Box<LeaseFound>>,
        /// Options of a mount of brindle that are not the default.
        mount_options: Option<String>,
    },
    /// A pool that can't be asked.
    Unknown(Unknown),
}

/// A pool that can't be asked.
pub(crate) struct Unknown {
    /// UUID, or mount point.
    pub(crate) name: String,
    /// Mount points; none if it is not mounted.
    pub(crate) mountpoints: Vec<PathBuf>,
    /// State.
    pub(crate) state: State,
    /// Severity.
    pub(crate) severity: Severity,
    /// The reason.
    pub(crate) text: String,
    /// The command that mends it.
    pub(crate) remedy: Option<String>,
}

impl Judged {
    /// Judgement on these facts as of now.
    fn new(mut health: PoolHealth, holder: Option<LeaseFound>, mount_options: Option<String>) -> Self {
        health.look_for_fences(&journals());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let findings = findings(&health, now);
        Self::Known { health: Box::new(health), findings, holder: holder.map(Box::new), mount_options }
    }

    /// Judgement on mounts whose server does not answer.
    pub(super) fn without_answer(places: Vec<PathBuf>) -> Self {
        let text = "the process that serves the mount does not answer: it is stopped, or waits for a disk"
            .to_owned();
        let remedy = Some(
            "look at the disks in the log of the kernel (`journalctl -k`), and at the process".to_owned(),
        );
        Self::Unknown(Unknown { remedy, ..unknown(places, State::Down, Severity::Risk, text) })
    }

    /// The same with returns of missing devices that were begun; for them sleeping disks are woken.
    pub(super) fn with_begun_returns(self) -> Self {
        match self {
            Self::Known { mut health, holder, mount_options, .. } => {
                health.look_for_begun_returns();
                Self::new(*health, holder.map(|holder| *holder), mount_options)
            }
            Self::Unknown(_) => self,
        }
    }

    /// State in a word.
    pub(crate) fn state(&self) -> State {
        match self {
            Self::Known { findings, .. } => state_of(findings),
            Self::Unknown(unknown) => unknown.state,
        }
    }

    /// Severity of the worst that is known.
    pub(crate) fn severity(&self) -> Severity {
        match self {
            Self::Known { findings, .. } => severity_of(findings),
            Self::Unknown(unknown) => unknown.severity,
        }
    }

    /// Label, or else UUID; of a mount that does not answer its mount point.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Known { health, .. } if health.label.is_empty() => health.fsid.to_string(),
            // A label may hold anything, and a pool has one line.
            Self::Known { health, .. } => health.label.escape_default().to_string(),
            Self::Unknown(unknown) => unknown.name.clone(),
        }
    }

    /// Mount points, in short.
    pub(super) fn place(&self) -> String {
        let short = |places: &[PathBuf]| match places {
            [] => "not mounted".to_owned(),
            [one] => one.display().to_string(),
            [first, others @ ..] => format!("{} (+{})", first.display(), others.len()),
        };
        match self {
            Self::Known { health, .. }
                if health.server != PoolServer::None && health.mountpoints.is_empty() =>
            {
                "mounted".to_owned()
            }
            Self::Known { health, .. } => short(&health.mountpoints),
            Self::Unknown(unknown) => short(&unknown.mountpoints),
        }
    }

    /// Reason why it can't be asked.
    pub(super) fn trouble(&self) -> Option<String> {
        match self {
            Self::Known { .. } => None,
            Self::Unknown(unknown) => Some(unknown.text.clone()),
        }
    }
}

/// Pools behind directories and on devices; without any, all that are found.
pub(crate) fn pools(paths: &[PathBuf]) -> Result<Vec<Judged>> {
    let found = if paths.is_empty() {
        let mut found = on_mounts(answering());
        if rustix::process::geteuid().is_root() {
            found.extend(on_block_devices(&found));
        }
        found
    } else {
        let (directories, devices): (Vec<PathBuf>, Vec<PathBuf>) =
            paths.iter().cloned().partition(|path| is_place(path));
        refuse_twice(devices.iter().map(PathBuf::as_path))?;
        let mut found = directories.iter().map(|path| pool_at(path)).collect::<Result<Vec<_>, _>>()?;
        let mounts = if devices.is_empty() { Vec::new() } else { answering() };
        let on_devices = on_devices(&devices, &mounts).map_err(|error| {
            let paths: Vec<&Path> = devices.iter().map(PathBuf::as_path).collect();
            reasons_or(error, &paths)
        });
        found.extend(on_devices?);
        found
    };
    Ok(found.into_iter().map(judge).collect())
}

/// Returns true for a directory, and for the mount point of a server that has ended, of which the system can't tell.
fn is_place(path: &Path) -> bool {
    let is_gone = |error: &io::Error| {
        let ends = [Errno::NOTCONN, Errno::CONNABORTED];
        ends.iter().any(|end| error.raw_os_error() == Some(end.raw_os_error()))
    };
    path.metadata().map_or_else(|error| is_gone(&error), |metadata| metadata.is_dir())
}

fn judge(found: FoundPool) -> Judged {
    let records = state_directory();
    match found {
        FoundPool::Mounted(reach, mounts) => PoolHealth::of_mount(&reach, &mounts, &records).map_or_else(
            |error| silent(&mounts, error),
            |health| Judged::new(health, None, options_of(&reach)),
        ),
        FoundPool::Devices(fsid, paths) => {
            let with_seeds: Vec<PathBuf> = paths.iter().cloned().chain(seeds_of(&paths)).collect();
            let health = open_pool(&with_seeds).and_then(|pool| {
                pool.check_root_tree()?;
                Ok(PoolHealth::of_devices(&pool, &records)?)
            });
            match health {
                Ok(health) => Judged::new(health, holder_of(paths.iter().map(PathBuf::as_path)), None),
                Err(error) => Judged::Unknown(unreadable(fsid.to_string(), &paths, &error)),
            }
        }
        FoundPool::ServerGone(places) => server_gone(places),
        // Mounts of other users are theirs.
        FoundPool::Closed(path, error) => {
            Judged::Unknown(unknown(vec![path], State::Ok, Severity::Note, format!("not known: {error}")))
        }
    }
}

/// Options of a mount of brindle that are not the default.
fn options_of(reach: &Reach) -> Option<String> {
    reach.mounted()?.setting("mount_options").ok()
}

/// Mounts that were there, and did not answer.
fn silent(mounts: &[Mount], error: AdminError) -> Judged {
    let places: Vec<PathBuf> = mounts.iter().map(|mount| mount.mountpoint.clone()).collect();
    match error {
        AdminError::Control(error) if error.is_end_of_server() => server_gone(places),
        error => {
            Judged::Unknown(unknown(places, State::Attention, Severity::Attention, explain(&error.into())))
        }
    }
}

fn server_gone(places: Vec<PathBuf>) -> Judged {
    let text = "the process that served the mount has ended; the pool is as of its last sync".to_owned();
    let remedy = Some(format!("`umount {}`, then mount the pool again", in_a_row(&places)));
    Judged::Unknown(Unknown { remedy, ..unknown(places, State::Down, Severity::Risk, text) })
}

/// Paths with spaces between them.
pub(crate) fn in_a_row(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
}

fn unknown(mountpoints: Vec<PathBuf>, state: State, severity: Severity, text: String) -> Unknown {
    let name = mountpoints.first().map_or_else(String::new, |path| path.display().to_string());
    Unknown { name, mountpoints, state, severity, text, remedy: None }
}

fn unreadable(name: String, paths: &[PathBuf], error: &anyhow::Error) -> Unknown {
    let devices = in_a_row(paths);
    let remedy = match error.downcast_ref() {
        Some(TreeError::NoRoots { readable: Some(_), .. }) => format!(
            "`brindle mount -o ro,rescue=usebackuproot {devices} DIR` shows an older commit; `brindle check {devices}` examines \
             these"
        ),
        Some(TreeError::NoRoots { readable: None, .. }) => {
            format!("restore a backup; `brindle check {devices}` examines what is left")
        }
        _ => format!("attach all devices of the pool; `brindle check {devices}` examines these"),
    };
    Unknown {
        name,
        mountpoints: Vec::new(),
        state: State::Down,
        severity: Severity::Risk,
        text: explain(error),
        remedy: Some(remedy),
    }
}
