use super::{Victim, header};
use crate::golden;
use brindle_ondisk::item::InodeItem;
use brindle_ondisk::{Key, KeyType, ObjectId, RootId, to_usize};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn every_block_of_every_image_is_found_and_sound_on_every_copy() {
    for name in golden::names() {
        let victim = Victim::load(&name);
        let nodesize = to_usize(victim.superblock().nodesize.get().into());
        let algorithm = victim.superblock().checksum_type();
        for block in victim.blocks() {
            let bytes = victim.block(block.at);
            assert_eq!(header(&bytes).bytenr, block.at, "{name}");
            assert!(algorithm.matches(&bytes[32..], &bytes[..32]), "{name}: {block:?}");
            for place in victim.copies(block.at) {
                let Some(image) = victim.images().iter().find(|image| image.devid() == place.devid) else {
                    continue;
                };
                let mut copy = vec![0; nodesize.min(1 << 12)];
                image.read_at(place.physical, &mut copy).unwrap();
                assert_eq!(copy, bytes[..copy.len()], "{name}: {block:?} at {place:?}");
            }
        }
        let trees = |tree| victim.blocks().iter().any(|block| block.tree == tree);
        assert!([RootId::CHUNK_TREE, RootId::ROOT_TREE, RootId::FS_TREE].into_iter().all(trees), "{name}");
    }
}

#[test]
fn an_edit_reaches_every_copy_and_leaves_a_right_checksum() {
    for name in ["dup", "raid1c4", "raid10", "sha256"] {
        let mut victim = Victim::load(name);
        let key = Key::new(ObjectId::FIRST_FREE, KeyType::INODE_ITEM, 0);
        victim.edit_item(RootId::FS_TREE, &key, |inode: &mut InodeItem| inode.uid.set(4711));
        let (leaf, item) = victim.find_item(RootId::FS_TREE, |item| item.key == key).unwrap();
        assert_eq!(u32::from_le_bytes(item.data[44..48].try_into().unwrap()), 4711);
        let bytes = victim.block(leaf);
        assert!(victim.superblock().checksum_type().matches(&bytes[32..], &bytes[..32]));
        for place in victim.copies(leaf) {
            let mut copy = vec![0; bytes.len()];
            let image = victim.images().iter().find(|image| image.devid() == place.devid).unwrap();
            image.read_at(place.physical, &mut copy).unwrap();
            assert_eq!(copy, bytes);
        }
    }
}

#[test]
fn repacking_a_leaf_changes_nothing_that_is_read() {
    let mut victim = Victim::load("single");
    let leaf = victim.leaves(RootId::FS_TREE).next().unwrap();
    let before = victim.leaf_items(leaf.at);
    victim.edit_leaf(leaf.at, |_| {});
    assert_eq!(victim.leaf_items(leaf.at), before);
}

#[test]
fn data_is_edited_with_its_checksum() {
    let mut victim = Victim::load("raid1");
    let is_checksum = |item: &super::LeafItem| item.key.objectid == ObjectId::EXTENT_CSUM;
    let (_, item) = victim.find_item(RootId::CSUM_TREE, is_checksum).unwrap();
    let at = brindle_ondisk::Logical::new(item.key.offset());
    victim.edit_data(at, |sector| sector[0] ^= 1);
    let (_, after) = victim.find_item(RootId::CSUM_TREE, is_checksum).unwrap();
    assert_ne!(item.data[..4], after.data[..4]);
    assert_eq!(item.data[4..], after.data[4..]);
    assert!(victim.superblock().checksum_type().matches(&victim.read(at, 4096), &after.data[..4]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_script_and_no_checksum_is_wrong_after_it(script in vec(any::<u8>(), 0..400)) {
        let mut victim = Victim::load("node-4k");
        let algorithm = victim.superblock().checksum_type();
        victim.run_script(&script);
        for block in victim.blocks() {
            let bytes = victim.block(block.at);
            prop_assert!(algorithm.matches(&bytes[32..], &bytes[..32]));
        }
    }
}
