//! Steps of CI, in the order in which failures are cheapest.

use crate::steps::{Lane, Limits, Steps, named};
use crate::{binaries, cargo, fuzz};
use anyhow::Result;
use std::process::Command;
use std::time::Duration;

/// Packages whose tests attach loop devices, mount and start programs, and so would meet each other: a child that is
/// being started holds every lock and every open file of all threads until it runs its program.
const ALONE: [&str; 3] = ["care", "fuse", "brindle"];

/// Seed of all random cases: a change fails for its own faults, not for another draw.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// Time of CI, and of a step: the slowest, the build of all tests from nothing, takes 20 minutes of two cores. What takes
/// longer is stuck, and says where.
const LIMITS: Limits = Limits { step: Duration::from_secs(35 * 60), all: Duration::from_secs(85 * 60) };

/// Runs everything, stopping at the first failure.
pub(crate) fn run(fuzz_seconds: u32) -> Result<()> {
    let mut steps = Steps::begin(LIMITS)?;
    steps.run(cargo().args(["fmt", "--all", "--check"]))?;
    steps.run(cargo().args(["xtask", "tidy"]))?;
    steps.run(cargo().args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    steps.run(cargo().args([
        "deny",
        "--all-features",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))?;
    let mut lanes = test_lanes(&mut steps)?;
    // Beside the tests, many of which wait: for the kernel, for time to pass, for a process to end.
    let mut builds = Lane::new();
    builds.push(named(doc_tests()));
    builds.extend(explore());
    builds.extend(fuzz::short_runs(fuzz_seconds)?);
    lanes.push(builds);
    steps.side_by_side(lanes)
}

/// Explores schedules of threads: all threads of this build are tasks of one, so it is a build of its own. Its lints are
/// checked here, too, as no other build has these sources.
fn explore() -> Lane {
    let explored = ["--package", "brindle-fs", "--features", "explore", "--test", "explore"];
    let (mut lints, mut tests) = (cargo(), cargo());
    lints.args(["clippy", "--quiet"]).args(explored).args(["--", "-D", "warnings"]);
    tests.arg("test").args(explored);
    vec![named(lints), named(tests)]
}

fn doc_tests() -> Command {
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--doc"]);
    tests
}

/// Runs all tests, as CI does.
pub(crate) fn run_tests() -> Result<()> {
    let mut steps = Steps::begin(LIMITS)?;
    let lanes = test_lanes(&mut steps)?;
    steps.side_by_side(lanes)?;
    steps.run(&mut doc_tests())
}

/// Builds all tests but those of documentation, to be run each package's in its own way: in one lane those that take a thread at a time, in the other all
/// others. The harness prints the name of a test before the test where they run one at a time, and elsewhere that one has been
/// running for a minute: the last line tells which test is stuck.
fn test_lanes(steps: &mut Steps) -> Result<Vec<Lane>> {
    let (mut alone, mut others) = (Lane::new(), Lane::new());
    for binary in binaries::build(steps, &["--workspace"])? {
        let mut command = binary.command();
        if std::env::var_os(SEED.0).is_none() {
            command.env(SEED.0, SEED.1);
        }
        let name = format!("tests of {}: {}", binary.package, binary.name());
        if ALONE.contains(&binary.package.as_str()) {
            command.arg("--test-threads=1");
            alone.push((name, command));
        } else {
            others.push((name, command));
        }
    }
    Ok(vec![alone, others])
}
