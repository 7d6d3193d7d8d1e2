//! Chores of the workspace: `cargo xtask ci` is all that CI runs, `cargo xtask tidy` checks the shape of the
//! tree, `cargo xtask crash` explores crashes, `cargo xtask fuzz` runs a fuzz target, `cargo xtask man` writes the man pages.

mod binaries;
mod chains;
mod ci;
mod crash;
mod definitions;
mod documents;
mod floors;
mod fuzz;
mod imports;
mod language;
mod layers;
mod sources;
mod steps;

use anyhow::{Result, bail};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::Command;
use steps::{Limits, Steps};

/// Chores of the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Everything that CI runs: format, lints, tidy, licences, tests, some seconds of each fuzz target
    Ci {
        /// Seconds for each fuzz target
        #[arg(long, default_value_t = 20)]
        fuzz_seconds: u32,
    },
    /// All tests, as CI runs them
    Test,
    /// Check the layers, the sizes of modules, the language of comments, and code that sources must not hold
    Tidy,
    /// List the findings of language in the sources of a folder
    Language {
        /// A path below the workspace's folder, `crates/tree` for one
        #[arg(default_value = "")]
        below: String,
    },
    /// Explore crashes until a number of different states was examined, with a sample before the kernel
    Crash(crash::Options),
    /// Run every fuzz target for a while
    FuzzAll {
        /// Seconds for each
        #[arg(default_value_t = 600)]
        seconds: u32,
    },
    /// Run one fuzz target for a while
    Fuzz {
        /// A target of `fuzz/Cargo.toml`
        target: String,
        /// Seconds to run
        #[arg(default_value_t = 60)]
        seconds: u32,
    },
    /// Write the man pages into `target/man`
    Man,
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Ci { fuzz_seconds } => ci::run(fuzz_seconds),
        Task::Test => ci::run_tests(),
        Task::Tidy => tidy(),
        Task::Crash(options) => crash::run(&options),
        Task::Language { below } => language::list(&workspace_root(), &below),
        Task::Fuzz { target, seconds } => fuzz::run(&mut Steps::begin(Limits::NONE)?, &target, seconds),
        Task::FuzzAll { seconds } => {
            let mut steps = Steps::begin(Limits::NONE)?;
            fuzz::targets()?.iter().try_for_each(|target| fuzz::run(&mut steps, target, seconds))
        }
        Task::Man => Steps::begin(Limits::NONE)?.run(cargo().args([
            "run",
            "--quiet",
            "-p",
            "brindle",
            "--",
            "man",
            "target/man",
        ])),
    }
}

fn tidy() -> Result<()> {
    let mut complaints = layers::check()?;
    complaints.extend(imports::check(&workspace_root())?);
    complaints.extend(definitions::check(&workspace_root())?);
    complaints.extend(floors::check(&workspace_root())?);
    complaints.extend(chains::check(&workspace_root())?);
    complaints.extend(sources::check(&workspace_root())?);
    complaints.extend(language::check(&workspace_root())?);
    complaints.extend(documents::check(&workspace_root())?);
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    if complaints.is_empty() {
        return Ok(());
    }
    bail!("the tree is not tidy: {} complaints", complaints.len())
}

/// The folder that holds the workspace's manifest. The variable that `cargo run` sets comes first: of several working trees
/// that share a target folder, any may have built this.
fn workspace_root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = Path::new(&here);
    here.parent().unwrap_or(here).to_owned()
}

/// The `cargo` that started this process, in the workspace's folder.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace_root());
    command
}
