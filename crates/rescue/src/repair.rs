//! `check --repair`: rounds of plan and rehearsal, until the examiner finds nothing more that can be repaired.
//!
//! The examiner names what subvolumes share once, and so repairs come to light one behind the other. Each round begins anew from the
//! devices with all that is known until then, so that the end is one transaction.

use crate::Step;
use crate::error::RescueError;
use crate::patient::Patient;
use crate::plan::{InodeField, Plan};
use crate::superblocks::super_recover;
use crate::transaction::change;
use crate::trees::remake_uuid_tree;
use brindle_check::{CheckOptions, NoProgress, Progress, Report, check};
use brindle_ondisk::item::{ExtentDataRef, ExtentItemHeader, InodeItem};
use brindle_ondisk::{Key, KeyType, Logical, ObjectId};
use brindle_tree::{ChecksumTree, DataRange, Editor, Readahead, TreeError};
use std::collections::BTreeSet;
use zerocopy::FromBytes;

/// Rounds after which findings are left.
const ROUNDS_MAX: usize = 8;
/// Findings of a pass that are kept: with more, nothing is proved.
const FINDINGS_MAX: usize = 1 << 17;

/// A repair that was rehearsed.
#[derive(Debug)]
pub struct Rehearsal {
    /// Changes, with the findings that they answer.
    pub steps: Vec<Step>,
    /// Findings that are left, with reasons.
    pub left: Vec<Step>,
    /// The pool before.
    pub before: Report,
    /// The pool after.
    pub after: Report,
}

/// Examines a pool, and repairs in memory what can be.
///
/// # Errors
/// A pool that can't be opened; a repair that does not go into one transaction, or makes a pool that is worse.
pub fn rehearse(
    patient: &mut Patient,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Rehearsal, RescueError> {
    let options =
        CheckOptions { max_findings: FINDINGS_MAX, max_data_findings: FINDINGS_MAX, ..options.clone() };
    let before = check(patient.readable(), &options, progress)?;
    let mut plan = Plan::of(&before);
    let mut after = before.clone();
    for _ in 0..ROUNDS_MAX {
        if plan.is_empty() {
            break;
        }
        patient.reset();
        apply(patient, &plan)?;
        after = check(patient.readable(), &options, &NoProgress)?;
        let next = Plan::of(&after);
        if next.is_empty() {
            plan.left = next.left;
            break;
        }
        if !plan.extend(next) {
            break;
        }
    }
    // A change of count or place of what was found before is none for the worse.
    let known: BTreeSet<String> = before.findings().map(|(_, finding)| finding.to_string()).collect();
    let new =
        after.findings().map(|(_, finding)| finding.to_string()).find(|finding| !known.contains(finding));
    let repaired: BTreeSet<&str> = plan.steps.iter().map(|step| step.reason.as_str()).collect();
    match new {
        Some(finding) if !repaired.contains(finding.as_str()) => Err(RescueError::Worse(finding)),
        _ => Ok(Rehearsal { steps: plan.steps, left: plan.left, before, after }),
    }
}

/// Makes the changes of a plan in memory.
fn apply(patient: &Patient, plan: &Plan) -> Result<(), RescueError> {
    if plan.superblocks {
        super_recover(patient)?;
    }
    if plan.changes_trees() {
        change(patient, plan.recount, |editor| edit(editor, plan))?;
    }
    Ok(())
}

fn edit(editor: &Editor<'_>, plan: &Plan) -> Result<(), TreeError> {
    let store = editor.store();
    for ((tree, inode, field), value) in &plan.inodes {
        let key = Key::new(*inode, KeyType::INODE_ITEM, 0);
        editor.update(&*store.tree(*tree)?, &key, |data| {
            if let Ok((item, _)) = InodeItem::mut_from_prefix(data) {
                match field {
                    InodeField::Links => item.nlink.set(u32::try_from(*value).unwrap_or(u32::MAX)),
                    InodeField::Size => item.size.set(*value),
                    InodeField::Bytes => item.nbytes.set(*value),
                }
            }
        })?;
    }
    for (tree, inode) in &plan.orphans {
        let key = Key::new(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM, inode.get());
        editor.replace(&*store.tree(*tree)?, &key, &[])?;
    }
    for range in &plan.checksums {
        ChecksumTree::of(editor).remove(*range)?;
    }
    for (at, refs) in &plan.extent_refs {
        let Some(key) = extent_key(editor, *at)? else { continue };
        editor.update(&*store.tree(brindle_ondisk::RootId::EXTENT_TREE)?, &key, |data| {
            if let Ok((item, _)) = ExtentItemHeader::mut_from_prefix(data) {
                item.refs.set(*refs);
            }
        })?;
    }
    for (at, reference, change) in &plan.data_refs {
        let Some(key) = extent_key(editor, *at)? else { continue };
        let range = DataRange { start: *at, length: key.offset() };
        let count = u32::try_from(change.unsigned_abs()).unwrap_or(u32::MAX).into();
        let reference = ExtentDataRef { count, ..*reference };
        if *change > 0 {
            editor.references().add_data(range, &reference, false);
        } else {
            editor.references().drop_data(range, &reference);
        }
    }
    if plan.uuid_tree {
        remake_uuid_tree(editor)?;
    }
    Ok(())
}

/// The key of the item of the extent that begins at an address.
fn extent_key(editor: &Editor<'_>, at: Logical) -> Result<Option<Key>, TreeError> {
    let store = editor.store();
    let mut cursor = store.cursor(&store.tree(brindle_ondisk::RootId::EXTENT_TREE)?, Readahead::None);
    cursor.seek(&Key::new(ObjectId::new(at.get()), KeyType::EXTENT_ITEM, 0))?;
    let is_item = |key: &Key| {
        key.objectid.get() == at.get()
            && matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM)
    };
    Ok(cursor.key().filter(is_item))
}
