//! The extent tree: what waits in memory of references is applied to it.

use crate::checksums::ChecksumTree;
use crate::editor::Editor;
use crate::error::TreeError;
use crate::quota::simple::{Act, Counted};
use crate::refs::DataRange;
use crate::refs::delayed::{Extent, ExtentKind, Head, Referrer};
use crate::refs::record::{KeyedChange, KeyedRef, Layout, Outcome, Record};
use crate::tree::Tree;
use brindle_ondisk::item::BackRef;
use brindle_ondisk::{Defect, Incompat, Key, Logical, NodeExpectation, RootId, to_usize};
use std::sync::Arc;

/// Number of extents that are applied while lookups wait.
const BATCH: usize = 64;

/// Work left after a batch.
#[derive(Default)]
struct Batch {
    /// Items of new extents, in the order of keys.
    items: Vec<(Key, Vec<u8>)>,
    /// Their references that did not fit the items.
    keyed: Vec<(Logical, BackRef)>,
    recorded: Vec<Extent>,
    /// Freed data, neighbours joined.
    freed: Vec<DataRange>,
    /// Changes that simple quotas count.
    counted: Vec<Counted>,
}

impl Batch {
    fn free_data(&mut self, extent: &Extent) {
        if extent.kind != ExtentKind::Data {
            return;
        }
        match self.freed.last_mut() {
            Some(last) if last.start.checked_add(last.length) == Some(extent.start) => {
                last.length += extent.length;
            }
            _ => self.freed.push(DataRange { start: extent.start, length: extent.length }),
        }
    }
}

/// The extent tree of the running transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentTree<'p> {
    editor: Editor<'p>,
}

impl<'p> ExtentTree<'p> {
    /// The extent tree, to be changed by an editor.
    pub(crate) fn of(editor: &Editor<'p>) -> Self {
        Self { editor: *editor }
    }

    /// Applies what waits, of at most `limit` extents; returns their number. An error ends all writing, for what was taken
    /// from the queue is then neither there nor, as a whole, in the extent tree.
    pub(crate) fn apply(&self, limit: usize) -> Result<usize, TreeError> {
        self.apply_batches(limit).inspect_err(|error| self.editor.store.stop().abort(error))
    }

    fn apply_batches(&self, limit: usize) -> Result<usize, TreeError> {
        let tree = self.editor.store.tree(RootId::EXTENT_TREE)?;
        let layout = self.layout();
        let mut done = 0;
        while done < limit {
            let gate = self.editor.changes.refs.close();
            let heads = self.editor.changes.refs.take(&gate, BATCH.min(limit - done));
            if heads.is_empty() {
                break;
            }
            done += heads.len();
            self.editor.changes.quotas.touch(|| reached(&heads));
            let mut batch = Batch::default();
            let (new, known): (Vec<_>, Vec<_>) = heads.iter().partition(|(_, head)| head.is_new);
            let extent = |start: Logical, head: &Head| {
                let Head { length, kind, owner, .. } = *head;
                Extent { start, length, kind, owner }
            };
            for (start, head) in new {
                self.prepare_new(&extent(*start, head), head, &layout, &mut batch)?;
            }
            // What comes in comes before what goes: a leaf whose items are all replaced would else leave the tree,
            // and another one join it, which is two more extents to account for.
            self.insert_new(&tree, &batch)?;
            for (start, head) in known.into_iter().filter(|(_, head)| !head.is_void()) {
                self.apply_head(&tree, &extent(*start, head), head, &layout, &mut batch)?;
            }
            self.editor.changes.quotas.count(&batch.counted);
            drop(gate);
            for range in batch.freed {
                ChecksumTree::of(&self.editor).remove(range)?;
            }
        }
        Ok(done)
    }

    /// A new extent gets its item, unless it is given up already.
    fn prepare_new(
        &self,
        extent: &Extent,
        head: &Head,
        layout: &Layout,
        batch: &mut Batch,
    ) -> Result<(), TreeError> {
        let key = layout.key(extent.start, head);
        let refuse = |defect| TreeError::item(RootId::EXTENT_TREE, key, defect);
        let generation = head.origin.map_or(layout.generation, |origin| origin.generation);
        let owner = head.writer().filter(|_| self.editor.changes.quotas.are_simple());
        let record = Record::new(head.kind, &Layout { generation, owner, ..*layout });
        let outcome = record.apply(head, &[], layout).map_err(refuse)?;
        let (bytes, entered) = (extent.length, head.entered());
        let act = if outcome.item.is_some() { Act::Comes } else { Act::GivenUp };
        batch.counted.extend(owner.map(|owner| Counted { owner, generation, bytes, act, entered }));
        let Some(item) = outcome.item else {
            self.editor.changes.space.extent_freed(extent.start, extent.length, false);
            batch.free_data(extent);
            return Ok(());
        };
        batch.items.push((key, item));
        batch.recorded.push(*extent);
        for change in outcome.keyed {
            match change {
                KeyedChange::Add(reference) => batch.keyed.push((extent.start, reference)),
                KeyedChange::Set(..) | KeyedChange::Remove(_) => {
                    unreachable!("a new extent has no keyed references")
                }
            }
        }
        Ok(())
    }

