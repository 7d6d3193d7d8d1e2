//! Options of a mount.

use brindle_fs::{AtimeMode, DestageSettings};
use brindle_policy::defragment::idle::AutoDefragment;
use brindle_transport::RingUse;
use rustix::mount::MountFlags;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of a mount. The defaults are careful: read-only, checked permissions, no device nodes, no set-user-id
/// programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Source shown in the first column of the mount table.
    pub source: String,
    /// Users other than the mounting one may look inside (`allow_other`).
    pub allow_other: bool,
    /// The kernel checks permissions and ACLs (`default_permissions`).
    pub default_permissions: bool,
    /// The block device that the mount is made on: the kernel claims it, passes sync(2) and syncfs(2) on, and umount(2) returns
    /// after the last commit. For root alone; [`source`](Self::source) is not shown then.
    pub block_device: Option<PathBuf>,
    /// The part of the filesystem that is mounted, as a path from its root; of mounts on a block device alone.
    pub part: Vec<u8>,
    /// The mount goes away when this process dies (`auto_unmount`); needs `fusermount3`, even for root.
    pub auto_unmount: bool,
    /// No writes (`ro`); must be set if the filesystem can't be written.
    pub read_only: bool,
    /// Reason for it, if it was not requested.
    pub read_only_reason: Option<String>,
    /// Device nodes work (`dev`); for root alone.
    pub devices: bool,
    /// Set-user-id and set-group-id bits work (`suid`); for root alone.
    pub set_user_id: bool,
    /// Programs can be started (`exec`).
    pub execute: bool,
    /// Mode of updating access times. The kernel asks us only for what it does not remember, so that only
    /// the first access by each open file is seen.
    pub atime: AtimeMode,
    /// Update access times of directories too; not with `nodiratime`.
    pub directory_atime: bool,
    /// Interval at which writes are made durable (`commit`).
    pub commit_interval: Duration,
    /// Settings of destaging (`writeback_age`, `wake_interval`).
    pub destage: DestageSettings,
    /// Directory of the records of scrubs; without it they are in memory alone.
    pub state_directory: Option<PathBuf>,
    /// Mode of defragmenting metadata while the mount is idle (`metadata_defrag`).
    pub auto_defragment: AutoDefragment,
    /// Files that small writes tear are laid together again (`autodefrag`).
    pub autodefrag: bool,
    /// The owner of a subvolume may delete it (`user_subvol_rm_allowed`); otherwise only root and the mounting user.
    pub owners_delete_subvolumes: bool,
    /// This process ends when the mount does, so that an unmount may wait for that.
    pub process_ends_with_mount: bool,
    /// Changes that are durable before the call that makes them returns (`sync`, `dirsync`).
    pub synchronous: Synchronous,
    /// Number of requests that are worked on at once. More than there are processors, for a read may wait for a disk.
    pub threads: usize,
    /// Use of FUSE over `io_uring` (`io_uring`).
    pub rings: RingUse,
    /// Words of the command line that are not the default, for the setting `mount_options`; without those that a remount changes.
    pub given: String,
}

/// Changes that are durable before the call that makes them returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// Changes for which a file or an inode asks.
    #[default]
    Nothing,
    /// Changes of names as well (`dirsync`).
    Names,
    /// All changes (`sync`).
    Everything,
}

