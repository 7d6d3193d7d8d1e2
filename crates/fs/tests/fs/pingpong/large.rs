//! Pools of unusual size or wear that the library writes and the kernel takes over.

use super::case::{Case, Maker};
use super::pool::SharedPool;
use crate::kernel::can_make;
use crate::model::target::Ground;
use brindle_fs::{AllocateMode, Filesystem, InodeId, NewInode, Remaining};
use brindle_ondisk::{BlockGroupType, Item, Key, RootId};
use brindle_tree::Readahead;

/// Reaches across the third superblock, at 256 GiB.
const HUGE_BYTES: u64 = 500 << 30;

fn new_file(fs: &Filesystem, name: &str) -> InodeId {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    fs.create(fs.root(), name.as_bytes(), &new).expect("room").id
}

/// Allocates `bytes` for a file, in pieces, without writing them.
fn allocate(fs: &Filesystem, id: InodeId, bytes: u64) {
    const PIECE: u64 = 8 << 30;
    let open = fs.open_file(id).expect("there");
    for offset in (0..bytes).step_by(usize::try_from(PIECE).expect("64 bits")) {
        fs.allocate(&open, AllocateMode::Allocate, offset, PIECE.min(bytes - offset)).expect("room");
    }
}

fn system_chunks(fs: &Filesystem) -> usize {
    let is_system = |kind: BlockGroupType| kind.contains(BlockGroupType::SYSTEM);
    fs.pool().volume().chunks().iter().filter(|chunk| is_system(chunk.kind)).count()
}

#[test]
fn a_pool_of_half_a_terabyte() {
    if !can_make() {
        return;
    }
    let case = Case { nodesize: 65536, ..Case::of(1, "single", "dup") };
    let mut pool = case.make_on(SharedPool::of_size(1, HUGE_BYTES), Maker::Brindle);
    let fs = pool.open();
    let before = system_chunks(&fs);
    // Hundreds of chunks in one transaction: the first system chunk has no room for all that may change.
    let id = new_file(&fs, "large");
    allocate(&fs, id, 300 << 30);
    let open = fs.open_file(id).expect("there");
    for place in [0, 100 << 30, 299 << 30] {
        fs.write(&open, place, &[7; 100_000]).expect("room");
    }
    drop(open);
    assert!(system_chunks(&fs) > before, "a system chunk was made");
    fs.shutdown().expect("closes");
    drop(fs);
    pool.assert_btrfs_check("filled by the library");
    pool.assert_clean("filled by the library");
    pool.mount("compress=no");
    let at = |name: &str| pool.mount_point().join(name);
    std::fs::write(at("from the kernel"), vec![9; 3 << 20]).expect("room");
    let contents = std::fs::File::open(at("large")).expect("there");
    let mut buffer = [0; 100];
    std::os::unix::fs::FileExt::read_exact_at(&contents, &mut buffer, 299 << 30).expect("reads");
    assert_eq!(buffer, [7; 100]);
    drop(contents);
    pool.unmount();
    pool.assert_btrfs_check("written by the kernel");
    let fs = pool.open();
    assert!(fs.lookup(fs.root(), b"from the kernel").expect("read").is_some());
    fs.unlink(fs.root(), b"large").expect("there");
    while fs.background_step().expect("works") == Remaining::More {}
    fs.sync().expect("commits");
    // The next transaction gives back what is empty then.
    new_file(&fs, "last");
    fs.shutdown().expect("closes");
    assert!(fs.pool().volume().chunks().len() < 20, "hundreds of empty chunks have gone");
    drop(fs);
    pool.assert_btrfs_check("emptied by the library");
    pool.assert_clean("emptied by the library");
}

/// Number of block groups that the free space tree has as bitmaps.
fn bitmap_groups(fs: &Filesystem) -> usize {
    let tree = fs.pool().tree(RootId::FREE_SPACE_TREE).expect("there is one");
    let mut cursor = fs.pool().cursor(&tree, Readahead::Forward);
    cursor.seek(&Key::MIN).expect("reads");
    let mut found = 0;
    while let Some((key, data)) = cursor.item() {
        if let Ok(Item::FreeSpaceInfo(info)) = Item::parse(&key, data) {
            found += usize::from(info.flags.get() & 1 != 0);
        }
        cursor.next().expect("reads");
    }
    found
}

#[test]
fn free_space_in_fragments() {
    const PIECES: u64 = 4000;
    if !can_make() {
        return;
    }
    for maker in [Maker::Brindle, Maker::Progs] {
        let mut pool = Case::of(1, "single", "dup").make(maker);
        let fs = pool.open();
        let id = new_file(&fs, "fragments");
        let open = fs.open_file(id).expect("there");
        for piece in 0..PIECES {
            fs.allocate(&open, AllocateMode::Allocate, piece * 8192, 4096).expect("room");
        }
        fs.sync().expect("commits");
        assert_eq!(bitmap_groups(&fs), 0);
        for piece in (0..PIECES).step_by(2) {
            fs.allocate(&open, AllocateMode::PunchHole, piece * 8192, 4096).expect("room");
        }
        drop(open);
        fs.shutdown().expect("closes");
        assert_eq!(bitmap_groups(&fs), 1, "{maker:?}");
        drop(fs);
        pool.assert_btrfs_check("in fragments");
        pool.assert_clean("in fragments");
        // The kernel takes from the bitmaps and gives back.
        pool.mount("nodatacow");
        let file = std::fs::File::options().write(true).open(pool.mount_point().join("fragments"));
        file.and_then(|file| file.set_len(PIECES * 6000)).expect("truncates");
        std::fs::write(pool.mount_point().join("more"), vec![1; 200_000]).expect("room");
        pool.unmount();
        pool.assert_btrfs_check("changed by the kernel");
        let fs = pool.open();
        assert_eq!(bitmap_groups(&fs), 1, "{maker:?}, after the kernel");
        fs.unlink(fs.root(), b"fragments").expect("there");
        while fs.background_step().expect("works") == Remaining::More {}
        fs.shutdown().expect("closes");
        // A group as small as mkfs.btrfs makes the first one never goes back to extents: the threshold is none.
        let expected = usize::from(maker == Maker::Progs);
        assert_eq!(bitmap_groups(&fs), expected, "{maker:?}, in one piece again");
        drop(fs);
        pool.assert_btrfs_check("in one piece");
        pool.assert_clean("in one piece");
        pool.mount("compress=no");
        std::fs::write(pool.mount_point().join("last"), vec![1; 200_000]).expect("room");
        pool.unmount();
        pool.assert_btrfs_check("at the end");
    }
}
