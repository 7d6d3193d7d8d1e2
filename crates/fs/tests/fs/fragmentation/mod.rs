//! Scatter of the leaves of trees after a long random life, and after defragmentation.

mod disk;
mod life;

use crate::simulated::Layout;
use brindle_fs::{DefragmentScope, Filesystem};
use brindle_ondisk::{Profile, RootId};
use brindle_policy::defragment::Scatter;
use disk::Disk;
use life::Life;

/// Small blocks, so that few files have many leaves.
const LAYOUT: Layout = Layout {
    devices: 1,
    device_mib: 2048,
    data: Profile::Single,
    metadata: Profile::Single,
    nodesize: 4096,
    features: "",
    compression: None,
    fast: 0,
};
/// The trees that grow with the files.
const TREES: [RootId; 3] = [RootId::FS_TREE, RootId::EXTENT_TREE, RootId::CSUM_TREE];
const LEAVES_PER_PIECE: usize = 512;

/// Scatter of a tree, and the time that a disk takes to read it.
#[derive(Debug)]
struct Found {
    scatter: Scatter,
    scan_ms: u64,
}

/// Number of files, and length of blocks: `BRINDLE_FRAGMENTATION=100000,16384` for a large pool.
fn size() -> (usize, u32) {
    let given = std::env::var("BRINDLE_FRAGMENTATION").unwrap_or_default();
    let parse = |(files, nodesize): (&str, &str)| Some((files.parse().ok()?, nodesize.parse().ok()?));
    given.split_once(',').and_then(parse).unwrap_or((10_000, LAYOUT.nodesize))
}

/// Looks at the trees, and shows what there is to see.
fn look(disk: &Disk, fs: &Filesystem, when: &str) -> [Found; 3] {
    TREES.map(|id| {
        let pool = fs.pool();
        let scatter = pool.scatter(&pool.tree(id).expect("is there")).expect("readable");
        let blocks = scatter.distance_bytes / u64::from(pool.nodesize()) / scatter.siblings().max(1);
        let scan_ms = disk.scan_ms(id);
        println!(
            "{when}: {id}: {} leaves, {} % of siblings adjacent, {blocks} blocks apart in the mean, read in {scan_ms} ms",
            scatter.leaves,
            scatter.adjacent_percent(),
        );
        Found { scatter, scan_ms }
    })
}

/// Defragments everything; how many leaves were written anew.
fn defragment(fs: &Filesystem) -> u64 {
    let (mut from, mut moved) = (None, 0);
    loop {
        let piece = fs.defragment(DefragmentScope::Pool, from, LEAVES_PER_PIECE).expect("writable");
        (from, moved) = (piece.next, moved + piece.moved);
        if from.is_none() {
            return moved;
        }
    }
}

fn changed_by(fs: &Filesystem) -> u64 {
    fs.pool().root_item(RootId::FS_TREE).expect("readable").expect("is there").1.ctransid.get()
}

#[test]
fn siblings_lie_side_by_side_after_a_long_life() {
    let (files, nodesize) = size();
    let disk = Disk::new(&Layout { nodesize, ..LAYOUT });
    let fs = disk.pool.open().expect("opens");
    let mut life = Life::begin(&fs, files);
    let made = look(&disk, &fs, "made");
    assert!(made[0].scatter.adjacent_percent() > 90);
    life.go_on(files * 3);
    let aged = look(&disk, &fs, "aged");
    let changed = changed_by(&fs);
    let moved = defragment(&fs);
    let after = look(&disk, &fs, "defragmented");
    assert_eq!(changed_by(&fs), changed, "no item has changed");
    for (aged, after) in aged.iter().zip(&after) {
        assert!(after.scatter.adjacent_percent() > 93);
        assert!(after.scan_ms < aged.scan_ms);
    }
    assert!(after[0].scan_ms * 8 < aged[0].scan_ms, "a sequential read is what it is for");
    let again = defragment(&fs);
    println!("{moved} leaves written anew, then {again}");
    assert!(again * 10 < moved, "what lies well is left alone");
    fs.shutdown().expect("closes");
    drop(fs);
    disk.pool.check().unwrap_or_else(|findings| panic!("{findings}"));
}

#[test]
fn leaves_shared_with_snapshots_stay_shared() {
    let disk = Disk::new(&LAYOUT);
    let fs = disk.pool.open().expect("opens");
    let mut life = Life::begin(&fs, 3000);
    life.go_on(3000);
    let used = || {
        let groups = fs.pool().block_groups().expect("writable");
        groups.iter().map(|group| group.used_bytes).sum::<u64>()
    };
    let snapshot = fs.snapshot(RootId::FS_TREE, fs.root(), b"snapshot", true).expect("room");
    fs.sync().expect("commits");
    let before = used();
    let own = DefragmentScope::Subvolume(RootId::FS_TREE);
    let shared = fs.defragment(own, None, usize::MAX).expect("writable");
    assert!(shared.leaves > 100 && shared.moved < 10, "{shared:?}");
    life.go_on(600);
    let (apart, alone) = (used(), fs.defragment(own, None, usize::MAX).expect("writable"));
    assert!(before < apart && used() <= apart && alone.moved > 10, "{alone:?}");
    // The snapshot gone, what was shared may move.
    fs.delete_subvolume(fs.root(), b"snapshot").expect("there");
    let of_snapshot = DefragmentScope::Subvolume(snapshot);
    assert_eq!(fs.defragment(of_snapshot, None, usize::MAX).expect("writable").leaves, 0);
    fs.sync().expect("commits");
    while fs.background_step().expect("writable") == brindle_fs::Remaining::More {
        fs.sync().expect("commits");
    }
    let late = fs.defragment(own, None, usize::MAX).expect("writable");
    let [found, ..] = look(&disk, &fs, "alone");
    assert!(late.moved > 10 && found.scatter.adjacent_percent() > 93, "{late:?}");
    fs.shutdown().expect("closes");
    drop(fs);
    disk.pool.check().unwrap_or_else(|findings| panic!("{findings}"));
}
