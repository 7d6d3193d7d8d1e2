use super::*;
use crate::options::OpenOptions;
use crate::pool::Pool;
use crate::store::cursor::Readahead;
use brindle_device::Device;
use brindle_ondisk::{Incompat, RootId};
use brindle_testing::golden::Golden;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const START: Logical = Logical::new(1 << 24);

fn layout(nodesize: usize) -> Layout {
    Layout { nodesize, skinny: true, generation: Generation::new(9), owner: None }
}

/// The items of one extent, as a tree would hold them.
#[derive(Default)]
struct Items {
    extent: Option<Vec<u8>>,
    keyed: BTreeMap<Key, Vec<u8>>,
}

impl Items {
    fn keyed_refs(&self) -> impl Iterator<Item = KeyedRef> {
        self.keyed.iter().map(|(key, data)| match Item::parse(key, data) {
            Ok(Item::ExtentRef(reference)) => KeyedRef { key: *key, reference },
            other => panic!("{key}: {other:?}"),
        })
    }

    fn apply(&mut self, head: &Head, layout: &Layout) -> Result<(), Defect> {
        let key = layout.key(START, head);
        let record = match &self.extent {
            Some(bytes) => Record::parse(&key, bytes)?,
            None => Record::new(head.kind, layout),
        };
        let wanted = record.maybe_keyed(head);
        let keyed: Vec<KeyedRef> = self
            .keyed_refs()
            .filter(|found| Referrer::of(&found.reference).is_some_and(|who| wanted.contains(&who)))
            .collect();
        let outcome = record.apply(head, &keyed, layout)?;
        self.extent = outcome.item;
        for change in outcome.keyed {
            match change {
                KeyedChange::Add(reference) => {
                    let mut key = reference.key(START);
                    while self.keyed.contains_key(&key) {
                        key = key.successor().expect("not the last");
                    }
                    self.keyed.insert(key, reference.item_data());
                }
                KeyedChange::Set(key, reference) => {
                    assert!(self.keyed.insert(key, reference.item_data()).is_some(), "{key} is there");
                }
                KeyedChange::Remove(key) => assert!(self.keyed.remove(&key).is_some(), "{key} is there"),
            }
        }
        Ok(())
    }

    /// Every reference and its count, from the bytes alone, which are checked on the way.
    fn counts(&self, head: &Head, layout: &Layout) -> BTreeMap<Referrer, u64> {
        let mut counts = BTreeMap::new();
        let mut all: Vec<BackRef> = self.keyed_refs().map(|found| found.reference).collect();
        if let Some(bytes) = &self.extent {
            let record = Record::parse(&layout.key(START, head), bytes).expect("well formed");
            assert!(bytes.len() < layout.item_bound());
            assert!(record.inline.is_sorted_by_key(BackRef::inline_rank), "{record:?}");
            all.extend(&record.inline);
            let sum: u64 = all.iter().map(BackRef::count).sum();
            assert_eq!(record.refs, sum, "{record:?}");
            assert!(sum > 0);
        }
        for reference in all {
            let who = Referrer::of(&reference).expect("no owners here");
            assert!(counts.insert(who, reference.count()).is_none(), "{who:?} twice");
        }
        counts
    }
}

fn head(kind: ExtentKind, changes: Vec<(Referrer, i64)>) -> Head {
    let (owner, origin) = (None, None);
    Head { length: 4096, kind, is_new: false, becomes_full: false, owner, origin, changes }
}

fn data_referrer() -> impl Strategy<Value = Referrer> {
    prop_oneof![
        3 => (256u64..258, 257u64..262, 0u64..12).prop_map(|(root, file, offset)| Referrer::Data {
            root: RootId::new(root),
            objectid: ObjectId::new(file),
            offset: offset << 12,
        }),
        1 => (1u64..30).prop_map(|parent| Referrer::SharedData(Logical::new(parent << 14))),
    ]
}

fn block_referrer() -> impl Strategy<Value = Referrer> {
    prop_oneof![
        (256u64..280).prop_map(|root| Referrer::Tree(RootId::new(root))),
        (1u64..30).prop_map(|parent| Referrer::SharedTree(Logical::new(parent << 14))),
    ]
}

/// Batches of changes, as whole numbers that the test turns into what is possible.
fn batches(who: impl Strategy<Value = Referrer>) -> impl Strategy<Value = Vec<Vec<(Referrer, i64)>>> {
    prop::collection::vec(prop::collection::vec((who, -4i64..6), 1..12), 1..40)
}

