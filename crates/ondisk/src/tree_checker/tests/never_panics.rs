use crate::testing::{TRANSID, context, expectation, header, leaf, node, seal, walk};
use crate::{Generation, Key, KeyPtr, KeyType, Logical, Node, NodeHeader, ObjectId, RootId};
use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::FromBytes;

fn any_owner() -> impl Strategy<Value = RootId> {
    prop_oneof![0..14u64, Just(300), Just(u64::MAX - 5)].prop_map(RootId::new)
}

/// Numbers that are likely to pass, or to be just wrong.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..3u64,
        254..260u64,
        (0..16u64).prop_map(|sectors| sectors * 4096),
        (1..16u64).prop_map(|sectors| 0u64.wrapping_sub(sectors * 4096)),
        (0..16u64).prop_map(|back| u64::MAX - back),
        any::<u64>(),
    ]
}

fn any_key() -> impl Strategy<Value = Key> {
    let known = prop::sample::select(KeyType::KNOWN);
    let item_type = prop_oneof![9 => known, 1 => any::<u8>().prop_map(KeyType)];
    (number(), item_type, number())
        .prop_map(|(objectid, kind, offset)| Key::new(ObjectId::new(objectid), kind, offset))
}

/// Bytes made of numbers of all widths, so that fields often hold something that makes sense.
fn any_data() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        number().prop_map(|number| number.to_le_bytes().to_vec()),
        (0..20u32).prop_map(|number| number.to_le_bytes().to_vec()),
        (0..20u16).prop_map(|number| number.to_le_bytes().to_vec()),
        any::<u8>().prop_map(|byte| vec![byte]),
        (0..200usize).prop_map(|length| vec![0; length]),
    ];
    vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

fn check_and_walk(block: Vec<u8>) {
    match Node::check(block.into(), &context(), &expectation()) {
        Ok(node) => walk(&node),
        Err(refusal) => drop(refusal.to_string()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_items(owner in any_owner(), mut items in vec((any_key(), any_data()), 1..6)) {
        items.sort_by_key(|(key, _)| *key);
        check_and_walk(leaf(&context(), header(owner, 0), &items));
        // Alone, so that no neighbour hides it.
        for item in items {
            check_and_walk(leaf(&context(), header(owner, 0), &[item]));
        }
    }

    #[test]
    fn arbitrary_bytes_behind_a_good_header(level in 0..8u8, nritems in 0..130u32, bytes in vec(any::<u8>(), 3995)) {
        let mut head = header(RootId::new(300), level);
        head.nritems.set(nritems);
        let mut block = leaf(&context(), head, &[]);
        block[size_of::<NodeHeader>()..].copy_from_slice(&bytes);
        seal(&mut block, &context());
        check_and_walk(block);
    }

    #[test]
    fn arbitrary_blocks(mut block in vec(any::<u8>(), 4096)) {
        seal(&mut block, &context());
        let (header, _) = NodeHeader::read_from_prefix(&block).expect("it is long enough");
        let expected = crate::NodeExpectation { bytenr: header.bytenr, ..expectation() };
        let mut context = context();
        context.tree_uuid = header.fsid;
        if let Ok(node) = Node::check(block.into(), &context, &expected) {
            walk(&node);
        }
    }

    #[test]
    fn arbitrary_children(keys in vec(any_key(), 1..6), blockptr in number(), generation in 0..TRANSID + 3) {
        let child = |key: &Key| {
            let generation = Generation::new(generation);
            KeyPtr { key: *key, blockptr: Logical::new(blockptr), generation }
        };
        let children: Vec<_> = keys.iter().map(child).collect();
        check_and_walk(node(&context(), header(RootId::new(300), 1), &children));
    }
}

/// Else the fuzzer would begin far from where it is to look.
#[test]
fn every_seed_of_the_fuzzer_passes() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/node");
    let context = context();
    context.max_generation.raise(1 << 20);
    for entry in std::fs::read_dir(folder).expect("the corpus is part of the source tree") {
        let path = entry.expect("the corpus is readable").path();
        let seed = std::fs::read(&path).expect("the seed is readable");
        let mut block = vec![0; 4096];
        block[80..].copy_from_slice(&seed[1..]);
        let (head, _) = NodeHeader::mut_from_prefix(&mut block).expect("a block has a header");
        let good = header(head.owner, head.level);
        (head.fsid, head.bytenr, head.flags) = (good.fsid, good.bytenr, good.flags);
        seal(&mut block, &context);
        let checked = Node::check(block.into(), &context, &expectation());
        walk(&checked.unwrap_or_else(|refusal| panic!("{}: {refusal}", path.display())));
    }
}
