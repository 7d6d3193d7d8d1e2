//! The loop that runs the passes.

use crate::bootstrap::Pool;
use crate::examination::Examination;
use crate::ledger::{Ledger, Page};
use crate::pass::{Needs, PASSES, Pass};
use crate::read::Reader;
use crate::regions::Regions;
use crate::sectors::SectorMap;
use crate::{CheckOptions, PassReport, Progress, Report, page};
use brindle_ondisk::to_u64;
use brindle_volume::Warning;
use std::time::Instant;

impl Pool {
    /// Runs every pass.
    pub fn examine(&self, options: &CheckOptions, progress: &dyn Progress) -> Report {
        let ledger = Ledger::new(options);
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
            has_log: self.superblock().log_root.get() != 0,
            generation: self.superblock().generation,
            lost_chunks: self.lost_chunks(),
            passes: PASSES.iter().map(|pass| examination.run(pass)).collect(),
        };
        // What a pass was told of after it had run.
        for pass in &mut report.passes {
            pass.take(ledger.take(pass.name));
        }
        report
    }

    /// Number of chunks that can't be read whole without devices that are missing.
    fn lost_chunks(&self) -> u64 {
        let lost = |warning: &Warning| match warning {
            Warning::LostChunks { unreadable, .. } => to_u64(unreadable.len()),
            _ => 0,
        };
        self.volume().warnings().iter().map(lost).sum()
    }
}

impl Examination<'_> {
    fn run(&mut self, pass: &Pass) -> PassReport {
        let started = Instant::now();
        let skipped = self.obstacle(pass.needs);
        let runs = skipped.is_none();
        if runs {
            self.progress.begin(pass.name);
            (pass.run)(self);
        }
        let mut report = PassReport::new(pass, skipped);
        report.take(self.ledger.take(pass.name));
        report.elapsed = started.elapsed();
        if runs {
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
        self.skipped = self.skipped.take().or(page.skipped);
        self.errors.count += page.errors.count;
        self.errors.list.extend(page.errors.list);
        // Threads write in any order; people want the same order each time.
        self.errors.list.sort_by_cached_key(ToString::to_string);
        self.notes.extend(page.notes);
        self.statistics.add(page.statistics);
    }
}
