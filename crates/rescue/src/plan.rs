//! A plan: which findings of the examiner are repaired, and how.
//!
//! A finding is repaired if another fact proves what it should be: a count by the items that it counts, an index by what it is an
//! index of, a copy by another copy. Where a tree block can't be read, nothing proves a count; then only what holds nothing of its own
//! (superblock copies, the free space tree, the UUID tree) is repaired. Everything else is left, by name and with the reason.
//!
//! A pool with a log keeps it: a transaction would end the log, and lose what was fsynced. Then superblock copies alone are repaired,
//! each from one that names the log if there is one.

use crate::Step;
use brindle_check::{Finding, Reference, Report, TreeName};
use brindle_ondisk::item::ExtentDataRef;
use brindle_ondisk::{Logical, ObjectId, RootId};
use brindle_tree::{DataRange, Recount};
use std::collections::{BTreeMap, BTreeSet};

/// Reason for which trees of a pool with a log are left.
const LOG_STAYS: &str = "a repair would end the log, and what was fsynced after the last commit would be lost: mount the pool once, \
                         which replays it; or copy files out (`brindle cp` replays it in memory), and give it up by `brindle rescue zero-log`";

/// Field of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InodeField {
    /// Number of names.
    Links,
    /// Size of a directory or a symbolic link.
    Size,
    /// Bytes of extents.
    Bytes,
}

/// Repairs, by what they change.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Facts that are counted anew.
    pub recount: Recount,
    /// Superblock copies are written anew.
    pub superblocks: bool,
    /// The UUID tree is made anew.
    pub uuid_tree: bool,
    /// Fields of inodes: tree, inode, field, and the right value.
    pub(crate) inodes: BTreeMap<(RootId, ObjectId, InodeField), u64>,
    /// Inodes that get an orphan item.
    pub(crate) orphans: BTreeSet<(RootId, ObjectId)>,
    /// Extents and the sum of their back references.
    pub(crate) extent_refs: BTreeMap<Logical, u64>,
    /// Changes of counts of back references to data, by address.
    pub(crate) data_refs: Vec<(Logical, ExtentDataRef, i64)>,
    /// Ranges without data that have checksums.
    pub(crate) checksums: Vec<DataRange>,
    /// Changes, with the findings that they answer.
    pub steps: Vec<Step>,
    /// Findings that are left, with the reason.
    pub left: Vec<Step>,
}

/// Facts about all findings that decide about each.
struct Circumstances {
    /// The pool has a log, which names blocks that no tree has: the next transaction would end it.
    has_log: bool,
    /// A finding that keeps counts from being proved.
    obstacle: Option<String>,
    /// Trees whose names do not agree.
    disputed: BTreeSet<RootId>,
}

impl Plan {
    /// Makes a plan of a report that holds all findings.
    pub fn of(report: &Report) -> Self {
        let circumstances = Circumstances::of(report);
        let mut plan = Self::default();
        for (_, finding) in report.findings() {
            match plan.take(finding, &circumstances) {
                Ok(change) => plan.steps.push(Step::new(change, finding.to_string())),
                Err(reason) => plan.left.push(Step::new(finding.to_string(), reason)),
            }
        }
        plan
    }

    /// Returns true if nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns true if trees are changed.
    pub(crate) fn changes_trees(&self) -> bool {
        self.recount != Recount::default()
            || self.uuid_tree
            || !self.inodes.is_empty()
            || !self.orphans.is_empty()
            || !self.extent_refs.is_empty()
            || !self.data_refs.is_empty()
            || !self.checksums.is_empty()
    }

    /// Adds what another plan changes, of the same pool after this one; true if that is anything new.
    pub(crate) fn extend(&mut self, other: Self) -> bool {
        let known: BTreeSet<String> = self.steps.iter().map(|step| step.reason.clone()).collect();
        let before = self.steps.len();
        self.steps.extend(other.steps.into_iter().filter(|step| !known.contains(&step.reason)));
        if self.steps.len() == before {
            return false;
        }
        self.recount.space |= other.recount.space;
        self.recount.devices |= other.recount.devices;
        self.superblocks |= other.superblocks;
        self.uuid_tree |= other.uuid_tree;
        self.inodes.extend(other.inodes);
        self.orphans.extend(other.orphans);
        self.extent_refs.extend(other.extent_refs);
        self.data_refs.extend(
            other.data_refs.into_iter().filter(|new| !self.data_refs.contains(new)).collect::<Vec<_>>(),
        );
        self.checksums.extend(
            other.checksums.into_iter().filter(|new| !self.checksums.contains(new)).collect::<Vec<_>>(),
        );
        self.left = other.left;
        true
    }

