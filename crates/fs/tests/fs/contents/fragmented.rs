//! Files of more extents than an open file keeps in memory.

use super::bench::{Bench, Setup, create};
use brindle_fs::{AllocateMode, Filesystem, InodeFlags, OpenFile, Whence};

const SECTOR: u64 = 4096;
/// Number of sectors with data, each an extent with a hole after it.
const EXTENTS: u64 = 1300;

/// The sectors with data, by seeks.
fn data_of(filesystem: &Filesystem, file: &OpenFile) -> Vec<u64> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(data) = filesystem.seek(file, at, Whence::Data).expect("seeks") {
        let end = filesystem.seek(file, data, Whence::Hole).expect("seeks").expect("the end is a hole");
        found.extend((data / SECTOR)..end.div_ceil(SECTOR));
        at = end;
    }
    found
}

#[test]
fn seeks_in_a_fragmented_file_see_each_change_at_once() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    let id = create(&filesystem, 0, InodeFlags::empty());
    let file = filesystem.open_file(id).expect("opens");
    let write = |sector: u64| filesystem.write(&file, sector * SECTOR, &[7; 4096]).expect("room");
    for number in 0..EXTENTS {
        write(number * 2);
    }
    filesystem.sync_file(&file).expect("syncs");
    let mut expected: Vec<u64> = (0..EXTENTS).map(|number| number * 2).collect();
    assert_eq!(data_of(&filesystem, &file), expected);

    // Through another handle, so that what this one keeps is dropped by the change, not by the call.
    let other = filesystem.open_file(id).expect("opens");
    let punched = 700;
    filesystem.allocate(&other, AllocateMode::PunchHole, punched * SECTOR, SECTOR).expect("a hole");
    expected.retain(|sector| *sector != punched);
    assert_eq!(data_of(&filesystem, &file), expected, "a hole was punched");

    write(1001);
    expected.push(1001);
    expected.sort_unstable();
    assert_eq!(data_of(&filesystem, &file), expected, "written, in memory");
    filesystem.sync_file(&other).expect("syncs");
    assert_eq!(data_of(&filesystem, &file), expected, "written back");

    filesystem.allocate(&other, AllocateMode::Allocate, 2001 * SECTOR, SECTOR).expect("room");
    assert_eq!(data_of(&filesystem, &file), expected, "preallocated space is a hole");

    filesystem.truncate(&other, 2100 * SECTOR).expect("shorter");
    expected.retain(|sector| *sector < 2100);
    assert_eq!(data_of(&filesystem, &file), expected, "cut off");
    bench.assert_clean("at the end");
}
