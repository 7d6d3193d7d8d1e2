//! `lab compare`: works on filesystems in turn, on modelled disks.

use crate::commands::stop::Stop;
use crate::commands::usage::wrong_usage;
use crate::format::{Align, write_table};
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_lab::compare::{Comparison, Observer, Outcome, Plan, Step, StepRecord};
use brindle_lab::{Model, Suite};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

const MANUAL: &str = "\
PLANS
  smoke  a moment: everything once, as small as can be, to see that all programs
         are there
  quick  under five minutes on a quiet machine: package upgrade, untar and
         overwrites, two rounds
  full   hours: all suites of `brindle lab run`, five rounds, on disks of the
         published sizes

  --list shows the works and configurations of a plan. In a configuration's
  name, hdd and ssd are the disks that it is on; on both, metadata is on the
  SSD: brindle by its placement, with its write-back off, sync or all, the
  kernel's btrfs after `brindle tier apply`. On three disks, all is raid1c3. On
  cache, the SSD is a write-back flash cache of the hard disk: a device of
  `brindle cache load`, for brindle a member `cache:SSD:DISK`.

EACH STEP
  Modelled disks are made, with loop devices; a filesystem is made and mounted;
  the work is done with dropped caches, on a fresh mount before whatever it
  reads; the filesystem is unmounted, and examined by e2fsck, xfs_repair, btrfs
  check and brindle check. If a check finds anything, the figures of the step
  are void. Configurations take turns, in rounds.

RESULTS
  JSON lines: the first tells plan, seed, models, kernel, version and commit,
  each other one a step with its programs, its raw output and its checks. With a
  file that is there, the comparison goes on where it was interrupted, and steps
  that failed are tried again. `brindle lab report` makes a page of it.

  A first signal ends the comparison after its step, a second one at once;
  mounts and disks may be left then.

EXAMPLES
    brindle lab compare --plan quick results.jsonl
    brindle lab compare --plan full --work upgrade --work untar --rounds 3 \\
        --hdd old-hdd old.jsonl
    brindle lab compare --plan full --list

EXIT STATUS
  0  all steps are done, and no check found anything
  1  a step failed, or a check found something; or the comparison could not
     begin
  2  wrong usage
  129, 130, 143  ended by SIGHUP, SIGINT or SIGTERM; the same command goes on";

/// Compare filesystems on modelled disks, in turns (root)
///
/// Each step of a plan has disks and a filesystem of its own, which is checked afterwards. Wants free memory for the contents of the
/// disks, and a quiet machine: on a busy one only counts and, with several rounds, ratios mean something.
#[derive(Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct CompareCommand {
    /// smoke, quick or full
    #[arg(short, long, default_value = "quick")]
    plan: String,
    /// A work of the plan; may be given several times; all unless told otherwise
    #[arg(short, long, value_name = "NAME")]
    work: Vec<String>,
    /// A configuration of the plan; may be given several times; all unless told otherwise
    #[arg(short, long, value_name = "NAME")]
    configuration: Vec<String>,
    /// Rounds; those of the plan unless told otherwise
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    /// Seed of contents and places
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Model line of hard disks
    #[arg(long, value_name = "MODEL", default_value = "hdd")]
    hdd: String,
    /// Model line of SSDs
    #[arg(long, value_name = "MODEL", default_value = "ssd")]
    ssd: String,
    /// Directory of Debian packages for dpkg, in place of its own
    #[arg(long, value_name = "DIRECTORY")]
    packages: Option<PathBuf>,
    /// Directory in which disks and filesystems are mounted
    #[arg(long, value_name = "DIRECTORY", default_value = "/tmp")]
    scratch: PathBuf,
    /// Show works and configurations, and do nothing
    #[arg(short, long)]
    list: bool,
    /// File of the results, which is made, or gone on with
    #[arg(required_unless_present = "list")]
    results: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &CompareCommand) -> Result<ExitCode> {
    let Some(mut plan) = Plan::find(&command.plan) else {
        return wrong_usage(format!("a plan is one of {}", Plan::all().map(|plan| plan.name).join(", ")));
    };
    if let Err(error) = plan.choose(&command.work, &command.configuration) {
        return wrong_usage(error);
    }
    for model in [&command.hdd, &command.ssd] {
        if let Err(error) = Model::parse(model) {
            return wrong_usage(error.to_string());
        }
    }
    if let Some(packages) = &command.packages {
        if !plan.works.iter().any(|work| work.suite == Suite::Dpkg) {
            return wrong_usage("--packages: no work of the plan is one of dpkg".to_owned());
        }
        let absolute = packages.canonicalize().with_context(|| packages.display().to_string())?;
        plan.take_packages(&absolute);
    }
    plan.rounds = command.rounds.unwrap_or(plan.rounds);
    let Some(results) = command.results.clone().filter(|_| !command.list) else {
        return list(&plan);
    };
    if !rustix::process::geteuid().is_root() {
        bail!("only root can make and mount filesystems");
    }
    let brindle = std::env::current_exe().context("cannot find the program of brindle")?;
    let commit = commit_of(&brindle);
    let comparison = Comparison {
        brindle,
        results,
        scratch: command.scratch.clone(),
        hdd: command.hdd.clone(),
        ssd: command.ssd.clone(),
        seed: command.seed,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit,
    };
    comparison.verify_results(&plan)?;
    require_programs(&plan)?;
    let mut shown = Shown { stop: Stop::on_signals()?, bar: progress_bar() };
    let outcome = comparison.run(&plan, &mut shown);
    shown.bar.finish_and_clear();
    conclude(&outcome?, &shown.stop, &comparison.results)
}

