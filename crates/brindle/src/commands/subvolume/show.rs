//! `subvolume show` and `get-default`.

use super::line::{Column, Row, Shape, print_rows};
use super::list::{TOP_LEVEL, json};
use super::refusal::subvolume_at;
use super::{EXAMPLES, LISTS_POOL, ListPool};
use crate::commands::path::shown_name;
use crate::commands::reached::Reached;
use crate::commands::refused::explain_admin;
use crate::format::{Civil, ShortUnits, UnitMode};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result, anyhow};
use brindle_admin::quotas::{QuotaGroup, quotas};
use brindle_admin::subvolumes::SubvolumeFacts;
use brindle_admin::{QgroupId, RootId, Uuid};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Show a subvolume
///
/// The one at PATH, or another one of the same pool by its id or UUID. Times are UTC.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, disable_help_flag = true)]
pub(crate) struct ShowCommand {
    #[command(flatten)]
    json: JsonOption,
    /// The subvolume of this id
    #[arg(short, long, value_name = "ID", conflicts_with = "uuid")]
    rootid: Option<u64>,
    /// The subvolume of this UUID
    #[arg(short, long)]
    uuid: Option<String>,
    /// A path of a mounted pool; or image files and block devices, those of one pool, in any order
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
    #[command(flatten, next_help_heading = LISTS_POOL)]
    pool: ListPool,
    #[command(flatten)]
    units: ShortUnits,
}

/// Show the subvolume that is mounted unless another is asked for
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct GetDefaultCommand {
    #[command(flatten)]
    json: JsonOption,
    /// A path of a mounted pool; or image files and block devices, those of one pool, in any order
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
    #[command(flatten, next_help_heading = LISTS_POOL)]
    pool: ListPool,
}

