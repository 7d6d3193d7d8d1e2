//! The host: image files, loop devices, mounts; whatever is set up here is taken down when it is dropped.

use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
use brindle_device::FileDevice;
use brindle_testing::referee::btrfs_check;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// One pool at a time: loop devices are few, and shared with all that runs here.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Options for a pool whose UUID no other here has: the kernel knows a pool by it.
pub(crate) fn options() -> MkfsOptions {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut options = crate::support::options();
    options.fsid.0[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    options.fsid.0[12..].copy_from_slice(&NEXT.fetch_add(1, Relaxed).to_le_bytes());
    options
}

/// Returns true if pools can be mounted here; reports missing tools.
pub(crate) fn can_mount() -> bool {
    let has = |tool: &str| {
        let found = Command::new(tool).arg("--version").output();
        found.is_ok_and(|output| output.status.success())
    };
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let missing = if !rustix::process::geteuid().is_root() {
        "root"
    } else if !["btrfs", "mkfs.btrfs", "losetup", "mount"].into_iter().all(has) {
        "btrfs-progs and util-linux"
    } else if !filesystems.contains("btrfs") && Command::new("modprobe").arg("btrfs").output().is_err() {
        "btrfs in the kernel"
    } else {
        return true;
    };
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "what the kernel says needs {missing}");
    eprintln!("skipped: what the kernel says needs {missing}");
    false
}

/// Runs a command, and expects success; what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.env("TZ", "UTC").output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
    said
}

/// `btrfs check` has nothing to say of the pool of this device.
pub(crate) fn assert_btrfs_check(device: &Path, what: &str) {
    btrfs_check(device).expect("btrfs-progs").unwrap_or_else(|said| panic!("{what}: {said}"));
}

/// A pool in image files, and the loop devices that show them.
pub(crate) struct LoopPool {
    pub(crate) images: Vec<PathBuf>,
    pub(crate) loops: Vec<PathBuf>,
    /// Devices that are not of the pool.
    pub(crate) spares: Vec<PathBuf>,
    is_mounted: bool,
    scratch: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl LoopPool {
    /// Empty image files of these sizes.
    pub(crate) fn files(sizes: &[u64]) -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        Self::files_within(sizes, turn)
    }

    /// A pool made in new image files.
    pub(crate) fn make(sizes: &[u64], options: &MkfsOptions) -> Self {
        let pool = Self::files(sizes);
        mkfs(&pool.writable(), options).expect("a pool is made");
        pool
    }

    fn files_within(sizes: &[u64], turn: MutexGuard<'static, ()>) -> Self {
        let scratch = tempfile::Builder::new().prefix("brindle-care-").tempdir().expect("room in /tmp");
        std::fs::create_dir(scratch.path().join("mnt")).expect("room");
        let image = |(index, size): (usize, &u64)| {
            let path = scratch.path().join(format!("{index}.img"));
            FileDevice::create(&path, *size).expect("room, sparsely");
            path
        };
        let images = sizes.iter().enumerate().map(image).collect();
        Self { images, loops: Vec::new(), spares: Vec::new(), is_mounted: false, scratch, _turn: turn }
    }

    /// The image files, to be made a pool of.
    pub(crate) fn writable(&self) -> Vec<NewDevice> {
        let open = |path: &PathBuf| FileDevice::open_writable(path).expect("nobody has it");
        self.images.iter().map(|path| NewDevice::new(Arc::new(open(path)))).collect()
    }

    pub(crate) fn mount_point(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    /// A path next to the images.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Shows the images as loop devices, and tells the kernel of them.
    pub(crate) fn attach(&mut self) {
        let all: Vec<usize> = (0..self.images.len()).collect();
        self.attach_some(&all);
    }

    /// The same with some of the images.
    pub(crate) fn attach_some(&mut self, which: &[usize]) {
        for image in which.iter().map(|index| &self.images[*index]) {
            let name = run(Command::new("losetup").args(["--find", "--show"]).arg(image));
            self.loops.push(PathBuf::from(name.trim()));
        }
        for device in &self.loops {
            // What is no btrfs yet is none of its business.
            let _ = Command::new("btrfs").args(["device", "scan"]).arg(device).output();
        }
    }

    /// Takes the loop devices away again, and has the kernel forget them.
    pub(crate) fn detach(&mut self) {
        for device in std::mem::take(&mut self.loops) {
            run(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(&device));
            run(Command::new("losetup").arg("--detach").arg(&device));
        }
    }

    pub(crate) fn mount(&mut self, options: &str) {
        run(&mut self.mount_command(options));
        self.is_mounted = true;
    }

    /// The same; false if the kernel refuses.
    pub(crate) fn try_mount(&mut self, options: &str) -> bool {
        let mounted = self.mount_command(options).output().expect("mount is there");
        self.is_mounted = mounted.status.success();
        self.is_mounted
    }

    fn mount_command(&self, options: &str) -> Command {
        let mut all = options.to_owned();
        for device in &self.loops {
            all = format!("{all},device={}", device.display());
        }
        let mut mount = Command::new("mount");
        mount.args(["-t", "btrfs", "-o", &all]).args([&self.loops[0], &self.mount_point()]);
        mount
    }

    pub(crate) fn unmount(&mut self) {
        run(Command::new("umount").arg(self.mount_point()));
        self.is_mounted = false;
    }
}

impl Drop for LoopPool {
    fn drop(&mut self) {
        let quietly = |command: &mut Command| drop(command.output());
        if self.is_mounted {
            quietly(Command::new("umount").arg(self.mount_point()));
        }
        for device in self.loops.iter().chain(&self.spares) {
            quietly(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device));
            quietly(Command::new("losetup").arg("--detach").arg(device));
        }
    }
}

/// Output of dump-tree for all trees.
pub(crate) fn dump_tree(device: &Path) -> String {
    run(Command::new("btrfs").args(["inspect-internal", "dump-tree"]).arg(device))
}
