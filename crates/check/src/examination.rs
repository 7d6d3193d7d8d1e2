//! One examination of one pool: knowledge that the passes share.

use crate::bootstrap::Pool;
use crate::forest::Forest;
use crate::gather::Gathered;
use crate::ledger::Ledger;
use crate::read::Reader;
use crate::regions::Regions;
use crate::sectors::SectorMap;
use crate::walk::Walk;
use crate::{CheckOptions, NoProgress, Progress};

/// Knowledge shared by the passes. Each leaves here the results that later ones need.
pub(crate) struct Examination<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) options: &'a CheckOptions,
    pub(crate) progress: &'a dyn Progress,
    pub(crate) ledger: &'a Ledger,
    pub(crate) reader: &'a Reader<'a>,
    /// The chunks.
    pub(crate) regions: Regions,
    /// Marks of each sector of data.
    pub(crate) sectors: SectorMap,
    /// The shape of all trees, once `trees` has found it.
    pub(crate) forest: Option<Forest>,
    /// Results that `trees` has taken from the leaves.
    pub(crate) gathered: Option<Gathered>,
}

impl<'a> Examination<'a> {
    /// A walk over the leaves; the first one reports what is wrong with them.
    pub(crate) fn walk<'w>(&'w self, forest: &'w Forest, is_first: bool) -> Walk<'w>
    where
        'a: 'w,
    {
        let threads = self.options.worker_count();
        let (reader, ledger) = (self.reader, self.ledger);
        let progress: &dyn Progress = if is_first { self.progress } else { &NoProgress };
        Walk { forest, reader, ledger, progress, threads, is_first }
    }
}
