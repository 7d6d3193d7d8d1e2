//! A pool in image files behind loop devices, for the kernel to mount and for the library to open.

use crate::kernel::patiently;
use crate::kernel::pool::{run, try_run};
use crate::model::target::Ground;
use brindle_check::{CheckOptions, NoProgress};
use brindle_device::{Device, FileDevice, WritableDevice};
use brindle_fs::{Filesystem, OpenOptions, WriteOptions};
use brindle_testing::referee::btrfs_check;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Sparse. Large, so that of each device much more stays unallocated than a data chunk of full size takes (a tenth of
/// the pool, 1 GiB at most): a kernel's scrub makes new chunks of every kind, and where there is only one system
/// chunk, its balance does not move that unless a data chunk would fit beside it, and ends with ENOSPC. Pools written
/// by the kernel alone show the same.
const DEVICE_BYTES: u64 = 8 << 30;
/// Number of attempts at a command that a child of another test, which is being started, may be in the way of.
const TRIES: usize = 100;

/// A pool in image files behind loop devices. Nothing of it is left behind.
pub(crate) struct SharedPool {
    images: Vec<PathBuf>,
    loops: Vec<PathBuf>,
    is_mounted: bool,
    /// True if nothing was committed since a crash.
    pub(crate) has_crashed: bool,
    /// Options of the library, other than its usual ones.
    pub(crate) write: RefCell<WriteOptions>,
    scratch: TempDir,
}

impl SharedPool {
    /// Empty devices.
    pub(crate) fn of_devices(count: usize) -> Self {
        Self::of_size(count, DEVICE_BYTES)
    }

    /// Empty devices of `device_bytes` each.
    pub(crate) fn of_size(count: usize, device_bytes: u64) -> Self {
        Self::of_sizes(&vec![device_bytes; count])
    }

    /// Empty devices of these sizes, in bytes.
    pub(crate) fn of_sizes(sizes: &[u64]) -> Self {
        let scratch = tempfile::Builder::new().prefix("brindle-pingpong-").tempdir().expect("room");
        std::fs::create_dir(scratch.path().join("mount")).expect("room");
        let images: Vec<PathBuf> =
            (1..=sizes.len()).map(|number| scratch.path().join(format!("{number}.img"))).collect();
        for (image, bytes) in images.iter().zip(sizes) {
            std::fs::File::create(image).and_then(|file| file.set_len(*bytes)).expect("sparse");
        }
        let write = RefCell::default();
        let mut pool =
            Self { images, loops: Vec::new(), is_mounted: false, has_crashed: false, write, scratch };
        pool.attach();
        pool
    }

    pub(crate) fn loops(&self) -> &[PathBuf] {
        &self.loops
    }

    pub(crate) fn mount_point(&self) -> PathBuf {
        self.scratch.path().join("mount")
    }

    /// Turns simple quotas on, which btrfs-progs 6.2 does not know.
    pub(super) fn enable_simple_quotas(&self) {
        let filesystem = self.open();
        filesystem.pool().enable_simple_quotas().expect("room");
        filesystem.shutdown().expect("closes");
    }

    fn attach(&mut self) {
        let attach = |image: &PathBuf| {
            patiently(|| try_run("losetup", ["--find", "--show"], [image]))
                .unwrap_or_else(|why| panic!("{why}"))
        };
        self.loops = self.images.iter().map(|image| PathBuf::from(attach(image))).collect();
    }

    fn detach(&mut self) {
        for device in std::mem::take(&mut self.loops) {
            let _ = try_run("btrfs", ["device", "scan", "--forget"], [&device]);
            let _ = try_run("losetup", ["--detach"], [&device]);
        }
    }

    pub(crate) fn mount(&mut self, options: &str) {
        let mut options = options.to_owned();
        for device in &self.loops {
            run("btrfs", ["device", "scan"], [device]);
            options = format!("{options},device={}", device.display());
        }
        let target = [self.loops[0].as_os_str(), self.mount_point().as_os_str()].map(OsStr::to_owned);
        run("mount", ["-t", "btrfs", "-o", &options], target);
        self.is_mounted = true;
    }

    /// Mounts the first device alone, as if the others were not there.
    pub(super) fn mount_without_others(&mut self, options: &str) {
        self.mount_alone(0, options);
    }

    /// Mounts a device alone, as if the others were not there.
    pub(super) fn mount_alone(&mut self, device: usize, options: &str) {
        self.forget();
        let target = [self.loops[device].as_os_str(), self.mount_point().as_os_str()].map(OsStr::to_owned);
        run("mount", ["-t", "btrfs", "-o", options], target);
        self.is_mounted = true;
    }

    pub(crate) fn unmount(&mut self) {
        patiently(|| try_run("umount", [""; 0], [self.mount_point()])).unwrap_or_else(|why| panic!("{why}"));
        self.is_mounted = false;
        self.forget();
    }

    /// The kernel keeps nothing of it: it may go back in time.
    fn forget(&self) {
        for device in &self.loops {
            let _ = try_run("btrfs", ["device", "scan", "--forget"], [device]);
        }
    }

    /// Keeps what lies in the images at a moment: between two commits, for those go on behind our back.
    pub(crate) fn keep_crash_state(&self) {
        for _ in 0..TRIES {
            let before = self.superblocks();
            for image in &self.images {
                run("cp", ["--sparse=always"], [image.as_path(), &image.with_extension("crash")]);
            }
            if before.windows(2).all(|pair| pair[0] == pair[1]) && self.superblocks() == before {
                return;
            }
        }
        panic!("there is never a moment between two commits");
    }

    /// The generation of the superblock that counts, of every device.
    fn superblocks(&self) -> Vec<[u8; 8]> {
        /// Offset of the generation in the first superblock (`btrfs_super_block`).
        const GENERATION_AT: u64 = (64 << 10) + 72;
        let generation = |image: &PathBuf| {
            let mut generation = [0; 8];
            let image = std::fs::File::open(image).expect("there it is");
            image.read_exact_at(&mut generation, GENERATION_AT).expect("readable");
            generation
        };
        self.images.iter().map(generation).collect()
    }

    /// Goes back to what was kept, as if there had been a crash then.
    pub(crate) fn crash(&mut self) {
        self.detach();
        for image in &self.images {
            std::fs::rename(image.with_extension("crash"), image).expect("it was kept");
        }
        self.attach();
        self.has_crashed = true;
    }

    /// Panics with what `btrfs check` has to say against it.
    pub(crate) fn assert_btrfs_check(&self, when: &str) {
        for device in &self.loops {
            run("btrfs", ["device", "scan"], [device]);
        }
        btrfs_check(&self.loops[0]).expect("btrfs-progs").unwrap_or_else(|said| panic!("{when}: {said}"));
        self.forget();
    }

    /// Complaints about the pool in the kernel's log.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let named = |device: &PathBuf| Some(format!("(device {})", device.file_name()?.to_str()?));
        let names: Vec<String> = self.loops.iter().filter_map(named).collect();
        let log = run("dmesg", [""; 0], [""; 0]);
        let is_bad = |line: &&str| {
            let is_ours = names.iter().any(|name| line.contains(name.as_str()));
            let is_grave = ["error", "warning", "critical"].iter().any(|word| line.contains(word));
            // Of quotas the library says itself that they are wrong from now on.
            let is_expected =
                ["deprecated", "experimental", "inconsistent"].iter().any(|word| line.contains(word));
            line.contains("BTRFS") && is_ours && is_grave && !is_expected
        };
        log.lines().filter(is_bad).map(str::to_owned).collect()
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = patiently(|| try_run("umount", [""; 0], [self.mount_point()]));
        }
        self.detach();
    }
}

