//! `tier plan`: what `tier apply` would do.

use super::facts::{ClassOptions, Facts, Source};
use super::state;
use crate::commands::health;
use crate::commands::quantity::parse_rate;
use crate::format::{UnitMode, UnitOptions};
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_admin::DevId;
use brindle_admin::tier::TierError;
use brindle_policy::tier::gain::{MetadataReads, metadata_reads};
use brindle_policy::tier::plan::{Fence, FileMove, Move, Pass, Plan, Wanted, plan};
use brindle_policy::tier::shortage::Shortage;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
EXAMPLES
  What would be moved, and for how long if 100 MiB can be moved in a second?
    brindle tier plan --rate 100M /mnt

EXIT STATUS
  0  success: there is a plan, be it an empty one
  1  failure; or there is no room for some of what is wanted, or a device is
     missing of a pool that the kernel has mounted
  2  wrong usage";

/// Choice of the chunks to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Only {
    /// Metadata and system chunks, to the fast devices
    Metadata,
    /// Data chunks, to the bulk devices
    Data,
}

impl Only {
    /// Wanted moves, all if there is no choice.
    pub(crate) fn wanted(only: Option<Self>) -> Wanted {
        Wanted { metadata: only != Some(Self::Data), data: only != Some(Self::Metadata) }
    }
}

/// Show what `tier apply` would move, how much of it, and about how long
///
/// Nothing is changed. A missing device counts for nothing; a note tells what changes once it is back.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct PlanCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Move this alone
    #[arg(long, value_name = "WHAT")]
    only: Option<Only>,
    /// Bytes that can be moved in a second, such as 80M, to estimate the time
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    rate: Option<u64>,
    /// Do not look at files, which takes a while where there are many
    #[arg(long)]
    no_files: bool,
    /// A directory of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "MOUNTPOINT|DEVICE")]
    pool: Vec<PathBuf>,
    #[command(flatten)]
    classes: ClassOptions,
    // Last, for its heading would hold for what follows.
    #[command(flatten)]
    units: UnitOptions,
}