    /// Takes a finding into the plan: what is changed, or the reason for which it is left.
    fn take(&mut self, finding: &Finding, circumstances: &Circumstances) -> Result<String, String> {
        match finding {
            Finding::Superblock { device, offset, .. }
            | Finding::SuperblockGeneration { device, offset, .. }
            | Finding::SuperblockField { device, offset, .. } => {
                self.superblocks = true;
                Ok(format!("{device}: superblock at offset {offset} is written anew"))
            }
            Finding::Unreadable { tree: TreeName::Id(RootId::FREE_SPACE_TREE), .. } => {
                circumstances.check()?;
                self.recount.space = true;
                Ok("the free space tree is made anew from the extent tree".to_owned())
            }
            Finding::Unreadable { tree: TreeName::Id(RootId::UUID_TREE), .. } | Finding::UuidEntry { .. } => {
                circumstances.check()?;
                self.uuid_tree = true;
                Ok("the UUID tree is made anew from root items".to_owned())
            }
            Finding::SuperblockTotal { .. }
            | Finding::Device { .. }
            | Finding::BlockGroupUsed { .. }
            | Finding::FreeSpace { .. }
            | Finding::FreeSpaceCount { .. } => {
                circumstances.check()?;
                self.count(finding)
            }
            Finding::Inode { .. } | Finding::InodeRule { .. } => {
                circumstances.check()?;
                self.inode(finding, circumstances)
            }
            Finding::ExtentRefs { .. } | Finding::BackReference { .. } | Finding::ChecksumUnused { .. } => {
                circumstances.check()?;
                self.references(finding)
            }
            _ => Err(reason_to_leave(finding).to_owned()),
        }
    }

    fn count(&mut self, finding: &Finding) -> Result<String, String> {
        match finding {
            Finding::SuperblockTotal { field: field @ "bytes_used", .. } => {
                self.recount.space = true;
                Ok(format!("superblock: {field} is the sum of the block groups"))
            }
            Finding::SuperblockTotal { field, expected, .. } => {
                self.recount.devices = true;
                Ok(format!("superblock: {field} is {expected}, by the device items"))
            }
            Finding::Device { devid, field, expected, .. } => {
                self.recount.devices = true;
                Ok(format!("device {devid}: {field} is {expected}, by its device extents"))
            }
            Finding::BlockGroupUsed { start, expected, .. } => {
                self.recount.space = true;
                Ok(format!("block group at logical {start}: used is {expected}, by its extents"))
            }
            _ => {
                self.recount.space = true;
                Ok("the free space tree is made anew from the extent tree".to_owned())
            }
        }
    }

    fn inode(&mut self, finding: &Finding, circumstances: &Circumstances) -> Result<String, String> {
        match *finding {
            Finding::InodeRule { tree, inode, problem: "has no names and no orphan item" } => {
                circumstances.check_names(tree)?;
                self.orphans.insert((tree, inode));
                Ok(format!(
                    "tree {tree} inode {inode}: gets an orphan item: it has no links and no names, and the next mount deletes it"
                ))
            }
            Finding::Inode { tree, inode, field, expected, .. } => {
                let which = match field {
                    "nlink" if expected == 0 => {
                        return Err("no name leads to it, and without links it would be deleted".to_owned());
                    }
                    "nlink" => InodeField::Links,
                    "nbytes" => InodeField::Bytes,
                    _ => InodeField::Size,
                };
                if field != "nbytes" {
                    circumstances.check_names(tree)?;
                }
                self.inodes.insert((tree, inode, which), expected);
                Ok(format!("tree {tree} inode {inode}: {field} is {expected}, by its items"))
            }
            _ => Err(reason_to_leave(finding).to_owned()),
        }
    }

