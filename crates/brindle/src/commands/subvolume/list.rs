//! `subvolume list`, with the columns, filters and orders of btrfs.

use super::line::{Column, Row, Shape, print_rows};
use super::{EXAMPLES, LISTS_POOL, ListPool};
use crate::commands::reached::Reached;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Result, anyhow};
use brindle_admin::Uuid;
use brindle_admin::subvolumes::SubvolumeFacts;
use clap::Args;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Id of the top level.
pub(super) const TOP_LEVEL: u64 = 5;

/// List the subvolumes of a pool
///
/// Of a mount of brindle or of the kernel, named by any path of it, or of devices that are not mounted. The top level is not
/// listed. Paths are those from the top level; those below the subvolume of PATH begin there, as in btrfs.
///
/// Behind these words -q is the column of btrfs; the global option is --quiet here, or -q before them. -o has the meaning of
/// btrfs too: options for opening devices are --options.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ListCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Only those directly below the subvolume of PATH
    #[arg(short = 'o')]
    below: bool,
    /// Mark those that are not directly below the subvolume of PATH by `<FS_TREE>/`
    #[arg(short = 'a', conflicts_with = "below")]
    all: bool,
    /// Show the id of the parent
    #[arg(short = 'p')]
    parent: bool,
    /// Show the generation of creation
    #[arg(short = 'c')]
    created: bool,
    /// Show the generation, as is done anyway
    #[arg(short = 'g')]
    generation: bool,
    /// Show UUIDs
    #[arg(short = 'u')]
    uuid: bool,
    /// Show the UUIDs of what they are snapshots of; also -q
    #[arg(long)]
    parent_uuid: bool,
    /// Show the UUIDs of what they were received from
    #[arg(short = 'R')]
    received_uuid: bool,
    /// Only snapshots
    #[arg(short, long)]
    snapshots: bool,
    /// Only read-only ones
    #[arg(short, long)]
    read_only: bool,
    /// Only deleted ones that are not gone yet
    #[arg(short, long)]
    deleted: bool,
    /// Print a table
    #[arg(short, long)]
    table: bool,
    /// Only those of this generation, of it or later (+N), of it or earlier (-N)
    #[arg(short = 'G', value_name = "[+|-]N", allow_hyphen_values = true)]
    generations: Option<String>,
    /// The same by the generation of creation
    #[arg(short = 'C', value_name = "[+|-]N", allow_hyphen_values = true)]
    created_generations: Option<String>,
    /// Order: gen, ogen, rootid, path, separated by commas, each with + (the default) or - before it
    #[arg(long, value_name = "KEYS", allow_hyphen_values = true)]
    sort: Option<String>,
    /// A path of a mounted pool; or image files and block devices, those of one pool, in any order
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
    #[command(flatten, next_help_heading = LISTS_POOL)]
    pool: ListPool,
}

