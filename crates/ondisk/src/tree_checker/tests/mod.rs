//! One test for each reason to refuse a block, and the tests that no block that passes hurts its reader.

mod extent_tree;
mod files;
mod frame;
mod never_panics;
mod pool;

use crate::node::{CorruptNode, NodeProblem};
use crate::testing::{context, expectation, header, leaf, walk};
use crate::{Key, KeyType, Node, ObjectId, RootId};
use zerocopy::{FromZeros, Immutable, IntoBytes};

type Items<'a> = &'a [(Key, Vec<u8>)];

const FILES: RootId = RootId::new(300);
const OTHER: RootId = RootId::TREE_LOG;

fn key(objectid: u64, item_type: KeyType, offset: u64) -> Key {
    Key::new(ObjectId::new(objectid), item_type, offset)
}

/// The bytes of a structure, all zero but for a change.
fn zeroed<T: FromZeros + IntoBytes + Immutable>(change: impl FnOnce(&mut T)) -> Vec<u8> {
    let mut value = T::new_zeroed();
    change(&mut value);
    value.as_bytes().to_vec()
}

fn reason(refusal: &CorruptNode) -> &'static str {
    match &refusal.problem {
        NodeProblem::Checksum { .. } => "checksum",
        NodeProblem::Header(defect) | NodeProblem::Generation(defect) | NodeProblem::Slot { defect, .. } => {
            defect.why
        }
    }
}

/// Reason for which the checker refuses a leaf of these items, or "good".
fn judge(owner: RootId, items: Items<'_>) -> &'static str {
    let block = leaf(&context(), header(owner, 0), items);
    match Node::check(block.into(), &context(), &expectation()) {
        Ok(node) => {
            assert_eq!(node.len(), items.len(), "all items fit");
            walk(&node);
            "good"
        }
        Err(refusal) => reason(&refusal),
    }
}

/// `name: owner, items => reason;` is a test that the leaf is refused for that reason, or "good".
macro_rules! judges {
    ($($name:ident: $owner:expr, $items:expr => $why:literal;)*) => {
        $(#[test] fn $name() { assert_eq!(super::judge($owner, &$items), $why); })*
    };
}
use judges;

#[test]
fn a_clone_of_a_limit_moves_on_with_it() {
    let limit = crate::GenerationLimit::new(5);
    let clone = limit.clone();
    limit.raise(8);
    assert_eq!(clone.get(), 8);
}
