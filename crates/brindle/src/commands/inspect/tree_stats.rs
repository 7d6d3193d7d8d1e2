//! `brindle inspect tree-stats`: how large trees are, and how scattered.

use super::tree_choice::{parse_tree, tree_title};
use crate::commands::pool::InspectOptions;
use crate::format::UnitMode;
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_care::inspect::TreeStatistics;
use brindle_fs::RootId;
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
EXAMPLES
  The four trees that matter most:
    brindle inspect tree-stats pool.img

  How well do the leaves of one subvolume follow each other?
    brindle inspect tree-stats -t 257 --json a.img b.img

EXIT STATUS
  0  success
  1  a device or a tree block can't be read
  2  wrong usage";

/// Show how large trees are, and how scattered over the disk
///
/// Walks each tree in the order of its keys, each node before its children. A step to a block that does not
/// begin where the last one ended is a seek; blocks that follow each other without one form a cluster. The
/// last lines look at leaves alone: how far from the end of each leaf its right sibling begins.
///
/// Without --tree the root, extent, checksum and top-level file trees are shown.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TreeStatsCommand {
    /// Sizes in bytes
    #[arg(short = 'b')]
    bytes: bool,
    /// Only this tree: a number, or a name such as fs or EXTENT_TREE
    #[arg(short, long, value_name = "TREE", value_parser = parse_tree)]
    tree: Option<RootId>,
    #[command(flatten)]
    options: InspectOptions,
    #[command(flatten)]
    json: JsonOption,
    /// Image files or block devices: those of one pool, in any order
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

const DEFAULT_TREES: [RootId; 4] =
    [RootId::ROOT_TREE, RootId::EXTENT_TREE, RootId::CSUM_TREE, RootId::FS_TREE];

/// Runs the command.
pub(crate) fn run(command: &TreeStatsCommand) -> Result<ExitCode> {
    let pool = command.options.open(&command.devices)?;
    let trees = command.tree.map_or(DEFAULT_TREES.to_vec(), |tree| vec![tree]);
    let mut values = Vec::new();
    for tree in trees {
        let begun = Instant::now();
        let found = TreeStatistics::collect(&pool, tree)?;
        let elapsed = begun.elapsed();
        if command.json.json {
            values.push(json(&found, elapsed));
        } else {
            let units = if command.bytes { UnitMode::Raw } else { UnitMode::DEFAULT };
            let mut out = output::stdout();
            print(&found, elapsed, &mut out, units)?;
            out.flush()?;
        }
    }
    if command.json.json {
        output::print_json(&json!({ "trees": values }))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the statistics of a tree, which took this long to read.
fn print(found: &TreeStatistics, elapsed: Duration, out: &mut dyn Write, units: UnitMode) -> io::Result<()> {
    let size = |bytes| units.format(bytes);
    writeln!(out, "Calculating size of {}", statistics_title(found.tree))?;
    writeln!(out, "\tTotal size: {}", size(found.nodes() * found.nodesize))?;
    writeln!(out, "\t\tInline data: {}", size(found.inline_bytes))?;
    writeln!(out, "\tTotal seeks: {}", found.seeks.count)?;
    writeln!(out, "\t\tForward seeks: {}", found.forward_seeks)?;
    writeln!(out, "\t\tBackward seeks: {}", found.backward_seeks)?;
    writeln!(out, "\t\tAvg seek len: {}", size(found.seeks.mean()))?;
    print_histogram(found, out)?;
    writeln!(out, "\tTotal clusters: {}", found.clusters.count.max(1))?;
    writeln!(out, "\t\tAvg cluster size: {}", size(found.clusters.mean()))?;
    writeln!(out, "\t\tMin cluster size: {}", size(found.smallest_cluster()))?;
    writeln!(out, "\t\tMax cluster size: {}", size(found.cluster_max))?;
    writeln!(out, "\tTotal disk spread: {}", size(found.highest.saturating_sub(found.lowest)))?;
    writeln!(out, "\tTotal read time: {} s {} us", elapsed.as_secs(), elapsed.subsec_micros())?;
    writeln!(out, "\tLevels: {}", found.levels())?;
    writeln!(out, "\tTotal nodes: {}", found.nodes())?;
    for (level, count) in found.nodes_at.iter().enumerate().take(found.levels()) {
        write!(out, "\t\tOn level {level}: {count:8}")?;
        if level > 0 {
            write!(out, "  (avg fanout {})", found.fanout(level))?;
        }
        writeln!(out)?;
    }
    writeln!(out, "\tSibling distance: {}", size(found.siblings.total))?;
    writeln!(out, "\t\tAvg sibling distance: {}", size(found.siblings.mean()))?;
    let (adjacent, percent) = (found.adjacent_siblings, found.adjacent_percent());
    writeln!(out, "\t\tAdjacent siblings: {adjacent} of {} ({percent}%)", found.siblings.count)
}

fn print_histogram(found: &TreeStatistics, out: &mut dyn Write) -> io::Result<()> {
    /// The longest bar.
    const WIDTH: u64 = 32;
    let most = *found.histogram.iter().max().expect("there are 64 of them");
    if found.seeks.count < 2 {
        return Ok(());
    }
    writeln!(out, "\tSeek histogram")?;
    for (power, count) in found.histogram.iter().enumerate().filter(|(_, count)| **count > 0) {
        let bar = usize::try_from((count * WIDTH).div_ceil(most)).expect("at most the width");
        let first = 1u64 << power;
        let last = first + (first - 1);
        writeln!(out, "\t\t{first:>12} - {last:>12}: {count:8} {}", "#".repeat(bar))?;
    }
    Ok(())
}

fn json(found: &TreeStatistics, elapsed: Duration) -> Value {
    let levels = found.nodes_at.get(..found.levels()).unwrap_or_default();
    json!({
        "tree": found.tree.get(),
        "name": tree_title(found.tree),
        "size_bytes": found.nodes() * found.nodesize,
        "inline_bytes": found.inline_bytes,
        "seeks": {
            "total": found.seeks.count,
            "forward": found.forward_seeks,
            "backward": found.backward_seeks,
            "mean_bytes": found.seeks.mean(),
        },
        "clusters": {
            "total": found.clusters.count,
            "mean_bytes": found.clusters.mean(),
            "min_bytes": found.smallest_cluster(),
            "max_bytes": found.cluster_max,
        },
        "spread_bytes": found.highest.saturating_sub(found.lowest),
        "read_us": u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        "nodes": found.nodes(),
        "nodes_on_level": levels,
        "siblings": {
            "total": found.siblings.count,
            "adjacent": found.adjacent_siblings,
            "distance_total_bytes": found.siblings.total,
            "distance_mean_bytes": found.siblings.mean(),
        },
    })
}

/// btrfs-progs abbreviates one of the titles here.
fn statistics_title(tree: RootId) -> String {
    match tree {
        RootId::CSUM_TREE => "csum tree".to_owned(),
        tree if tree.is_subvolume() => format!("file tree {tree}"),
        tree => tree_title(tree).to_owned(),
    }
}
