//! Rescue words: each gives up one assurance, and nothing else.

use super::{disk_extent, open};
use crate::golden::top_level;
use crate::walk::{Limits, Walk};
use brindle_fs::{Filesystem, FsError, OpenOptions};
use brindle_ondisk::item::FileType;
use brindle_ondisk::{Logical, RootId};
use brindle_testing::damage::{Victim, header};
use brindle_volume::Rescue;

/// The image that has older commits to go back to.
const IMAGE: &str = "dup";

fn rescued(rescue: Rescue) -> OpenOptions {
    let mut options = top_level();
    options.pool.volume.rescue = rescue;
    options
}

fn backups() -> OpenOptions {
    rescued(Rescue { backup_roots: true, ..Rescue::default() })
}

fn zero(victim: &mut Victim, at: Logical) {
    victim.edit_block_raw(at, |bytes| bytes.fill(0));
}

fn first_name(filesystem: &Filesystem) -> Option<Vec<u8>> {
    let names = filesystem.read_directory(filesystem.root(), 0, 1);
    names.ok().and_then(|mut names| names.pop()).map(|entry| entry.name)
}

/// A file with an extent that has checksums and is not compressed: its path and its first sector.
fn file_on_disk(victim: &Victim) -> (&'static [u8], Logical) {
    let (_, extent) = disk_extent(victim, IMAGE, "sizes/4097");
    (b"sizes/4097", extent.disk_bytenr)
}