impl Ground for SharedPool {
    fn open(&self) -> Filesystem {
        let open = |path: &Path| {
            let device = patiently(|| FileDevice::open_writable(path)).expect("nobody has it");
            Arc::new(device) as Arc<dyn WritableDevice>
        };
        let devices = self.loops.iter().map(|path| open(path)).collect();
        Filesystem::open_writable(devices, &OpenOptions::default(), &self.write.borrow())
            .expect("the pool opens")
    }

    fn assert_clean(&self, when: &str) {
        let open = |path: &PathBuf| Arc::new(FileDevice::open(path).expect("a device")) as Arc<dyn Device>;
        let options = CheckOptions {
            all_copies: true,
            check_data_csum: true,
            threads: Some(1),
            ..CheckOptions::default()
        };
        let devices = self.loops.iter().map(open).collect();
        let report = brindle_check::check(devices, &options, &NoProgress).expect("there is a pool");
        // After a crash the further superblocks may lag behind the first one, which is what counts.
        let lags = |text: &String| {
            self.has_crashed && text.starts_with("superblocks:") && text.contains(" has generation ")
        };
        let findings: Vec<String> = report
            .findings()
            .map(|(pass, finding)| format!("{pass}: {finding}"))
            .filter(|text| !lags(text))
            .take(20)
            .collect();
        assert!(findings.is_empty(), "{when}: {findings:#?}");
    }
}
