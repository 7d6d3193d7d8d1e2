//! One examination of one pool: what the passes know, and the loop that runs them.

use crate::bootstrap::Pool;
use crate::forest::Forest;
use crate::gather::Gathered;
use crate::ledger::{Ledger, Page};
use crate::pass::{Needs, PASSES, Pass, page};
use crate::read::Reader;
use crate::regions::Regions;
use crate::sectors::SectorMap;
use crate::walk::Walk;
use crate::{CheckOptions, NoProgress, PassReport, Progress, Report};
use std::time::Instant;

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

impl Pool {
    /// Runs every pass.
    pub fn examine(&self, options: &CheckOptions, progress: &dyn Progress) -> Report {
        let ledger = Ledger::new(PASSES.iter().map(|pass| pass.name), options.max_findings);
        let reader = Reader::new(self.volume(), &ledger, options.all_copies);
        let mut examination = Examination {
            pool: self,
            options,
            progress,
            ledger: &ledger,
            reader: &reader,
            regions: Regions::new(self.volume()),
            sectors: SectorMap::new(self.superblock().sectorsize.get()),
            forest: None,
            gathered: None,
        };
        if !self.has_chunk_tree() {
            for problem in &self.problems().list {
                ledger.report(page::TREES, problem.clone());
            }
        }
        let mut report = Report {
            fsid: self.superblock().fsid,
            generation: self.superblock().generation,
            passes: PASSES.iter().map(|pass| examination.run(pass)).collect(),
        };
        // What a pass was told of after it had run.
        for pass in &mut report.passes {
            pass.take(ledger.take(pass.name));
        }
        report
    }
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

    fn run(&mut self, pass: &Pass) -> PassReport {
        let started = Instant::now();
        let skipped = self.obstacle(pass.needs);
        if skipped.is_none() {
            self.progress.begin(pass.name);
            (pass.run)(self);
        }
        let mut report = PassReport::new(pass, skipped);
        report.take(self.ledger.take(pass.name));
        report.elapsed = started.elapsed();
        if report.skipped.is_none() {
            self.progress.end(&report);
        }
        report
    }

    fn obstacle(&self, needs: Needs) -> Option<String> {
        match needs {
            Needs::Superblocks => None,
            Needs::ChunkTree if self.pool.has_chunk_tree() => None,
            Needs::ChunkTree => Some("the chunk tree can't be read".into()),
            Needs::DataOption if !self.options.check_data_csum => Some("not asked for".into()),
            Needs::Walk | Needs::DataOption if self.forest.is_some() => None,
            Needs::Walk | Needs::DataOption => Some("the trees can't be read".into()),
        }
    }
}

impl PassReport {
    fn new(pass: &Pass, skipped: Option<String>) -> Self {
        let Pass { name, about, .. } = *pass;
        Self {
            name,
            about,
            skipped,
            errors: crate::Findings::default(),
            notes: Vec::new(),
            statistics: crate::Statistics::default(),
            elapsed: std::time::Duration::ZERO,
        }
    }

    fn take(&mut self, page: Page) {
        self.errors.count += page.errors.count;
        self.errors.list.extend(page.errors.list);
        // Threads write in any order; people want the same order each time.
        self.errors.list.sort_by_cached_key(ToString::to_string);
        self.notes.extend(page.notes);
        self.statistics.add(page.statistics);
    }
}
