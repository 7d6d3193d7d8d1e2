//! The crash explorer by one command: all of its tests, pass after pass, until a number of different states was examined.
//!
//! Each test appends to a tally: its states by pool with their fingerprints, those that the kernel has seen, and the operations by
//! kind. Each pass has seeds of its own. Tests of the most common pool come first (`first_*`), then the others.

mod tally;

use crate::binaries::{self, TestBinary};
use crate::steps::{Limits, Steps};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::BTreeSet;
use std::io::{Read, Seek};
use std::path::Path;
use std::time::Instant;
use tally::Tally;

/// Properties of a run.
#[derive(Args)]
pub(crate) struct Options {
    /// Different states to examine
    #[arg(default_value_t = 100_000)]
    states: usize,
    /// Number of states of which one goes to the kernel and to `btrfs check` (root); 0 for none of them
    #[arg(long, default_value_t = 200)]
    kernel: u64,
    /// Pass to begin with; each has histories of its own, pass 0 those of CI
    #[arg(long, default_value_t = 0)]
    pass: u64,
    /// Only tests whose names contain this
    #[arg(long, default_value = "")]
    only: String,
}

/// Runs all tests until the states are enough; fails at the first test that does, after its message, which ends with the
/// command that shows the failure again.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.kernel > 0 && !rustix::process::geteuid().is_root() {
        bail!("states are mounted by root only; --kernel 0 does without");
    }
    let mut steps = Steps::begin(Limits::NONE)?;
    let binaries = binaries::build(&mut steps, &["--package", "brindle-fs", "--test", "fs"])?;
    let [binary] = &binaries[..] else { bail!("the tests of brindle-fs are one binary") };
    let mut tests = tests(&mut steps, binary, &options.only)?;
    let folder = tempfile::tempdir()?;
    let (path, started) = (folder.path().join("tally"), Instant::now());
    let mut tally = Tally::default();
    for pass in options.pass.. {
        let mut idle = BTreeSet::new();
        for test in &tests {
            run_test(&mut steps, binary, test, options, pass, &path)?;
            let lines = tally.take(&path)?;
            if lines == 0 {
                idle.insert(test.clone());
            }
            eprintln!("{} of {} different states, pass {pass}", tally.distinct(), options.states);
            if tally.distinct() >= options.states {
                print!("{}", tally.summary(pass, started.elapsed()));
                return tally.judge(options.kernel > 0, options.only.is_empty());
            }
        }
        // Scenes that were written by hand are the same in every pass.
        tests.retain(|test| !idle.contains(test));
        if tests.is_empty() {
            bail!("no test of that name examines states");
        }
    }
    Ok(())
}

/// The tests, those of the most common pool first. Devices that fail are another matter.
fn tests(steps: &mut Steps, binary: &TestBinary, only: &str) -> Result<Vec<String>> {
    let listed = steps.output(binary.command().args(["crash::", "--list", "--format", "terse"]))?;
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    let is_wanted = |name: &&str| !name.contains("::faults::") && name.contains(only);
    let mut names: Vec<String> = names.filter(is_wanted).map(str::to_owned).collect();
    names.sort_by_key(|name| !name.contains("::first_"));
    Ok(names)
}

fn run_test(
    steps: &mut Steps,
    binary: &TestBinary,
    test: &str,
    options: &Options,
    pass: u64,
    tally: &Path,
) -> Result<()> {
    let mut said = tempfile::tempfile()?;
    let mut command = binary.command();
    command.args(["--exact", test]).stdout(said.try_clone()?);
    command.env("BRINDLE_CRASH_TALLY", tally).env("BRINDLE_CRASH_PASS", pass.to_string());
    if options.kernel > 0 {
        command.env("BRINDLE_CRASH_KERNEL", options.kernel.to_string());
    }
    let ended = steps.run_as(test, &mut command);
    if ended.is_err() {
        let mut text = String::new();
        said.rewind()?;
        said.read_to_string(&mut text).context("the output of the test")?;
        eprint!("{text}");
    }
    ended
}
