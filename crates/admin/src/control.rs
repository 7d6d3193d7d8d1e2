//! Asking a mounted filesystem: a mount of the kernel or of ours, which speak the same language but for snapshots and
//! lists.

mod subvolumes;

use crate::call;
use crate::sysfs;
use brindle_ondisk::{DevId, QgroupId, Uuid};
use brindle_uapi::message::{
    self, DeviceInfo, DeviceStatistics, FilesystemInfo, HintRequest, Label, ServerInfo, SpaceReport,
    SubvolumeInfo, VolumeArgumentsV2,
};
use brindle_uapi::{mount_table, verb};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use thiserror::Error;
use zerocopy::FromZeros;

/// A file or directory of a mounted filesystem, by which it is asked.
#[derive(Debug)]
pub struct Mounted {
    pub(crate) file: OwnedFd,
    pub(crate) path: PathBuf,
    kind: Kind,
}

/// Server of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Kernel,
    Brindle,
}

/// Outcome of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    /// Everything.
    All,
    /// Everything but some contents, written since the last sync, that found no room.
    WhatFits,
}

/// One subvolume of a list.
#[derive(Clone, Debug)]
pub struct SubvolumeRecord {
    /// Facts about it.
    pub info: SubvolumeInfo,
    /// Its path from the top level.
    pub path: Vec<u8>,
}

/// Reason for which a mounted filesystem did not do what it was asked to.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The path cannot be opened, or the request was refused.
    #[error("{path}: {what}: {source}")]
    Refused {
        /// Path that was asked.
        path: PathBuf,
        /// The request.
        what: &'static str,
        /// The reason.
        source: Errno,
    },
    /// The pool is not written.
    #[error("{path}: {what}: the pool is mounted read-only: {why}")]
    ReadOnly {
        /// Path that was asked.
        path: PathBuf,
        /// The request.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// Neither a btrfs of the kernel nor a mount of ours.
    #[error("{0}: not on a mounted btrfs")]
    NotBtrfs(PathBuf),
    /// The process that served the mount has ended.
    #[error(
        "{path}: the process that served the mount has ended; the pool is as of its last sync: `brindle umount {place}`, then \
         mount it again"
    )]
    ServerEnded {
        /// Path that was asked.
        path: PathBuf,
        /// Mount point of the mount, as far as it is known.
        place: PathBuf,
    },
    /// A FIFO or socket stands for no place of a filesystem.
    #[error("{0}: a FIFO or socket can't be asked: name the directory that it is in")]
    NoPlace(PathBuf),
    /// Only a mount of ours can do that.
    #[error(
        "{path}: {what}: the kernel has the pool mounted, and only a mount of brindle has that; {}",
        instead(what)
    )]
    KernelMount {
        /// Path that was asked.
        path: PathBuf,
        /// The request.
        what: &'static str,
    },
    /// No name for a subvolume.
    #[error("{}: no name for a subvolume: 1 to 255 bytes, no slash", String::from_utf8_lossy(.0))]
    Name(Vec<u8>),
    /// More quota groups of a new subvolume than a mount of ours takes at once.
    #[error("a new subvolume can be made in 32 quota groups at most")]
    TooManyGroups,
    /// Another operation is under way, and only one can be.
    #[error("{path}: {what}: the pool is busy with something else (balance, resize, or a change of devices)")]
    Busy {
        /// Path that was asked.
        path: PathBuf,
        /// The request.
        what: &'static str,
    },
    /// The kernel keeps a device that the others need.
    #[error("{path}: a device can't be removed: too few would be left for a profile that is in use")]
    TooFewDevices {
        /// Path that was asked.
        path: PathBuf,
    },
    /// The kernel answered something that cannot be.
    #[error("{path}: {what}: the kernel answered nonsense")]
    Nonsense {
        /// Path that was asked.
        path: PathBuf,
        /// The request.
        what: &'static str,
    },
    /// Not the root directory of a subvolume.
    #[error("{0}: not a subvolume")]
    NotASubvolume(PathBuf),
}

impl ControlError {
    /// Returns true if the process that served the mount has ended.
    pub fn is_end_of_server(&self) -> bool {
        matches!(
            self,
            Self::ServerEnded { .. } | Self::Refused { source: Errno::NOTCONN | Errno::CONNABORTED, .. }
        )
    }

