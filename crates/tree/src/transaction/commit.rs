//! The commit, step by step; the module above says why each step comes where it does.

use super::device_items::{mark_devices, record_ages, write_statistics};
use super::placer::Placer;
use super::roots::Roots;
use super::space_items::SpaceItems;
use super::statistics::{CommitPhase, Tally};
use super::superblock::next_superblock;
use super::{Durable, Transactions};
use crate::accounting::Accounting;
use crate::editor::Editor;
use crate::error::TreeError;
use crate::extent_tree::ExtentTree;
use crate::space::pins::Pinned;
use crate::stop::StopOnPanic;
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{Generation, Logical, Node, RootId, Superblock};
use brindle_sync::atomic::Ordering;
use brindle_sync::{MutexGuard, parallel};
use std::sync::Arc;

/// Upper bound on the rounds of settling: a transaction that needs more never settles.
const ROUNDS_MAX: usize = 100;
/// Number of blocks that are sealed and handed to the devices at once.
const BLOCKS_PER_WRITE: usize = 512;
/// Upper bound on successive transactions that are not published because a device turns out stale in their course.
pub(crate) const PUBLISHED_WITHIN: usize = 3;

/// A transaction that nothing can change any more.
pub(super) struct Frozen {
    pub(super) superblock: Box<Superblock>,
    pub(super) devices: Vec<DevItem>,
    pinned: Pinned,
}

impl Transactions {
    /// Makes everything durable that was changed before the call. Callers that come together share a commit.
    pub(crate) fn commit(&self) -> Result<(), TreeError> {
        let _stops = StopOnPanic::of(self.store.stop());
        self.check_sound()?;
        let wanted = self.gate.running();
        self.write_out_disks();
        let mut durable = self.lock_commit()?;
        self.check_sound()?;
        if self.waits_for_log.load(Ordering::Acquire) {
            return Err(TreeError::UnderWay(
                "its log is being replayed, and there is no room to do that at once",
            ));
        }
        if durable.generation >= wanted || !self.has_changes() {
            return Ok(());
        }
        let committed = self.commit_running(&durable);
        match &committed {
            Ok(generation) => {
                durable.generation = *generation;
                self.durable.store(generation.get(), Ordering::Release);
            }
            Err(error) => self.store.stop().abort(error),
        }
        committed.map(|_| ())
    }

    fn has_changes(&self) -> bool {
        self.changes.refs.len() > 0
            || self.changes.space.has_unwritten()
            || self.store.superblock().log_root.get() != 0
            || self.changes.label.lock().is_some()
            || self.changes.quotas.wants_commit()
            || self.changes.statistics.has_new(&self.store)
            || self.store.known_trees().iter().any(|tree| tree.is_dirty())
    }

    /// Commits the running transaction; where devices lack something that they must be seen to lack, it is the one
    /// behind it that counts.
    fn commit_running(&self, lock: &MutexGuard<'_, Durable>) -> Result<Generation, TreeError> {
        for _ in 0..PUBLISHED_WITHIN {
            if let Some(generation) = self.commit_once(lock)? {
                return Ok(generation);
            }
        }
        Err(TreeError::Unsettled)
    }

    /// `None` if it was written, and must not count by itself.
    fn commit_once(&self, lock: &MutexGuard<'_, Durable>) -> Result<Option<Generation>, TreeError> {
        let mut tally = Tally::begin();
        let inside = self.enter();
        let advanced = ExtentTree::of(&self.editor(inside.generation())).apply(usize::MAX)?;
        drop(inside);
        tally.count_references(advanced);
        tally.ends(CommitPhase::Advance);
        let no_syncs = self.changes.log.keep_syncs_away(self.store.stop());
        let mut closed = self.close_gate(lock);
        let generation = closed.generation();
        self.check_sound()?;
        self.changes.log.end(&self.store, &self.changes.space);
        drop(no_syncs);
        tally.ends(CommitPhase::Close);
        let editor = self.editor(generation);
        let frozen = self.settle(&editor, &mut tally).and_then(|()| freeze(&editor, &mut tally));
        self.changes.pressure.begin();
        let frozen = frozen?;
        closed.advance();
        drop(closed);
        tally.ends(CommitPhase::Settle);
        self.store.volume().check_one_superblock()?;
        self.write_frozen()?;
        tally.ends(CommitPhase::Write);
        let counts = self.publish(&frozen)?;
        tally.ends(CommitPhase::Flush);
        self.commits.lock().add(&tally.report);
        self.store.unwritten().frozen.write().clear();
        if counts {
            self.changes.space.unpin(&self.store, frozen.pinned);
            return Ok(Some(generation));
        }
        // The next superblock's backups tell which one was there before it.
        let super_roots = self.store.superblock().super_roots;
        self.store.volume().adopt_superblock(Superblock { super_roots, ..*frozen.superblock });
        self.changes.space.keep_pinned(frozen.pinned);
        Ok(None)
    }