fn list(plan: &Plan) -> Result<ExitCode> {
    let mut out = output::stdout();
    let head = ["WORK", "COMMAND", "CONFIGURATIONS"].map(str::to_owned).to_vec();
    let rows = plan.works.iter().map(|work| {
        let configurations: Vec<_> = work.configurations.iter().map(|one| one.name).collect();
        vec![work.name.to_owned(), work.words(1), configurations.join(" ")]
    });
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    write_table(&mut out, &[Align::Left; 3], &rows)?;
    writeln!(out, "{} rounds, {} steps", plan.rounds, plan.steps().len())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Fails if a program that some step needs is not there: a plan that leaves some out is another plan.
fn require_programs(plan: &Plan) -> Result<()> {
    let is_there = |program: &str| {
        let places = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&places).any(|place| place.join(program).exists())
    };
    for work in &plan.works {
        if let Some(program) = work.suite.missing_program() {
            bail!("{} needs {program}, which is not installed; or choose others by --work", work.name);
        }
    }
    for configuration in plan.works.iter().flat_map(|work| &work.configurations) {
        if let Some(program) = configuration.programs().iter().find(|program| !is_there(program)) {
            let name = configuration.name;
            bail!("{name} needs {program}, which is not installed; or choose others by --configuration");
        }
    }
    Ok(())
}

/// Commit of the sources that a program was built from, if it lies where it was built.
fn commit_of(program: &Path) -> Option<String> {
    let directory = program.parent()?;
    let mut git = Command::new("git");
    git.arg("-C").arg(directory).args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]);
    let said = git.stderr(Stdio::null()).output().ok().filter(|said| said.status.success())?;
    Some(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

/// Progress, as a bar on a terminal, and as a line for each step.
struct Shown {
    stop: Stop,
    bar: ProgressBar,
}

fn progress_bar() -> ProgressBar {
    let bar = if io::stderr().is_terminal() {
        ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
    } else {
        ProgressBar::hidden()
    };
    let template = "{bar:24} {pos}/{len} {wide_msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is right"));
    bar
}

/// A time to come, roughly.
fn roughly(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 100 => format!("{seconds} s"),
        seconds if seconds < 100 * 60 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

impl Observer for Shown {
    fn begins(&mut self, step: &Step<'_>, done: usize, all: usize, left: Option<Duration>) {
        let left = left.map_or_else(String::new, |left| format!(", {} left", roughly(left)));
        self.bar.set_length(all as u64);
        self.bar.set_position(done as u64);
        let (work, name, round) = (step.work.name, step.configuration.name, step.round);
        self.bar.set_message(format!("round {round}: {work} on {name}{left}"));
        self.bar.tick();
    }

    fn ended(&mut self, record: &StepRecord) {
        let seconds = Duration::from_nanos(record.elapsed_ns).as_secs_f64();
        let outcome = match &record.error {
            Some(error) => format!("failed: {error}"),
            None if record.is_valid() => format!("{seconds:.1} s"),
            None => "void: a check found something".to_owned(),
        };
        let line = format!("round {}: {} on {}: {outcome}", record.round, record.work, record.configuration);
        // Progress that nothing reads is no failure.
        self.bar.suspend(|| writeln!(io::stderr(), "{line}").unwrap_or_default());
    }

    fn stops(&self) -> bool {
        self.stop.is_set()
    }
}

fn conclude(outcome: &Outcome, stop: &Stop, results: &Path) -> Result<ExitCode> {
    let Outcome { done, all, void, failed } = *outcome;
    let mut out = output::stdout();
    writeln!(
        out,
        "{done} of {all} steps are done, {void} now void, {failed} failed; see `brindle lab report {}`",
        results.display()
    )?;
    out.flush()?;
    Ok(match stop.name_and_code() {
        Some((_, code)) if done < all => ExitCode::from(code),
        _ if done < all || void > 0 => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}