/// Runs the command.
pub(crate) fn run(command: &PlanCommand) -> Result<ExitCode> {
    let facts = Facts::gather(&command.pool, &command.classes)?;
    state::warn_of_fences(&facts);
    let wanted = Only::wanted(command.only);
    let refused = refused_by_kernel(&facts);
    let mut plan = if refused.is_some() { Plan::default() } else { plan(&facts.pool, wanted) };
    if wanted.data && !command.no_files {
        if let Some(files) = facts.files()? {
            plan.add_files(&facts.pool, &files.tiers);
        }
    }
    if command.json.json {
        output::print_json(&plan_json(&facts, &plan, refused.as_ref(), command.rate))?;
    } else {
        let mut out = output::stdout();
        match &refused {
            Some(refused) => writeln!(out, "Can't be done: {refused}")?,
            None => print_plan(&mut out, &plan, command.rate, command.units.mode())?,
        }
        for note in notes_of_missing(&facts) {
            writeln!(out, "Note: {note}")?;
        }
        print_gain(&mut out, &facts, &plan)?;
        // A move to a device that fails is no good plan.
        super::log::print(&mut out, &facts, super::log::profile(&facts)?)?;
        health::print(&mut out, &facts.health, "")?;
        out.flush()?;
    }
    let is_possible = plan.refusals.is_empty() && refused.is_none();
    Ok(if is_possible { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reason for which `tier apply` moves nothing on a mount of the kernel.
fn refused_by_kernel(facts: &Facts) -> Option<TierError> {
    facts.kernel_mount()?;
    facts.missing_devids().first().map(|devid| TierError::Missing(DevId::new(*devid)))
}

/// Notes on missing devices.
fn notes_of_missing(facts: &Facts) -> Vec<String> {
    let is_open = matches!(facts.source, Source::Open(_)) && !facts.missing_devids().is_empty();
    let mount = is_open.then(|| {
        "`brindle tier apply` takes all devices of a pool that is not mounted; without them it moves this on a mount of brindle \
         with `-o degraded`"
            .to_owned()
    });
    facts.absence().into_iter().chain(mount).collect()
}

/// Says what is to be done.
pub(crate) fn print_plan(
    out: &mut dyn Write,
    plan: &Plan,
    rate: Option<u64>,
    units: UnitMode,
) -> io::Result<()> {
    for pass in &plan.passes {
        let (chunks, target) = (pass.moves.len(), &pass.target_name);
        let s = if chunks == 1 { "" } else { "s" };
        match pass.bytes() {
            0 => writeln!(out, "To the {target} devices: {chunks} empty chunk{s}")?,
            bytes => writeln!(out, "To the {target} devices: {} in {chunks} chunk{s}", units.format(bytes))?,
        }
        for Fence { devid, total_bytes, fenced_bytes } in &pass.fences {
            let (total, fenced) = (units.format(*total_bytes), units.format(*fenced_bytes));
            writeln!(
                out,
                "  device {devid} is fenced meanwhile: resized from {total} to {fenced}, and back"
            )?;
        }
        if pass.moves.iter().any(|moved| moved.open > 0) && !pass.fences.is_empty() {
            writeln!(
                out,
                "  copies that belong on no fast device take turns on the others, each fenced while it has none"
            )?;
        }
        if !pass.holds {
            writeln!(
                out,
                "  free space between what the fenced devices hold may attract some of it; what ends there is tried again"
            )?;
        }
    }
    for FileMove { target_name: target, amount, .. } in &plan.files {
        let (extents, bytes) = (amount.extents, units.format(amount.bytes));
        let s = if extents == 1 { "" } else { "s" };
        writeln!(out, "To the {target} devices: {bytes} of files in {extents} extent{s}")?;
    }
    for refusal in &plan.refusals {
        writeln!(out, "Can't be done: {refusal}")?;
    }
    if plan.is_empty() && plan.refusals.is_empty() {
        writeln!(out, "Nothing to move.")?;
    }
    print_shortages(out, &plan.shortages)?;
    match (plan.bytes(), rate) {
        (0, _) => Ok(()),
        (bytes, Some(rate)) if !plan.is_empty() => {
            writeln!(out, "About {}", duration(bytes.div_ceil(rate.max(1))))
        }
        (bytes, None) if !plan.is_empty() => {
            let (about, rate) = (duration(bytes.div_ceil(USUAL_RATE)), units.format(USUAL_RATE));
            writeln!(out, "About {about}, if {rate} can be moved in a second (--rate)")
        }
        _ => Ok(()),
    }
}

/// Says how much faster metadata is read afterwards.
fn print_gain(out: &mut dyn Write, facts: &Facts, plan: &Plan) -> io::Result<()> {
    let Some(MetadataReads { before, after }) = metadata_reads(&facts.pool, plan) else { return Ok(()) };
    writeln!(
        out,
        "All metadata, read once from cold devices block by block: up to {} as it lies, up to {} then",
        seconds(before),
        seconds(after)
    )
}

/// A time for people, by its first digits.
fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        whole => duration(whole),
    }
}

/// Default rate of moving, in bytes a second: half of a disk's throughput.
const USUAL_RATE: u64 = 80 << 20;

/// Seconds in the units of people.
fn duration(seconds: u64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn plan_json(facts: &Facts, plan: &Plan, refused: Option<&TierError>, rate: Option<u64>) -> Value {
    let refusals = plan.refusals.iter().map(ToString::to_string).chain(refused.map(ToString::to_string));
    let fence = |fence: &Fence| {
        json!({
            "devid": fence.devid.get(),
            "total_bytes": fence.total_bytes,
            "fenced_bytes": fence.fenced_bytes,
        })
    };
    let moved = |moved: &Move| {
        json!({
            "logical": moved.logical.get(),
            "content": moved.content.to_string(),
            "used_bytes": moved.used_bytes,
        })
    };
    let pass = |pass: &Pass| {
        json!({
            "target": pass.target.to_string(),
            "target_name": pass.target_name,
            "bytes": pass.bytes(),
            "fences": pass.fences.iter().map(fence).collect::<Vec<_>>(),
            "fences_hold": pass.holds,
            "chunks": pass.moves.iter().map(moved).collect::<Vec<_>>(),
        })
    };
    let of_files = |moved: &FileMove| {
        json!({
            "target": moved.target.side.to_string(),
            "target_name": moved.target_name,
            "extents": moved.amount.extents,
            "bytes": moved.amount.bytes,
        })
    };
    json!({
        "files": plan.files.iter().map(of_files).collect::<Vec<_>>(),
        "uuid": facts.fsid.to_string(),
        "passes": plan.passes.iter().map(pass).collect::<Vec<_>>(),
        "refusals": refusals.collect::<Vec<_>>(),
        "notes": plan.shortages.iter().map(ToString::to_string).chain(notes_of_missing(facts)).collect::<Vec<_>>(),
        "nothing_to_move": plan.is_empty() && plan.refusals.is_empty() && refused.is_none(),
        "missing_devids": facts.missing_devids(),
        "bytes": plan.bytes(),
        "metadata_read_ms": metadata_reads(&facts.pool, plan).map(|reads| {
            json!({ "before": millis(reads.before), "after": millis(reads.after) })
        }),
        "seconds": rate.map(|rate| plan.bytes().div_ceil(rate.max(1))),
    })
}

/// Says what more devices would give.
pub(super) fn print_shortages(out: &mut dyn Write, shortages: &[Shortage]) -> io::Result<()> {
    shortages.iter().try_for_each(|shortage| writeln!(out, "Note: {shortage}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_for_people() {
        assert_eq!([duration(5), duration(121), duration(7260)], ["5 s", "3 min", "2 h 1 min"]);
    }
}
