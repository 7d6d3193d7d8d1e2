//! Steps of CI, in the order in which failures are cheapest.

use crate::{binaries, cargo, fuzz, tidy};
use anyhow::Result;

/// Packages whose tests attach loop devices, mount and start programs, and so would meet each other: a child that is
/// being started holds every lock and every open file of all threads until it runs its program.
const ALONE: [&str; 3] = ["care", "fuse", "brindle"];

/// Seed of all random cases: a change fails for its own faults, not for another draw.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// Runs everything, stopping at the first failure.
pub(crate) fn run(fuzz_seconds: u32) -> Result<()> {
    crate::run(cargo().args(["fmt", "--all", "--check"]))?;
    tidy()?;
    crate::run(cargo().args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    crate::run(cargo().args([
        "deny",
        "--all-features",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))?;
    tests()?;
    explore()?;
    for target in fuzz::targets()? {
        fuzz::run(&target, fuzz_seconds, Some(1))?;
    }
    Ok(())
}

/// Explores schedules of threads: all threads of this build are tasks of one, so it is a build of its own. Its lints are
/// checked here, too, as no other build has these sources.
fn explore() -> Result<()> {
    let explored = ["--package", "brindle-fs", "--features", "explore", "--test", "explore", "--quiet"];
    crate::run(cargo().arg("clippy").args(explored).args(["--", "-D", "warnings"]))?;
    crate::run(cargo().arg("test").args(explored))
}

/// Builds and runs all tests, each package's in its own way.
pub(crate) fn tests() -> Result<()> {
    let is_alone = |binary: &binaries::TestBinary| ALONE.contains(&binary.package.as_str());
    let mut binaries = binaries::build()?;
    binaries.sort_by_key(is_alone);
    for binary in &binaries {
        let mut command = binary.command();
        if is_alone(binary) {
            command.arg("--test-threads=1");
        }
        if std::env::var_os(SEED.0).is_none() {
            command.env(SEED.0, SEED.1);
        }
        crate::run(&mut command)?;
    }
    crate::run(cargo().args(["test", "--workspace", "--doc"]))
}
