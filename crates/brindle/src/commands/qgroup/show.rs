//! `qgroup show`, with the columns and orders of btrfs.

use super::EXAMPLES;
use crate::commands::path::{name_json, shown_name};
use crate::commands::reached::Reached;
use crate::commands::refused::explain_admin;
use crate::format::{UnitMode, UnitOptions};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result, anyhow};
use brindle_admin::quotas::{QuotaGroup, Quotas, quotas};
use brindle_admin::subvolumes::SubvolumeFacts;
use brindle_admin::{QgroupId, QgroupStatusFlags};
use clap::Args;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;

/// Id of the top level.
const TOP_LEVEL: u64 = 5;

/// Show quota groups
///
/// Of a mount of brindle or of the kernel, named by any path of it, or of devices that are not mounted; as of the last
/// commit.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "the options of btrfs")]
pub(crate) struct ShowCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Show the groups that each is part of
    #[arg(short = 'p')]
    parents: bool,
    /// Show the groups that are part of each
    #[arg(short = 'c')]
    children: bool,
    /// Show the limit of referenced bytes
    #[arg(short = 'r')]
    max_referenced: bool,
    /// Show the limit of exclusive bytes
    #[arg(short = 'e')]
    max_exclusive: bool,
    /// Only the group of the subvolume of PATH, and those that it is part of
    #[arg(short = 'F', conflicts_with = "own")]
    ancestors: bool,
    /// Only the group of the subvolume of PATH
    #[arg(short = 'f')]
    own: bool,
    /// Order: qgroupid, rfer, excl, max_rfer, max_excl, path, separated by commas, each with + (the default) or - before it
    #[arg(long, value_name = "KEYS", allow_hyphen_values = true)]
    sort: Option<String>,
    /// Commit first
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    units: UnitOptions,
    /// A path of a mounted pool; or image files and block devices, those of one pool, in any order
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
}

/// A group and its path as it is shown.
struct Row<'q> {
    id: QgroupId,
    group: &'q QuotaGroup,
    path: Vec<u8>,
}

/// Runs it.
pub(super) fn run(command: &ShowCommand) -> Result<()> {
    let order = command.sort.as_deref().map(parse_order).transpose()?.unwrap_or_default();
    let reached = Reached::of(&command.places)?;
    if command.sync {
        if let Some(mounted) = reached.mounted() {
            mounted.sync()?;
        }
    }
    let found = quotas(reached.trees()).map_err(explain_admin)?;
    let found = found.context("quotas are off; `brindle quota enable` turns them on")?;
    warn(found.flags);
    let (subvolumes, _) = reached.subvolumes()?;
    let chosen: Option<BTreeSet<QgroupId>> = match command.own || command.ancestors {
        true => Some(found.groups_of(QgroupId::new(reached.subvolume()?), command.ancestors)),
        false => None,
    };
    let mut rows = rows(&found, &subvolumes);
    rows.retain(|row| chosen.as_ref().is_none_or(|chosen| chosen.contains(&row.id)));
    rows.sort_by(|one, other| compare(&order, one, other));
    if command.json.json {
        let groups: Vec<Value> = rows.iter().map(row_json).collect();
        return output::print_json(&json!({
            "inconsistent": found.flags.contains(QgroupStatusFlags::INCONSISTENT),
            "rescan": found.flags.contains(QgroupStatusFlags::RESCAN),
            "groups": groups,
        }));
    }
    let mut out = output::stdout();
    command.print(&mut out, &rows)?;
    Ok(out.flush()?)
}

/// Says on standard error if the numbers are not right.
fn warn(flags: QgroupStatusFlags) {
    if flags.contains(QgroupStatusFlags::RESCAN) {
        output::complain(&anyhow!("a rescan is running: the numbers may be wrong until its end"));
    } else if flags.contains(QgroupStatusFlags::INCONSISTENT) {
        output::complain(&anyhow!("the numbers are inconsistent: `brindle quota rescan` counts them anew"));
    }
}

fn rows<'q>(quotas: &'q Quotas, subvolumes: &[SubvolumeFacts]) -> Vec<Row<'q>> {
    let known: BTreeMap<u64, &SubvolumeFacts> = subvolumes.iter().map(|one| (one.id, one)).collect();
    let path = |id: QgroupId, group: &QuotaGroup| match (id.level(), known.get(&id.number())) {
        (0, _) if id.number() == TOP_LEVEL => b"<toplevel>".to_vec(),
        (0, Some(facts)) if facts.is_deleted => b"<under deletion>".to_vec(),
        (0, Some(facts)) => facts.path.clone(),
        (0, None) => b"<stale>".to_vec(),
        _ => {
            let count = group.children.len();
            format!("<{count} member qgroup{}>", if count == 1 { "" } else { "s" }).into_bytes()
        }
    };
    quotas.groups.iter().map(|(id, group)| Row { id: *id, group, path: path(*id, group) }).collect()
}

fn row_json(row: &Row<'_>) -> Value {
    let ids = |ids: &BTreeSet<QgroupId>| ids.iter().map(QgroupId::to_string).collect::<Vec<_>>();
    json!({
        "qgroupid": row.id.to_string(),
        "referenced_bytes": row.group.referenced,
        "exclusive_bytes": row.group.exclusive,
        "max_referenced_bytes": row.group.max_referenced,
        "max_exclusive_bytes": row.group.max_exclusive,
        "parents": ids(&row.group.parents),
        "children": ids(&row.group.children),
        "path": name_json(&row.path),
    })
}

