//! Findings of all threads, by pass.

use crate::{CheckOptions, Finding, Findings, Statistics, page};
use std::sync::{Mutex, PoisonError};

/// Findings of one pass.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Reason for there being nothing to look at.
    pub(crate) skipped: Option<String>,
    pub(crate) errors: Findings,
    pub(crate) notes: Vec<String>,
    pub(crate) statistics: Statistics,
}

/// One page for each pass: the walk over the leaves writes on the pages of passes that are yet to run.
#[derive(Debug)]
pub(crate) struct Ledger {
    pages: Vec<(&'static str, Mutex<Page>)>,
    most: usize,
    most_of_data: usize,
}

impl Ledger {
    /// A page for each name.
    pub(crate) fn new(options: &CheckOptions) -> Self {
        Self {
            pages: page::ALL.into_iter().map(|name| (name, Mutex::default())).collect(),
            most: options.max_findings,
            most_of_data: options.max_data_findings,
        }
    }

    /// Something is wrong.
    pub(crate) fn report(&self, pass: &'static str, finding: Finding) {
        let most = if pass == page::DATA { self.most_of_data } else { self.most };
        self.with(pass, |page| {
            page.errors.count += 1;
            if page.errors.list.len() < most {
                page.errors.list.push(finding);
            }
        });
    }

    /// There is nothing that the pass could look at.
    pub(crate) fn skip(&self, pass: &'static str, reason: String) {
        self.with(pass, |page| page.skipped = Some(reason));
    }

    /// Something is worth knowing.
    pub(crate) fn note(&self, pass: &'static str, note: String) {
        self.with(pass, |page| page.notes.push(note));
    }

    /// Adds to the amount looked at.
    pub(crate) fn count(&self, pass: &'static str, statistics: Statistics) {
        self.with(pass, |page| page.statistics.add(statistics));
    }

    /// Number of findings of a pass until now.
    pub(crate) fn errors(&self, pass: &'static str) -> u64 {
        self.with(pass, |page| page.errors.count)
    }

    /// Takes the page of a pass.
    pub(crate) fn take(&self, pass: &'static str) -> Page {
        self.with(pass, std::mem::take)
    }

    fn with<T>(&self, pass: &'static str, action: impl FnOnce(&mut Page) -> T) -> T {
        let page = self.pages.iter().find(|(name, _)| *name == pass);
        let (_, page) = page.expect("every pass in the table has a page");
        action(&mut page.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Statistics {
    /// Adds another count.
    pub(crate) fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.items += other.items;
    }
}
