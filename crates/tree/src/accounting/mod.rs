//! The numbers of quota groups at a commit: what its changes mean for each.

pub(crate) mod groups;
mod reach;
mod rescan;

use crate::editor::Editor;
use crate::error::TreeError;
use crate::quota::ledger::{Reaching, Underflow};
use crate::quota::state::{Changed, State};
use crate::refs::delayed::{Extent, ExtentKind};
use crate::refs::sharing::data_of;
use crate::store::trees::Trees;
use brindle_ondisk::item::QgroupStatusHeader;
use brindle_ondisk::{Key, KeyType, Logical, ObjectId, RootId};
use groups::{insert_found, remove_dropped};
use reach::{Reach, Reached};
use rescan::rescan;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes, by the subvolumes that reached them before, and those that reach them now.
pub(super) type Sums = HashMap<(Arc<Reaching>, Arc<Reaching>), u64>;

/// Accounting of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accounting<'p> {
    editor: Editor<'p>,
}

impl<'p> Accounting<'p> {
    pub(crate) fn of(editor: &Editor<'p>) -> Self {
        Self { editor: *editor }
    }

    /// Brings the quota tree up to date; simple quotas have been counted already. Nothing else changes meanwhile, all blocks
    /// of subvolumes have addresses, and no reference waits.
    pub(crate) fn account(&self) -> Result<(), TreeError> {
        let quotas = &self.editor.changes.quotas;
        if !quotas.are_on() {
            return Ok(());
        }
        let (changed, before, counts) = {
            let mut state = quotas.lock();
            let counts = state.counted_from.is_none() && (!state.is_inconsistent || state.rescan.is_some());
            (std::mem::take(&mut state.changes), state.rescan, counts)
        };
        if counts {
            let sums = self.sums_of_changes(&changed, before);
            let sums =
                sums.and_then(|sums| Ok((sums, before.map(|from| rescan(&self.editor, from)).transpose()?)));
            let mut state = quotas.lock();
            match sums {
                Ok((changes, step)) => {
                    add_to(&mut state, &changes);
                    if let Some(step) = step {
                        add_to(&mut state, &step.sums);
                        state.rescan = step.next;
                        state.is_inconsistent &= step.next.is_some();
                    }
                }
                Err(error) => {
                    state.give_up(format_args!("an extent's subvolumes can't be told: {error}"));
                }
            }
        }
        for group in &changed.found {
            insert_found(&self.editor, *group)?;
        }
        for subvolume in &changed.dropped {
            remove_dropped(&self.editor, *subvolume)?;
        }
        self.write_quotas()
    }

    /// The bytes that have other subvolumes than at the last commit; during a rescan, of what it has counted.
    fn sums_of_changes(&self, changed: &Changed, rescan: Option<u64>) -> Result<Sums, TreeError> {
        let mut sums = Sums::default();
        if rescan == Some(0) {
            return Ok(sums);
        }
        let counted = |at: Logical| rescan.is_none_or(|next| at.get() < next);
        let mut old = Reach::new(&self.editor, Trees::committed(self.editor.store))?;
        let mut new = Reach::new(&self.editor, Trees::Running(self.editor.store))?;
        let mut waiting = changed.touched.clone();
        let mut seen: HashSet<Logical> = HashSet::new();
        while let Some(at) = waiting.pop_first() {
            if !seen.insert(at) {
                continue;
            }
            let before = old.extent(at)?.map(|found| with_copies(found, &changed.copies));
            let after = new.extent(at)?;
            if let (Some(before), Some(after)) = (&before, &after) {
                if before.extent == after.extent {
                    if before.by != after.by {
                        waiting
                            .extend(below(&new, &after.extent)?.into_iter().filter(|at| !seen.contains(at)));
                        add(&mut sums, counted(at), after.extent.length, (&before.by, &after.by));
                    }
                    continue;
                }
            }
            let nobody = Arc::default();
            if let Some(before) = before {
                add(&mut sums, counted(at), before.extent.length, (&before.by, &nobody));
            }
            if let Some(after) = after {
                add(&mut sums, counted(at), after.extent.length, (&nobody, &after.by));
            }
        }
        Ok(sums)
    }

    /// Writes the numbers that have changed, and the status.
    fn write_quotas(&self) -> Result<(), TreeError> {
        let tree = self.editor.store.tree(RootId::QUOTA_TREE)?;
        let (changed, flags, rescan) = {
            let mut state = self.editor.changes.quotas.lock();
            (state.take_changed(), state.flags(), state.rescan.unwrap_or(0))
        };
        for (id, mut info) in changed {
            info.generation = self.editor.generation;
            let key = Key::new(ObjectId::new(0), KeyType::QGROUP_INFO, id.get());
            self.editor.replace(&tree, &key, info.as_bytes())?;
        }
        let key = Key::new(ObjectId::new(0), KeyType::QGROUP_STATUS, 0);
        self.editor.update(&tree, &key, |data| {
            if let Ok((status, _)) = QgroupStatusHeader::mut_from_prefix(data) {
                status.generation = self.editor.generation.get().into();
                status.flags = flags.into();
                status.rescan = rescan.into();
            }
        })?;
        Ok(())
    }
}

/// Adds to the numbers.
fn add_to(state: &mut State, sums: &Sums) {
    for ((before, after), bytes) in sums {
        if let Err(Underflow(id)) = state.ledger.account(*bytes, before, after) {
            return state.give_up(format_args!(
                "{id} was to lose more bytes than it had: {bytes} {before:?} {after:?}"
            ));
        }
    }
}

/// Adds bytes to the sum of those with the same subvolumes.
pub(super) fn add(sums: &mut Sums, is_counted: bool, bytes: u64, by: (&Arc<Reaching>, &Arc<Reaching>)) {
    if is_counted && by.0 != by.1 {
        *sums.entry((Arc::clone(by.0), Arc::clone(by.1))).or_default() += bytes;
    }
}

/// Subvolumes that would have reached an extent if each snapshot since had been there.
fn with_copies(found: Reached, copies: &[(RootId, RootId)]) -> Reached {
    if !copies.iter().any(|(source, _)| found.by.contains(source)) {
        return found;
    }
    let mut by: BTreeSet<RootId> = found.by.iter().copied().collect();
    for (source, copy) in copies {
        if by.contains(source) {
            by.insert(*copy);
        }
    }
    Reached { extent: found.extent, by: Arc::new(by.into_iter().collect()) }
}

/// Addresses that a block refers to.
fn below(reach: &Reach<'_, '_>, extent: &Extent) -> Result<BTreeSet<Logical>, TreeError> {
    let ExtentKind::Block { level, .. } = extent.kind else { return Ok(BTreeSet::new()) };
    let node = reach.block(extent.start, level)?;
    if node.is_leaf() {
        return Ok(data_of(&node)?.into_iter().map(|(range, ..)| range.start).collect());
    }
    Ok(node.key_ptrs().iter().map(|child| child.blockptr).collect())
}