/// Applies batches to items and to the model, and compares after each.
fn run(kind: ExtentKind, nodesize: usize, batches: Vec<Vec<(Referrer, i64)>>) -> Result<(), TestCaseError> {
    let layout = layout(nodesize);
    let (mut items, mut model) = (Items::default(), BTreeMap::<Referrer, u64>::new());
    for batch in batches {
        let before = model.clone();
        for (who, by) in batch {
            let count = model.entry(who).or_default();
            let wanted = (i64::try_from(*count).expect("small") + by).max(0);
            *count = wanted.unsigned_abs().min(who.most());
        }
        model.retain(|_, count| *count > 0);
        let all = before.keys().chain(model.keys().filter(|who| !before.contains_key(who)));
        let count = |counts: &BTreeMap<Referrer, u64>, who| counts.get(who).copied().unwrap_or(0);
        let difference = |who| count(&model, who) as i64 - count(&before, who) as i64;
        let changes = all.map(|who| (*who, difference(who))).filter(|(_, by)| *by != 0).collect();
        let head = head(kind, changes);
        items.apply(&head, &layout).map_err(|defect| TestCaseError::fail(defect.to_string()))?;
        prop_assert_eq!(items.counts(&head, &layout), model.clone());
        prop_assert_eq!(items.extent.is_some(), !model.is_empty());
    }
    Ok(())
}

proptest! {
    #[test]
    fn data_references_are_those_of_the_model(batches in batches(data_referrer()), small in any::<bool>()) {
        run(ExtentKind::Data, if small { 4096 } else { 16384 }, batches)?;
    }

    #[test]
    fn block_references_are_those_of_the_model(batches in batches(block_referrer()), small in any::<bool>()) {
        let kind = ExtentKind::Block { level: 1, first_key: Key::MIN };
        run(kind, if small { 4096 } else { 16384 }, batches)?;
    }
}

fn file(objectid: u64) -> Referrer {
    Referrer::Data { root: RootId::FS_TREE, objectid: ObjectId::new(objectid), offset: 0 }
}

#[test]
fn an_item_of_33_files_is_full_as_the_kernel_has_it() {
    let layout = layout(16384);
    let mut items = Items::default();
    let changes = (257..290).map(|objectid| (file(objectid), 1)).collect();
    items.apply(&head(ExtentKind::Data, changes), &layout).expect("applies");
    assert_eq!(items.extent.as_ref().map(Vec::len), Some(981));
    assert!(items.keyed.is_empty());
    items.apply(&head(ExtentKind::Data, vec![(file(290), 1)]), &layout).expect("applies");
    assert_eq!(items.extent.as_ref().map(Vec::len), Some(981));
    assert_eq!(items.keyed.len(), 1);
}

#[test]
fn an_inline_place_stays_empty_while_others_have_items_of_their_own() {
    let layout = layout(16384);
    let mut items = Items::default();
    let changes = (257..300).map(|objectid| (file(objectid), 1)).collect();
    items.apply(&head(ExtentKind::Data, changes), &layout).expect("applies");
    let inline = Record::parse(
        &layout.key(START, &head(ExtentKind::Data, vec![])),
        items.extent.as_ref().expect("is"),
    );
    let first = Referrer::of(&inline.expect("parses").inline[0]).expect("counts");
    items.apply(&head(ExtentKind::Data, vec![(first, -1)]), &layout).expect("applies");
    let keyed = items.keyed.len();
    items.apply(&head(ExtentKind::Data, vec![(first, 1)]), &layout).expect("applies");
    assert_eq!(items.keyed.len(), keyed + 1);
    assert!(items.extent.as_ref().is_some_and(|bytes| bytes.len() < 981));
}

#[test]
fn a_missing_reference_can_not_be_dropped() {
    let layout = layout(16384);
    let mut items = Items::default();
    items.apply(&head(ExtentKind::Data, vec![(file(257), 1)]), &layout).expect("applies");
    for changes in [vec![(file(258), -1)], vec![(file(257), -2)], vec![(file(258), -1), (file(257), 1)]] {
        let refused = items.apply(&head(ExtentKind::Data, changes), &layout);
        assert_eq!(refused.expect_err("refused").why, "fewer references than are to be dropped");
    }
}

#[test]
fn a_tree_has_a_block_once() {
    let layout = layout(16384);
    let kind = ExtentKind::Block { level: 0, first_key: Key::MIN };
    let mut items = Items::default();
    items.apply(&head(kind, vec![(Referrer::Tree(RootId::FS_TREE), 1)]), &layout).expect("applies");
    let refused = items.apply(&head(kind, vec![(Referrer::Tree(RootId::FS_TREE), 1)]), &layout);
    assert_eq!(refused.expect_err("refused").why, "reference would count more than it can");
}