    /// Rounds, until nothing is left to bring up to date.
    fn settle(&self, editor: &Editor<'_>, tally: &mut Tally) -> Result<(), TreeError> {
        renew_root_tree(editor)?;
        mark_devices(editor)?;
        if let Some(sleepers) = self.changes.space.sleepers().filter(|_| self.series.has_begun()) {
            record_ages(editor, self.durable_generation(), &sleepers)?;
        }
        write_statistics(editor)?;
        let placer = Placer::of(editor);
        if self.changes.quotas.are_on() {
            placer.assign_all(|tree| !is_changed_by_commits(tree))?;
            tally.count_references(ExtentTree::of(editor).apply(usize::MAX)?);
            Accounting::of(editor).account()?;
        }
        for _ in 0..ROUNDS_MAX {
            let mut busy = false;
            tally.report.rounds += 1;
            // What the commit changes by itself gets its places behind what changes it: each once, side by side.
            busy |= placer.assign_all(|tree| !is_changed_by_commits(tree))?;
            let references = ExtentTree::of(editor).apply(usize::MAX)?;
            tally.count_references(references);
            busy |= references > 0;
            busy |= SpaceItems::of(editor).write()?;
            busy |= Roots::of(editor).record_all()?;
            busy |= placer.assign_all(is_changed_by_commits)?;
            if !busy {
                let quotas = &self.changes.quotas;
                assert!(!quotas.has_unwritten_numbers(), "what a commit changes by itself is no subvolume's");
                return Ok(());
            }
        }
        Err(TreeError::Unsettled)
    }

    /// Hands the blocks of the transaction to the devices.
    fn write_frozen(&self) -> Result<(), TreeError> {
        let mut blocks: Vec<(Logical, Arc<Node>)> = {
            let waiting = self.store.unwritten().frozen.read();
            waiting.iter().map(|(at, node)| (*at, Arc::clone(node))).collect()
        };
        blocks.sort_unstable_by_key(|(at, _)| *at);
        for batch in blocks.chunks(BLOCKS_PER_WRITE) {
            let sealed: Vec<(Logical, Node)> = parallel::try_map(batch, |(at, node)| {
                Ok::<_, TreeError>((*at, self.store.seal(*at, node)?))
            })?;
            let writes: Vec<(Logical, &[u8])> =
                sealed.iter().map(|(at, node)| (*at, node.as_bytes())).collect();
            self.store.volume().write_blocks(&writes)?;
        }
        Ok(())
    }
}

/// Returns true for a tree that changes because others do: it holds references, free space or roots.
fn is_changed_by_commits(tree: RootId) -> bool {
    matches!(
        tree,
        RootId::ROOT_TREE
            | RootId::EXTENT_TREE
            | RootId::CHUNK_TREE
            | RootId::DEV_TREE
            | RootId::FREE_SPACE_TREE
            | RootId::BLOCK_GROUP_TREE
    )
}

/// The root of the tree of roots is of the superblock's generation, whatever the transaction has changed.
fn renew_root_tree(editor: &Editor<'_>) -> Result<(), TreeError> {
    let root_tree = editor.store.tree(RootId::ROOT_TREE)?;
    let (key, _) = editor.store.root_item(RootId::FS_TREE)?.ok_or(TreeError::NoTree(RootId::FS_TREE))?;
    editor.update(&root_tree, &key, |_| ())?;
    Ok(())
}

/// The blocks of the transaction become final.
fn freeze(editor: &Editor<'_>, tally: &mut Tally) -> Result<Frozen, TreeError> {
    let superblock = next_superblock(editor)?;
    let nodesize = editor.store.nodesize();
    for tree in editor.store.known_trees() {
        for node in tree.read().dirty.values() {
            tally.count_block(tree.id(), node.level(), nodesize);
        }
        Placer::of(editor).freeze_tree(&tree);
    }
    let devices = editor.store.volume().writable_devices().into_iter().map(|device| device.item).collect();
    Ok(Frozen { superblock, devices, pinned: editor.changes.space.freeze() })
}
