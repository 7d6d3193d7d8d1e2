//! Sum of the lines that crash tests append to a tally: `POOL TAB STATES TAB REFEREED TAB KIND=COUNT,... TAB FINGERPRINT ...`.

use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Kinds of operations that a run over all tests must have had: all that a log has to do with.
const EXPECTED: [&str; 21] = [
    "clones",
    "directories",
    "exchanges",
    "files",
    "files in new directories",
    "fsyncs of directories",
    "fsyncs of files",
    "fsyncs of files in new directories",
    "fsyncs of files with several names",
    "fsyncs that were commits",
    "links",
    "logs",
    "new chunks",
    "removals of directories",
    "renames",
    "renames of directories",
    "renames over another file",
    "symbolic links",
    "unlinks",
    "writes",
    "xattrs",
];

/// States and operations of a run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tally {
    pools: BTreeMap<String, Pool>,
    kinds: BTreeMap<String, u64>,
}

/// States of the pools of a kind.
#[derive(Debug, Default, PartialEq)]
struct Pool {
    histories: u64,
    states: u64,
    refereed: u64,
    fingerprints: HashSet<u64>,
}

impl Tally {
    /// Adds the lines of a file, and removes it; returns their number.
    pub(super) fn take(&mut self, path: &Path) -> Result<usize> {
        if !path.exists() {
            return Ok(0);
        }
        let text = fs::read_to_string(path)?;
        fs::remove_file(path)?;
        text.lines()
            .try_for_each(|line| self.add(line).with_context(|| format!("a line of the tally: {line}")))?;
        Ok(text.lines().count())
    }

    fn add(&mut self, line: &str) -> Result<()> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [pool, states, refereed, kinds, fingerprints] = fields[..] else { bail!("not five fields") };
        let pool = self.pools.entry(pool.to_owned()).or_default();
        pool.histories += 1;
        pool.states += states.parse::<u64>()?;
        pool.refereed += refereed.parse::<u64>()?;
        for fingerprint in fingerprints.split_whitespace() {
            pool.fingerprints.insert(u64::from_str_radix(fingerprint, 16)?);
        }
        for kind in kinds.split(',').filter(|kind| !kind.is_empty()) {
            let (kind, count) = kind.split_once('=').context("a kind has a count")?;
            *self.kinds.entry(kind.to_owned()).or_default() += count.parse::<u64>()?;
        }
        Ok(())
    }

    /// Number of different states.
    pub(super) fn distinct(&self) -> usize {
        self.pools.values().map(|pool| pool.fingerprints.len()).sum()
    }

    /// Number of states that the kernel has seen.
    fn refereed(&self) -> u64 {
        self.pools.values().map(|pool| pool.refereed).sum()
    }

    /// A table by pool, and one of the operations by kind.
    pub(super) fn summary(&self, last_pass: u64, took: Duration) -> String {
        let mut text = String::new();
        let states: u64 = self.pools.values().map(|pool| pool.states).sum();
        let _ = writeln!(
            text,
            "{} different states of {states} examined, {} before the kernel and btrfs check, up to pass {last_pass}, \
             in {} min: all as promised",
            self.distinct(),
            self.refereed(),
            took.as_secs().div_ceil(60)
        );
        let _ = writeln!(text, "\n{:>9} {:>9} {:>6}  POOL", "HISTORIES", "DIFFERENT", "KERNEL");
        for (name, pool) in &self.pools {
            let _ = writeln!(
                text,
                "{:>9} {:>9} {:>6}  {name}",
                pool.histories,
                pool.fingerprints.len(),
                pool.refereed
            );
        }
        let _ = writeln!(text, "\n    COUNT  OPERATION");
        for (kind, count) in &self.kinds {
            let _ = writeln!(text, "{count:>9}  {kind}");
        }
        text
    }

    /// Fails if the run shows less than it says: no sample for the kernel, or an operation that never came.
    pub(super) fn judge(&self, wants_kernel: bool, wants_kinds: bool) -> Result<()> {
        if wants_kernel && self.refereed() == 0 {
            bail!("no state went before the kernel: too few of them for the sample");
        }
        let missing: Vec<&str> = EXPECTED
            .into_iter()
            .filter(|kind| self.kinds.get(*kind).is_none_or(|count| *count == 0))
            .collect();
        if wants_kinds && !missing.is_empty() {
            bail!("operations that never came: {}", missing.join(", "));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_and_a_state_counts_once() {
        let scratch = tempfile::tempdir().expect("room");
        let path = scratch.path().join("tally");
        let mut tally = Tally::default();
        assert_eq!(tally.take(&path).expect("nothing there"), 0);
        fs::write(&path, "a\t3\t1\tlinks=2,logs=0\t1 ff \na\t2\t0\t\tff 2 \nb\t1\t0\tlinks=1\tff \n")
            .expect("room");
        assert_eq!(tally.take(&path).expect("a tally"), 3);
        assert!(!path.exists(), "what was taken does not count again");
        assert_eq!((tally.distinct(), tally.refereed(), tally.kinds["links"]), (4, 1, 3));
        let summary = tally.summary(7, Duration::from_secs(61));
        assert!(summary.contains("4 different states of 6 examined, 1 before the kernel"), "{summary}");
        assert!(summary.contains("up to pass 7, in 2 min"), "{summary}");
        tally.add("a\t1\t0").expect_err("not a line");
    }

    #[test]
    fn a_run_that_shows_too_little_fails() {
        let mut tally = Tally::default();
        let kinds = EXPECTED.map(|kind| format!("{kind}=1")).join(",");
        tally.add(&format!("a\t1\t0\t{kinds}\t1 ")).expect("a line");
        tally.judge(false, true).expect("all kinds");
        tally.judge(true, true).expect_err("no state for the kernel");
        tally.kinds.insert("links".to_owned(), 0);
        let error = tally.judge(false, true).expect_err("no links");
        assert!(error.to_string().contains("links"), "{error}");
        tally.judge(false, false).expect("only some tests");
    }
}
