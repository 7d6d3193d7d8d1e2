//! Tables.

use std::io::{self, Write};

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Writes rows in columns, two blanks apart; the first row is the head.
pub(crate) fn write_table(out: &mut dyn Write, columns: &[Align], rows: &[Vec<String>]) -> io::Result<()> {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for row in rows {
        let cell = |(index, cell): (usize, &String)| match columns.get(index) {
            Some(Align::Right) => format!("{cell:>width$}", width = widths[index]),
            Some(Align::Left) => format!("{cell:<width$}", width = widths[index]),
            None => cell.clone(),
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// Writes a table as btrfs-progs have it: heads, a rule, and groups of rows with a rule between them. Heads are on the left,
/// numbers on the right, and the second column is where `paths` says.
pub(crate) fn write_ruled(
    out: &mut dyn Write,
    paths: Align,
    heads: &[Vec<String>],
    groups: &[&[Vec<String>]],
) -> io::Result<()> {
    let all = || heads.iter().chain(groups.iter().flat_map(|group| group.iter()));
    let columns = heads.first().map_or(0, Vec::len);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut write_row = |row: &[String], is_head: bool| {
        let cell = |(column, (cell, width)): (usize, (&String, &usize))| match is_head
            || (column == 1 && paths == Align::Left)
        {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        };
        let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(cell).collect();
        writeln!(out, "{}", cells.join(" ").trim_end())
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    heads.iter().try_for_each(|head| write_row(head, true))?;
    for group in groups {
        write_row(&rule, true)?;
        group.iter().try_for_each(|row| write_row(row, false))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["a", "bytes", "path"]), row(["long", "1", "x"])];
        let mut out = Vec::new();
        write_table(&mut out, &[Align::Left, Align::Right, Align::Left], &rows).expect("memory");
        assert_eq!(String::from_utf8(out).expect("text"), "a     bytes  path\nlong      1  x\n");
    }
}
