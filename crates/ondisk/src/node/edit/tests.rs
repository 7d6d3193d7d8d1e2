use super::*;
use crate::testing::{AT, TRANSID, context, expectation, header};
use crate::{KeyType, ObjectId};
use proptest::collection::vec;
use proptest::prelude::*;

/// Expected items of a leaf.
type Model = Vec<(Key, Vec<u8>)>;

/// One change; places are fractions of what there is.
#[derive(Clone, Debug)]
enum EditStep {
    Insert(Vec<(u64, Vec<u8>)>),
    Remove(u16, u16),
    Resize(u16, usize),
    Overwrite(u16, u8),
    /// Moves slots from the first to the end of the second, or from the front of the second back.
    Forth(u16),
    Back(u16),
}

fn step() -> impl Strategy<Value = EditStep> {
    let data = || prop_oneof![4 => vec(any::<u8>(), 0..60), 1 => vec(any::<u8>(), 0..1500)];
    prop_oneof![
        6 => vec((any::<u64>(), data()), 1..6).prop_map(EditStep::Insert),
        2 => any::<(u16, u16)>().prop_map(|(at, end)| EditStep::Remove(at, end)),
        2 => (any::<u16>(), 0..200usize).prop_map(|(at, size)| EditStep::Resize(at, size)),
        1 => any::<(u16, u8)>().prop_map(|(at, byte)| EditStep::Overwrite(at, byte)),
        1 => any::<u16>().prop_map(EditStep::Forth),
        1 => any::<u16>().prop_map(EditStep::Back),
    ]
}

/// A key of a type that brindle does not know.
fn key(number: u64) -> Key {
    Key::new(ObjectId::new(number >> 8), KeyType(7), number & 0xff)
}

fn leaf() -> Node {
    Node::empty(context().nodesize, &header(RootId::new(300), 0))
}

fn used(items: &[(Key, Vec<u8>)]) -> usize {
    items.iter().map(|(_, data)| Node::item_space(data.len())).sum()
}

fn fraction(of: usize, at: u16) -> usize {
    of * usize::from(at) / usize::from(u16::MAX)
}

/// Holds a leaf against its model, and lets the tree checker look at it.
fn compare(node: &Node, model: &Model) {
    let items: Vec<_> = (0..node.len()).filter_map(|slot| node.item(slot)).collect();
    let wanted: Vec<_> = model.iter().map(|(key, data)| (*key, data.as_slice())).collect();
    assert_eq!(items, wanted);
    assert_eq!(node.free_space(), node.capacity() - used(model));
    let mut sealed = node.clone();
    sealed.seal(&context());
    sealed.verify(&context(), &expectation()).expect("the leaf is well formed");
    Node::check(sealed.as_bytes().into(), &context(), &expectation()).expect("its checksum is right");
}

fn apply(step: EditStep, nodes: &mut [Node; 2], models: &mut [Model; 2]) {
    let [first, second] = nodes;
    let [model, other] = models;
    match step {
        EditStep::Insert(items) => {
            let bound = other.first().map(|(key, _)| *key);
            let items: std::collections::BTreeMap<_, _> =
                items.into_iter().map(|(number, data)| (key(number), data)).collect();
            for (key, data) in items {
                let fits = Node::item_space(data.len()) <= first.free_space();
                if let Err(slot) = first.search(&key) {
                    if fits && bound.is_none_or(|bound| key < bound) {
                        first.insert_item(slot, &key, &data);
                        model.insert(slot, (key, data));
                    }
                }
            }
        }
        EditStep::Remove(start, end) => {
            let (start, end) = (fraction(model.len(), start.min(end)), fraction(model.len(), start.max(end)));
            first.remove(start..end);
            model.drain(start..end);
        }
        EditStep::Resize(at, size) => {
            let slot = fraction(model.len().saturating_sub(1), at);
            let room = first.free_space();
            if let Some((_, data)) = model.get_mut(slot).filter(|(_, data)| size <= data.len() + room) {
                data.resize(size, 0);
                first.resize_item(slot, size);
            }
        }
        EditStep::Overwrite(at, byte) => {
            let slot = fraction(model.len().saturating_sub(1), at);
            if let Some((key, data)) = model.get_mut(slot) {
                data.fill(byte);
                first.item_data_mut(slot).fill(byte);
                first.set_key(slot, key);
            }
        }
        EditStep::Forth(at) => {
            let mut at = fraction(model.len(), at);
            while used(&model[at..]) > second.free_space() {
                at += 1;
            }
            second.take(0, first, at..first.len());
            other.splice(0..0, model.drain(at..));
        }
        EditStep::Back(at) => {
            let mut at = fraction(other.len(), at);
            while used(&other[..at]) > first.free_space() {
                at -= 1;
            }
            first.take(first.len(), second, 0..at);
            model.extend(other.drain(..at));
        }
    }
}

