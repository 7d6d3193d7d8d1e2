//! Tree blocks that lie: about what they are, and about each other.

use super::Outcome::{Fails, Refused};
use super::{Case, run};
use brindle_ondisk::item::ChunkHeader;
use brindle_ondisk::{Generation, Key, KeyType, Logical, ObjectId, RootId};
use brindle_testing::damage::{LeafItem, TreeBlock, Victim, header, header_mut, pointers_mut, slots_mut};

/// A node of a tree whose children are leaves.
fn node(victim: &Victim, tree: RootId) -> Logical {
    let found = victim.blocks().iter().find(|block| block.tree == tree && block.level == 1);
    found.expect("the tree has a node of level 1").at
}

fn leaves(victim: &Victim, tree: RootId) -> Vec<TreeBlock> {
    victim.leaves(tree).collect()
}

/// Lets the pointer of a slot point to another block, and say of it what is true.
fn point(victim: &mut Victim, node: Logical, slot: usize, target: Logical) {
    let generation = header(&victim.block(target)).generation;
    victim.edit_block(node, |bytes| {
        let pointer = &mut pointers_mut(bytes)[slot];
        (pointer.blockptr, pointer.generation) = (target, generation);
    });
}

const ROOTS: &[Case] = &[
    Case {
        name: "chunk_root where no chunk is",
        image: "single",
        damage: |victim| victim.edit_superblocks(|s| s.chunk_root = Logical::new(1 << 50)),
        outcome: Refused(&["logical 1125899906842624: no chunk holds this address"]),
    },
    Case {
        name: "root where no chunk is",
        image: "single",
        damage: |victim| victim.edit_superblocks(|s| s.root = Logical::new(1 << 50)),
        outcome: Refused(&["logical 1125899906842624: no chunk holds this address"]),
    },
    Case {
        name: "root where there is no block",
        image: "dup",
        damage: |victim| {
            let free = Logical::new(victim.superblock().root.get() + (1 << 20));
            victim.edit_superblocks(|superblock| superblock.root = free);
        },
        outcome: Refused(&["dup/dev1 offset ", "checksum is 0x00000000, computed 0x"]),
    },
    Case {
        name: "root is the root of another tree",
        image: "single",
        damage: |victim| {
            let other = leaves(victim, RootId::DEV_TREE)[0].at;
            let generation = header(&victim.block(other)).generation;
            victim.edit_superblocks(|superblock| {
                superblock.root = other;
                superblock.root_level = 0;
                superblock.generation = generation;
            });
        },
        outcome: Refused(&["belongs to DEV_TREE instead of ROOT_TREE"]),
    },
    Case {
        name: "level of the chunk tree's root",
        image: "single",
        damage: |victim| victim.edit_superblocks(|superblock| superblock.chunk_root_level += 1),
        outcome: Refused(&[
            "single/dev1 offset ",
            "level differs from its parent's word, found 0x0, expected 0x1",
        ]),
    },
    Case {
        name: "level of the root tree's root",
        image: "single",
        damage: |victim| victim.edit_superblocks(|superblock| superblock.root_level = 7),
        outcome: Refused(&["level differs from its parent's word, found 0x0, expected 0x7"]),
    },
    Case {
        name: "level in a root item",
        image: "node-4k",
        damage: |victim| victim.edit_root_item(RootId::FS_TREE, |root| root.level = 5),
        outcome: Fails(&["node-4k/dev1 offset ", "level differs from its parent's word", "expected 0x5"]),
    },
    Case {
        name: "generation in a root item",
        image: "node-4k",
        damage: |victim| {
            victim.edit_root_item(RootId::FS_TREE, |root| root.generation = Generation::new(3));
        },
        outcome: Fails(&["generation differs from its parent's word", "expected 0x3"]),
    },
    Case {
        name: "root item of the top level gone",
        image: "node-4k",
        damage: |victim| {
            let is_root = |item: &LeafItem| item.key.item_type == KeyType::ROOT_ITEM;
            let is_it = |item: &LeafItem| is_root(item) && item.key.objectid.get() == 5;
            let (leaf, _) = victim.find_item(RootId::ROOT_TREE, is_it).expect("every pool has one");
            victim.edit_leaf(leaf, |items| items.retain(|item| !is_it(item)));
        },
        outcome: Refused(&["there is no subvolume 5"]),
    },
    Case {
        name: "checksum tree gone",
        image: "node-4k",
        damage: |victim| {
            let is_it = |item: &LeafItem| item.key == Key::new(ObjectId::new(7), KeyType::ROOT_ITEM, 0);
            let (leaf, _) = victim.find_item(RootId::ROOT_TREE, is_it).expect("every pool has one");
            victim.edit_leaf(leaf, |items| items.retain(|item| !is_it(item)));
        },
        outcome: Fails(&["there is no CSUM_TREE"]),
    },
];