/// Runs it.
pub(crate) fn run(command: &ListCommand) -> Result<ExitCode> {
    let generations = command.generations.as_deref().map(Bound::parse).transpose()?;
    let created = command.created_generations.as_deref().map(Bound::parse).transpose()?;
    let order = command.sort.as_deref().map(Order::parse).transpose()?.unwrap_or_default();
    let reached = Reached::enter(&command.places, &command.pool.options())?;
    let (found, _) = reached.subvolumes()?;
    let here = reached.subvolume()?;
    let is_set = |uuid: &Uuid| *uuid != Uuid([0; 16]);
    let mut rows: Vec<Row> = found
        .iter()
        .filter(|subvolume| subvolume.id != TOP_LEVEL && subvolume.is_deleted == command.deleted)
        .filter(|subvolume| !command.read_only || subvolume.is_read_only)
        .filter(|subvolume| !command.snapshots || is_set(&subvolume.uuids[1]))
        .filter(|subvolume| !command.below || subvolume.parent == Some(here))
        .filter(|subvolume| generations.as_ref().is_none_or(|bound| bound.has(subvolume.generation)))
        .filter(|subvolume| created.as_ref().is_none_or(|bound| bound.has(subvolume.transactions[0])))
        .map(|subvolume| Row { facts: subvolume.clone(), path: command.shown_path(subvolume, here, &found) })
        .collect();
    rows.sort_by(|left, right| order.compare(left, right));
    if command.json.json {
        let rows: Vec<Value> = rows.iter().map(|row| json(&row.facts)).collect();
        output::print_json(&json!({ "subvolumes": rows }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    let shape = if command.table { Shape::Table } else { Shape::Lines };
    print_rows(&mut out, &rows, &command.columns(), shape)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

impl ListCommand {
    /// Columns in the order of btrfs.
    fn columns(&self) -> Vec<Column> {
        let chosen = [
            (true, Column::Id),
            (true, Column::Generation),
            (self.created || self.snapshots || self.created_generations.is_some(), Column::Created),
            (self.parent, Column::Parent),
            (true, Column::TopLevel),
            (self.snapshots, Column::Time),
            (self.parent_uuid, Column::ParentUuid),
            (self.received_uuid, Column::ReceivedUuid),
            (self.uuid, Column::Uuid),
        ];
        chosen.into_iter().filter(|(is_shown, _)| *is_shown).map(|(_, column)| column).collect()
    }

    /// The path as btrfs shows it, seen from a subvolume.
    fn shown_path(&self, subvolume: &SubvolumeFacts, here: u64, all: &[SubvolumeFacts]) -> Vec<u8> {
        if subvolume.is_deleted {
            return b"DELETED".to_vec();
        }
        let is_child = subvolume.parent == Some(here);
        if self.all && !is_child {
            return [b"<FS_TREE>/", subvolume.path.as_slice()].concat();
        }
        if self.all || self.below || here == TOP_LEVEL || !is_within(subvolume, here, all) {
            return subvolume.path.clone();
        }
        let above = all.iter().find(|other| other.id == here).map_or(0, |other| other.path.len() + 1);
        subvolume.path.get(above..).unwrap_or_default().to_vec()
    }
}

/// Returns true if a subvolume lies below another one.
pub(super) fn is_within(subvolume: &SubvolumeFacts, above: u64, all: &[SubvolumeFacts]) -> bool {
    let parents: BTreeMap<u64, Option<u64>> = all.iter().map(|one| (one.id, one.parent)).collect();
    let mut at = subvolume.parent;
    for _ in 0..all.len() {
        match at {
            Some(parent) if parent == above => return true,
            Some(parent) => at = parents.get(&parent).copied().flatten(),
            None => return false,
        }
    }
    false
}

/// A subvolume as JSON.
pub(super) fn json(facts: &SubvolumeFacts) -> Value {
    use crate::commands::path::name_json;
    let uuid = |uuid: &Uuid| (*uuid != Uuid([0; 16])).then(|| uuid.to_string());
    json!({
        "id": facts.id,
        "path": name_json(&facts.path),
        "parent": facts.parent.unwrap_or(0),
        "generation": facts.generation,
        "created_generation": facts.transactions[0],
        "created": facts.times[0],
        "uuid": uuid(&facts.uuids[0]),
        "parent_uuid": uuid(&facts.uuids[1]),
        "received_uuid": uuid(&facts.uuids[2]),
        "read_only": facts.is_read_only,
        "deleted": facts.is_deleted,
    })
}

/// Numbers that a filter lets through.
enum Bound {
    Equal(u64),
    AtLeast(u64),
    AtMost(u64),
}

impl Bound {
    fn parse(word: &str) -> Result<Self> {
        let refuse = |_| anyhow!("'{word}': not a generation: N, +N or -N");
        Ok(match word.as_bytes().first() {
            Some(b'+') => Self::AtLeast(word[1..].parse().map_err(refuse)?),
            Some(b'-') => Self::AtMost(word[1..].parse().map_err(refuse)?),
            _ => Self::Equal(word.parse().map_err(refuse)?),
        })
    }

    fn has(&self, number: u64) -> bool {
        match self {
            Self::Equal(bound) => number == *bound,
            Self::AtLeast(bound) => number >= *bound,
            Self::AtMost(bound) => number <= *bound,
        }
    }
}

/// Key of an order.
#[derive(Clone, Copy)]
enum SortKey {
    Generation,
    Created,
    Id,
    Path,
}

/// Order of the list: keys, each with true if it descends.
#[derive(Default)]
struct Order(Vec<(SortKey, bool)>);

impl Order {
    fn parse(words: &str) -> Result<Self> {
        let key = |word: &str| {
            let (is_descending, name) = match word.as_bytes().first() {
                Some(b'-') => (true, &word[1..]),
                Some(b'+') => (false, &word[1..]),
                _ => (false, word),
            };
            let key = match name {
                "gen" => SortKey::Generation,
                "ogen" => SortKey::Created,
                "rootid" => SortKey::Id,
                "path" => SortKey::Path,
                _ => return Err(anyhow!("'{name}': no order: gen, ogen, rootid or path")),
            };
            Ok((key, is_descending))
        };
        Ok(Self(words.split(',').map(key).collect::<Result<_>>()?))
    }

    fn compare(&self, left: &Row, right: &Row) -> Ordering {
        for (key, is_descending) in &self.0 {
            let (one, other) = (&left.facts, &right.facts);
            let order = match key {
                SortKey::Generation => one.generation.cmp(&other.generation),
                SortKey::Created => one.transactions[0].cmp(&other.transactions[0]),
                SortKey::Id => one.id.cmp(&other.id),
                SortKey::Path => left.path.cmp(&right.path),
            };
            let order = if *is_descending { order.reverse() } else { order };
            if order != Ordering::Equal {
                return order;
            }
        }
        left.facts.id.cmp(&right.facts.id)
    }
}
