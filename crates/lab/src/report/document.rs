//! A report as blocks, and their Markdown.

/// A part of a report.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block {
    /// A heading of a level from 1 on.
    Heading(usize, String),
    /// A paragraph.
    Text(String),
    /// Items of a list.
    List(Vec<String>),
    /// A table.
    Table(Table),
    /// A drawing.
    Plot(Plot),
    /// Drawings that are shown when they are asked for.
    Gallery { summary: String, plots: Vec<Plot> },
}

/// A drawing, with the words that say the same.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plot {
    pub(super) svg: String,
    pub(super) caption: String,
}

/// A table; all columns but the first ones are aligned to the right.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) left_columns: usize,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
}

/// Meaning of a cell, which is told by its text, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
}

impl Cell {
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

impl Table {
    pub(super) fn new(head: &[&str], left_columns: usize) -> Self {
        Self { head: head.iter().map(|word| (*word).to_owned()).collect(), left_columns, rows: Vec::new() }
    }
}

/// Markdown of a report; drawings are left out, for their figures are in the tables.
pub(super) fn to_markdown(blocks: &[Block]) -> String {
    let mut text = String::new();
    for block in blocks {
        match block {
            Block::Heading(level, words) => text.push_str(&format!("{} {words}\n\n", "#".repeat(*level))),
            Block::Text(words) => text.push_str(&format!("{words}\n\n")),
            Block::List(items) => {
                items.iter().for_each(|item| text.push_str(&format!("- {item}\n")));
                text.push('\n');
            }
            Block::Table(table) => text.push_str(&table_markdown(table)),
            Block::Plot(_) | Block::Gallery { .. } => {}
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn table_markdown(table: &Table) -> String {
    let line = |cells: Vec<&str>| {
        let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(table.head.iter().map(String::as_str).collect());
    let rule = |column| if column < table.left_columns { "---" } else { "---:" };
    text.push_str(&line((0..table.head.len()).map(rule).collect()));
    for row in &table.rows {
        text.push_str(&line(row.iter().map(|cell| cell.text.as_str()).collect()));
    }
    text + "\n"
}
