//! The 73 published cases (Xie and Li, "Performance Improvement of Btrfs", 2011): small and large files, read and written, at random
//! and in order, with an fsync each 100 requests, through the page cache or past it, by one thread and eight, in two sizes of
//! block for each kind of file; and empty files.
//!
//! Of the 80 combinations the publication counts 72, and does not say which. A read has no fsync; small files were shown read
//! both ways, so here it is large files that are not read past the page cache.

use std::fmt;

/// Files of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Files of 16 KiB, too long to lie in a tree.
    Small,
    /// One file.
    Large,
}

/// Direction of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Written bytes.
    Write,
    /// Read bytes.
    Read,
}

/// Order of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Anywhere.
    Random,
    /// One after the other; threads take turns.
    Sequential,
}

/// The way of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Through the page cache, with an fsync each 100 requests.
    Fsync,
    /// Through the page cache.
    General,
    /// Past the page cache.
    Direct,
}

/// One of the 72 cases of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its files.
    pub files: FileKind,
    /// Reads or writes.
    pub direction: Direction,
    /// Their order.
    pub order: Order,
    /// Their way.
    pub mode: Mode,
    /// Threads that make them.
    pub threads: u64,
    /// Length of each, in bytes.
    pub block_bytes: usize,
}

/// Name of the case of empty files.
pub const EMPTY_FILES: &str = "empty create+delete";

impl FileKind {
    fn blocks(self) -> [usize; 2] {
        match self {
            Self::Small => [1 << 10, 4 << 10],
            Self::Large => [4 << 10, 32 << 10],
        }
    }

    fn modes(self, direction: Direction) -> &'static [Mode] {
        match (direction, self) {
            (Direction::Write, _) => &[Mode::Fsync, Mode::General, Mode::Direct],
            (Direction::Read, Self::Small) => &[Mode::General, Mode::Direct],
            (Direction::Read, Self::Large) => &[Mode::General],
        }
    }
}

impl Case {
    /// The 72 of them, in the order of a run: reads before the writes that change what is read.
    pub fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for files in [FileKind::Small, FileKind::Large] {
            for direction in [Direction::Read, Direction::Write] {
                for order in [Order::Random, Order::Sequential] {
                    for &mode in files.modes(direction) {
                        for threads in [1, 8] {
                            for block_bytes in files.blocks() {
                                cases.push(Self { files, direction, order, mode, threads, block_bytes });
                            }
                        }
                    }
                }
            }
        }
        cases
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = match self.files {
            FileKind::Small => "small",
            FileKind::Large => "large",
        };
        let order = match self.order {
            Order::Random => "random",
            Order::Sequential => "sequential",
        };
        let direction = match self.direction {
            Direction::Write => "write",
            Direction::Read => "read",
        };
        let mode = match self.mode {
            Mode::Fsync => "fsync",
            Mode::General => "general",
            Mode::Direct => "direct",
        };
        write!(f, "{files} {order} {direction} {mode} {}x{}K", self.threads, self.block_bytes >> 10)
    }
}

/// Share of the reference's rate below which a case is poor: more than 20 % slower.
const POOR: f64 = 0.8;

/// Returns true if a case is poor beside a reference, by the published rule: more than 20 % slower.
pub fn is_poor(rate: f64, reference: f64) -> bool {
    rate < POOR * reference
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_73_cases_with_names_of_their_own() {
        let cases = Case::all();
        assert_eq!(cases.len(), 72);
        let names: BTreeSet<_> =
            cases.iter().map(ToString::to_string).chain([EMPTY_FILES.to_owned()]).collect();
        assert_eq!(names.len(), 73);
        assert!(
            names.contains("small random read direct 8x1K")
                && names.contains("large random write fsync 1x32K")
        );
    }

    #[test]
    fn the_mix_is_that_of_the_publication() {
        let cases = Case::all();
        let number = |is: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| is(case)).count();
        assert_eq!(number(&|case| case.direction == Direction::Write), 48);
        assert_eq!(number(&|case| case.mode == Mode::Fsync && case.direction == Direction::Read), 0);
        assert_eq!(number(&|case| case.mode == Mode::Fsync), 16);
        for threads in [1, 8] {
            assert_eq!(number(&|case| case.threads == threads), 36);
        }
        let blocks = |files| {
            let of = cases.iter().filter(|case| case.files == files);
            of.map(|case| case.block_bytes >> 10).collect::<BTreeSet<_>>()
        };
        assert_eq!(blocks(FileKind::Small), BTreeSet::from([1, 4]));
        assert_eq!(blocks(FileKind::Large), BTreeSet::from([4, 32]));
        let first_write = |files| {
            let position = |is: &dyn Fn(&Case) -> bool| {
                cases.iter().position(|case| case.files == files && is(case)).expect("there are some")
            };
            (
                position(&|case| case.direction == Direction::Read),
                position(&|case| case.direction == Direction::Write),
            )
        };
        for files in [FileKind::Small, FileKind::Large] {
            let (read, write) = first_write(files);
            assert!(read < write);
        }
    }

    #[test]
    fn more_than_a_fifth_slower_is_poor() {
        assert!(!is_poor(100.0, 100.0) && !is_poor(80.0, 100.0) && !is_poor(150.0, 100.0));
        assert!(is_poor(79.9, 100.0) && is_poor(0.0, 100.0));
        assert!(!is_poor(0.0, 0.0), "neither can do it");
    }
}
