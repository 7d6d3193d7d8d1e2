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