impl ShowCommand {
    fn print(&self, out: &mut impl Write, rows: &[Row<'_>]) -> io::Result<()> {
        let units = self.units.mode();
        let columns: Vec<Column> = [
            (true, Column::Referenced),
            (true, Column::Exclusive),
            (self.max_referenced, Column::MaxReferenced),
            (self.max_exclusive, Column::MaxExclusive),
            (self.parents, Column::Parents),
            (self.children, Column::Children),
        ]
        .into_iter()
        .filter_map(|(is_shown, column)| is_shown.then_some(column))
        .collect();
        let ids = rows.iter().map(|row| row.id.to_string().len()).max().unwrap_or(0).max("Qgroupid".len());
        let widths: Vec<usize> = columns.iter().map(|column| column.width(rows, units)).collect();
        let mut line = |id: &str, cells: &dyn Fn(Column) -> String, path: &[u8]| {
            write!(out, "{id:<ids$}")?;
            for (column, width) in columns.iter().zip(&widths) {
                match column.is_number() {
                    true => write!(out, "  {:>width$}", cells(*column))?,
                    false => write!(out, " {:<width$}", cells(*column))?,
                }
            }
            write!(out, "   ")?;
            out.write_all(path)?;
            writeln!(out)
        };
        line("Qgroupid", &|column| column.head().to_owned(), b"Path")?;
        line("--------", &|column| "-".repeat(column.head().len()), b"----")?;
        for row in rows {
            line(&row.id.to_string(), &|column| column.cell(row.group, units), &shown_name(&row.path))?;
        }
        Ok(())
    }
}

/// A column between the id and the path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Referenced,
    Exclusive,
    MaxReferenced,
    MaxExclusive,
    Parents,
    Children,
}

impl Column {
    fn head(self) -> &'static str {
        match self {
            Self::Referenced => "Referenced",
            Self::Exclusive => "Exclusive",
            Self::MaxReferenced => "Max referenced",
            Self::MaxExclusive => "Max exclusive",
            Self::Parents => "Parent",
            Self::Children => "Child",
        }
    }

    fn is_number(self) -> bool {
        !matches!(self, Self::Parents | Self::Children)
    }

    fn cell(self, group: &QuotaGroup, units: UnitMode) -> String {
        let limit = |bytes: Option<u64>| bytes.map_or_else(|| "none".to_owned(), |bytes| units.format(bytes));
        let ids = |ids: &BTreeSet<QgroupId>| match ids.is_empty() {
            true => "-".to_owned(),
            false => ids.iter().map(QgroupId::to_string).collect::<Vec<_>>().join(","),
        };
        match self {
            Self::Referenced => units.format(group.referenced),
            Self::Exclusive => units.format(group.exclusive),
            Self::MaxReferenced => limit(group.max_referenced),
            Self::MaxExclusive => limit(group.max_exclusive),
            Self::Parents => ids(&group.parents),
            Self::Children => ids(&group.children),
        }
    }

    /// Width of the column: at least that of btrfs.
    fn width(self, rows: &[Row<'_>], units: UnitMode) -> usize {
        let least = match self {
            Self::Referenced => 12,
            Self::Exclusive => 11,
            Self::Parents => 8,
            other => other.head().len(),
        };
        rows.iter().map(|row| self.cell(row.group, units).len()).max().unwrap_or(0).max(least)
    }
}

/// Key of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortKey {
    Id,
    Referenced,
    Exclusive,
    MaxReferenced,
    MaxExclusive,
    Path,
}

fn parse_order(word: &str) -> Result<Vec<(SortKey, bool)>> {
    let key = |word: &str| {
        let (is_descending, name) = match word.strip_prefix('-') {
            Some(name) => (true, name),
            None => (false, word.strip_prefix('+').unwrap_or(word)),
        };
        let key = match name {
            "qgroupid" => SortKey::Id,
            "rfer" => SortKey::Referenced,
            "excl" => SortKey::Exclusive,
            "max_rfer" => SortKey::MaxReferenced,
            "max_excl" => SortKey::MaxExclusive,
            "path" => SortKey::Path,
            _ => return Err(anyhow!("'{name}': not one of qgroupid, rfer, excl, max_rfer, max_excl, path")),
        };
        Ok((key, is_descending))
    };
    word.split(',').map(key).collect()
}

fn compare(order: &[(SortKey, bool)], one: &Row<'_>, other: &Row<'_>) -> Ordering {
    let by = |key: SortKey| {
        let (left, right) = (one.group, other.group);
        match key {
            SortKey::Id => one.id.cmp(&other.id),
            SortKey::Referenced => left.referenced.cmp(&right.referenced),
            SortKey::Exclusive => left.exclusive.cmp(&right.exclusive),
            SortKey::MaxReferenced => left.max_referenced.cmp(&right.max_referenced),
            SortKey::MaxExclusive => left.max_exclusive.cmp(&right.max_exclusive),
            SortKey::Path => one.path.cmp(&other.path),
        }
    };
    let keyed = |(key, is_descending): &(SortKey, bool)| {
        if *is_descending { by(*key).reverse() } else { by(*key) }
    };
    order.iter().map(keyed).find(|found| found.is_ne()).unwrap_or_else(|| one.id.cmp(&other.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_those_of_btrfs() {
        let order = parse_order("-rfer,qgroupid").expect("an order");
        assert_eq!(order, [(SortKey::Referenced, true), (SortKey::Id, false)]);
        assert!(parse_order("size").is_err());
        let group = |referenced| QuotaGroup { referenced, ..QuotaGroup::default() };
        let (small, large) = (group(1), group(2));
        let row = |id, group| Row { id: QgroupId::new(id), group, path: Vec::new() };
        assert!(compare(&order, &row(5, &small), &row(6, &large)).is_gt());
        assert!(compare(&order, &row(5, &small), &row(6, &small)).is_lt());
    }
}
