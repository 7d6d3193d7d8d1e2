//! What CI runs, in the order in which failures are cheapest.

use crate::{cargo, fuzz, tidy};
use anyhow::Result;

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
    crate::run(cargo().args(["test", "--workspace"]))?;
    for target in fuzz::targets()? {
        fuzz::run(&target, fuzz_seconds)?;
    }
    Ok(())
}
