//! `subvolume find-new`: extents of files that are newer than a generation.

use crate::commands::path::shown_name;
use crate::commands::reached::Reached;
use crate::commands::refused::explain_admin;
use crate::output;
use anyhow::{Context, Result};
use brindle_admin::extents::{NewExtent, newer_extents};
use brindle_admin::{ObjectId, RootId};
use clap::Args;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle subvolume find-new /mnt/home 1234
    brindle subvolume find-new /mnt/home 9999999   (the present generation)

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// List the extents of a subvolume's files that were written in a generation or later
///
/// A line an extent, and at the end the present generation of the subvolume. What was written and not committed yet is not
/// seen: `brindle filesystem sync` commits.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct FindNewCommand {
    /// A path in the subvolume
    path: PathBuf,
    /// The generation
    generation: u64,
}

/// Runs it.
pub(crate) fn run(command: &FindNewCommand) -> Result<ExitCode> {
    let reached = Reached::of(std::slice::from_ref(&command.path))?;
    let id = reached.subvolume()?;
    let (all, _) = reached.subvolumes()?;
    let facts = all.iter().find(|one| one.id == id).with_context(|| format!("no subvolume of id {id}"))?;
    let (tree, trees) = (RootId::new(id), reached.trees());
    let found = newer_extents(trees, tree, command.generation).map_err(explain_admin)?;
    let mut out = output::stdout();
    let mut names: HashMap<ObjectId, Vec<u8>> = HashMap::new();
    for extent in found {
        let inode = extent.inode;
        let name = match names.entry(inode) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let paths = trees.paths_of_inode(tree, inode)?;
                place.insert(paths.into_iter().next().unwrap_or_default())
            }
        };
        write!(out, "{} ", describe(&extent))?;
        out.write_all(&shown_name(name))?;
        writeln!(out)?;
    }
    writeln!(out, "transid marker was {}", facts.generation)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn describe(extent: &NewExtent) -> String {
    let NewExtent { inode, file_offset, length_bytes, start, offset, generation, .. } = extent;
    let all =
        [(extent.is_compressed, "COMPRESS"), (extent.is_prealloc, "PREALLOC"), (extent.is_inline, "INLINE")];
    let set: Vec<&str> = all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect();
    let flags = if set.is_empty() { "NONE".to_owned() } else { set.join("|") };
    format!(
        "inode {inode} file offset {file_offset} len {length_bytes} disk start {start} offset {offset} gen {generation} \
         flags {flags}"
    )
}
