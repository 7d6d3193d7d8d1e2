//! Names of the workloads, and the sizes that they have unless told otherwise.

use super::{dpkg, pgbench, program, rados};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Small files that are made durable and renamed, one after the other, as mail servers and package managers do.
    Fsync,
    /// Empty files, made and removed.
    Files,
    /// A large file, written, and read by several jobs: each all of it in order, then blocks anywhere.
    Reads,
    /// Objects of 512 KiB, with the journal, the logs and the states that an object store writes beside them.
    Objects,
    /// The 73 published cases: small and large files, in all ways, and empty ones.
    Cases,
    /// Packages that a package manager replaces.
    Upgrade,
    /// Packages that real dpkg installs and replaces.
    Dpkg,
    /// A database of PostgreSQL, with its own benchmark.
    Pgbench,
    /// An object store of Ceph, with its own benchmark.
    Rados,
    /// A tree of small files that is unpacked.
    Untar,
    /// Names and attributes of a tree.
    Walk,
    /// Mails that are delivered, read, marked and deleted.
    Mail,
    /// A while of a home server's time, with its pauses.
    Home,
    /// A large file that is overwritten anywhere, and read in order before and after.
    Overwrites,
    /// Files that are written anywhere with an fsync after each write, by eight threads.
    Threads,
}

/// Sizes of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Operations of each job.
    pub count: u64,
    /// Jobs that run side by side.
    pub jobs: u64,
    /// Size of the large file, in bytes.
    pub file_bytes: u64,
    /// Time after which a phase ends, if it has not ended before.
    pub time: Option<Duration>,
}

impl Suite {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 15] = [
        (Self::Fsync, "fsync"),
        (Self::Files, "files"),
        (Self::Reads, "reads"),
        (Self::Objects, "objects"),
        (Self::Cases, "cases"),
        (Self::Upgrade, "upgrade"),
        (Self::Dpkg, "dpkg"),
        (Self::Pgbench, "pgbench"),
        (Self::Rados, "rados"),
        (Self::Untar, "untar"),
        (Self::Walk, "walk"),
        (Self::Mail, "mail"),
        (Self::Home, "home"),
        (Self::Overwrites, "overwrites"),
        (Self::Threads, "threads"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(suite, _)| *suite == self).map_or("", |(_, name)| name)
    }

    /// Its sizes.
    pub fn defaults(self) -> Defaults {
        let plain = Defaults { count: 1000, jobs: 1, file_bytes: 1 << 30, time: None };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        match self {
            Self::Cases => Defaults { file_bytes: 128 << 20, time: seconds(10), ..plain },
            Self::Upgrade | Self::Dpkg => Defaults { count: 200, ..plain },
            Self::Pgbench => Defaults { jobs: 8, file_bytes: 256 << 20, ..plain },
            Self::Rados => Defaults { jobs: 16, time: seconds(20), ..plain },
            Self::Untar | Self::Walk => Defaults { count: 20_000, ..plain },
            Self::Home => Defaults { time: seconds(60), ..plain },
            Self::Threads => Defaults { jobs: 8, file_bytes: 128 << 20, time: seconds(200), ..plain },
            Self::Overwrites => Defaults { count: 10_000, ..plain },
            _ => plain,
        }
    }

    /// Returns true if several jobs can do it side by side.
    pub fn takes_jobs(self) -> bool {
        matches!(
            self,
            Self::Fsync
                | Self::Files
                | Self::Reads
                | Self::Objects
                | Self::Mail
                | Self::Walk
                | Self::Threads
                | Self::Pgbench
                | Self::Rados
        )
    }

    /// Returns true if it has a journal, which may lie elsewhere.
    pub fn takes_journal(self) -> bool {
        matches!(self, Self::Objects | Self::Rados)
    }

    /// Returns true if its packages may be written without syncs.
    pub fn takes_packages(self) -> bool {
        matches!(self, Self::Upgrade | Self::Dpkg)
    }

    /// Returns true if its files or their metadata may be defragmented, and read again.
    pub fn takes_defragmentation(self) -> bool {
        matches!(self, Self::Overwrites | Self::Cases)
    }

    /// A program that it needs, and that is not installed.
    pub fn missing_program(self) -> Option<&'static str> {
        let programs: &[&'static str] = match self {
            Self::Dpkg => &dpkg::PROGRAMS,
            Self::Pgbench => &pgbench::PROGRAMS,
            Self::Rados => &rados::PROGRAMS,
            _ => &[],
        };
        programs.iter().copied().find(|name| program::find(name).is_none())
    }

    /// Returns true if a phase ends after a time.
    pub fn takes_time(self) -> bool {
        self.defaults().time.is_some()
    }
}

impl FromStr for Suite {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let suite = Self::ALL.iter().find(|(_, name)| *name == word);
        suite
            .map(|(suite, _)| *suite)
            .ok_or_else(|| format!("a suite is one of {}", Self::ALL.map(|(_, name)| name).join(", ")))
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
