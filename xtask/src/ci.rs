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

/// Runs everything. Tests that fail keep no others from running; any other step that fails is the last.
pub(crate) fn run(fuzz_seconds: u32) -> Result<()> {
    let mut steps = Steps::begin(LIMITS)?;
    steps.run(cargo().args(["fmt", "--all", "--check"]))?;
    steps.run(cargo().args(["xtask", "tidy"]))?;
    steps.run(cargo().args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    // As packagers may build it.
    let without =
        ["clippy", "--package", "brindle", "--no-default-features", "--quiet", "--", "-D", "warnings"];
    steps.run(cargo().args(without))?;
    steps.run(cargo().args([
        "deny",
        "--all-features",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))?;
    let [alone, mut others] = tests(&mut steps)?;
    // Tests that take a thread at a time wait for disks half of their time: there is room for two more builds beside them.
    others.extend(explore().map(named));
    others.push(named(fuzz::build_for_short_runs()));
    steps.side_by_side(vec![alone, others])?;
    fuzz::run_shortly(&mut steps, fuzz_seconds)
}

/// Explores schedules of threads: all threads of this build are tasks of one, so it is a build of its own. Its lints are
/// checked here, too, as no other build has these sources.
fn explore() -> [Command; 2] {
    let explored = ["--package", "brindle-fs", "--features", "explore", "--test", "explore"];
    let [mut lints, mut test] = [cargo(), cargo()];
    lints.args(["clippy", "--quiet"]).args(explored).args(["--", "-D", "warnings"]);
    test.arg("test").args(explored);
    [lints, test]
}

/// Runs all tests, as CI does.
pub(crate) fn run_tests() -> Result<()> {
    let mut steps = Steps::begin(LIMITS)?;
    let lanes = tests(&mut steps)?;
    steps.side_by_side(lanes.into())
}

/// Builds all tests, and returns the lanes that run them, each package's in its own way: in one lane those that take a thread at a time, in the other all
/// others. The harness prints the name of a test before the test where they run one at a time, and elsewhere that one has been
/// running for a minute: the last line tells which test is stuck.
fn tests(steps: &mut Steps) -> Result<[Lane; 2]> {
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
    let mut examples = cargo();
    examples.args(["test", "--workspace", "--doc"]);
    others.push(named(examples));
    Ok([alone, others])
}
