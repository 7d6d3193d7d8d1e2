//! How a tree has grown lately, to guess where it will go on.

use brindle_ondisk::{Key, Node};

/// How many streams of ascending keys can run side by side: a new file adds to several places in turn.
const REMEMBERED: usize = 8;

/// The keys that were added last.
#[derive(Debug, Default)]
pub(crate) struct RecentKeys {
    keys: [Key; REMEMBERED],
    next: usize,
}

/// Where the next keys are likely to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Behind this one: whatever stands before it can be full.
    Ascending,
    /// Before this one.
    Descending,
    /// Anywhere.
    Random,
}

impl RecentKeys {
    pub(super) fn remember(&mut self, key: &Key) {
        self.keys[self.next] = *key;
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// How an item that will stand before a slot continues what came before.
    pub(super) fn flow(&self, node: &Node, slot: usize) -> Flow {
        let is_recent = |slot: Option<usize>| {
            slot.and_then(|slot| node.key(slot)).is_some_and(|key| self.keys.contains(&key))
        };
        if is_recent(slot.checked_sub(1)) {
            Flow::Ascending
        } else if is_recent(Some(slot)) {
            Flow::Descending
        } else {
            Flow::Random
        }
    }
}