fn contents(filesystem: &Filesystem, name: &[u8]) -> Result<Vec<u8>, FsError> {
    let inode = filesystem.resolve(filesystem.root(), name)?;
    let file = filesystem.open_file(inode)?;
    let mut bytes = vec![0; usize::try_from(file.size()).expect("small")];
    filesystem.read(&file, 0, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn a_lost_root_tree_names_the_commit_that_can_be_read() {
    let mut victim = Victim::load(IMAGE);
    let last = victim.superblock().generation;
    let root = victim.superblock().root;
    let before = victim.back_up_roots(root + (1 << 20));
    zero(&mut victim, root);
    let error = open(&victim, &top_level()).expect_err("it is lost").to_string();
    let advice = format!("the backup roots of generation {before} can be read: -o ro,rescue=usebackuproot");
    assert!(error.ends_with(&advice), "{error}");
    let older = open(&victim, &backups()).expect("an older commit");
    assert_eq!(older.pool().superblock().generation, before);
    assert!(before < last);
    assert_eq!(older.pool().superblock().log_root, Logical::new(0));
    first_name(&older).expect("its files are listed");
}

#[test]
fn the_last_commit_is_preferred_to_backup_roots() {
    let victim = Victim::load(IMAGE);
    let filesystem = open(&victim, &backups()).expect("sound");
    assert_eq!(filesystem.pool().superblock().generation, victim.superblock().generation);
    assert_eq!(filesystem.warnings(), [""; 0]);
}

#[test]
fn without_any_root_tree_the_error_says_so() {
    let mut victim = Victim::load(IMAGE);
    let root = victim.superblock().root;
    let roots = victim.superblock().super_roots.map(|backup| backup.tree_root);
    for at in roots.into_iter().chain([root]).filter(|at| at.get() != 0) {
        if header(&victim.block(at)).bytenr == at {
            zero(&mut victim, at);
        }
    }
    for options in [top_level(), backups()] {
        let error = open(&victim, &options).expect_err("all are lost").to_string();
        assert!(error.ends_with("no backup root can be read either"), "{error}");
    }
}

#[test]
fn wrong_data_is_served_only_where_its_checksum_was_given_up() {
    let mut victim = Victim::load(IMAGE);
    let (name, sector) = file_on_disk(&victim);
    let right = contents(&open(&victim, &top_level()).expect("sound"), name).expect("sound");
    victim.edit_data_raw(sector, |bytes| bytes[0] ^= 1);
    for rescue in [Rescue::default(), Rescue { tree_checksums: true, bad_roots: true, ..Rescue::default() }] {
        let filesystem = open(&victim, &rescued(rescue)).expect("opens");
        assert!(contents(&filesystem, name).is_err(), "{rescue:?}");
    }
    let rescue = Rescue { data_checksums: true, ..Rescue::default() };
    let filesystem = open(&victim, &rescued(rescue)).expect("opens");
    assert!(filesystem.warnings()[0].contains("idatacsums"), "{:?}", filesystem.warnings());
    let mut wrong = right;
    wrong[0] ^= 1;
    assert!(contents(&filesystem, name).expect("served") == wrong, "the bytes that are there");
}

#[test]
fn files_are_read_without_the_checksum_tree_only_where_that_was_asked_for() {
    let mut victim = Victim::load(IMAGE);
    let (name, _) = file_on_disk(&victim);
    let right = contents(&open(&victim, &top_level()).expect("sound"), name).expect("sound");
    let tree = victim.blocks().iter().find(|block| block.tree == RootId::CSUM_TREE).expect("a tree").at;
    zero(&mut victim, tree);
    let filesystem = open(&victim, &top_level()).expect("opens");
    assert!(contents(&filesystem, name).is_err());
    for rescue in [
        Rescue { bad_roots: true, ..Rescue::default() },
        Rescue { data_checksums: true, ..Rescue::default() },
    ] {
        let filesystem = open(&victim, &rescued(rescue)).expect("opens");
        assert_eq!(filesystem.warnings().len(), 1, "{:?}", filesystem.warnings());
        assert!(contents(&filesystem, name).expect("read") == right);
    }
}

#[test]
fn a_tree_block_without_its_checksum_passes_the_rest_of_the_gate() {
    let mut victim = Victim::load(IMAGE);
    let leaf = victim.leaves(RootId::FS_TREE).next().expect("a leaf").at;
    let expected = Walk::of(&open(&victim, &top_level()).expect("sound"), Limits::NONE).manifest;
    let rescue = rescued(Rescue { tree_checksums: true, ..Rescue::default() });
    // A wrong checksum of right contents.
    victim.edit_block_raw(leaf, |bytes| bytes[0] ^= 1);
    let refusing = open(&victim, &top_level()).map(|filesystem| Walk::of(&filesystem, Limits::NONE));
    assert!(refusing.is_err() || refusing.is_ok_and(|walk| !walk.troubles.is_empty()));
    let walk = Walk::of(&open(&victim, &rescue).expect("opens"), Limits::NONE);
    assert!(walk.troubles.is_empty(), "{}", walk.troubles[0]);
    assert!(expected.diff_strict(&walk.manifest).is_empty());
    // Another level, generation or item is no less of an obstacle.
    victim.edit_block_raw(leaf, |bytes| bytes[96..].fill(0xff));
    let refused = open(&victim, &rescue).map(|filesystem| Walk::of(&filesystem, Limits::NONE));
    assert!(refused.is_err() || refused.is_ok_and(|walk| !walk.troubles.is_empty()));
}

#[test]
fn a_directory_is_listed_past_a_leaf_that_is_lost() {
    const IMAGE: &str = "big-directory";
    let mut victim = Victim::load(IMAGE);
    let sound = open(&victim, &top_level()).expect("sound");
    let folder = |filesystem: &Filesystem| {
        let entries = filesystem.read_directory(filesystem.root(), 0, usize::MAX).expect("sound");
        let folders = entries.into_iter().filter(|entry| entry.kind == FileType::Directory);
        let sized = folders.map(|entry| {
            let count = filesystem.read_directory(entry.inode, 0, usize::MAX).expect("sound").len();
            (count, entry.inode)
        });
        sized.max_by_key(|(count, _)| *count).expect("a folder")
    };
    let (count, inode) = folder(&sound);
    let is_index = |item: &brindle_testing::damage::LeafItem| {
        (item.key.objectid, item.key.item_type) == (inode.number, brindle_ondisk::KeyType::DIR_INDEX)
    };
    let leaves: Vec<_> = victim.leaves(RootId::FS_TREE).map(|leaf| leaf.at).collect();
    let full = |at: &&Logical| victim.leaf_items(**at).iter().all(is_index);
    let inner: Vec<Logical> = leaves.iter().filter(full).copied().collect();
    let lost = inner[inner.len() / 2];
    let gone = victim.leaf_items(lost).len();
    zero(&mut victim, lost);
    let damaged = open(&victim, &top_level()).expect("opens");
    assert!(damaged.read_directory(inode, 0, usize::MAX).is_err());
    let (mut listed, mut gaps, mut after) = (0, 0, Some(0));
    while let Some(index) = after {
        let (entries, gap) = damaged.read_damaged_directory(inode, index, 100);
        listed += entries.len();
        gaps += usize::from(gap.is_some());
        after = gap.map_or(entries.last().map(|last| last.index), |gap| gap.resume);
    }
    assert_eq!((listed, gaps), (count - gone, 1));
}