#[test]
fn roots_that_lead_nowhere() {
    run(ROOTS);
}

const STRANGERS: &[Case] = &[
    Case {
        name: "generation of a leaf",
        image: "node-4k",
        damage: |victim| {
            let leaf = leaves(victim, RootId::FS_TREE)[1].at;
            victim.edit_block(leaf, |bytes| header_mut(bytes).generation = Generation::new(2));
        },
        outcome: Fails(&["node-4k/dev1 offset ", "generation differs from its parent's word, found 0x2"]),
    },
    Case {
        name: "bytenr of a leaf",
        image: "node-4k",
        damage: |victim| {
            let leaf = leaves(victim, RootId::FS_TREE)[1].at;
            victim.edit_block(leaf, |bytes| header_mut(bytes).bytenr = Logical::new(4096));
        },
        outcome: Fails(&["bytenr is that of another block, found 0x1000, expected 0x"]),
    },
    Case {
        name: "fsid of a leaf",
        image: "node-4k",
        damage: |victim| {
            let leaf = leaves(victim, RootId::FS_TREE)[1].at;
            victim.edit_block(leaf, |bytes| header_mut(bytes).fsid.0[0] ^= 1);
        },
        outcome: Fails(&["fsid is that of another pool"]),
    },
    Case {
        name: "checksum of a leaf, on both copies",
        image: "dup",
        damage: |victim| {
            let leaf = leaves(victim, RootId::FS_TREE)[0].at;
            victim.edit_block_raw(leaf, |bytes| bytes[2000] ^= 0x10);
        },
        outcome: Fails(&["dup/dev1 offset ", ", dup/dev1 offset ", "checksum is 0x", "computed 0x"]),
    },
    Case {
        name: "siblings crossed",
        image: "node-4k",
        damage: |victim| {
            let node = node(victim, RootId::FS_TREE);
            victim.edit_block(node, |bytes| {
                let pointers = pointers_mut(bytes);
                let [first, second] = [pointers[0], pointers[1]];
                (pointers[0].blockptr, pointers[0].generation) = (second.blockptr, second.generation);
                (pointers[1].blockptr, pointers[1].generation) = (first.blockptr, first.generation);
            });
        },
        outcome: Fails(&["slot 0 key ", "first key differs from its parent's word"]),
    },
    Case {
        name: "a node that is its own child",
        image: "node-4k",
        damage: |victim| {
            let node = node(victim, RootId::FS_TREE);
            point(victim, node, 1, node);
        },
        outcome: Fails(&["level differs from its parent's word, found 0x1, expected 0x0"]),
    },
    Case {
        name: "a node that is its own first child",
        image: "deep-tree",
        damage: |victim| {
            let root = victim.blocks().iter().find(|block| block.tree == RootId::FS_TREE);
            let root = root.expect("there is a top level").at;
            point(victim, root, 0, root);
        },
        outcome: Fails(&["level differs from its parent's word, found 0x3, expected 0x2"]),
    },
    Case {
        name: "a leaf of another tree",
        image: "node-4k",
        damage: |victim| {
            let (node, other) = (node(victim, RootId::FS_TREE), leaves(victim, RootId::EXTENT_TREE)[0].at);
            point(victim, node, 0, other);
            let first = victim.leaf_items(other)[0].key;
            victim.edit_block(node, |bytes| pointers_mut(bytes)[0].key = first);
        },
        outcome: Fails(&[]),
    },
    Case {
        name: "a leaf of another tree, in order",
        image: "node-4k",
        damage: |victim| {
            let (node, other) = (node(victim, RootId::FS_TREE), leaves(victim, RootId::CSUM_TREE)[0].at);
            let last = pointers_mut(&mut victim.block(node)).len() - 1;
            let generation = header(&victim.block(node)).generation;
            victim.edit_block(other, |bytes| header_mut(bytes).generation = generation);
            point(victim, node, last, other);
            let first = victim.leaf_items(other)[0].key;
            victim.edit_block(node, |bytes| pointers_mut(bytes)[last].key = first);
        },
        outcome: Fails(&["belongs to CSUM_TREE instead of FS_TREE"]),
    },
];

#[test]
fn blocks_that_are_not_the_ones_looked_for() {
    run(STRANGERS);
}

