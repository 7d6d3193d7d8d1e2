//! Size of a tree, and the distances between its nodes on disk.

use super::walk::{Order, TreeWalk};
use brindle_ondisk::item::FileExtent;
use brindle_ondisk::{Item, KeyType, MAX_LEVEL, Node, NodeExpectation, RootId, to_u64};
use brindle_tree::{Pool, TreeError};

/// A sum of distances and how many there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Distances {
    /// Sum, in bytes.
    pub total: u64,
    /// Number of distances.
    pub count: u64,
}

impl Distances {
    fn add(&mut self, distance: u64) {
        self.total = self.total.saturating_add(distance);
        self.count += 1;
    }

    /// Mean distance, in bytes; 0 without any.
    pub fn mean(self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }
}

/// Statistics of a tree.
#[derive(Clone, Debug)]
pub struct TreeStatistics {
    /// The tree.
    pub tree: RootId,
    /// Size of a node, in bytes.
    pub nodesize: u64,
    /// Number of nodes by level.
    pub nodes_at: [u64; MAX_LEVEL as usize + 1],
    /// Bytes of file contents in leaves.
    pub inline_bytes: u64,
    /// Steps to a higher address.
    pub forward_seeks: u64,
    /// Steps to a lower address.
    pub backward_seeks: u64,
    /// Steps that left a gap, by its length.
    pub seeks: Distances,
    /// Seeks by the power of two that their length reaches.
    pub histogram: [u64; 64],
    /// Runs of more than one node, by their length.
    pub clusters: Distances,
    cluster_min: u64,
    /// Length of the longest run, in bytes.
    pub cluster_max: u64,
    /// The cluster under way, in bytes.
    cluster: u64,
    /// Lowest address of a node.
    pub lowest: u64,
    /// Highest address of a node.
    pub highest: u64,
    last: Option<u64>,
    last_leaf: Option<u64>,
    /// Gaps between leaves that follow each other.
    pub siblings: Distances,
    /// Number of leaves that begin at the end of their left sibling.
    pub adjacent_siblings: u64,
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
        }
    }

    /// Statistics of a tree, from each of its nodes.
    pub fn collect(pool: &Pool, tree: RootId) -> Result<Self, TreeError> {
        let root = pool.tree(tree)?.root();
        let nodesize = pool.volume().tree_context().nodesize.into();
        let mut statistics = Self::new(tree, nodesize);
        let root = NodeExpectation::root(root.bytenr, root.generation, root.level);
        for node in TreeWalk::new(pool, root, Order::DepthFirst) {
            statistics.visit(&*node?);
        }
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

    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        self.nodes_at.iter().sum()
    }

    /// Number of levels.
    pub fn levels(&self) -> usize {
        self.nodes_at.iter().take_while(|count| **count > 0).count()
    }

    /// Children per node of a level.
    pub fn fanout(&self, level: usize) -> u64 {
        self.nodes_at[level - 1].checked_div(self.nodes_at[level]).unwrap_or(0)
    }

    /// Length of the shortest run, in bytes; 0 without any.
    pub fn smallest_cluster(&self) -> u64 {
        if self.clusters.count == 0 { 0 } else { self.cluster_min }
    }

    /// Share of leaves that begin at the end of their left sibling, in percent.
    pub fn adjacent_percent(&self) -> u64 {
        (self.adjacent_siblings * 100).checked_div(self.siblings.count).unwrap_or(100)
    }
}

/// Bytes of file contents in a leaf.
fn inline_bytes(leaf: &Node) -> u64 {
    let mut bytes = 0;
    for slot in 0..leaf.len() {
        if let Some((key, data)) = leaf.item(slot) {
            if key.item_type == KeyType::EXTENT_DATA {
                if let Ok(Item::FileExtent(FileExtent::Inline { data, .. })) = Item::parse(&key, data) {
                    bytes += to_u64(data.len());
                }
            }
        }
    }
    bytes
}
