//! `brindle status`: the health of pools, a line each, and an exit code.
//!
//! # The walk
//!
//! [`gather`] finds the pools that are meant and has `admin` gather and judge the facts of each; [`words`] says findings and
//! their remedies in words; [`json`] has the vocabulary that `brindle metrics` shares.

pub(crate) mod gather;
pub(crate) mod json;
pub(crate) mod silent;
mod words;

use crate::commands::holder;
use crate::format::{Align, UnitMode, write_table};
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_admin::health::{Finding, Severity};
use clap::Args;
use gather::Judged;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  All pools that are mounted, and with root those on block devices:
    brindle status

  One pool, with the command that mends each finding:
    brindle status -v /mnt

  In a job that runs every hour:
    brindle -q status /mnt || mail -s 'the pool wants a look' root

STATES
  ok         nothing is wrong
  attention  something wants a look: a scrub that left a device out, data that
             waits too long
  full       less than a twentieth of the room, or 10 GiB, is left for data or
             metadata
  errors     devices, or the last scrub, have counted errors, or a copy of a
             superblock is bad
  degraded   a device is missing, or lacks writes; or data or metadata have
             fewer copies than the pool's profile has
  read-only  nothing is written any more, for a reason
  down       the pool can't be read, or the server of its mount has ended, or
             has not answered for 20 seconds

EXIT STATUS
  0  all is well
  1  something wants a look, or a pool could not be asked
  2  wrong usage
  3  data is at risk: it is lost, or one more failure may lose some";

/// Exit code for pools that want a look.
const ATTENTION: u8 = 1;
/// Exit code for data at risk.
const RISK: u8 = 3;

/// Show the health of pools, a line each
///
/// A line has the label or the UUID, the state in a word, the mount point, and the reasons: devices that are missing or fail, the
/// result and age of the last scrub, jobs that run, how full the pool is, and data that waits on fast devices. -v adds a line for each
/// finding, with the command that mends it.
///
/// A mount is asked for what it has in memory: no sleeping disk is woken, unless a device is missing, which is looked for. Pools that are not mounted are read from their devices;
/// the system that holds one by its lease is named.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Directories of mounted pools, or devices; without any, all pools that are mounted, and with root those on block devices
    #[arg(value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Runs it; each finding has a line if `is_verbose`.
pub(crate) fn run(command: &StatusCommand, is_verbose: bool) -> Result<ExitCode> {
    let pools =
        silent::pools(&command.paths)?.into_iter().map(Judged::with_begun_returns).collect::<Vec<_>>();
    if command.json.json {
        output::print_json(&json::document(&pools))?;
    } else {
        let mut out = output::stdout();
        print(&mut out, &pools, is_verbose)?;
        out.flush()?;
    }
    let worst = pools.iter().map(Judged::severity).max().unwrap_or(Severity::Note);
    Ok(match worst {
        Severity::Note => ExitCode::SUCCESS,
        Severity::Attention => ExitCode::from(ATTENTION),
        Severity::Risk => ExitCode::from(RISK),
    })
}

fn print(out: &mut dyn Write, pools: &[Judged], is_verbose: bool) -> io::Result<()> {
    if pools.is_empty() {
        return writeln!(out, "no pool is mounted, and none was found on devices");
    }
    let row = |pool: &Judged| {
        let state = pool.state().name().to_owned();
        vec![pool.name(), state, pool.place(), reasons(pool).join("; ")]
    };
    let rows: Vec<Vec<String>> = pools.iter().map(row).collect();
    let mut lines = Vec::new();
    write_table(&mut lines, &[Align::Left; 4], &rows)?;
    for (line, pool) in lines.split_inclusive(|byte| *byte == b'\n').zip(pools) {
        out.write_all(line)?;
        if is_verbose {
            print_findings(out, pool)?;
        }
    }
    Ok(())
}

/// Reasons for a state: what is wrong, then how full the pool is, then the rest.
fn reasons(pool: &Judged) -> Vec<String> {
    let Judged::Known { health, findings, holder, .. } = pool else {
        return pool.trouble().into_iter().collect();
    };
    let of = |is_note: bool| {
        let meant = findings.iter().filter(move |it| (it.severity() == Severity::Note) == is_note);
        meant.map(words::finding)
    };
    let held = holder.iter().map(|found| format!("held by {}", holder::in_words(found)));
    of(false).chain(words::fill(health, UnitMode::DEFAULT)).chain(of(true)).chain(held).collect()
}

fn print_findings(out: &mut dyn Write, pool: &Judged) -> io::Result<()> {
    let line = |out: &mut dyn Write, severity: Severity, text: &str, remedy: Option<String>| {
        writeln!(out, "  {}: {text}", severity.name())?;
        remedy.map_or(Ok(()), |remedy| writeln!(out, "      {remedy}"))
    };
    match pool {
        Judged::Known { health, findings, .. } => {
            let one = |finding: &Finding| (words::finding(finding), words::remedy(finding, health));
            for finding in findings {
                let (text, remedy) = one(finding);
                line(out, finding.severity(), &text, remedy)?;
            }
            Ok(())
        }
        Judged::Unknown(unknown) => line(out, unknown.severity, &unknown.text, unknown.remedy.clone()),
    }
}
