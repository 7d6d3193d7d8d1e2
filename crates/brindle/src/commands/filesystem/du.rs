//! `filesystem du`: the space of files, and how much of it is shared.

use crate::commands::path::{name_json, shown_name};
use crate::commands::refused::explain_admin;
use crate::format::{UnitMode, UnitOptions};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result};
use brindle_admin::extents::{Extents, Inode, Piece, pieces};
use brindle_admin::walk::{Met, walk};
use brindle_admin::{FileType, Mounted};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle filesystem du /mnt/home
    brindle filesystem du -s /mnt/home /mnt/snapshots/*

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Show the space that files take, and how much of it is shared
///
/// Total is the data of a file or of all files below a directory; Exclusive the part that no other file and no snapshot has; Set
/// shared, of each operand, the part that others have, counted once. Contents within metadata, and holes, count as nothing;
/// compressed data counts as long as it is read.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DuCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Only a line for each operand
    #[arg(short, long)]
    summarize: bool,
    /// A file or directory of a mounted pool
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    units: UnitOptions,
}

/// Sums of a file or directory.
#[derive(Clone, Copy, Default)]
struct Sums {
    total: u64,
    exclusive: u64,
}

/// A line of the report.
struct Line {
    path: PathBuf,
    sums: Sums,
    set_shared: Option<u64>,
}

/// Runs it.
pub(crate) fn run(command: &DuCommand) -> Result<ExitCode> {
    let mut lines = Vec::new();
    let mut out = output::stdout();
    if !command.json.json {
        writeln!(out, "{:>10}  {:>10}  {:>10}  Filename", "Total", "Exclusive", "Set shared")?;
    }
    for path in &command.paths {
        let found = look(path, command.summarize)?;
        match command.json.json {
            true => lines.extend(found),
            false => found.iter().try_for_each(|line| print(&mut out, line, command.units.mode()))?,
        }
    }
    if command.json.json {
        let files: Vec<Value> = lines.iter().map(line_json).collect();
        output::print_json(&json!({ "files": files }))?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The lines of an operand: what it holds first, itself last.
fn look(start: &Path, summarize: bool) -> Result<Vec<Line>> {
    let mounted = Mounted::open(start)?;
    // What is not written yet has no extents.
    mounted.sync()?;
    let mut extents = Extents::new(&mounted).map_err(explain_admin)?;
    let (mut lines, mut open, mut shared) = (Vec::new(), vec![Sums::default()], Shared::default());
    walk(&mounted, mounted.inode()?, &mut |met: &Met<'_>| -> Result<(), anyhow::Error> {
        let sums = match met.kind {
            FileType::Directory if !met.is_after => {
                open.push(Sums::default());
                return Ok(());
            }
            FileType::Directory => open.pop().unwrap_or_default(),
            FileType::Regular => file_sums(&mounted, &mut extents, met.inode, &mut shared)?,
            _ => return Ok(()),
        };
        let above = open.last_mut().context("a directory ends that did not begin")?;
        above.total += sums.total;
        above.exclusive += sums.exclusive;
        if !summarize && !met.path.is_empty() {
            let path = start.join(OsStr::from_bytes(met.path));
            lines.push(Line { path, sums, set_shared: None });
        }
        Ok(())
    })?;
    let sums = open.pop().unwrap_or_default();
    lines.push(Line { path: start.to_owned(), sums, set_shared: Some(shared.bytes()) });
    Ok(lines)
}

fn file_sums(
    mounted: &Mounted,
    extents: &mut Extents<'_>,
    inode: Inode,
    shared: &mut Shared,
) -> Result<Sums> {
    let own = pieces(mounted, inode)?;
    let mut sums = Sums::default();
    for piece in &own {
        sums.total += piece.length_bytes;
        if extents.is_shared(inode, piece, &own)? {
            shared.add(piece);
        } else {
            sums.exclusive += piece.length_bytes;
        }
    }
    Ok(sums)
}

/// Ranges that are shared, without overlaps: starts and ends.
#[derive(Default)]
struct Shared(BTreeMap<u64, u64>);

impl Shared {
    fn add(&mut self, piece: &Piece) {
        let (mut start, mut end) = (piece.start().get(), piece.start().get() + piece.length_bytes);
        let touching: Vec<(u64, u64)> = self
            .0
            .range(..=end)
            .rev()
            .take_while(|(_, other_end)| **other_end >= start)
            .map(|(start, end)| (*start, *end))
            .collect();
        for (other_start, other_end) in touching {
            self.0.remove(&other_start);
            (start, end) = (start.min(other_start), end.max(other_end));
        }
        self.0.insert(start, end);
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

fn print(out: &mut impl Write, line: &Line, mode: UnitMode) -> io::Result<()> {
    let shared = line.set_shared.map_or_else(|| "-".to_owned(), |bytes| mode.format(bytes));
    let (total, exclusive) = (mode.format(line.sums.total), mode.format(line.sums.exclusive));
    write!(out, "{total:>10}  {exclusive:>10}  {shared:>10}  ")?;
    out.write_all(&shown_name(line.path.as_os_str().as_bytes()))?;
    writeln!(out)
}

fn line_json(line: &Line) -> Value {
    json!({
        "path": name_json(line.path.as_os_str().as_bytes()),
        "total_bytes": line.sums.total,
        "exclusive_bytes": line.sums.exclusive,
        "set_shared_bytes": line.set_shared,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_admin::Logical;

    #[test]
    fn shared_ranges_count_once() {
        let mut shared = Shared::default();
        let mut add = |start, length_bytes| {
            let extent = Logical::new(start);
            let piece = Piece {
                file_offset: 0,
                length_bytes,
                extent,
                extent_bytes: length_bytes,
                offset: 0,
                is_compressed: false,
            };
            shared.add(&piece);
            shared.bytes()
        };
        assert_eq!([add(100, 50), add(300, 50), add(100, 50)], [50, 100, 100]);
        assert_eq!([add(120, 200), add(0, 10), add(0, 1000)], [250, 260, 1000]);
    }
}
