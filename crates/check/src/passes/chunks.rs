//! Chunks, device items and device extents, each against the others.

use crate::examination::Examination;
use crate::pass::page;

pub(crate) fn run(examination: &mut Examination<'_>) {
    for problem in &examination.pool.problems().list {
        examination.ledger.report(page::CHUNKS, problem.clone());
    }
}