    fn references(&mut self, finding: &Finding) -> Result<String, String> {
        match finding {
            Finding::ExtentRefs { at, expected, .. } => {
                self.extent_refs.insert(*at, *expected);
                Ok(format!("extent at logical {at}: refs is {expected}, by its back references"))
            }
            Finding::BackReference { at, reference, expected, found } => {
                let Reference::Data { root, inode, offset } = *reference else {
                    return Err("only references of files to data are set right".to_owned());
                };
                if *expected == 0 || *found == 0 {
                    return Err("a reference would have to come or go, not only its count".to_owned());
                }
                let change = i128::from(*expected) - i128::from(*found);
                let change = i64::try_from(change).map_err(|_| "the count can't be".to_owned())?;
                let (objectid, offset) = (inode, offset.into());
                self.data_refs.push((*at, ExtentDataRef { root, objectid, offset, count: 0.into() }, change));
                Ok(format!(
                    "extent at logical {at}: back reference of {reference} counts {expected}, by the file trees"
                ))
            }
            Finding::ChecksumUnused { start, length } => {
                self.checksums.push(DataRange { start: *start, length: *length });
                Ok(format!("checksums of logical {start}, {length} bytes, go: no data is there"))
            }
            _ => Err(reason_to_leave(finding).to_owned()),
        }
    }
}

impl Circumstances {
    fn of(report: &Report) -> Self {
        let mut obstacle = None;
        let mut disputed = BTreeSet::new();
        for (_, finding) in report.findings() {
            match finding {
                Finding::Unreadable {
                    tree: TreeName::Id(RootId::FREE_SPACE_TREE | RootId::UUID_TREE),
                    ..
                } => {}
                Finding::Unreadable { .. }
                | Finding::TreeMissing(_)
                | Finding::KeyBeyondBound { .. }
                | Finding::Chunk(_)
                | Finding::Stripe { .. }
                | Finding::DeviceExtent { .. }
                | Finding::DeviceExtentOverlap { .. }
                | Finding::SystemChunk { .. }
                | Finding::ExtentOverlap { .. }
                | Finding::ExtentMissing { .. }
                | Finding::Opening(_) => {
                    obstacle.get_or_insert_with(|| finding.to_string());
                }
                Finding::Name { tree, .. } | Finding::Names { tree } => {
                    disputed.insert(*tree);
                }
                _ => {}
            }
        }
        let is_cut = |pass: &brindle_check::PassReport| {
            pass.errors.count > brindle_ondisk::to_u64(pass.errors.list.len())
        };
        if report.passes.iter().any(is_cut) {
            obstacle.get_or_insert_with(|| "there are more findings than are kept".to_owned());
        }
        Self { has_log: report.has_log, obstacle, disputed }
    }

    /// Refuses repairs that end a log, and those that all trees have to be read for.
    fn check(&self) -> Result<(), String> {
        if self.has_log {
            return Err(LOG_STAYS.to_owned());
        }
        match &self.obstacle {
            Some(finding) => Err(format!("nothing proves the right value as long as this is so: {finding}")),
            None => Ok(()),
        }
    }

    /// Refuses repairs that names are counted for.
    fn check_names(&self, tree: RootId) -> Result<(), String> {
        if self.disputed.contains(&tree) {
            return Err(format!("names of tree {tree} do not agree"));
        }
        Ok(())
    }
}

/// Reason for which findings of a kind are left.
fn reason_to_leave(finding: &Finding) -> &'static str {
    match finding {
        Finding::BadCopy { .. } => "`brindle scrub start` writes bad copies anew from good ones",
        Finding::Data { .. } | Finding::DataUnreadable { .. } | Finding::Parity { .. } => {
            "`brindle scrub start` corrects what another copy or parity has"
        }
        Finding::Unreadable { .. } | Finding::TreeMissing(_) => {
            "what it held is nowhere else: copy files out with `brindle cp`"
        }
        Finding::Name { .. } | Finding::Names { .. } => "which of the places is right can't be proved",
        Finding::ChecksumMissing { .. } => "a checksum made now would take any contents for right",
        Finding::ExtentMissing { .. } => "its space may have been given to something else",
        Finding::ExtentUnused { .. } => "it takes space, and harms nothing",
        Finding::BackupRoot { .. } => "the next commits write all backup roots anew",
        _ => "nothing proves what is right",
    }
}
