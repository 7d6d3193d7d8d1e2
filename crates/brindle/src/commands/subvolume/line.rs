//! Lines and tables of subvolumes.

use crate::commands::path::shown_name;
use crate::format::Civil;
use brindle_admin::Uuid;
use brindle_admin::subvolumes::SubvolumeFacts;
use std::io::{self, Write};

/// A subvolume with its path as it is shown.
pub(super) struct Row {
    pub(super) facts: SubvolumeFacts,
    pub(super) path: Vec<u8>,
}

/// Shape of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A name before each value.
    Lines,
    /// The names at the head.
    Table,
}

/// A column before the path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Id,
    Generation,
    Created,
    Parent,
    TopLevel,
    Time,
    ParentUuid,
    ReceivedUuid,
    Uuid,
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Self::Id => "ID",
            Self::Generation => "gen",
            Self::Created => "cgen",
            Self::Parent => "parent",
            Self::TopLevel => "top level",
            Self::Time => "otime",
            Self::ParentUuid => "parent_uuid",
            Self::ReceivedUuid => "received_uuid",
            Self::Uuid => "uuid",
        }
    }

    fn value(self, facts: &SubvolumeFacts) -> String {
        match self {
            Self::Id => facts.id.to_string(),
            Self::Generation => facts.generation.to_string(),
            Self::Created => facts.transactions[0].to_string(),
            // One above the other is the same in btrfs since its second year.
            Self::Parent | Self::TopLevel => facts.parent.unwrap_or(0).to_string(),
            Self::Time => Civil::from_epoch(facts.times[0]).to_string(),
            Self::ParentUuid => uuid_text(&facts.uuids[1]),
            Self::ReceivedUuid => uuid_text(&facts.uuids[2]),
            Self::Uuid => uuid_text(&facts.uuids[0]),
        }
    }
}

fn uuid_text(uuid: &Uuid) -> String {
    let text = if *uuid == Uuid([0; 16]) { "-".to_owned() } else { uuid.to_string() };
    format!("{text:<36}")
}

/// Prints the subvolumes.
pub(super) fn print_rows(
    out: &mut impl Write,
    rows: &[Row],
    columns: &[Column],
    shape: Shape,
) -> io::Result<()> {
    if shape == Shape::Table {
        let names = || columns.iter().map(|column| column.name()).chain(["path"]);
        let heads: String = names().map(|name| format!("{name}\t")).collect();
        let rules: String = names().map(|name| format!("{}\t", "-".repeat(name.len()))).collect();
        writeln!(out, "{heads}\n{rules}")?;
    }
    for row in rows {
        for column in columns {
            let value = column.value(&row.facts);
            match shape {
                Shape::Lines => write!(out, "{} {value} ", column.name())?,
                Shape::Table if *column == Column::TopLevel => write!(out, "{value}\t\t")?,
                Shape::Table => write!(out, "{value}\t")?,
            }
        }
        if shape == Shape::Lines {
            write!(out, "path ")?;
        }
        out.write_all(&shown_name(&row.path))?;
        writeln!(out)?;
    }
    Ok(())
}
