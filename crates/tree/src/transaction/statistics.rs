//! Counters of commits. Nothing depends on them.

use crate::log::LogStatistics;
use brindle_ondisk::{RootId, to_u64};
use std::time::{Duration, Instant};

/// The kinds of trees that blocks are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// Subvolumes.
    Files,
    /// The extent tree.
    Extents,
    /// Checksums of data.
    Checksums,
    /// The free space tree.
    FreeSpace,
    /// Block groups, where they have a tree of their own.
    BlockGroups,
    /// Chunks and devices.
    Chunks,
    /// The tree of roots.
    Roots,
    /// All others.
    Other,
}

impl TreeKind {
    /// All of them, in the order of [`CommitReport::blocks`].
    pub const ALL: [Self; 8] = [
        Self::Files,
        Self::Extents,
        Self::Checksums,
        Self::FreeSpace,
        Self::BlockGroups,
        Self::Chunks,
        Self::Roots,
        Self::Other,
    ];

    /// The kind of a tree.
    pub fn of(tree: RootId) -> Self {
        match tree {
            RootId::EXTENT_TREE => Self::Extents,
            RootId::CSUM_TREE => Self::Checksums,
            RootId::FREE_SPACE_TREE => Self::FreeSpace,
            RootId::BLOCK_GROUP_TREE => Self::BlockGroups,
            RootId::CHUNK_TREE | RootId::DEV_TREE => Self::Chunks,
            RootId::ROOT_TREE => Self::Roots,
            _ if tree.is_file_tree() => Self::Files,
            _ => Self::Other,
        }
    }

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Extents => "extents",
            Self::Checksums => "checksums",
            Self::FreeSpace => "free space",
            Self::BlockGroups => "block groups",
            Self::Chunks => "chunks",
            Self::Roots => "roots",
            Self::Other => "other",
        }
    }
}

/// The phases of a commit, as the module above lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitPhase {
    /// References are applied while operations go on.
    Advance,
    /// Running operations finish, new ones wait.
    Close,
    /// Trees are brought up to date, new operations still wait.
    Settle,
    /// Blocks go to the devices.
    Write,
    /// Flushes and superblocks.
    Flush,
}

impl CommitPhase {
    /// All of them, in the order of [`CommitReport::phases`].
    pub const ALL: [Self; 5] = [Self::Advance, Self::Close, Self::Settle, Self::Write, Self::Flush];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Advance => "advance",
            Self::Close => "close",
            Self::Settle => "settle",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }
}

/// Levels that a tree may have.
pub const LEVELS: usize = 8;

/// Report of a commit, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitReport {
    /// Tree blocks written, by kind of tree and level, each counted once whatever the number of its copies.
    pub blocks: [[u64; LEVELS]; TreeKind::ALL.len()],
    /// Size of these blocks in bytes, each counted once.
    pub metadata_bytes: u64,
    /// Extents whose references were applied to the extent tree.
    pub references: u64,
    /// Rounds that it took until nothing was left to bring up to date.
    pub rounds: u64,
    /// Duration of each phase.
    pub phases: [Duration; CommitPhase::ALL.len()],
}

impl CommitReport {
    /// Duration as a whole.
    pub fn time(&self) -> Duration {
        self.phases.iter().sum()
    }

    /// Tree blocks written, of all trees and levels.
    pub fn block_count(&self) -> u64 {
        self.blocks.iter().flatten().sum()
    }

    fn add(&mut self, other: &Self) {
        for (sum, more) in self.blocks.iter_mut().flatten().zip(other.blocks.iter().flatten()) {
            *sum += more;
        }
        self.metadata_bytes += other.metadata_bytes;
        self.references += other.references;
        self.rounds += other.rounds;
        for (sum, more) in self.phases.iter_mut().zip(other.phases) {
            *sum += more;
        }
    }
}

/// Counters of the commits of a pool since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitStatistics {
    /// Number of commits.
    pub commits: u64,
    /// The last one.
    pub last: CommitReport,
    /// All together.
    pub total: CommitReport,
    /// Duration of the longest.
    pub longest: Duration,
    /// Counters of the log between them.
    pub log: LogStatistics,
}

impl CommitStatistics {
    /// Counts one more.
    pub(super) fn add(&mut self, report: &CommitReport) {
        self.commits += 1;
        self.last = *report;
        self.total.add(report);
        self.longest = self.longest.max(report.time());
    }
}

/// The report of the commit that is being made.
pub(super) struct Tally {
    pub(super) report: CommitReport,
    since: Instant,
}

impl Tally {
    pub(super) fn begin() -> Self {
        Self { report: CommitReport::default(), since: Instant::now() }
    }

    /// Ends a phase: the time since the last call counts as its.
    pub(super) fn ends(&mut self, phase: CommitPhase) {
        let now = Instant::now();
        self.report.phases[phase as usize] += now - self.since;
        self.since = now;
    }

    /// Blocks are to be written.
    pub(super) fn count_block(&mut self, tree: RootId, level: u8, nodesize: u32) {
        self.report.blocks[TreeKind::of(tree) as usize][usize::from(level).min(LEVELS - 1)] += 1;
        self.report.metadata_bytes += u64::from(nodesize);
    }

    pub(super) fn count_references(&mut self, count: usize) {
        self.report.references += to_u64(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_all_and_the_longest_is_kept() {
        let mut statistics = CommitStatistics::default();
        for (blocks, milliseconds) in [(3, 10), (5, 30), (1, 20)] {
            let mut tally = Tally::begin();
            for _ in 0..blocks {
                tally.count_block(RootId::FS_TREE, 1, 4096);
            }
            tally.count_references(7);
            tally.report.phases = [Duration::ZERO; 5];
            tally.report.phases[CommitPhase::Write as usize] = Duration::from_millis(milliseconds);
            statistics.add(&tally.report);
        }
        assert_eq!((statistics.commits, statistics.last.block_count()), (3, 1));
        assert_eq!((statistics.total.block_count(), statistics.total.metadata_bytes), (9, 9 * 4096));
        assert_eq!(statistics.total.blocks[TreeKind::Files as usize][1], 9);
        assert_eq!(statistics.total.references, 21);
        assert_eq!(statistics.longest, Duration::from_millis(30));
        assert_eq!(statistics.total.time(), Duration::from_millis(60));
    }

    #[test]
    fn kinds_and_phases_are_in_the_order_of_their_lists() {
        assert!(TreeKind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
        assert!(CommitPhase::ALL.iter().enumerate().all(|(index, phase)| *phase as usize == index));
        assert_eq!(TreeKind::of(RootId::new(256)), TreeKind::Files);
        assert_eq!(TreeKind::of(RootId::UUID_TREE), TreeKind::Other);
    }
}
