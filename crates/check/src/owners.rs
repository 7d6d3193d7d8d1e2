//! Check that the tree that a block names as its owner has the block.
//!
//! A block without `FULL_BACKREF` refers to everything in the name of its owner, so the owner must have it:
//! when a tree gives up a block that others keep, the block gets that flag.

use crate::Finding;
use crate::forest::{BlockId, Forest, Named};
use crate::ledger::Ledger;
use crate::page;
use crate::read::Reader;
use crate::roots::{Tree, TreeKind};
use brindle_ondisk::{Key, NodeExpectation, RootId};

/// Looks up owners.
#[derive(Clone, Copy)]
pub(crate) struct Owners<'a> {
    pub(crate) forest: &'a Forest,
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) ledger: &'a Ledger,
}

impl Owners<'_> {
    /// Examines one block, once it is known which blocks have `FULL_BACKREF`.
    pub(crate) fn check(&self, id: BlockId, named: &Named) {
        let Named { owner, first_key, is_relocation } = *named;
        let block = self.forest.block(id);
        let tree = self.forest.tree_of(id);
        let is_right = match tree.kind {
            TreeKind::Log => true,
            TreeKind::Files | TreeKind::Relocation => {
                block.has_full_backref()
                    || self.is_plain(id, owner)
                    || first_key.is_some_and(|key| self.has(owner, id, &key))
            }
            // The pool's own trees share no blocks.
            TreeKind::Root | TreeKind::Chunk | TreeKind::Extent | TreeKind::Other => owner == tree.id,
        };
        let at = brindle_ondisk::Logical::new(block.bytenr);
        if is_relocation && !block.has_full_backref() && tree.kind != TreeKind::Log {
            self.ledger.report(page::EXTENTS, Finding::RelocationFlag { at });
        }
        if is_right {
            return;
        }
        self.ledger.report(page::EXTENTS, Finding::BlockOwner { at, owner });
    }

    /// Returns true if the block's home agrees: it is the owner's root, or refers to the block in its name.
    fn is_plain(&self, id: BlockId, owner: RootId) -> bool {
        let block = self.forest.block(id);
        match block.home {
            None => self.forest.tree_of(id).id == owner,
            Some(home) => {
                let parent = self.forest.block(home);
                let names = self.forest.node(home).is_some_and(|node| node.named.owner == owner);
                names && !parent.has_full_backref()
            }
        }
    }

    /// Returns true if the path to the block's first key in the owner's tree leads over the block.
    fn has(&self, owner: RootId, id: BlockId, key: &Key) -> bool {
        let block = self.forest.block(id);
        let trees = self.forest.trees_of(owner).filter(|tree| tree.kind != TreeKind::Log);
        let leads_over = |tree: &Tree| {
            let mut expected: NodeExpectation = tree.root;
            loop {
                if expected.bytenr.get() == block.bytenr {
                    return true;
                }
                if expected.level.is_none_or(|level| level <= block.level) {
                    return false;
                }
                let Some(node) = self.reader.again(&expected) else { return false };
                let slot = node.search(key).unwrap_or_else(|slot| slot.saturating_sub(1));
                let Some(pointer) = node.key_ptrs().get(slot) else { return false };
                expected = NodeExpectation::child(pointer, node.level());
            }
        };
        trees.into_iter().any(leads_over)
    }
}
