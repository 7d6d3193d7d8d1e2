//! The part of the manual that tells of mount options.

use super::table::{Kind, ROWS, Row, Value};
use super::without_effect::{OF_BTRFS, VALUED};

/// The column at which texts begin.
const TEXT_COLUMN: usize = 23;
/// The greatest length of a line: clap breaks longer ones, without indenting them.
const LINE_MAX: usize = 80;
/// The lines of the manual for all mount options.
pub(crate) fn manual() -> String {
    let mut text = String::from("MOUNT OPTIONS\n");
    for row in ROWS.iter().filter(|row| !row.help.is_empty() && row.kind != Kind::Refused) {
        entry(&mut text, &heading(row), row.help);
    }
    let plain = OF_BTRFS.iter().filter(|name| !name.starts_with("no"));
    let valued = VALUED.iter().filter(|name| **name != "comment");
    let names: Vec<String> =
        plain.map(ToString::to_string).chain(valued.map(|name| format!("{name}="))).collect();
    wrap(
        &mut text,
        "  ",
        &format!(
            "Taken, and without effect, so that lines of fstab for the kernel's btrfs work: {}, their opposites, and those \
             of mount(8) that change nothing here. Refused: {}",
            names.join(", "),
            refused()
        ),
    );
    text
}

/// Options that are refused, those with the same reason together.
fn refused() -> String {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.kind == Kind::Refused).collect();
    let alike = rows.chunk_by(|one, other| one.help == other.help);
    let words = alike.map(|rows| {
        let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
        format!("{} ({})", names.join(", "), rows[0].help)
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The option as the manual shows it, such as `commit=SECONDS`.
fn heading(row: &Row) -> String {
    let name = row.name;
    match row.value {
        Value::No(_) => name.to_owned(),
        Value::Needed(placeholder, _) => format!("{name}={placeholder}"),
        Value::Allowed(placeholder, _) => format!("{name}[={placeholder}]"),
    }
}

/// Adds an option and its text, the text indented.
fn entry(text: &mut String, heading: &str, help: &str) {
    let first = format!("  {heading}");
    if first.len() + 1 < TEXT_COLUMN {
        wrap(text, &format!("{first:TEXT_COLUMN$}"), help);
    } else {
        text.push_str(&first);
        text.push('\n');
        wrap(text, &" ".repeat(TEXT_COLUMN), help);
    }
}

/// Adds words in lines that begin at the column at which the first one does.
fn wrap(text: &mut String, start: &str, words: &str) {
    let mut line = start.to_owned();
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.len() + 1 + word.len() > LINE_MAX {
            text.push_str(&line);
            text.push('\n');
            line = " ".repeat(start.len());
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    text.push_str(&line);
    text.push('\n');
}
