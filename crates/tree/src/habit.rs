//! Recent growth of a tree, from which its next growth is guessed.

use brindle_ondisk::{Key, Node};

/// Number of streams of ascending keys that can run side by side: a new file adds to several places in turn.
const REMEMBERED: usize = 8;

/// The keys that were added last.
#[derive(Debug, Default)]
pub(crate) struct RecentKeys {
    keys: [Key; REMEMBERED],
    next: usize,
}

/// Direction of the next keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// After this one: a block before it can be full.
    Ascending,
    /// Before this one.
    Descending,
    /// Anywhere.
    Random,
}

impl RecentKeys {
    pub(crate) fn remember(&mut self, key: &Key) {
        self.keys[self.next] = *key;
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// Flow that an item continues when it goes before a slot.
    pub(crate) fn flow(&self, node: &Node, slot: usize) -> Flow {
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
