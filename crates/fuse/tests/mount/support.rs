//! Images made by the kernel, mounts of ours, and the programs that tests call.

use brindle_device::{Device, FileDevice, WritableDevice};
use brindle_fs::{Filesystem, OpenOptions, RootId, SubvolumeChoice, WriteOptions};
use brindle_fuse::{MountHandle, MountOptions, RingUse};
use brindle_sim::FaultyDevice;
use brindle_testing::manifest::Manifest;
use brindle_testing::referee::btrfs_check;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns true if mounts can be tested here. Skipping is allowed, but not where everything must run.
pub(crate) fn can_mount() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let has_device = Path::new("/dev/fuse").exists();
    let lacks = ["mkfs.btrfs", "btrfs", "fusermount3", "setfattr", "setfacl", "setpriv"]
        .into_iter()
        .find(|program| Command::new(program).arg("--version").output().is_err());
    let missing = match (is_root, has_device, lacks) {
        (true, true, None) => return true,
        (false, ..) => "root",
        (_, false, _) => "/dev/fuse",
        (.., Some(program)) => program,
    };
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "mounts cannot be tested without {missing}"
    );
    eprintln!("skipped: mounts cannot be tested without {missing}");
    false
}

/// An image in a directory of its own, mounted by the kernel.
pub(crate) struct Rich {
    pub(crate) scratch: tempfile::TempDir,
    pub(crate) image: PathBuf,
    pub(crate) kernel: PathBuf,
}

impl Rich {
    pub(crate) fn make() -> Self {
        let scratch = scratch();
        let (image, kernel) = (scratch.path().join("image"), scratch.path().join("kernel"));
        std::fs::create_dir(&kernel).expect("directory");
        let rich = Self { scratch, image, kernel };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rich.sh");
        run(Command::new(script).arg(&rich.image).arg(&rich.kernel));
        rich
    }

    /// Another empty directory.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.scratch.path().join(name);
        std::fs::create_dir(&path).expect("directory");
        path
    }

    /// Mounts the image by ourselves.
    pub(crate) fn mount(&self, name: &str) -> MountHandle {
        mount_on(&self.image, &self.directory(name), &MountOptions::default())
    }
}

impl Drop for Rich {
    fn drop(&mut self) {
        Command::new("umount").arg(&self.kernel).output().ok();
    }
}

/// A directory that everybody may look into.
pub(crate) fn scratch() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().expect("temporary directory");
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    scratch
}

pub(crate) fn mount_on(image: &Path, at: &Path, options: &MountOptions) -> MountHandle {
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(image).expect("image"));
    mount_devices(vec![device], at, options)
}

pub(crate) fn mount_devices(devices: Vec<Arc<dyn Device>>, at: &Path, options: &MountOptions) -> MountHandle {
    let open = OpenOptions { subvolume: SubvolumeChoice::Id(RootId::new(5)), ..OpenOptions::default() };
    let filesystem = Arc::new(Filesystem::open(devices, &open).expect("filesystem"));
    mount(filesystem, at, options)
}

/// Mounts by rings where the test, or `BRINDLE_TEST_IO_URING=on`, asks for that, and by `/dev/fuse` otherwise.
fn mount(filesystem: Arc<Filesystem>, at: &Path, options: &MountOptions) -> MountHandle {
    let is_on = std::env::var_os("BRINDLE_TEST_IO_URING").is_some_and(|value| value == "on");
    let rings = if is_on || options.rings == RingUse::On { RingUse::On } else { RingUse::Off };
    let options = MountOptions { rings, ..options.clone() };
    brindle_fuse::mount(filesystem, at, &options).expect("mount")
}

/// A pool of our own writing: an image that mkfs.btrfs made, mounted by us.
pub(crate) struct Written {
    pub(crate) scratch: tempfile::TempDir,
    pub(crate) image: PathBuf,
    /// `None` between two mounts.
    handle: Option<MountHandle>,
    at: PathBuf,
}

impl Written {
    pub(crate) fn make(size: &str) -> Self {
        Self::make_with(size, &WriteOptions::default(), &writable_options())
    }

    pub(crate) fn make_with(size: &str, write: &WriteOptions, options: &MountOptions) -> Self {
        let scratch = scratch();
        let (image, at) = (scratch.path().join("image"), scratch.path().join("ours"));
        std::fs::create_dir(&at).expect("directory");
        run(Command::new("truncate").args(["-s", size]).arg(&image));
        run(Command::new("mkfs.btrfs").arg("-q").arg(&image));
        let mut written = Self { scratch, image, handle: None, at };
        written.mount_with(write, options);
        written
    }

