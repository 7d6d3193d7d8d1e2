//! `tier status`: bytes of each content on each class of devices.

use super::facts::{ClassOptions, Facts};
use super::{log, state, write_back};
use crate::commands::health::{self, Health};
use crate::format::{Align, UnitMode, UnitOptions, write_table};
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_admin::WriteBack;
use brindle_admin::pool::tiers::FileFacts;
use brindle_admin::tier::ClassifiedDevice;
use brindle_policy::class::NamedClass;
use brindle_policy::placement::Fit;
use brindle_policy::placement::PlacementClass;
use brindle_policy::tier::distribution::{Distribution, distributions};
use brindle_policy::tier::files::{Amount, FileTiers, no_tiers_reason};
use brindle_policy::tier::shortage::{Shortage, all_shortages};
use brindle_policy::tier::{Content, TierChunk};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  A pool that the kernel has mounted, as root:
    brindle tier status /mnt

  One that is not mounted, whose third device is flash behind a controller that
  hides it:
    brindle tier status --fast 3 /dev/sdb /dev/sdc /dev/sdd

EXIT STATUS
  0  success, wherever things lie
  1  failure
  2  wrong usage";

/// Show the classes of devices that blocks lie on, and misplaced blocks
///
/// A chunk is misplaced if the devices allow more of it to lie on the class of its content. Where there are fewer fast devices
/// than copies of the metadata, it is well placed with a copy on each of them. Metadata and system chunks belong on fast devices, data chunks on bulk ones;
/// chunks of a mixed pool belong anywhere. Sizes are of devices: with copies and parity.
///
/// Where brindle places things itself, on a mount of its own or in a pool that is not mounted, data chunks on fast devices
/// alone, or with a copy on each of them where they are fewer than copies, are for small and for marked files. There the data of files in the wrong tier is shown as well, without copies and
/// parity: because the right one was full, because it was marked later, or because it has
/// grown. For that all files are looked at.
///
/// Data that a sync has made durable may wait on fast devices to be moved to bulk ones (see brindle mount --help,
/// writeback); the last lines tell how much, for how long, and how fast it is moved. Its chunks are data chunks on fast
/// devices as others; it is in no wrong place there.
///
/// Blocks of the log tree are counted as metadata, and inline files, too. An fsync writes the superblocks of the fast devices
/// alone where these have the lowest devids, and are enough for the metadata profile: mkfs gives them these. Where they are
/// fewer, the property log_profile allows a log with fewer copies; one line tells what is lost then, or what is in the way.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    json: JsonOption,
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
pub(crate) fn run(command: &StatusCommand) -> Result<ExitCode> {
    let facts = Facts::gather(&command.pool, &command.classes)?;
    let kinds = distributions(&facts.pool);
    let files = if command.no_files { None } else { facts.files()? };
    let waiting = write_back::state(&facts)?;
    let profile = log::profile(&facts)?;
    state::warn_of_fences(&facts);
    if command.json.json {
        let mut json = status_json(&facts, &kinds, files.as_ref(), waiting.as_ref());
        json["log"] = log::json(&facts, profile);
        output::print_json(&json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    print_status(&mut out, &facts, &kinds, command.units.mode())?;
    log::print(&mut out, &facts, profile)?;
    health::print(&mut out, &facts.health, "")?;
    if let Some(tier) = waiting.filter(|_| facts.has_both_classes()) {
        write_back::print(&mut out, &tier, command.units.mode())?;
    }
    if let Some(files) = &files {
        print_files(&mut out, &facts, files, command.units.mode())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print_status(
    out: &mut dyn Write,
    facts: &Facts,
    kinds: &[Distribution],
    units: UnitMode,
) -> io::Result<()> {
    writeln!(out, "Pool {}\n", facts.fsid)?;
    print_devices(out, facts, kinds, units)?;
    writeln!(out)?;
    let mut rows = vec![
        ["WHAT", "PROFILE", "CHUNKS", "USED", "ON FAST", "ON BULK", "MISPLACED"].map(str::to_owned).to_vec(),
    ];
    for kind in kinds {
        let wrong = match kind.misplaced_bytes {
            0 => "-".to_owned(),
            bytes => units.format(bytes),
        };
        let (fast, bulk) = (units.format(kind.fast_bytes), units.format(kind.bulk_bytes));
        let (what, profile) = (kind.content.to_string(), kind.profile.to_string());
        rows.push(vec![
            what,
            profile,
            kind.chunks.to_string(),
            units.format(kind.used_bytes),
            fast,
            bulk,
            wrong,
        ]);
    }
    use Align::{Left, Right};
    write_table(out, &[Left, Left, Right, Right, Right, Right, Right], &rows)?;
    writeln!(out)?;
    for shortage in all_shortages(&facts.pool) {
        writeln!(out, "{}", told(kinds, &shortage))?;
    }
    for note in no_tiers(facts).into_iter().chain(facts.absence()) {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

/// A note on marks and limits of files, of a pool with devices of both classes whose data can't lie on one class alone.
fn no_tiers(facts: &Facts) -> Option<String> {
    if facts.kernel_mount().is_some() || !facts.has_both_classes() {
        return None;
    }
    let data = facts.pool.chunks.iter().filter(|chunk| chunk.content() == Content::Data);
    let count = |class| facts.pool.count(class);
    let profiles = data.map(TierChunk::profile);
    let reason = no_tiers_reason(profiles, count(PlacementClass::Fast), count(PlacementClass::Bulk))?;
    Some(format!("Marks of files and limits of small files, if there are any, make no difference: {reason}"))
}

/// A lack of devices, in words.
fn told(kinds: &[Distribution], shortage: &Shortage) -> String {
    let Shortage::TooFewDevices { content, profile, .. } = *shortage else { return shortage.to_string() };
    let is_right = |kind: &Distribution| {
        kind.profile != profile || kind.content != content || kind.misplaced_chunks == 0
    };
    match (shortage.copies(), shortage.remedy()) {
        (Some(copies), Some(remedy)) if kinds.iter().all(is_right) => {
            format!("{content} of profile {profile}: right, {copies}; {remedy}")
        }
        _ => shortage.to_string(),
    }
}

/// Prints the amounts of file data by tier and location.
fn print_files(out: &mut dyn Write, facts: &Facts, files: &FileFacts, units: UnitMode) -> io::Result<()> {
    let tiers = &files.tiers;
    let shown = |bytes: u64| if bytes == 0 { "-".to_owned() } else { units.format(bytes) };
    let row = |what: &str, on_fast: u64, on_bulk: u64, wrong: u64| {
        vec![what.to_owned(), units.format(on_fast), units.format(on_bulk), shown(wrong)]
    };
    let rows = vec![
        ["DATA OF", "USED ON FAST", "USED ON BULK", "MISPLACED"].map(str::to_owned).to_vec(),
        row(
            "small and marked files",
            tiers.fast_in_place.bytes,
            tiers.fast_on_bulk.bytes,
            tiers.fast_on_bulk.bytes,
        ),
        row("other files", tiers.bulk_on_fast.bytes, files.bulk_in_place_bytes(), tiers.bulk_on_fast.bytes),
    ];
    use Align::{Left, Right};
    writeln!(out)?;
    write_table(out, &[Left, Right, Right, Right], &rows)?;
    for (class, amount) in facts.pool.classes.all().iter().zip(&tiers.by_class) {
        if amount.bytes > 0 {
            let (name, bytes) = (&class.name, units.format(amount.bytes));
            writeln!(out, "Marked for {name}, and on other devices: {bytes}")?;
        }
    }
    Ok(())
}

/// Contents in the order of columns.
const CONTENTS: [Content; 4] = [Content::Metadata, Content::System, Content::Data, Content::Mixed];

fn print_devices(
    out: &mut dyn Write,
    facts: &Facts,
    kinds: &[Distribution],
    units: UnitMode,
) -> io::Result<()> {
    let shown: Vec<Content> =
        CONTENTS.into_iter().filter(|content| kinds.iter().any(|kind| kind.content == *content)).collect();
    let mut head = ["DEVID", "CLASS", "WHY", "SIZE", "UNALLOCATED"].map(str::to_owned).to_vec();
    head.extend(shown.iter().map(|content| content.to_string().to_uppercase()));
    head.push("PATH".to_owned());
    let mut rows = vec![head];
    for device in &facts.devices {
        let reason = device.class.1;
        let free: u64 =
            facts.pool.gaps(device.devid, device.total_bytes).iter().map(|gap| gap.end - gap.start).sum();
        let mut row = vec![device.devid.to_string(), facts.shown_class(device), reason.to_string()];
        row.extend([units.format(device.total_bytes), units.format(free)]);
        row.extend(shown.iter().map(|content| units.format(on_device(device, kinds, *content))));
        row.push(shown_path(device));
        rows.push(row);
    }
    use Align::{Left, Right};
    let mut columns = vec![Right, Left, Left, Right, Right];
    columns.extend(shown.iter().map(|_| Right));
    columns.push(Left);
    write_table(out, &columns, &rows)
}

fn on_device(device: &ClassifiedDevice, kinds: &[Distribution], content: Content) -> u64 {
    let of_content = kinds.iter().filter(|kind| kind.content == content);
    of_content.filter_map(|kind| kind.by_device.get(&device.devid)).sum()
}

fn shown_path(device: &ClassifiedDevice) -> String {
    if device.path.as_os_str().is_empty() { "missing".to_owned() } else { device.path.display().to_string() }
}

fn status_json(
    facts: &Facts,
    kinds: &[Distribution],
    file_facts: Option<&FileFacts>,
    waiting: Option<&WriteBack>,
) -> Value {
    let device = |device: &ClassifiedDevice| {
        json!({
            "devid": device.devid.get(),
            "path": (!device.path.as_os_str().is_empty()).then(|| device.path.display().to_string()),
            "class": device.class.0.to_string(),
            "class_name": device.class_name,
            "rank": device.rank,
            "why": device.class.1.to_string(),
            "total_bytes": device.total_bytes,
            "metadata_bytes": on_device(device, kinds, Content::Metadata),
            "system_bytes": on_device(device, kinds, Content::System),
            "data_bytes": on_device(device, kinds, Content::Data),
            "mixed_bytes": on_device(device, kinds, Content::Mixed),
            "health": facts.health.get(&device.devid.get()).map(Health::json),
        })
    };
    let kind = |kind: &Distribution| {
        json!({
            "content": kind.content.to_string(),
            "profile": kind.profile.to_string(),
            "chunks": kind.chunks,
            "logical_bytes": kind.logical_bytes,
            "used_bytes": kind.used_bytes,
            "fast_bytes": kind.fast_bytes,
            "bulk_bytes": kind.bulk_bytes,
            "wrong_chunks": kind.misplaced_chunks,
            "wrong_bytes": kind.misplaced_bytes,
            "to_move_bytes": kind.movable_bytes,
            "has_enough_devices": kind.fit == Fit::Whole,
            "copies_on_fast_devices": match kind.fit {
                Fit::Copies(copies) => Some(copies),
                Fit::Whole | Fit::Nothing => None,
            },
        })
    };
    let files = |files: &FileFacts| {
        let FileTiers { fast_in_place, fast_on_bulk, bulk_on_fast, by_class } = files.tiers;
        let of_class = |(class, amount): (&NamedClass, &Amount)| json!({ "class_name": class.name, "wrong_bytes": amount.bytes, "wrong_extents": amount.extents });
        let classes = facts.pool.classes.all();
        let by_class: Vec<Value> = match facts.pool.classes.is_empty() {
            true => Vec::new(),
            false => classes.iter().zip(&by_class).map(of_class).collect(),
        };
        json!({
            "small_and_marked": {
                "fast_bytes": fast_in_place.bytes,
                "bulk_bytes": fast_on_bulk.bytes,
                "wrong_bytes": fast_on_bulk.bytes,
                "wrong_extents": fast_on_bulk.extents,
            },
            "other": {
                "fast_bytes": bulk_on_fast.bytes,
                "bulk_bytes": files.bulk_in_place_bytes(),
                "wrong_bytes": bulk_on_fast.bytes,
                "wrong_extents": bulk_on_fast.extents,
            },
            "marked_by_class": by_class,
        })
    };
    json!({
        "files": file_facts.map(files),
        "uuid": facts.fsid.to_string(),
        "write_back": waiting.map(write_back::json),
        "fenced": state::is_fenced(facts),
        "devices": facts.devices.iter().map(device).collect::<Vec<_>>(),
        "kinds": kinds.iter().map(kind).collect::<Vec<_>>(),
        "notes": all_shortages(&facts.pool).iter().map(|shortage| told(kinds, shortage)).chain(no_tiers(facts)).chain(facts.absence()).collect::<Vec<_>>(),
        "missing_devids": facts.missing_devids(),
    })
}
