//! What CI runs, in the order in which failures are cheapest.

use crate::{cargo, fuzz, tidy};
use anyhow::Result;

/// Crates whose tests attach loop devices, mount and start programs, and so would meet each other: a child that is
/// being started holds every lock and every open file of all threads until it runs its program.
const ALONE: [&str; 3] = ["brindle-care", "brindle-fuse", "brindle"];

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
    let mut parallel = cargo();
    parallel.args(["test", "--workspace"]);
    for package in ALONE {
        parallel.args(["--exclude", package]);
    }
    crate::run(&mut parallel)?;
    for package in ALONE {
        crate::run(cargo().args(["test", "--package", package, "--", "--test-threads=1"]))?;
    }
    for target in fuzz::targets()? {
        fuzz::run(&target, fuzz_seconds)?;
    }
    Ok(())
}