    /// The error of a path that can't be looked at as the process that served its mount has ended; `None` for any other path.
    pub fn of_dead_mount(path: &Path) -> Option<Self> {
        let ends = [Errno::NOTCONN, Errno::CONNABORTED];
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let looked = rustix::fs::open(path, flags, Mode::empty()).and_then(rustix::fs::fstatfs);
        if looked.is_err_and(|error| ends.contains(&error)) {
            return Some(Self::server_ended(path));
        }
        // The system may still have all that in memory; what it is asked for beyond that fails.
        let mounts = mount_table::read().ok()?;
        let mount =
            mount_table::holding(&mounts, &path.canonicalize().ok()?).filter(|mount| mount.is_ours())?;
        Mounted::open(&mount.mountpoint)
            .err()
            .filter(Self::is_end_of_server)
            .map(|_| Self::server_ended(path))
    }

    fn server_ended(path: &Path) -> Self {
        Self::ServerEnded { path: path.to_owned(), place: place_of(path) }
    }
}

/// The mount point that a path of a dead mount lies behind, of which the system resolves nothing; the path if it is not found.
fn place_of(path: &Path) -> PathBuf {
    let mounts = mount_table::read().unwrap_or_default();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let holder = mount_table::holding(&mounts, &absolute).filter(|mount| mount.is_ours());
    holder.map_or_else(|| path.to_owned(), |mount| mount.mountpoint.clone())
}

/// The way to something that a mount of the kernel lacks.
fn instead(what: &str) -> &'static str {
    match what {
        "allocation hint" => {
            "unmount it and name a device, as `brindle property set DEVICE allocation_hint HINT`"
        }
        _ => "unmount it, then `brindle mount` its devices",
    }
}

/// `f_type` of btrfs.
const BTRFS_MAGIC: u64 = 0x9123_683e;
/// The inode number of a subvolume's root on a mount of the kernel.
const ROOT_INODE: u64 = 256;
/// In a mount of ours the subvolume stands above these bits of the number.
const INODE_BITS: u32 = 48;

