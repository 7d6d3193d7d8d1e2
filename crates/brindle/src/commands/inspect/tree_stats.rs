//! `brindle inspect tree-stats`: how large trees are, and how scattered.

use super::tree_choice::{parse_tree, tree_title};
use super::tree_walk::{Order, TreeWalk};
use crate::cli::JsonOption;
use crate::commands::pool::open_pool;
use crate::format::UnitMode;
use crate::output;
use anyhow::Result;
use brindle_ondisk::item::FileExtent;
use brindle_ondisk::{Item, KeyType, MAX_LEVEL, Node, NodeExpectation, RootId, to_u64};
use brindle_tree::Pool;
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
    json: JsonOption,
    /// Image files or block devices: those of one pool, in any order
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

const DEFAULT_TREES: [RootId; 4] =
    [RootId::ROOT_TREE, RootId::EXTENT_TREE, RootId::CSUM_TREE, RootId::FS_TREE];

/// Runs the command.
pub(crate) fn run(command: &TreeStatsCommand) -> Result<ExitCode> {
    let pool = open_pool(&command.devices)?;
    let trees = command.tree.map_or(DEFAULT_TREES.to_vec(), |tree| vec![tree]);
    let mut values = Vec::new();
    for tree in trees {
        let statistics = TreeStatistics::collect(&pool, tree)?;
        if command.json.json {
            values.push(statistics.json());
        } else {
            let units = if command.bytes { UnitMode::Raw } else { UnitMode::DEFAULT };
            let mut out = output::stdout();
            statistics.print(&mut out, units)?;
            out.flush()?;
        }
    }
    if command.json.json {
        output::print_json(&Value::Array(values))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A sum of distances and how many there are.
#[derive(Clone, Copy, Debug, Default)]
struct Distances {
    total: u64,
    count: u64,
}

impl Distances {
    fn add(&mut self, distance: u64) {
        self.total = self.total.saturating_add(distance);
        self.count += 1;
    }

    fn mean(self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }
}

/// Statistics of a tree.
#[derive(Clone, Debug)]
struct TreeStatistics {
    tree: RootId,
    nodesize: u64,
    nodes_at: [u64; MAX_LEVEL as usize + 1],
    inline_bytes: u64,
    forward_seeks: u64,
    backward_seeks: u64,
    seeks: Distances,
    /// Seeks by the power of two that their length reaches.
    histogram: [u64; 64],
    clusters: Distances,
    cluster_min: u64,
    cluster_max: u64,
    /// The cluster under way, in bytes.
    cluster: u64,
    lowest: u64,
    highest: u64,
    last: Option<u64>,
    last_leaf: Option<u64>,
    siblings: Distances,
    adjacent_siblings: u64,
    elapsed: Duration,
}

impl TreeStatistics {
    fn new(tree: RootId, nodesize: u64) -> Self {
        Self {
            tree,
            nodesize,
            nodes_at: [0; MAX_LEVEL as usize + 1],
            inline_bytes: 0,
            forward_seeks: 0,
            backward_seeks: 0,
            seeks: Distances::default(),
            histogram: [0; 64],
            clusters: Distances::default(),
            cluster_min: u64::MAX,
            cluster_max: nodesize,
            cluster: nodesize,
            lowest: u64::MAX,
            highest: 0,
            last: None,
            last_leaf: None,
            siblings: Distances::default(),
            adjacent_siblings: 0,
            elapsed: Duration::ZERO,
        }
    }

    fn collect(pool: &Pool, tree: RootId) -> Result<Self> {
        let root = pool.tree(tree)?.root();
        let nodesize = pool.volume().tree_context().nodesize.into();
        let mut statistics = Self::new(tree, nodesize);
        let start = Instant::now();
        let root = NodeExpectation::root(root.bytenr, root.generation, root.level);
        for node in TreeWalk::new(pool, root, Order::DepthFirst) {
            statistics.visit(&*node?);
        }
        statistics.elapsed = start.elapsed();
        Ok(statistics)
    }

    fn visit(&mut self, node: &Node) {
        let at = node.header().bytenr.get();
        self.nodes_at[usize::from(node.level())] += 1;
        self.lowest = self.lowest.min(at);
        self.highest = self.highest.max(at);
        self.note_step(at);
        if node.is_leaf() {
            self.note_sibling(at);
            self.inline_bytes += inline_bytes(node);
        }
    }

    fn note_step(&mut self, at: u64) {
        let Some(last) = self.last.replace(at) else { return };
        let end = last + self.nodesize;
        if at == end {
            self.cluster += self.nodesize;
            return;
        }
        let distance = at.abs_diff(end);
        self.seeks.add(distance);
        self.histogram[distance.max(1).ilog2() as usize] += 1;
        if at > end {
            self.forward_seeks += 1;
        } else {
            self.backward_seeks += 1;
        }
        // A block on its own is no cluster.
        if self.cluster > self.nodesize {
            self.clusters.add(self.cluster);
            self.cluster_min = self.cluster_min.min(self.cluster);
            self.cluster_max = self.cluster_max.max(self.cluster);
        }
        self.cluster = self.nodesize;
    }

    fn note_sibling(&mut self, at: u64) {
        if let Some(last) = self.last_leaf.replace(at) {
            let distance = at.abs_diff(last + self.nodesize);
            self.siblings.add(distance);
            self.adjacent_siblings += u64::from(distance == 0);
        }
    }

    fn nodes(&self) -> u64 {
        self.nodes_at.iter().sum()
    }

    fn levels(&self) -> usize {
        self.nodes_at.iter().take_while(|count| **count > 0).count()
    }

    /// Children per node of a level.
    fn fanout(&self, level: usize) -> u64 {
        self.nodes_at[level - 1].checked_div(self.nodes_at[level]).unwrap_or(0)
    }

    fn smallest_cluster(&self) -> u64 {
        if self.clusters.count == 0 { 0 } else { self.cluster_min }
    }

    fn adjacent_percent(&self) -> u64 {
        (self.adjacent_siblings * 100).checked_div(self.siblings.count).unwrap_or(100)
    }

    fn print(&self, out: &mut dyn Write, units: UnitMode) -> io::Result<()> {
        let size = |bytes| units.format(bytes);
        writeln!(out, "Calculating size of {}", statistics_title(self.tree))?;
        writeln!(out, "\tTotal size: {}", size(self.nodes() * self.nodesize))?;
        writeln!(out, "\t\tInline data: {}", size(self.inline_bytes))?;
        writeln!(out, "\tTotal seeks: {}", self.seeks.count)?;
        writeln!(out, "\t\tForward seeks: {}", self.forward_seeks)?;
        writeln!(out, "\t\tBackward seeks: {}", self.backward_seeks)?;
        writeln!(out, "\t\tAvg seek len: {}", size(self.seeks.mean()))?;
        self.print_histogram(out)?;
        writeln!(out, "\tTotal clusters: {}", self.clusters.count.max(1))?;
        writeln!(out, "\t\tAvg cluster size: {}", size(self.clusters.mean()))?;
        writeln!(out, "\t\tMin cluster size: {}", size(self.smallest_cluster()))?;
        writeln!(out, "\t\tMax cluster size: {}", size(self.cluster_max))?;
        writeln!(out, "\tTotal disk spread: {}", size(self.highest.saturating_sub(self.lowest)))?;
        let elapsed = self.elapsed;
        writeln!(out, "\tTotal read time: {} s {} us", elapsed.as_secs(), elapsed.subsec_micros())?;
        writeln!(out, "\tLevels: {}", self.levels())?;
        writeln!(out, "\tTotal nodes: {}", self.nodes())?;
        for (level, count) in self.nodes_at.iter().enumerate().take(self.levels()) {
            write!(out, "\t\tOn level {level}: {count:8}")?;
            if level > 0 {
                write!(out, "  (avg fanout {})", self.fanout(level))?;
            }
            writeln!(out)?;
        }
        writeln!(out, "\tSibling distance: {}", size(self.siblings.total))?;
        writeln!(out, "\t\tAvg sibling distance: {}", size(self.siblings.mean()))?;
        let (adjacent, percent) = (self.adjacent_siblings, self.adjacent_percent());
        writeln!(out, "\t\tAdjacent siblings: {adjacent} of {} ({percent}%)", self.siblings.count)
    }

    fn print_histogram(&self, out: &mut dyn Write) -> io::Result<()> {
        /// The longest bar.
        const WIDTH: u64 = 32;
        let most = *self.histogram.iter().max().expect("there are 64 of them");
        if self.seeks.count < 2 {
            return Ok(());
        }
        writeln!(out, "\tSeek histogram")?;
        for (power, count) in self.histogram.iter().enumerate().filter(|(_, count)| **count > 0) {
            let bar = usize::try_from((count * WIDTH).div_ceil(most)).expect("at most the width");
            let first = 1u64 << power;
            let last = first + (first - 1);
            writeln!(out, "\t\t{first:>12} - {last:>12}: {count:8} {}", "#".repeat(bar))?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let levels = self.nodes_at.get(..self.levels()).unwrap_or_default();
        json!({
            "tree": self.tree.get(),
            "name": tree_title(self.tree),
            "size_bytes": self.nodes() * self.nodesize,
            "inline_bytes": self.inline_bytes,
            "seeks": {
                "total": self.seeks.count,
                "forward": self.forward_seeks,
                "backward": self.backward_seeks,
                "mean_bytes": self.seeks.mean(),
            },
            "clusters": {
                "total": self.clusters.count,
                "mean_bytes": self.clusters.mean(),
                "min_bytes": self.smallest_cluster(),
                "max_bytes": self.cluster_max,
            },
            "spread_bytes": self.highest.saturating_sub(self.lowest),
            "read_us": u64::try_from(self.elapsed.as_micros()).unwrap_or(u64::MAX),
            "nodes": self.nodes(),
            "nodes_on_level": levels,
            "siblings": {
                "total": self.siblings.count,
                "adjacent": self.adjacent_siblings,
                "distance_total_bytes": self.siblings.total,
                "distance_mean_bytes": self.siblings.mean(),
            },
        })
    }
}

/// btrfs-progs abbreviates one of the titles here.
fn statistics_title(tree: RootId) -> String {
    match tree {
        RootId::CSUM_TREE => "csum tree".to_owned(),
        tree if tree.is_subvolume() => format!("file tree {tree}"),
        tree => tree_title(tree).to_owned(),
    }
}

/// Bytes of file contents in a leaf.
fn inline_bytes(leaf: &Node) -> u64 {
    let mut bytes = 0;
    for slot in 0..leaf.len() {
        if let Some((key, data)) = leaf.item(slot)
            && key.item_type == KeyType::EXTENT_DATA
            && let Ok(Item::FileExtent(FileExtent::Inline { data, .. })) = Item::parse(&key, data)
        {
            bytes += to_u64(data.len());
        }
    }
    bytes
}
