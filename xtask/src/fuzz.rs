//! Fuzzing on the stable toolchain: libFuzzer's instrumentation is asked of the compiler by its passes.

use crate::steps::{Lane, Steps};
use crate::{cargo, workspace_root};
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;

/// Coverage as libFuzzer wants it. `--target` keeps it out of build scripts.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// The memory a target may take, in MiB: more is a finding.
const MEMORY_MIB: u32 = 1024;
/// The time one input may take, in seconds: more is a finding.
const INPUT_SECONDS: u32 = 20;

/// Every target of `fuzz/Cargo.toml`.
pub(crate) fn targets() -> Result<Vec<String>> {
    let folder = workspace_root().join("fuzz/fuzz_targets");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    found.sort();
    Ok(found)
}

/// Builds a target and runs it on its corpus; new inputs go into a folder that is not kept.
pub(crate) fn run(steps: &mut Steps, target: &str, seconds: u32) -> Result<()> {
    steps.run(build().args(["--bin", target]))?;
    steps.run(&mut command(target, seconds)?)
}

/// The build of every target for short runs: to optimise more would take longer than they do.
pub(crate) fn build_for_short_runs() -> Command {
    let mut build = build();
    build.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").arg("--bins");
    build
}

/// Runs every target, which is built, for a short while, in two lanes. With the same seed each time, the same inputs are tried in the
/// same order, as far as that comes.
pub(crate) fn run_shortly(steps: &mut Steps, seconds: u32) -> Result<()> {
    let mut lanes = vec![Lane::new(), Lane::new()];
    for (number, target) in targets()?.iter().enumerate() {
        let mut command = command(target, seconds)?;
        command.arg("-seed=1");
        lanes[number % 2].push((format!("fuzz {target}"), command));
    }
    steps.side_by_side(lanes)
}

/// The build, but for the targets.
fn build() -> Command {
    let mut build = cargo();
    build
        .env("RUSTFLAGS", FLAGS)
        .args(["build", "--release", "--quiet", "--manifest-path", "fuzz/Cargo.toml"])
        // Where it is looked for below, whatever the environment says.
        .args(["--target-dir", "fuzz/target", "--target", TRIPLE]);
    build
}

/// The run of a target that was built.
fn command(target: &str, seconds: u32) -> Result<Command> {
    let fuzz = workspace_root().join("fuzz");
    let found = fuzz.join("target/found").join(target);
    let artifacts = fuzz.join("artifacts").join(target);
    fs::create_dir_all(&found)?;
    fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(fuzz.join("target").join(TRIPLE).join("release").join(target));
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-print_final_stats=1", "-verbosity=0"])
        .arg(&found)
        .arg(fuzz.join("corpus").join(target));
    Ok(command)
}
