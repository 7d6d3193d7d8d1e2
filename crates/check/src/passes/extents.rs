//! Extents and their users.

use crate::examination::Examination;
use crate::fingerprint::bucket;
use crate::ledger::Ledger;
use crate::page;
use crate::passes::trees::references_of_nodes;
use crate::references::{self, BUCKETS, ReferenceSink, Shape};
use crate::roots::TreeKind;
use crate::walk::{Leaf, Visitor};
use crate::{Finding, Reference};
use brindle_ondisk::{Item, Logical, to_u64};
use std::collections::BTreeMap;

/// Buckets looked into at once.
const EXACT_BUCKETS: usize = 64;

pub(crate) fn run(examination: &mut Examination<'_>) {
    let ledger = examination.ledger;
    let Some(gathered) = &mut examination.gathered else { return };
    gathered.space.edges.sort_unstable();
    let mut end = 0;
    for (first, last) in &gathered.space.edges {
        if *first < end {
            ledger.report(page::EXTENTS, Finding::ExtentOverlap { at: Logical::new(*first), end });
        }
        end = *last;
    }
    let sums = std::mem::take(&mut gathered.references.0);
    let wrong: Vec<usize> = (0..sums.len()).filter(|index| sums[*index] != 0).collect();
    for buckets in wrong.chunks(EXACT_BUCKETS) {
        // Further buckets of a pool with this number of errors tell nothing new.
        if ledger.errors(page::EXTENTS) >= to_u64(examination.options.max_findings) {
            ledger.note(page::EXTENTS, "there are more than were looked for".into());
            break;
        }
        look_into(examination, buckets);
    }
}

/// Names what is wrong in some buckets.
fn look_into(examination: &Examination<'_>, buckets: &[usize]) {
    let Some(forest) = &examination.forest else { return };
    let mut wanted = vec![false; BUCKETS];
    for index in buckets {
        wanted[*index] = true;
    }
    let exact = Exact { wanted: &wanted };
    let walk = examination.walk(forest, false);
    let has_references =
        |kind| matches!(kind, TreeKind::Extent | TreeKind::Files | TreeKind::Relocation | TreeKind::Root);
    let mut records = Records::new(&wanted);
    for state in walk.leaves(|tree| has_references(tree.kind), &exact) {
        records.merge(state);
    }
    references_of_nodes(forest, &mut records);
    let nodesize = examination.reader.context.nodesize.into();
    for (at, record) in &records.extents {
        record.judge(*at, nodesize, examination.ledger);
    }
    if records.is_full {
        examination.ledger.note(page::EXTENTS, "too much is wrong for all of it to be named".into());
    }
}

/// Looks at leaves for what concerns some buckets.
struct Exact<'a> {
    wanted: &'a [bool],
}

/// References to some extents, one by one.
struct Records<'a> {
    wanted: &'a [bool],
    extents: BTreeMap<u64, Record>,
    count: usize,
    is_full: bool,
}

/// No more references than this are kept.
const RECORDS_MAX: usize = 1 << 20;

/// Both sides of one extent.
#[derive(Clone, Debug, Default)]
struct Record {
    allocated: Option<(Shape, u64)>,
    /// Claimed count, counted uses, and shape of the uses.
    references: BTreeMap<Reference, (u64, u64, Option<Shape>)>,
}

impl<'a> Visitor for Exact<'a> {
    type State = Records<'a>;

    fn start(&self) -> Records<'a> {
        Records::new(self.wanted)
    }

    fn leaf(&self, state: &mut Records<'a>, leaf: &Leaf<'_>) {
        if leaf.tree.kind != TreeKind::Extent {
            return references::from_leaf(leaf.node, leaf.is_full_backref, state);
        }
        for slot in 0..leaf.node.len() {
            let Some((key, data)) = leaf.node.item(slot) else { continue };
            if self.wanted[bucket(key.objectid.get(), BUCKETS)] {
                if let Ok(item) = Item::parse(&key, data) {
                    references::from_extent_tree(&key, &item, state);
                }
            }
        }
    }
}

impl<'a> Records<'a> {
    fn new(wanted: &'a [bool]) -> Self {
        Self { wanted, extents: BTreeMap::new(), count: 0, is_full: false }
    }

    fn merge(&mut self, other: Self) {
        for (at, record) in other.extents {
            let own = self.extents.entry(at).or_default();
            own.allocated = own.allocated.or(record.allocated);
            for (reference, (claimed, used, shape)) in record.references {
                let counts = own.references.entry(reference).or_default();
                counts.0 = counts.0.saturating_add(claimed);
                counts.1 += used;
                counts.2 = counts.2.or(shape);
            }
        }
        self.is_full |= other.is_full;
    }

    fn record(&mut self, at: u64) -> Option<&mut Record> {
        if !self.wanted[bucket(at, BUCKETS)] {
            return None;
        }
        if self.count >= RECORDS_MAX {
            self.is_full = true;
            return None;
        }
        self.count += 1;
        Some(self.extents.entry(at).or_default())
    }
}

impl ReferenceSink for Records<'_> {
    fn allocated(&mut self, at: u64, shape: Shape, refs: u64) {
        if let Some(record) = self.record(at) {
            record.allocated = Some((shape, refs));
        }
    }

    fn claimed(&mut self, at: u64, reference: Reference, count: u64) {
        if let Some(record) = self.record(at) {
            let counts = record.references.entry(reference).or_default();
            counts.0 = counts.0.saturating_add(count);
        }
    }

    fn used(&mut self, at: u64, shape: Shape, reference: Reference) {
        if let Some(record) = self.record(at) {
            let counts = record.references.entry(reference).or_default();
            counts.1 += 1;
            counts.2 = Some(shape);
        }
    }
}

impl Record {
    fn judge(&self, at: u64, nodesize: u64, ledger: &Ledger) {
        let at = Logical::new(at);
        let report = |finding| ledger.report(page::EXTENTS, finding);
        let Some((shape, refs)) = self.allocated else {
            for (reference, (_, used, _)) in &self.references {
                report(Finding::ExtentMissing { at, reference: *reference, count: *used });
            }
            return;
        };
        let claimed = self.references.values().fold(0u64, |sum, (claimed, ..)| sum.saturating_add(*claimed));
        if claimed != refs {
            report(Finding::ExtentRefs { at, expected: claimed, found: refs });
        }
        if self.references.values().all(|(_, used, _)| *used == 0) {
            let length = match shape {
                Shape::Data(length) => length,
                Shape::Block(_) => nodesize,
            };
            return report(Finding::ExtentUnused { at, length });
        }
        for (reference, (claimed, used, used_shape)) in &self.references {
            if claimed != used {
                let (expected, found) = (*used, *claimed);
                report(Finding::BackReference { at, reference: *reference, expected, found });
            }
            if let Some(found) = used_shape.filter(|found| *found != shape) {
                let (field, expected) = shape.number();
                let (_, found) = found.number();
                report(Finding::ExtentShape { at, field, expected, found, reference: *reference });
            }
        }
    }
}

impl Shape {
    fn number(self) -> (&'static str, u64) {
        match self {
            Self::Data(length) => ("length", length),
            Self::Block(level) => ("level", level.into()),
        }
    }
}