    fn layout(&self) -> Layout {
        let store = self.editor.store;
        Layout {
            nodesize: to_usize(store.nodesize().into()),
            skinny: store.superblock().incompat().contains(Incompat::SKINNY_METADATA),
            generation: self.editor.generation,
            owner: None,
        }
    }

    /// The tree that made a block.
    fn owner_of_block(&self, extent: &Extent, head: &Head) -> Result<Option<RootId>, TreeError> {
        let ExtentKind::Block { level, .. } = extent.kind else { return Ok(None) };
        if !self.editor.changes.quotas.are_simple() || head.owner.is_some() {
            return Ok(head.owner);
        }
        let (bytenr, level) = (extent.start, Some(level));
        let expected = NodeExpectation { bytenr, generation: None, level, first_key: None };
        Ok(Some(self.editor.store.read_node(&expected)?.header().owner))
    }

    fn insert_new(&self, tree: &Tree, batch: &Batch) -> Result<(), TreeError> {
        let items: Vec<(Key, &[u8])> =
            batch.items.iter().map(|(key, item)| (*key, item.as_slice())).collect();
        self.editor.insert_all(tree, &items)?;
        for extent in &batch.recorded {
            self.editor.changes.space.extent_recorded(extent.start, extent.length);
        }
        batch.keyed.iter().try_for_each(|(start, reference)| self.insert_keyed(tree, *start, reference))
    }

    /// Changes what the extent tree has of an extent.
    fn apply_head(
        &self,
        tree: &Arc<Tree>,
        extent: &Extent,
        head: &Head,
        layout: &Layout,
        batch: &mut Batch,
    ) -> Result<(), TreeError> {
        let Some((key, record)) = self.editor.references().find_record(tree, extent)? else {
            let defect = Defect::new("extent is referred to and has no item", extent.length);
            return Err(TreeError::item(tree.id(), layout.key(extent.start, head), defect));
        };
        let mut keyed: Vec<KeyedRef> = Vec::new();
        for who in record.maybe_keyed(head) {
            keyed.extend(self.editor.references().find_keyed(tree, extent.start, who)?);
        }
        let refuse = |defect| TreeError::item(tree.id(), key, defect);
        let (generation, writer) = (record.generation(), record.owner());
        let Outcome { item, keyed } = record.apply(head, &keyed, layout).map_err(refuse)?;
        for change in &keyed {
            match change {
                KeyedChange::Add(reference) => self.insert_keyed(tree, extent.start, reference)?,
                KeyedChange::Set(key, reference) => self.editor.replace(tree, key, &reference.item_data())?,
                KeyedChange::Remove(key) => {
                    self.editor.remove(tree, key)?;
                }
            }
        }
        match item {
            Some(item) => self.editor.replace(tree, &key, &item),
            None => {
                // Before the item goes: a lookup of free space must not find it yet.
                self.editor.changes.space.extent_freed(extent.start, extent.length, true);
                self.editor.remove(tree, &key)?;
                batch.free_data(extent);
                let owner =
                    writer.map_or_else(|| self.owner_of_block(extent, head), |owner| Ok(Some(owner)))?;
                let (bytes, act, entered) = (extent.length, Act::Goes, 0);
                batch.counted.extend(owner.map(|owner| Counted { owner, generation, bytes, act, entered }));
                Ok(())
            }
        }
    }

    /// Adds a reference as an item of its own: at the first free key, where several have the same hash.
    fn insert_keyed(&self, tree: &Tree, start: Logical, reference: &BackRef) -> Result<(), TreeError> {
        let (mut key, data) = (reference.key(start), reference.item_data());
        loop {
            match self.editor.insert(tree, &key, &data) {
                Err(TreeError::Exists { .. }) if matches!(reference, BackRef::Data(_)) => {
                    key = Key::new(key.objectid, key.item_type, key.offset().wrapping_add(1));
                }
                inserted => return inserted,
            }
        }
    }
}

/// Extents that subvolumes may reach, and whose references change.
fn reached(heads: &[(Logical, Head)]) -> Vec<Logical> {
    let may_be_reached = |who: &Referrer| match who {
        Referrer::Tree(tree) => tree.is_file_tree(),
        Referrer::SharedTree(_) | Referrer::Data { .. } | Referrer::SharedData(_) => true,
    };
    // A snapshot that got a reference and gave it up has cancelled its own changes; its group has the bytes nevertheless.
    let concerns =
        |head: &Head| head.changes.is_empty() || head.changes.iter().any(|(who, _)| may_be_reached(who));
    heads.iter().filter(|(_, head)| concerns(head)).map(|(at, _)| *at).collect()
}