impl Mounted {
    /// Opens a file or directory of a mounted filesystem.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        let refused = |what| {
            move |source| match source {
                Errno::NOTCONN | Errno::CONNABORTED => ControlError::server_ended(path),
                source => ControlError::Refused { path: path.to_owned(), what, source },
            }
        };
        // Opened, they would be something else than the inode of the filesystem.
        let is_queue = |kind: std::fs::FileType| kind.is_fifo() || kind.is_socket();
        if std::fs::metadata(path).is_ok_and(|found| is_queue(found.file_type())) {
            return Err(ControlError::NoPlace(path.to_owned()));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(refused("open"))?;
        let magic = rustix::fs::fstatfs(&file).map_err(refused("statfs"))?.f_type;
        let kind = if u64::try_from(magic).is_ok_and(|magic| magic == BTRFS_MAGIC) {
            Kind::Kernel
        } else {
            Kind::Brindle
        };
        let mounted = Self { file, path: path.to_owned(), kind };
        if kind == Kind::Kernel {
            return Ok(mounted);
        }
        match mounted.server() {
            Ok(_) => Ok(mounted),
            // The system may still open what it has in memory of such a mount.
            Err(error) if error.is_end_of_server() => Err(ControlError::server_ended(path)),
            Err(_) => Err(ControlError::NotBtrfs(path.to_owned())),
        }
    }

    /// Opens a directory of this directory of the kernel's mount, through no link.
    pub(crate) fn within(&self, name: &[u8]) -> Result<Self, ControlError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.explain("open", rustix::fs::openat(&self.file, name, flags, Mode::empty()))?;
        Ok(Self { file, path: self.path.join(OsStr::from_bytes(name)), kind: self.kind })
    }

    /// By what path it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the kernel serves it.
    pub fn is_of_kernel(&self) -> bool {
        self.kind == Kind::Kernel
    }

    /// Server of a mount of ours.
    pub fn server(&self) -> Result<ServerInfo, ControlError> {
        let answer = call::get::<verb::DescribeServer>(&self.file);
        self.explain("its server", answer)
    }

    /// Space of a mount of ours.
    pub fn space(&self) -> Result<SpaceReport, ControlError> {
        let what = "space";
        match self.kind {
            Kind::Kernel => Err(ControlError::KernelMount { path: self.path.clone(), what }),
            Kind::Brindle => SpaceReport::collect(|page| {
                self.explain(what, call::update::<verb::ReportSpace>(&self.file, page))
            }),
        }
    }

    /// Stores another allocation hint for a device; of a mount of ours.
    pub fn set_allocation_hint(&self, devid: u64, stored_type: u64) -> Result<(), ControlError> {
        let what = "allocation hint";
        if self.kind == Kind::Kernel {
            return Err(ControlError::KernelMount { path: self.path.clone(), what });
        }
        let request = HintRequest { devid, stored_type };
        self.explain(what, call::set::<verb::SetHint>(&self.file, request))
    }

    /// Stores another limit for small files; of a mount of ours.
    pub fn set_small_files(&self, bytes: u64) -> Result<(), ControlError> {
        let what = "limit of small files";
        if self.kind == Kind::Kernel {
            return Err(ControlError::KernelMount { path: self.path.clone(), what });
        }
        self.explain(what, call::set::<verb::SetSmallFiles>(&self.file, bytes))
    }

    /// Lets the class of devices weigh more or less, as [`SpaceReport::placement`] has it; of a mount of ours.
    pub fn set_placement(&self, mode: u64) -> Result<(), ControlError> {
        let what = "placement";
        if self.kind == Kind::Kernel {
            return Err(ControlError::KernelMount { path: self.path.clone(), what });
        }
        self.explain(what, call::set::<verb::SetPlacement>(&self.file, mode))
    }

    /// Facts about the filesystem.
    pub fn filesystem(&self) -> Result<FilesystemInfo, ControlError> {
        let answer = call::get::<verb::DescribeFilesystem>(&self.file);
        self.explain("filesystem", answer)
    }

    /// The devices of the filesystem.
    pub fn device_infos(&self) -> Result<Vec<DeviceInfo>, ControlError> {
        let filesystem = self.filesystem()?;
        let mut found = Vec::new();
        for devid in 1..=filesystem.devid_max {
            let mut device = DeviceInfo { devid, ..DeviceInfo::new_zeroed() };
            match call::update::<verb::DescribeDevice>(&self.file, &mut device) {
                Ok(()) => found.push(device),
                Err(Errno::NODEV) => {}
                Err(source) => return Err(self.refused("device", source)),
            }
            if found.len() as u64 == filesystem.devices {
                break;
            }
        }
        Ok(found)
    }

    /// Error counters of a device; they begin anew if that is wanted.
    pub fn device_statistics(&self, devid: u64, reset: bool) -> Result<[u64; 5], ControlError> {
        let flags = if reset { message::RESET_STATISTICS } else { 0 };
        let mut asked = DeviceStatistics { devid, count: 5, flags, ..DeviceStatistics::new_zeroed() };
        let answer = call::update::<verb::CountDeviceErrors>(&self.file, &mut asked);
        self.explain("device statistics", answer)?;
        Ok(asked.counters)
    }

    /// Returns true if the kernel says that a device is missing; a mount of brindle says it in [`space`](Self::space).
    pub fn is_missing(&self, devid: u64) -> Result<bool, ControlError> {
        Ok(self.is_of_kernel() && sysfs::is_missing(&Uuid(self.filesystem()?.fsid), DevId::new(devid)))
    }

    /// Reason for which a mount of brindle's is not written, or not any more; `None` if it is, if it was mounted read-only, or if it is
    /// the kernel's.
    pub fn read_only_reason(&self) -> Result<Option<String>, ControlError> {
        if self.kind == Kind::Kernel {
            return Ok(None);
        }
        let answer = call::get::<verb::ExplainReadOnly>(&self.file);
        let reason = self.explain("read-only reason", answer)?;
        let text = String::from_utf8_lossy(message::text(&reason.0)).into_owned();
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// Refuses a mount of brindle's that is not written, before `what` is begun.
    pub fn require_written(&self, what: &'static str) -> Result<(), ControlError> {
        if self.kind == Kind::Kernel || self.server()?.is_writable != 0 {
            return Ok(());
        }
        let why = self.read_only_reason()?.unwrap_or_else(|| "it was mounted read-only".to_owned());
        Err(ControlError::ReadOnly { path: self.path.clone(), what, why })
    }

    /// Makes durable all that was written. That some of it, since the last sync, found no room is for its writers
    /// to hear, and is no reason not to go on here.
    pub fn sync(&self) -> Result<Synced, ControlError> {
        // What the kernel still has of files that are open comes first.
        let handed_over = rustix::fs::syncfs(&self.file);
        let mut synced = call::tell::<verb::Sync>(&self.file);
        let had_no_room = [handed_over, synced].map(|done| matches!(done, Err(Errno::NOSPC | Errno::DQUOT)));
        if !had_no_room[0] {
            self.explain("sync", handed_over)?;
        }
        if had_no_room[1] {
            // The server keeps an error until it was told: a second try says whether it is over.
            synced = call::tell::<verb::Sync>(&self.file);
        }
        self.explain("sync", synced)?;
        Ok(if had_no_room.contains(&true) { Synced::WhatFits } else { Synced::All })
    }

    /// The label.
    pub fn label(&self) -> Result<Vec<u8>, ControlError> {
        let answer = call::get::<verb::GetLabel>(&self.file);
        Ok(message::text(&self.explain("label", answer)?.0).to_vec())
    }

    /// Gives it another label.
    pub fn set_label(&self, label: &[u8]) -> Result<(), ControlError> {
        let label = Label(message::field(label).ok_or_else(|| self.refused("label", Errno::NAMETOOLONG))?);
        let answer = call::set::<verb::SetLabel>(&self.file, label);
        self.explain("label", answer)
    }

    /// Has the kernel write back what it holds. That some of it, at any time since the last sync, found no room is for its
    /// writers to hear.
    fn hand_over(&self) -> rustix::io::Result<()> {
        match rustix::fs::syncfs(&self.file) {
            Err(Errno::NOSPC | Errno::DQUOT) => Ok(()),
            done => done,
        }
    }

    /// Its inode number in its subvolume.
    pub(crate) fn inode_number(&self) -> Result<u64, ControlError> {
        let stat = self.explain("stat", rustix::fs::fstat(&self.file))?;
        match self.kind {
            Kind::Kernel => Ok(stat.st_ino),
            Kind::Brindle if stat.st_ino >> INODE_BITS == 0xffff => {
                Err(self.refused("find the inode by its number", Errno::OVERFLOW))
            }
            Kind::Brindle => Ok(stat.st_ino & ((1 << INODE_BITS) - 1)),
        }
    }

    /// Its inode number, if it is the root of a subvolume.
    fn subvolume_root(&self) -> Result<u64, ControlError> {
        let stat = self.explain("stat", rustix::fs::fstat(&self.file))?;
        let number = match self.kind {
            Kind::Kernel => stat.st_ino,
            Kind::Brindle => stat.st_ino & ((1 << INODE_BITS) - 1),
        };
        let is_root = FileType::from_raw_mode(stat.st_mode) == FileType::Directory && number == ROOT_INODE;
        // Numbers beyond the usual are for the server to judge.
        let is_unusual = self.kind == Kind::Brindle && stat.st_ino >> INODE_BITS == 0xffff;
        if is_root || is_unusual {
            Ok(stat.st_ino)
        } else {
            Err(ControlError::NotASubvolume(self.path.clone()))
        }
    }

    /// Returns true for a mount of ours.
    pub(crate) fn is_brindle(&self) -> bool {
        self.kind == Kind::Brindle
    }

    pub(crate) fn explain<T>(&self, what: &'static str, answer: Result<T, Errno>) -> Result<T, ControlError> {
        answer.map_err(|source| self.refused(what, source))
    }

    pub(crate) fn refused(&self, what: &'static str, source: Errno) -> ControlError {
        let why = (source == Errno::ROFS).then(|| self.read_only_reason().ok().flatten()).flatten();
        let path = self.path.clone();
        match why {
            Some(why) => ControlError::ReadOnly { path, what, why },
            None => ControlError::Refused { path, what, source },
        }
    }
}

