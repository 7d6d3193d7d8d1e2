//! Contents in many pieces that are written anew side by side.

use super::bench::{Bench, Setup, create};
use super::patterns::Program;
use brindle_fs::{
    Compression, CompressionChoice, ContentsWish, DefragmentedContents, Filesystem, InodeFlags, OpenFile,
    RootId,
};
use brindle_ondisk::BlockGroupType;
use brindle_sim::Random;
use std::sync::atomic::{AtomicBool, Ordering};

const SECTOR: u64 = 4096;

/// Writes a file in order, and then each other sector of it, so that no two of its extents lie side by side.
fn tear(filesystem: &Filesystem, path: &str, sectors: u64) {
    let program = Program::new(filesystem);
    let file = program.create(path);
    program.write(&file, 0, &vec![1; usize::try_from(sectors * SECTOR).expect("small")]);
    program.sync(&file);
    for sector in (0..sectors).step_by(2) {
        program.write(&file, sector * SECTOR, &[2; 4096]);
    }
    program.sync(&file);
    program.close(file);
}

fn defragment(filesystem: &Filesystem, file: &OpenFile, wish: &ContentsWish) -> DefragmentedContents {
    let (mut all, mut from) = (DefragmentedContents::default(), Some(0));
    while let Some(at) = from {
        let done = filesystem.defragment_contents(file, at, wish).expect("room");
        from = done.next;
        all.extents += done.extents;
        all.moved += done.moved;
        all.moved_bytes += done.moved_bytes;
        all.shared += done.shared;
    }
    all
}

#[test]
fn a_second_defragmentation_finds_nothing_and_times_stay() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    tear(&filesystem, "torn", 200);
    let program = Program::new(&filesystem);
    let (before, id) = (program.read("torn"), program.find("torn").expect("there"));
    let times = |filesystem: &Filesystem| {
        let attributes = filesystem.attributes(id).expect("there");
        (attributes.modified, attributes.changed, attributes.size)
    };
    let shown = times(&filesystem);
    let file = program.open("torn");
    let done = defragment(&filesystem, &file, &ContentsWish::default());
    assert_eq!((done.moved, done.moved_bytes, done.shared), (200, 200 * SECTOR, 0), "{done:?}");
    let again = defragment(&filesystem, &file, &ContentsWish::default());
    assert_eq!((again.extents, again.moved), (1, 0), "{again:?}");
    assert_eq!((program.read("torn"), times(&filesystem)), (before, shown));
    program.close(file);
    filesystem.shutdown().expect("closes");
    bench.assert_clean("defragmented");
    bench.assert_btrfs_check("defragmented");
}

#[test]
fn extents_that_a_snapshot_shares_stay_unless_it_is_told_otherwise() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    tear(&filesystem, "torn", 64);
    let program = Program::new(&filesystem);
    filesystem.snapshot(RootId::FS_TREE, filesystem.root(), b"snapshot", true).expect("a snapshot");
    let file = program.open("torn");
    let done = defragment(&filesystem, &file, &ContentsWish::default());
    assert_eq!((done.moved, done.shared), (0, 64), "{done:?}");
    let unshares = ContentsWish { unshares: true, ..ContentsWish::default() };
    let done = defragment(&filesystem, &file, &unshares);
    assert_eq!((done.moved, done.shared), (64, 0), "{done:?}");
    assert_eq!(program.read("torn"), program.read("snapshot/torn"));
    program.close(file);
    filesystem.shutdown().expect("closes");
    bench.assert_clean("unshared");
    bench.assert_btrfs_check("unshared");
}

#[test]
fn contents_get_another_compression_and_keep_the_one_they_have() {
    let bench = Bench::new(&Setup::default());
    let filesystem = bench.open();
    tear(&filesystem, "torn", 64);
    let program = Program::new(&filesystem);
    let file = program.open("torn");
    let choice = CompressionChoice { algorithm: Compression::Zstd, level: None, force: false };
    let zstd = ContentsWish { compression: Some(choice), ..ContentsWish::default() };
    assert_eq!(defragment(&filesystem, &file, &zstd).moved, 64);
    let disk_bytes = |filesystem: &Filesystem| {
        let groups = filesystem.pool().block_groups().expect("known");
        let data = groups.iter().filter(|group| group.kind.contains(BlockGroupType::DATA));
        data.map(|group| group.used_bytes).sum::<u64>()
    };
    filesystem.commit().expect("commits");
    let compressed = disk_bytes(&filesystem);
    assert_eq!(defragment(&filesystem, &file, &zstd).moved, 0, "all of it is compressed so");
    for sector in (0..64).step_by(2) {
        program.write(&file, sector * SECTOR, &[3; 4096]);
        program.sync(&file);
    }
    assert!(defragment(&filesystem, &file, &ContentsWish::default()).moved > 0);
    filesystem.commit().expect("commits");
    assert_eq!(disk_bytes(&filesystem), compressed, "nothing is inflated");
    program.close(file);
    filesystem.shutdown().expect("closes");
    bench.assert_clean("compressed");
    bench.assert_btrfs_check("compressed");
}

/// A file is defragmented all the time while a program writes and syncs it, in place and elsewhere.
#[test]
fn writes_beside_a_defragmentation_are_kept() {
    const SECTORS: u64 = 256;
    for flags in [InodeFlags::empty(), InodeFlags::NODATACOW | InodeFlags::NODATASUM] {
        let bench = Bench::new(&Setup::default());
        let filesystem = bench.open();
        let id = create(&filesystem, 0, flags);
        let program = Program::new(&filesystem);
        let file = filesystem.open_file(id).expect("opens");
        program.write(&file, 0, &vec![0; usize::try_from(SECTORS * SECTOR).expect("small")]);
        program.sync(&file);
        let is_over = AtomicBool::new(false);
        let mut expected = vec![0u8; usize::try_from(SECTORS).expect("small")];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let wish = ContentsWish { unshares: true, ..ContentsWish::default() };
                while !is_over.load(Ordering::Relaxed) {
                    defragment(&filesystem, &file, &wish);
                }
            });
            let mut random = Random::new(7);
            for round in 0..400u64 {
                let sector = random.below(SECTORS);
                let byte = u8::try_from(round % 251).expect("small");
                program.write(&file, sector * SECTOR, &[byte; 4096]);
                expected[usize::try_from(sector).expect("small")] = byte;
                if round % 3 == 0 {
                    program.sync(&file);
                }
                let mut found = [0; 4096];
                filesystem.read(&file, sector * SECTOR, &mut found).expect("reads");
                assert_eq!(found, [byte; 4096], "sector {sector}, {flags:?}");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        program.close(file);
        filesystem.shutdown().expect("closes");
        bench.assert_clean("written and defragmented");
        let filesystem = bench.open();
        let found = Program::new(&filesystem).read("file0").expect("there");
        let found: Vec<u8> = found.chunks(4096).map(|sector| sector[0]).collect();
        assert_eq!(found, expected, "{flags:?}");
    }
}