#[test]
fn a_note_of_the_owner_stays_and_keeps_nothing_alive() {
    let layout = layout(16384);
    let key = layout.key(START, &head(ExtentKind::Data, vec![]));
    let header = ExtentItemHeader { refs: 1.into(), generation: layout.generation, flags: 1.into() };
    let inline = [BackRef::Owner(RootId::FS_TREE), file(257).times(1)];
    let item = ExtentItem::encode(&header, None, &inline);
    let apply = |changes| {
        let record = Record::parse(&key, &item).expect("well formed");
        record.apply(&head(ExtentKind::Data, changes), &[], &layout).expect("applies").item
    };
    let two = Record::parse(&key, &apply(vec![(file(258), 1)]).expect("stays")).expect("well formed");
    assert_eq!((two.inline.len(), two.keyed_refs()), (3, 0));
    assert_eq!(two.inline[0], BackRef::Owner(RootId::FS_TREE));
    assert!(apply(vec![(file(257), -1)]).is_none());
}

#[test]
fn a_block_without_skinny_metadata_names_its_first_key() {
    let layout = Layout { skinny: false, ..layout(4096) };
    let first_key = Key::new(ObjectId::new(256), KeyType::INODE_ITEM, 0);
    let head = Head {
        becomes_full: true,
        ..head(ExtentKind::Block { level: 2, first_key }, vec![(Referrer::Tree(RootId::FS_TREE), 1)])
    };
    let key = layout.key(START, &head);
    assert_eq!((key.item_type, key.offset()), (KeyType::EXTENT_ITEM, 4096));
    let outcome = Record::new(head.kind, &layout).apply(&head, &[], &layout).expect("applies");
    let bytes = outcome.item.expect("referred to");
    let Ok(Item::Extent(item)) = Item::parse(&key, &bytes) else { panic!("an extent item") };
    assert_eq!(item.tree_block.map(|info| (info.level, info.key)), Some((2, first_key)));
    assert_eq!(item.flags(), ExtentFlags::TREE_BLOCK | ExtentFlags::FULL_BACKREF);
}

/// Every extent item that the kernel wrote comes out the same when it is built from its references.
#[test]
fn the_kernels_items_are_built_alike() {
    let mut built = 0;
    for name in ["snapshots", "single", "old-features", "node-4k", "converted", "quota", "simple-quota"] {
        let golden = Golden::load(name);
        let devices = golden.devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>).collect();
        let pool = Pool::open(devices, &OpenOptions::default()).expect("opens");
        let nodesize = pool.volume().tree_context().nodesize;
        let skinny = pool.superblock().incompat().contains(Incompat::SKINNY_METADATA);
        let tree = pool.tree(RootId::EXTENT_TREE).expect("is there");
        let mut cursor = pool.cursor(&tree, Readahead::Forward);
        cursor.seek(&Key::MIN).expect("seek");
        while let Some((key, data)) = cursor.item() {
            if let Ok(Item::Extent(item)) = Item::parse(&key, data) {
                let layout = Layout {
                    nodesize: brindle_ondisk::to_usize(nodesize.into()),
                    skinny,
                    generation: item.header.generation,
                    owner: item.inline_refs.flatten().find_map(|reference| match reference {
                        BackRef::Owner(owner) => Some(owner),
                        _ => None,
                    }),
                };
                let kind = match (item.tree_block, key.item_type) {
                    (Some(info), _) => ExtentKind::Block { level: info.level, first_key: info.key },
                    (None, KeyType::METADATA_ITEM) => {
                        let level = u8::try_from(key.offset()).expect("a level");
                        ExtentKind::Block { level, first_key: Key::MIN }
                    }
                    _ => ExtentKind::Data,
                };
                let record = Record::parse(&key, data).expect("well formed");
                assert_eq!(record.to_bytes(), data);
                let mut head = head(kind, Vec::new());
                head.length = if kind == ExtentKind::Data { key.offset() } else { nodesize.into() };
                head.becomes_full = record.flags.contains(ExtentFlags::FULL_BACKREF);
                let count = |reference: &BackRef| i64::try_from(reference.count()).expect("32 bits");
                let refs = record.inline.iter().rev();
                head.changes =
                    refs.filter_map(|reference| Some((Referrer::of(reference)?, count(reference)))).collect();
                assert_eq!(layout.key(Logical::new(key.objectid.get()), &head), key, "{name}");
                let outcome = Record::new(kind, &layout).apply(&head, &[], &layout).expect("applies");
                if record.keyed_refs() == 0 {
                    assert_eq!(outcome.item.as_deref(), Some(data), "{name} {key} {record:?}");
                    built += 1;
                }
            }
            cursor.next().expect("next");
        }
    }
    assert!(built > 300, "only {built}");
}