/// Type of our mounts, behind `fuse.`.
const SUBTYPE: &str = "brindle";
/// The least and greatest number of threads.
const THREADS: std::ops::RangeInclusive<usize> = 1..=64;
const THREADS_DEFAULT: usize = 8;
/// Interval of commits where sync(2) is not passed on: after a sync, what was written waits for the next commit.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of commits where sync(2) is passed on; that of the kernel's btrfs.
const COMMIT_INTERVAL_WITH_SYNC: Duration = Duration::from_secs(30);

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "brindle".to_owned(),
            allow_other: false,
            default_permissions: true,
            block_device: None,
            part: Vec::new(),
            auto_unmount: false,
            read_only: true,
            read_only_reason: None,
            devices: false,
            set_user_id: false,
            execute: true,
            atime: AtimeMode::default(),
            directory_atime: true,
            commit_interval: COMMIT_INTERVAL,
            destage: DestageSettings::default(),
            state_directory: None,
            auto_defragment: AutoDefragment::default(),
            autodefrag: false,
            owners_delete_subvolumes: false,
            process_ends_with_mount: false,
            synchronous: Synchronous::default(),
            threads: THREADS_DEFAULT,
            rings: RingUse::default(),
            given: String::new(),
        }
    }
}

impl MountOptions {
    /// The default options for a pool on these devices.
    pub fn for_devices<P: AsRef<Path>>(devices: &[P]) -> Self {
        let names: Vec<_> = devices.iter().map(|device| device.as_ref().to_string_lossy()).collect();
        Self { source: names.join(":"), ..Self::default() }
    }

    /// The options that concern the kernel.
    pub fn for_kernel(&self) -> brindle_transport::MountOptions {
        let choices = [
            (self.read_only, MountFlags::RDONLY),
            (!self.devices, MountFlags::NODEV),
            (!self.set_user_id, MountFlags::NOSUID),
            (!self.execute, MountFlags::NOEXEC),
            (self.atime == AtimeMode::Never, MountFlags::NOATIME),
            (self.synchronous == Synchronous::Everything, MountFlags::SYNCHRONOUS),
            (self.synchronous == Synchronous::Names, MountFlags::DIRSYNC),
        ];
        let set = choices.into_iter().filter(|(is_set, _)| *is_set);
        brindle_transport::MountOptions {
            source: self.source.clone(),
            subtype: SUBTYPE,
            flags: set.fold(MountFlags::empty(), |all, (_, flag)| all | flag),
            allow_other: self.allow_other,
            default_permissions: self.default_permissions,
            auto_unmount: self.auto_unmount,
        }
    }

    /// The same for a mount on a block device, with the default interval of commits that goes with it.
    pub fn on_block_device(self, block_device: &Path) -> Self {
        let block_device = Some(block_device.to_owned());
        Self { block_device, commit_interval: COMMIT_INTERVAL_WITH_SYNC, ..self }
    }

    /// The interval of commits unless another one is chosen.
    pub(crate) fn default_commit_interval(&self) -> Duration {
        if self.block_device.is_some() { COMMIT_INTERVAL_WITH_SYNC } else { COMMIT_INTERVAL }
    }

    /// The use of rings; `None` if it is refused. After the death of the server the end of a mount by rings takes a moment, and the
    /// helper that unmounts it then looks at once, and only once.
    pub(crate) fn ring_use(&self) -> Option<RingUse> {
        match self.rings {
            RingUse::On if self.auto_unmount => None,
            RingUse::Auto if self.auto_unmount => Some(RingUse::Off),
            rings => Some(rings),
        }
    }

    /// The number of threads, within reason.
    pub(crate) fn thread_count(&self) -> usize {
        self.threads.clamp(*THREADS.start(), *THREADS.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_dangerous_is_on_by_default() {
        let flags = MountOptions::default().for_kernel().flags;
        assert_eq!(flags, MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID);
    }

    #[test]
    fn the_source_names_every_device() {
        let options = MountOptions::for_devices(&["/dev/sda", "/dev/sdb"]);
        assert_eq!(options.source, "/dev/sda:/dev/sdb");
        assert!(options.default_permissions && options.read_only && !options.devices);
    }

    #[test]
    fn a_sync_that_is_not_passed_on_waits_five_seconds_at_most() {
        assert_eq!(MountOptions::default().commit_interval, Duration::from_secs(5));
    }

    #[test]
    fn there_is_always_a_thread() {
        let options = MountOptions { threads: 0, ..MountOptions::default() };
        assert_eq!(options.thread_count(), 1);
    }
}
