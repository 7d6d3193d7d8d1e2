//! Intervals in the order of their starts, without a set: their unions, and the gaps between them.

use crate::{Interval, Point};

/// The longest intervals that `parts` make up, in order: parts that overlap or touch become one. `parts` are in the order
/// of their starts; empty ones do not count.
pub fn runs<K: Point, P: Into<Interval<K>>>(parts: impl IntoIterator<Item = P>) -> Vec<Interval<K>> {
    let mut runs: Vec<Interval<K>> = Vec::new();
    for part in parts.into_iter().map(Into::into).filter(|part| !part.is_empty()) {
        match runs.last_mut().filter(|last| last.end >= part.start) {
            Some(last) => last.end = last.end.max(part.end),
            None => runs.push(part),
        }
    }
    runs
}

/// The parts of an interval that none of `parts` covers, in order. `parts` are in the order of their starts; they may overlap
/// each other, and reach out of the interval; empty ones do not count.
pub fn gaps<K: Point, P: Into<Interval<K>>>(
    whole: impl Into<Interval<K>>,
    parts: impl IntoIterator<Item = P>,
) -> Vec<Interval<K>> {
    let whole = whole.into();
    let (mut at, mut gaps) = (whole.start, Vec::new());
    let end = Interval { start: whole.end, end: whole.end };
    for part in parts.into_iter().map(Into::into).filter(|part| !part.is_empty()).chain([end]) {
        let gap = Interval { start: at, end: part.start.min(whole.end) };
        if !gap.is_empty() {
            gaps.push(gap);
        }
        at = at.max(part.end);
    }
    gaps
}