    /// Mounts it (again).
    pub(crate) fn mount_with(&mut self, write: &WriteOptions, options: &MountOptions) {
        let device = patiently(|| FileDevice::open_writable(&self.image)).expect("nobody else has it");
        self.handle = Some(mount_writable(Arc::new(device), &self.at, write, options));
    }

    /// Mounts it again, on a device that fails when it is told to.
    pub(crate) fn remount_faulty(&mut self) -> (Arc<FaultyDevice>, MountHandle) {
        self.remount_on(FaultyDevice::new)
    }

    /// Mounts it again, on a device before its own.
    pub(crate) fn remount_on<D: WritableDevice + 'static>(
        &mut self,
        before: impl FnOnce(Arc<dyn WritableDevice>) -> D,
    ) -> (Arc<D>, MountHandle) {
        self.unmount();
        let device = patiently(|| FileDevice::open_writable(&self.image)).expect("nobody else has it");
        let before = Arc::new(before(Arc::new(device)));
        let device: Arc<dyn WritableDevice> = Arc::<D>::clone(&before);
        let handle = mount_writable(device, &self.at, &WriteOptions::default(), &writable_options());
        (before, handle)
    }

    /// Has btrfs-progs check it.
    pub(crate) fn check(&self) {
        btrfs_check(&self.image).expect("btrfs-progs").unwrap_or_else(|said| panic!("{said}"));
    }

    pub(crate) fn remount(&mut self) {
        self.unmount();
        self.mount_with(&WriteOptions::default(), &writable_options());
    }

    /// Mount point.
    pub(crate) fn root(&self) -> &Path {
        &self.at
    }

    /// Another empty directory.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.scratch.path().join(name);
        std::fs::create_dir(&path).expect("directory");
        path
    }

    pub(crate) fn unmount(&mut self) {
        let handle = self.handle.take().expect("it is mounted");
        // A child that another test starts has our files open, for a moment.
        patiently(|| handle.unmount()).unwrap_or_else(|error| panic!("{error}"));
        handle.wait().expect("all of it is durable");
    }

    /// Has everything committed.
    pub(crate) fn commit(&self) {
        run(Command::new("btrfs").args(["filesystem", "sync"]).arg(self.root()));
    }

    /// Unmounts, and has btrfs-progs look at every block.
    pub(crate) fn finish(&mut self) {
        self.unmount();
        self.check();
    }

    /// Manifest as the kernel shows it, once it is finished.
    pub(crate) fn seen_by_kernel(&self) -> Manifest {
        let kernel = KernelMount::of(&self.image, &self.directory("seen-by-kernel"), "ro");
        Manifest::of_directory(&kernel.at).expect("the kernel's tree can be read")
    }
}

fn mount_writable(
    device: Arc<dyn WritableDevice>,
    at: &Path,
    write: &WriteOptions,
    options: &MountOptions,
) -> MountHandle {
    let open = OpenOptions { subvolume: SubvolumeChoice::Id(RootId::new(5)), ..OpenOptions::default() };
    let filesystem = Filesystem::open_writable(vec![device], &open, write).expect("filesystem");
    mount(Arc::new(filesystem), at, options)
}

/// A mount of the kernel, until dropped.
pub(crate) struct KernelMount {
    pub(crate) at: PathBuf,
}

impl KernelMount {
    pub(crate) fn of(image: &Path, at: &Path, options: &str) -> Self {
        // A loop device of the last mount of this image may be on its way to the end.
        let mount = || {
            let mut mount = Command::new("mount");
            let output = mount.args(["-o", &format!("loop,{options}")]).arg(image).arg(at).output();
            let output = output.expect("the program starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() { Ok(()) } else { Err(said) }
        };
        patiently(mount).unwrap_or_else(|said| panic!("{}: {said}", image.display()));
        Self { at: at.to_owned() }
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        Command::new("umount").arg(&self.at).output().ok();
    }
}

/// Others may look, and nothing is committed unless asked for.
pub(crate) fn writable_options() -> MountOptions {
    MountOptions {
        read_only: false,
        allow_other: true,
        devices: true,
        set_user_id: true,
        commit_interval: Duration::from_secs(3600),
        ..MountOptions::default()
    }
}

/// Tries for a minute an act that a process about to end may be in the way of.
pub(crate) fn patiently<T, E>(mut act: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match act() {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            done => return done,
        }
    }
}

/// Runs a program that must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// Every path below a directory, mount points excluded.
pub(crate) fn paths_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).expect("listing") {
            let entry = entry.expect("entry");
            if entry.file_type().expect("type").is_dir() {
                left.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// Bytes that do not repeat soon.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32).to_le_bytes()[0]
    };
    (0..length).map(|_| byte()).collect()
}
