//! Limits for small files by directory.

use super::MIB;
use super::ground::{Making, MixedPool, append, devices_of_file, directory, mark, names, put};
use brindle_care::balance;
use brindle_care::job::Control;
use brindle_device::DeviceClass::{Rotating, Solid};
use brindle_fs::{Filesystem, FsError, InodeId, XattrMode};
use brindle_ondisk::Profile;
use brindle_policy::balance::Balance;

fn limit(fs: &Filesystem, id: InodeId, bytes: &str) -> Result<(), FsError> {
    fs.set_xattr(id, b"user.brindle.small_files", bytes.as_bytes(), XattrMode::Any)
}

/// `memory1` is the disk.
fn is_on_flash(fs: &Filesystem, file: InodeId) -> bool {
    devices_of_file(fs, file) == names(&["memory2"])
}

fn apply(fs: &Filesystem) {
    fs.sync().expect("a commit");
    balance::start(fs, &Balance::of_misplaced(), false, &mut |_| Control::Continue).expect("room");
}

#[test]
fn a_directory_has_a_limit_of_its_own_which_new_files_and_directories_inherit() {
    for of_pool in [None, Some(64 << 10)] {
        let mut pool =
            MixedPool::new(&[(Rotating, 512), (Solid, 512)], Making::of(Profile::Single, Profile::Dup));
        pool.write.small_file_bytes = of_pool;
        let fs = pool.open();
        let [large, none] = ["large", "none"].map(|name| directory(&fs, fs.root(), name));
        limit(&fs, large, "1048576").expect("a number");
        limit(&fs, none, "0").expect("a number");
        let below = directory(&fs, large, "below");
        let in_large = put(&fs, below, "file", MIB).expect("room");
        let above = put(&fs, below, "above", MIB + 4096).expect("room");
        let in_none = put(&fs, none, "file", 5000).expect("room");
        let plain = put(&fs, fs.root(), "file", 5000).expect("room");
        assert_eq!(
            [in_large, above, in_none, plain].map(|file| is_on_flash(&fs, file)),
            [true, false, false, of_pool.is_some()]
        );
        // A mark counts more.
        let marked = directory(&fs, large, "marked");
        mark(&fs, marked, "bulk");
        let file = put(&fs, marked, "file", 5000).expect("room");
        assert!(!is_on_flash(&fs, file));
        apply(&fs);
        assert_eq!(
            [in_large, above, in_none, plain, file].map(|file| is_on_flash(&fs, file)),
            [true, false, false, of_pool.is_some(), false],
            "all of it is right"
        );
        // Changed later, it counts for what is written then, and for what is moved.
        limit(&fs, in_none, "8192").expect("a number");
        limit(&fs, in_large, "8192").expect("a number");
        apply(&fs);
        assert!(is_on_flash(&fs, in_none) && !is_on_flash(&fs, in_large));
        append(&fs, in_none, 8192, 64 << 10).expect("room");
        apply(&fs);
        assert!(!is_on_flash(&fs, in_none));
        pool.close(fs);
    }
}

#[test]
fn a_limit_is_a_number() {
    let pool = MixedPool::new(&[(Rotating, 512), (Solid, 512)], Making::of(Profile::Single, Profile::Dup));
    let fs = pool.open();
    for wrong in ["", "64K", "-1", "1 ", "99999999999999999999"] {
        let refused = limit(&fs, fs.root(), wrong);
        assert!(matches!(refused, Err(FsError::Invalid { .. })), "{wrong}: {refused:?}");
    }
    limit(&fs, fs.root(), "65536").expect("a number");
    pool.close(fs);
}