fn numbers(groups: &[QgroupId]) -> Vec<u64> {
    groups.iter().map(|group| group.get()).collect()
}

fn named(name: &[u8], flags: u64) -> Result<VolumeArgumentsV2, ControlError> {
    const NAME_MAX: usize = 255;
    let is_name =
        (1..=NAME_MAX).contains(&name.len()) && !name.contains(&b'/') && name != b"." && name != b"..";
    let refuse = || ControlError::Name(name.to_vec());
    let field = message::field(name).filter(|_| is_name).ok_or_else(refuse)?;
    Ok(VolumeArgumentsV2 { flags, name: field, ..VolumeArgumentsV2::new_zeroed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_outside_of_btrfs_is_refused() {
        let error = Mounted::open(Path::new("/proc")).expect_err("no btrfs");
        assert!(matches!(error, ControlError::NotBtrfs(_)), "{error}");
        let error = Mounted::open(Path::new("/nowhere")).expect_err("nothing there");
        assert!(matches!(error, ControlError::Refused { source: Errno::NOENT, .. }), "{error}");
    }

    #[test]
    fn an_impossible_name_is_refused() {
        for name in [&b""[..], b"a/b", b"..", b"a\0b", &[b'x'; 256]] {
            assert!(matches!(named(name, 0), Err(ControlError::Name(_))));
        }
        assert_eq!(message::text(&named(&[b'x'; 255], 0).expect("a name").name).len(), 255);
    }
}
