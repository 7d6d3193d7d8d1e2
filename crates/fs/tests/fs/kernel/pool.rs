//! A pool on loop devices, mounted by the kernel.

use super::patiently;
use brindle_testing::referee::btrfs_check;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// Sparse, and enough for a chunk of each kind and profile.
const DEVICE_BYTES: u64 = 512 << 20;

/// A pool on loop devices, mounted by the kernel. Nothing of it is left behind.
pub(crate) struct KernelPool {
    images: Vec<PathBuf>,
    mount_point: PathBuf,
    is_mounted: bool,
    _scratch: TempDir,
}

impl KernelPool {
    /// A fresh pool, data and metadata of one profile.
    pub(super) fn make(profile: &str, devices: usize, nodesize: &str, compression: &str) -> Self {
        Self::make_with(profile, devices, nodesize, &format!("compress={compression}"), &[])
    }

    /// A fresh pool, made and mounted with more options.
    pub(crate) fn make_with(
        profile: &str,
        devices: usize,
        nodesize: &str,
        mount_options: &str,
        mkfs_options: &[&str],
    ) -> Self {
        let scratch = tempfile::tempdir().expect("temporary directory");
        let mount_point = scratch.path().join("mount");
        std::fs::create_dir(&mount_point).expect("directory");
        let images: Vec<PathBuf> =
            (1..=devices).map(|number| scratch.path().join(format!("dev{number}.img"))).collect();
        for image in &images {
            File::create(image).and_then(|file| file.set_len(DEVICE_BYTES)).expect("a sparse file");
        }
        let options = ["-q", "-f", "-K", "-n", nodesize, "-d", profile, "-m", profile];
        run("mkfs.btrfs", options.iter().chain(mkfs_options).copied(), &images);
        let mut pool = Self { images, mount_point, is_mounted: false, _scratch: scratch };
        pool.mount(mount_options);
        pool
    }

    /// A fresh pool of one small device, with data and metadata in the same block groups.
    pub(super) fn make_mixed(device_bytes: u64) -> Self {
        let scratch = tempfile::tempdir().expect("temporary directory");
        let (image, mount_point) = (scratch.path().join("dev1.img"), scratch.path().join("mount"));
        std::fs::create_dir(&mount_point).expect("directory");
        File::create(&image).and_then(|file| file.set_len(device_bytes)).expect("a sparse file");
        run("mkfs.btrfs", ["-q", "-f", "-K", "--mixed"], [&image]);
        let mut pool = Self { images: vec![image], mount_point, is_mounted: false, _scratch: scratch };
        pool.mount("compress=no");
        pool
    }

    /// Lets the kernel mount it.
    pub(crate) fn mount(&mut self, options: &str) {
        let loops: Vec<String> =
            self.images.iter().map(|image| run("losetup", ["-f", "--show"], [image])).collect();
        let mut options = options.to_owned();
        loops.iter().for_each(|device| options.extend([",device=", device]));
        let target = [OsStr::new(&loops[0]), self.mount_point.as_os_str()];
        let mounted = try_run("mount", ["-t", "btrfs", "-o", &options], target);
        self.is_mounted = mounted.is_ok();
        // From now on they go with the mount, whatever becomes of this process.
        run("losetup", ["-d"], &loops);
        mounted.unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    pub(crate) fn images(&self) -> &[PathBuf] {
        &self.images
    }

    /// `btrfs check` has nothing to say of what is not mounted. It finds other devices only among block devices.
    pub(crate) fn check(&self) {
        let loops: Vec<String> =
            self.images.iter().map(|image| run("losetup", ["-f", "--show"], [image])).collect();
        run("btrfs", ["device", "scan"], &loops);
        let checked = btrfs_check(loops[0].as_ref());
        run("losetup", ["-d"], &loops);
        checked.expect("btrfs-progs").unwrap_or_else(|said| panic!("{said}"));
    }

    /// Lets the kernel write everything.
    pub(crate) fn unmount(&mut self) {
        patiently(|| try_run("umount", [""; 0], [&self.mount_point])).unwrap_or_else(|why| panic!("{why}"));
        self.is_mounted = false;
    }
}

impl Drop for KernelPool {
    fn drop(&mut self) {
        if self.is_mounted {
            Command::new("umount").arg("-l").arg(&self.mount_point).output().ok();
        }
    }
}

/// Runs a program that must succeed; returns what it says, without the end of the line.
pub(crate) fn run<'a>(
    program: &str,
    options: impl IntoIterator<Item = &'a str>,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> String {
    try_run(program, options, arguments).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn try_run<'a>(
    program: &str,
    options: impl IntoIterator<Item = &'a str>,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<String, String> {
    /// Held while a program is started: between fork and exec a child holds whatever another thread has open on its
    /// mount, which would then be busy, so umount must not be called meanwhile.
    static STARTING: Mutex<()> = Mutex::new(());
    let mut command = Command::new(program);
    command.args(options).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = {
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        command.spawn().expect("the program starts")
    };
    let output = child.wait_with_output().expect("the program ends");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    } else {
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}