proptest! {
    #[test]
    fn a_leaf_is_a_list_of_items(steps in vec(step(), 1..80)) {
        let mut nodes = [leaf(), leaf()];
        let mut models = [Model::new(), Model::new()];
        for step in steps {
            apply(step, &mut nodes, &mut models);
            compare(&nodes[0], &models[0]);
            compare(&nodes[1], &models[1]);
        }
    }

    #[test]
    fn many_items_at_once_are_many_items_one_by_one(
        before in vec(vec(any::<u8>(), 0..30), 0..20),
        new in vec(vec(any::<u8>(), 0..30), 0..20),
        at in any::<u16>(),
    ) {
        let slot = fraction(before.len(), at);
        let mut model: Model = before.into_iter().map(|data| (Key::MIN, data)).collect();
        let mut node = leaf();
        for (slot, (key, data)) in model.iter().enumerate() {
            node.insert_item(slot, key, data);
        }
        node.insert_items(slot, &new.iter().map(|data| (Key::MIN, data.as_slice())).collect::<Vec<_>>());
        model.splice(slot..slot, new.into_iter().map(|data| (Key::MIN, data)));
        for (slot, item) in model.iter_mut().enumerate() {
            item.0 = key(slot as u64);
            node.set_key(slot, &item.0);
        }
        compare(&node, &model);
    }

    #[test]
    fn a_node_is_a_list_of_children(
        steps in vec((any::<u16>(), any::<u16>(), 0..3u8), 1..60),
    ) {
        let child = |number: u64| KeyPtr { key: key(number), blockptr: AT + 4096, generation: Generation::new(number) };
        let mut nodes = [3, 3].map(|level| Node::empty(4096, &header(RootId::new(300), level)));
        let mut models = [Vec::new(), Vec::new()];
        for (number, (at, end, what)) in (0u64..).zip(steps) {
            let ([first, second], [model, other]) = (&mut nodes, &mut models);
            let (start, end) = (fraction(model.len(), at.min(end)), fraction(model.len(), at.max(end)));
            match what {
                0 => {
                    let new = [child(number), child(number + 1000)];
                    first.insert_pointers(start, &new);
                    model.splice(start..start, new);
                }
                1 => {
                    first.remove(start..end);
                    model.drain(start..end);
                }
                _ => {
                    let slot = second.len() / 2;
                    second.take(slot, first, start..end);
                    other.splice(slot..slot, model.drain(start..end));
                }
            }
            if let Some(last) = model.len().checked_sub(1) {
                first.pointer_mut(last).generation = Generation::new(5);
                model[last].generation = Generation::new(5);
            }
            for (node, model) in nodes.iter().zip(&models) {
                prop_assert_eq!(node.key_ptrs().as_bytes(), model.as_bytes());
                prop_assert_eq!(node.free_space(), node.capacity() - model.len() * Node::POINTER_SPACE);
            }
        }
    }
}

#[test]
fn a_copy_is_of_its_own_tree_and_time_and_not_written() {
    let mut old = leaf();
    old.insert_item(0, &key(1), b"data");
    old.seal(&context());
    let copy = old.copy(AT + 4096, RootId::new(301), Generation::new(TRANSID + 1));
    assert_eq!(copy.item(0), old.item(0));
    assert!(old.header().is_written() && !copy.header().is_written());
    assert_eq!(copy.header().flags.get(), NodeHeader::MIXED_BACKREF);
    assert_eq!((copy.header().bytenr, copy.header().owner), (AT + 4096, RootId::new(301)));
    assert_eq!(copy.generation(), Generation::new(TRANSID + 1));
}

#[test]
fn nothing_of_what_was_removed_is_written() {
    let mut node = leaf();
    node.insert_item(0, &key(1), &[0xab; 1000]);
    node.insert_item(1, &key(2), &[0xab; 1000]);
    node.remove(0..2);
    node.seal(&context());
    assert!(node.as_bytes()[HEADER..].iter().all(|byte| *byte == 0));
}

#[test]
#[should_panic(expected = "has no room for 1 items of 3971 bytes")]
fn an_item_that_does_not_fit_is_a_bug_of_the_caller() {
    let mut node = leaf();
    node.insert_item(0, &key(1), &vec![0; node.capacity() - ITEM + 1]);
}

#[test]
fn the_largest_item_fills_a_leaf() {
    let mut node = leaf();
    let largest = vec![1; node.capacity() - Node::item_space(0)];
    node.insert_item(0, &key(1), &largest);
    assert_eq!(node.free_space(), 0);
    compare(&node, &vec![(key(1), largest)]);
}