/// Runs `subvolume show`.
pub(crate) fn show(command: &ShowCommand) -> Result<ExitCode> {
    let reached = Reached::enter(&command.places, &command.pool.options())?;
    let is_by_name = command.rootid.is_some() || command.uuid.is_some();
    if let Some(mounted) = reached.mounted().filter(|_| !is_by_name) {
        let path = mounted.path();
        let meant = |id| format!("`brindle subvolume show --rootid {id} {}` shows that one", path.display());
        subvolume_at(path, mounted, meant)?;
    }
    let (found, facts) = match reached.subvolumes() {
        Ok((found, _)) => {
            let facts = command.choose(&reached, &found)?;
            (found, facts)
        }
        // Without the permission to look into trees, what the mount tells of its own subvolume.
        Err(error) => match reached.mounted() {
            Some(mounted) if !is_by_name => (Vec::new(), SubvolumeFacts::of_mount(mounted)?),
            _ => return Err(error),
        },
    };
    let mut snapshots: Vec<&SubvolumeFacts> =
        found.iter().filter(|other| other.uuids[1] == facts.uuids[0] && !other.is_deleted).collect();
    snapshots.sort_by(|one, other| one.path.cmp(&other.path));
    let group = quota_group(&reached, &facts, found.is_empty())?;
    if command.json.json {
        let mut value = json(&facts);
        value["name"] = crate::commands::path::name_json(&facts.name);
        value["snapshots"] =
            snapshots.iter().map(|other| crate::commands::path::name_json(&other.path)).collect();
        value["quota_group"] = group.as_ref().map_or(Value::Null, |(id, group)| group_json(*id, group));
        output::print_json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    print(&mut out, &facts, &snapshots)?;
    if let Some((id, group)) = &group {
        print_group(&mut out, *id, group, command.units.mode())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The quota group of a subvolume, if quotas are on and it has one; none for a caller that may not look into trees.
fn quota_group(
    reached: &Reached,
    facts: &SubvolumeFacts,
    is_closed: bool,
) -> Result<Option<(QgroupId, QuotaGroup)>> {
    if is_closed {
        return Ok(None);
    }
    let id = QgroupId::of_subvolume(RootId::new(facts.id));
    let found = quotas(reached.trees()).map_err(explain_admin)?;
    Ok(found.and_then(|mut found| found.groups.remove(&id)).map(|group| (id, group)))
}

fn group_json(id: QgroupId, group: &QuotaGroup) -> Value {
    json!({
        "qgroupid": id.to_string(),
        "referenced_bytes": group.referenced,
        "exclusive_bytes": group.exclusive,
        "max_referenced_bytes": group.max_referenced,
        "max_exclusive_bytes": group.max_exclusive,
    })
}

fn print_group(out: &mut impl Write, id: QgroupId, group: &QuotaGroup, units: UnitMode) -> io::Result<()> {
    let limit = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| units.format(bytes));
    writeln!(out, "\tQuota group:\t\t{id}")?;
    writeln!(out, "\t  Limit referenced:\t{}", limit(group.max_referenced))?;
    writeln!(out, "\t  Limit exclusive:\t{}", limit(group.max_exclusive))?;
    writeln!(out, "\t  Usage referenced:\t{}", units.format(group.referenced))?;
    writeln!(out, "\t  Usage exclusive:\t{}", units.format(group.exclusive))
}

impl ShowCommand {
    fn choose(&self, reached: &Reached, found: &[SubvolumeFacts]) -> Result<SubvolumeFacts> {
        let uuid =
            self.uuid.as_deref().map(|text| Uuid::parse(text).ok_or_else(|| anyhow!("'{text}': not a UUID")));
        let chosen = match (self.rootid, uuid.transpose()?) {
            (Some(id), _) => (found.iter().find(|one| one.id == id), format!("id {id}")),
            (None, Some(uuid)) => (found.iter().find(|one| one.uuids[0] == uuid), format!("UUID {uuid}")),
            (None, None) => {
                let id = reached.subvolume()?;
                (found.iter().find(|one| one.id == id), format!("id {id}"))
            }
        };
        chosen.0.cloned().with_context(|| format!("the pool has no subvolume of {}", chosen.1))
    }
}

/// Runs `subvolume get-default`.
pub(crate) fn get_default(command: &GetDefaultCommand) -> Result<ExitCode> {
    let reached = Reached::enter(&command.places, &command.pool.options())?;
    let (found, default) = reached.subvolumes()?;
    let facts = found.iter().find(|one| one.id == default && !one.is_deleted);
    if command.json.json {
        output::print_json(&facts.map_or_else(|| json!({ "id": default }), json))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    match facts.filter(|facts| facts.id != TOP_LEVEL) {
        Some(facts) => {
            let row = Row { path: facts.path.clone(), facts: facts.clone() };
            print_rows(&mut out, &[row], &[Column::Id, Column::Generation, Column::TopLevel], Shape::Lines)?;
        }
        None if default == TOP_LEVEL => writeln!(out, "ID {TOP_LEVEL} (FS_TREE)")?,
        None => writeln!(out, "ID {default} (deleted)")?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut impl Write, facts: &SubvolumeFacts, snapshots: &[&SubvolumeFacts]) -> io::Result<()> {
    let uuid = |uuid: &Uuid| match uuid {
        Uuid(bytes) if *bytes == [0; 16] => "-".to_owned(),
        uuid => uuid.to_string(),
    };
    let time = |seconds: i64| match seconds {
        0 => "-".to_owned(),
        seconds => format!("{} +0000", Civil::from_epoch(seconds)),
    };
    let (path, name) = match facts.id {
        TOP_LEVEL => (&b"/"[..], &b"<FS_TREE>"[..]),
        _ => (&facts.path[..], &facts.name[..]),
    };
    out.write_all(&shown_name(path))?;
    write!(out, "\n\tName: \t\t\t")?;
    out.write_all(&shown_name(name))?;
    writeln!(out)?;
    let parent = facts.parent.unwrap_or(0).to_string();
    let [created, sent, received] = facts.transactions;
    let lines = [
        ("UUID", uuid(&facts.uuids[0])),
        ("Parent UUID", uuid(&facts.uuids[1])),
        ("Received UUID", uuid(&facts.uuids[2])),
        ("Creation time", time(facts.times[0])),
        ("Subvolume ID", facts.id.to_string()),
        ("Generation", facts.generation.to_string()),
        ("Gen at creation", created.to_string()),
        ("Parent ID", parent.clone()),
        ("Top level ID", parent),
        ("Flags", if facts.is_read_only { "readonly" } else { "-" }.to_owned()),
        ("Send transid", sent.to_string()),
        ("Send time", time(facts.times[1])),
        ("Receive transid", received.to_string()),
        ("Receive time", time(facts.times[2])),
    ];
    for (label, value) in lines {
        // Values stand in the column of the fourth tab.
        let tabs = "\t".repeat((24 - (label.len() + 2)).div_ceil(8).max(1));
        writeln!(out, "\t{label}: {tabs}{value}")?;
    }
    writeln!(out, "\tSnapshot(s):")?;
    for snapshot in snapshots {
        write!(out, "\t\t\t\t")?;
        out.write_all(&shown_name(&snapshot.path))?;
        writeln!(out)?;
    }
    Ok(())
}
