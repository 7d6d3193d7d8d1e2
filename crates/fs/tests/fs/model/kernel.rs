//! Results of the library in the kernel's hands: mounted, compared, changed, and read again.

use super::pool::Pool;
use super::rules::{create, directory, file};
use super::target::{Ground, Library};
use crate::golden::assert_same;
use crate::kernel::{can_make, contents, patiently};
use crate::walk::{Limits, Walk};
use brindle_device::{FileDevice, WritableDevice};
use brindle_fs::{FileType, Filesystem, InodeId, OpenOptions, WriteOptions};
use brindle_testing::manifest::Manifest;
use brindle_testing::model::Model;
use brindle_testing::operations::{Generator, Mix, Target};
use brindle_testing::referee::btrfs_check;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

fn run(command: &mut Command) {
    try_run(command).unwrap_or_else(|said| panic!("{said}"));
}

fn try_run(command: &mut Command) -> Result<(), String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}: {said}", output.status)) }
}

/// The same with what another test's child, or a loop device on its way to the end, may be in the way of.
fn run_patiently(command: &mut Command) {
    patiently(|| try_run(command)).unwrap_or_else(|said| panic!("{said}"));
}

/// An image that the kernel has mounted.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(pool: &Pool) -> Self {
        let scratch = tempfile::Builder::new().prefix("brindle-names-").tempdir().expect("room");
        let image = scratch.path().join("image");
        pool.write_to(&image);
        Self::at(scratch)
    }

    /// The image in a directory.
    fn at(scratch: tempfile::TempDir) -> Self {
        let mounted = Self(scratch);
        std::fs::create_dir(mounted.point()).expect("room");
        mounted.mount();
        mounted
    }

    fn mount(&self) {
        run_patiently(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.point()));
    }

    fn point(&self) -> std::path::PathBuf {
        self.0.path().join("mnt")
    }

    fn unmount(&self) {
        run_patiently(Command::new("umount").arg(self.point()));
    }

    fn image(&self) -> std::path::PathBuf {
        self.0.path().join("image")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.point()).stderr(std::process::Stdio::null()).status();
    }
}

/// Checks that the kernel shows the model's contents; then it removes everything, and all is well.
fn hand_over(pool: &Pool, library: &mut Library, model: &Model) {
    library.remount();
    let mounted = Mounted::new(pool);
    let found = Manifest::of_directory(&mounted.point()).expect("readable");
    assert_eq!(model.expectation().difference(&found), None);
    let top = mounted.point();
    run(Command::new("btrfs").args(["scrub", "start", "-B"]).arg(&top));
    remove_half(&top);
    mounted.unmount();
    btrfs_check(&mounted.image()).expect("btrfs-progs").unwrap_or_else(|said| panic!("{said}"));
}

/// Removes every other thing, and makes some in their places.
fn remove_half(directory: &Path) {
    let entries = std::fs::read_dir(directory).expect("readable");
    for (index, entry) in entries.filter_map(Result::ok).enumerate() {
        if index % 2 == 0 && std::fs::remove_dir_all(entry.path()).is_err() {
            let _ = std::fs::remove_file(entry.path());
        }
        let _ = std::fs::write(directory.join(format!("new {index}")), vec![1; index * 1000]);
    }
}

/// Removes what a directory holds.
fn empty(fs: &Filesystem, directory: InodeId) {
    for entry in fs.read_directory(directory, 0, usize::MAX).expect("readable") {
        if entry.kind == FileType::Directory {
            empty(fs, entry.inode);
            fs.remove_directory(directory, &entry.name).expect("empty");
        } else {
            fs.unlink(directory, &entry.name).expect("there");
        }
    }
}

#[test]
fn pools_of_the_kernel_can_be_emptied_and_used_again() {
    if !can_make() {
        return;
    }
    for features in ["", "^no-holes", "^free-space-tree"] {
        let scratch = tempfile::Builder::new().prefix("brindle-names-").tempdir().expect("room");
        let image = scratch.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(1 << 30)).expect("room, sparsely");
        let (option, features) =
            if features == "^free-space-tree" { ("-R", features) } else { ("-O", features) };
        let mut mkfs = Command::new("mkfs.btrfs");
        run(mkfs.args(["-q", option, if features.is_empty() { "no-holes" } else { features }]).arg(&image));
        let mounted = Mounted::at(scratch);
        contents::fill(&mounted.point());
        mounted.unmount();
        let device = patiently(|| FileDevice::open_writable(&image)).expect("an image");
        let device = Arc::new(device) as Arc<dyn WritableDevice>;
        let options = OpenOptions::default();
        let fs = Filesystem::open_writable(vec![device], &options, &WriteOptions::default()).expect("opens");
        let made = fs.create(fs.root(), b"new", &directory()).expect("made");
        let source =
            fs.subvolumes().expect("readable").iter().map(|one| one.id).max().expect("the top level");
        fs.snapshot(source, made.id, b"snapshot", true).expect("made");
        fs.set_subvolume_read_only(source, false).expect("set");
        for entry in fs.read_directory(fs.root(), 0, usize::MAX).expect("readable") {
            if entry.kind == FileType::Directory && entry.inode.tree == fs.root().tree && entry.name != b"new"
            {
                empty(&fs, entry.inode);
            }
        }
        create(&fs, made.id, "file", &file());
        fs.shutdown().expect("closes");
        let expected = Walk::of(&fs, Limits::NONE).expect_whole(features);
        drop(fs);
        btrfs_check(&mounted.image()).expect("btrfs-progs").unwrap_or_else(|said| panic!("{said}"));
        mounted.mount();
        let found = Manifest::of_directory(&mounted.point()).expect("readable");
        assert_same(features, &found, &expected);
        remove_half(&mounted.point());
        mounted.unmount();
        btrfs_check(&mounted.image()).expect("btrfs-progs").unwrap_or_else(|said| panic!("{said}"));
    }
}

#[test]
fn the_kernel_shows_and_changes_what_was_written() {
    if !can_make() {
        return;
    }
    for seed in 0..3 {
        let pool = Rc::new(Pool::new());
        let mut library = Library::of(Rc::clone(&pool) as Rc<dyn Ground>);
        let mut model = Model::new();
        let mut generator = Generator::new(seed, Mix { names_max: 80, ..Mix::default() });
        for _ in 0..400 {
            let operation = generator.next(&model);
            assert_eq!(library.apply(&operation), model.apply(&operation), "{operation:?}");
        }
        hand_over(&pool, &mut library, &model);
    }
}
