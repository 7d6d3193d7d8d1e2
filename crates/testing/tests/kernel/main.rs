//! The model against the kernel's btrfs: what it says must be what Linux does. Needs root, and says so where it is
//! not; for longer, BRINDLE_MODEL_OPERATIONS.

mod referee;

use brindle_testing::operations::{Mix, MountedTarget, Trial};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// A pool of the kernel's in an image file, mounted; taken down when it is dropped.
struct Pool {
    scratch: TempDir,
}

fn can_mount() -> bool {
    let has = |tool: &str| Command::new(tool).arg("-V").output().is_ok();
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let missing = if !rustix::process::geteuid().is_root() {
        "root"
    } else if !["mkfs.btrfs", "mount", "xfs_io"].into_iter().all(has) {
        "btrfs-progs, util-linux and xfsprogs"
    } else if !filesystems.contains("btrfs") && Command::new("modprobe").arg("btrfs").output().is_err() {
        "btrfs in the kernel"
    } else {
        return true;
    };
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "what the kernel does needs {missing}");
    eprintln!("skipped: what the kernel does needs {missing}");
    false
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
}

impl Pool {
    fn new() -> Self {
        let scratch = tempfile::Builder::new().prefix("brindle-model-").tempdir().expect("room in /tmp");
        let pool = Self { scratch };
        let image = std::fs::File::create(pool.image()).expect("room");
        image.set_len(1 << 30).expect("room, sparsely");
        run(Command::new("mkfs.btrfs").arg("-q").arg(pool.image()));
        std::fs::create_dir(pool.mount_point()).expect("room");
        pool.mount();
        pool
    }

    fn image(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    fn mount_point(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    fn mount(&self) {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.mount_point()));
    }

    fn unmount(&self) {
        run(Command::new("umount").arg(self.mount_point()));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.mount_point()).output();
    }
}

/// A program that another test starts holds, for a moment, files open that this one wants to unmount.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn trial(seed: u64, mix: Mix) {
    let _turn = turn();
    if !can_mount() {
        return;
    }
    let operations = std::env::var("BRINDLE_MODEL_OPERATIONS").ok().and_then(|text| text.parse().ok());
    let held: Arc<Mutex<Option<Pool>>> = Arc::default();
    let mut trial = Trial::new(seed, operations.unwrap_or(400), mix);
    trial.compare_every = 40;
    trial.run(|| {
        let lock = || held.lock().unwrap_or_else(PoisonError::into_inner);
        *lock() = None;
        let pool = Pool::new();
        let mount_point = pool.mount_point();
        *lock() = Some(pool);
        let held = Arc::clone(&held);
        MountedTarget::new(&mount_point, move || {
            if let Some(pool) = &*held.lock().unwrap_or_else(PoisonError::into_inner) {
                pool.unmount();
                pool.mount();
            }
        })
    });
}

#[test]
fn the_model_is_what_the_kernel_does() {
    trial(1, Mix { invalid_percent: 25, ..Mix::default() });
}

#[test]
fn the_model_is_what_the_kernel_does_to_bytes() {
    trial(2, Mix::contents());
}

#[test]
fn the_model_is_what_the_kernel_does_to_names() {
    trial(3, Mix::names().without_subvolumes());
}