const SHAPES: &[Case] = &[
    Case {
        name: "more items than fit",
        image: "node-4k",
        damage: |victim| {
            let leaf = leaves(victim, RootId::FS_TREE)[1].at;
            victim.edit_block(leaf, |bytes| header_mut(bytes).nritems.set(u32::MAX));
        },
        outcome: Fails(&[
            "corrupt tree block at logical ",
            "of FS_TREE: more slots than fit, found 0xffffffff",
        ]),
    },
    Case {
        name: "more children than fit",
        image: "node-4k",
        damage: |victim| {
            let node = node(victim, RootId::FS_TREE);
            victim.edit_block(node, |bytes| header_mut(bytes).nritems.set(122));
        },
        outcome: Fails(&["of FS_TREE: more slots than fit, found 0x7a, expected 0x79"]),
    },
    Case {
        name: "no item in the chunk tree",
        image: "single",
        damage: |victim| {
            let leaf = leaves(victim, RootId::CHUNK_TREE)[0].at;
            victim.edit_leaf(leaf, Vec::clear);
        },
        outcome: Refused(&["of CHUNK_TREE", "block of a tree that is never empty is empty"]),
    },
    Case {
        name: "item data beyond the block",
        image: "node-4k",
        damage: |victim| {
            let leaf = leaves(victim, RootId::FS_TREE)[1].at;
            victim.edit_block(leaf, |bytes| slots_mut(bytes)[3].offset.set(0xffff_ff00));
        },
        outcome: Fails(&[
            "corrupt leaf at logical ",
            "slot 3 key ",
            "end of item data, found 0x",
            "expected 0x",
        ]),
    },
    Case {
        name: "keys out of order",
        image: "node-4k",
        damage: |victim| {
            let leaf = leaves(victim, RootId::FS_TREE)[1].at;
            victim.edit_leaf(leaf, |items| items.swap(4, 5));
        },
        outcome: Fails(&["of FS_TREE slot 5 key ", "keys are not in ascending order"]),
    },
    Case {
        name: "keys of children out of order",
        image: "node-4k",
        damage: |victim| {
            let node = node(victim, RootId::FS_TREE);
            victim.edit_block(node, |bytes| pointers_mut(bytes).swap(1, 2));
        },
        outcome: Fails(&["corrupt node at logical ", "slot 2 key ", "keys are not in ascending order"]),
    },
    Case {
        name: "a key beyond what the parent allows",
        image: "node-4k",
        damage: |victim| {
            let leaf = leaves(victim, RootId::FS_TREE)[0].at;
            victim.edit_leaf(leaf, |items| {
                items.pop();
                let key = Key::new(ObjectId::new(1 << 40), KeyType(255), 0);
                items.push(LeafItem { key, data: Vec::new() });
            });
        },
        outcome: Fails(&["its last key (1099511627776 ", "reaches its parent's next key ("]),
    },
    Case {
        name: "a child younger than its parent",
        image: "node-4k",
        damage: |victim| {
            let node = node(victim, RootId::FS_TREE);
            victim.edit_block(node, |bytes| pointers_mut(bytes)[0].generation = Generation::new(1 << 40));
        },
        outcome: Fails(&["child is younger than its parent, found 0x10000000000"]),
    },
];

#[test]
fn shapes_that_a_block_cannot_have() {
    run(SHAPES);
}

fn edit_data_chunk(victim: &mut Victim, edit: impl FnOnce(&mut ChunkHeader)) {
    let is_data = |item: &LeafItem| item.key.item_type == KeyType::CHUNK_ITEM && item.data[24] & 1 != 0;
    let (_, item) = victim.find_item(RootId::CHUNK_TREE, is_data).expect("there is a data chunk");
    victim.edit_item(RootId::CHUNK_TREE, &item.key, edit);
}

#[test]
fn chunks_that_cannot_be() {
    run(&[
        Case {
            name: "no stripes",
            image: "single",
            damage: |victim| edit_data_chunk(victim, |chunk| chunk.num_stripes.set(0)),
            outcome: Refused(&["of CHUNK_TREE slot ", "chunk"]),
        },
        Case {
            name: "more stripes than the item has",
            image: "single",
            damage: |victim| edit_data_chunk(victim, |chunk| chunk.num_stripes.set(9)),
            outcome: Refused(&["of CHUNK_TREE slot "]),
        },
        Case {
            name: "the length of the whole address space",
            image: "single",
            damage: |victim| edit_data_chunk(victim, |chunk| chunk.length.set(!0xffff)),
            outcome: Refused(&["of CHUNK_TREE slot ", "chunk passes the end of the logical space"]),
        },
        Case {
            name: "a length beyond its device",
            image: "single",
            damage: |victim| edit_data_chunk(victim, |chunk| chunk.length.set(1 << 40)),
            outcome: Refused(&[]),
        },
        Case {
            name: "two profiles",
            image: "raid1",
            damage: |victim| edit_data_chunk(victim, |chunk| chunk.chunk_type |= 1 << 3),
            outcome: Refused(&["more than one profile in block group type, found 0x19"]),
        },
        Case {
            name: "stripe_len zero",
            image: "raid0",
            damage: |victim| edit_data_chunk(victim, |chunk| chunk.stripe_len.set(0)),
            outcome: Refused(&["stripe_len of chunk, found 0x0, expected 0x10000"]),
        },
    ]);
}
