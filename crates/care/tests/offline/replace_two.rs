//! Two devices of raid6 that are missing at once, and are replaced one after the other.

use super::device::{FILE_BYTES, FILES, Members, on_and_on, open};
use super::replace::{errors, open_nodatacow, replace_by, target};
use crate::support::MIB;
use crate::support::files::assert_filled;
use brindle_care::device::{Leaving, ReplaceOptions};
use brindle_care::job::Control;
use brindle_device::{Device, SparseDevice};
use brindle_fs::{Filesystem, NewInode, OpenOptions};
use brindle_ondisk::Profile;
use std::sync::Arc;

/// Contents without checksums, other ones at each place.
fn odd_contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((at / 7 + at / 4096 * 31) % 251).expect("small")).collect()
}

/// The file of [`odd_contents`], and rows of which some columns are not in use and hold what a deleted file has left.
fn write_odd(devices: &[Arc<SparseDevice>], bytes: usize) {
    let filesystem = open_nodatacow(devices);
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    for name in ["deleted", "odd"] {
        let id = filesystem.create(filesystem.root(), name.as_bytes(), &new).expect("room").id;
        let file = filesystem.open_file(id).expect("there");
        let mut contents = odd_contents(bytes);
        if name == "deleted" {
            contents.iter_mut().for_each(|byte| *byte ^= 0xa5);
        }
        filesystem.write(&file, 0, &contents).expect("room");
        filesystem.sync().expect("works");
        filesystem.close_file(file).expect("works");
        if name == "deleted" {
            filesystem.unlink(filesystem.root(), b"deleted").expect("there");
            filesystem.sync().expect("works");
            filesystem.sync().expect("works");
        }
    }
    filesystem.shutdown().expect("works");
}

fn assert_odd(filesystem: &Filesystem, bytes: usize, what: &str) {
    let entry = filesystem.lookup(filesystem.root(), b"odd").expect("readable").expect("there");
    let file = filesystem.open_file(entry.inode).expect("opens");
    let mut found = vec![0; bytes];
    assert_eq!(filesystem.read(&file, 0, &mut found).expect("readable"), bytes, "{what}");
    assert!(found == odd_contents(bytes), "{what}");
}

#[test]
fn of_two_missing_devices_of_raid6_both_are_rebuilt_with_what_has_no_checksums() {
    const BYTES: usize = (1 << 20) + 36_000;
    for (one, other) in [(0, 1), (0, 2), (1, 3), (2, 4), (3, 4), (0, 4)] {
        let what = format!("{one} and {other}");
        let Members { devices, filesystem } = Members::new(5, Profile::Raid6);
        filesystem.shutdown().expect("works");
        drop(filesystem);
        write_odd(&devices, BYTES);
        let is_left = |index: &usize| *index != one && *index != other;
        let left: Vec<usize> = (0..5).filter(is_left).collect();
        let mut devices: Vec<_> = left.iter().map(|index| Arc::clone(&devices[*index])).collect();
        let filesystem = open(&devices, true);
        assert_odd(&filesystem, BYTES, &what);
        for name in ["new", "newer"] {
            let new = target(name, 400 * MIB);
            let by = ReplaceOptions::default();
            let ended = replace_by(&filesystem, Leaving::Missing, &new, &by, &mut on_and_on);
            let ended = ended.unwrap_or_else(|error| panic!("{what}, {name}: {error}"));
            assert_eq!((ended.control, ended.progress.left), (Control::Continue, 0), "{what}, {name}");
            devices.push(new);
        }
        let pool = Members { devices, filesystem }.prove(&what, &[0, 1, 2, 3, 4]);
        assert_eq!(errors(&pool.filesystem), 0, "{what}");
        let Members { devices, filesystem } = pool;
        filesystem.shutdown().expect("works");
        drop(filesystem);
        // Whatever two are away now, the others say the same.
        for away in [(0, 1), (1, 2), (0, 3), (2, 4)] {
            let is_there = |index: &usize| *index != away.0 && *index != away.1;
            let there: Vec<_> = (0..5).filter(is_there).map(|index| Arc::clone(&devices[index])).collect();
            let readable = there.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
            let mut options = OpenOptions::default();
            options.pool.volume.degraded = true;
            let filesystem = Filesystem::open(readable, &options).expect("opens");
            assert_odd(&filesystem, BYTES, &format!("{what}, then {away:?}"));
            assert_filled(&filesystem, FILES, FILE_BYTES);
        }
    }
}
