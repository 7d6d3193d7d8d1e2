//! Every node of a tree, in one order or the other.

use brindle_ondisk::{Node, NodeExpectation};
use brindle_tree::{Pool, TreeError};
use std::collections::VecDeque;
use std::sync::Arc;

/// Order of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Level by level, from the root.
    BreadthFirst,
    /// Each node before its children, in the order of keys.
    DepthFirst,
}

/// Walk of a tree. A node that can't be read is an error, and the nodes below it are left out.
#[derive(Debug)]
pub struct TreeWalk<'p> {
    pool: &'p Pool,
    order: Order,
    pending: VecDeque<NodeExpectation>,
    /// Show this node only.
    alone: bool,
}

impl<'p> TreeWalk<'p> {
    /// A walk of all that lies below `root`.
    pub fn new(pool: &'p Pool, root: NodeExpectation, order: Order) -> Self {
        Self { pool, order, pending: VecDeque::from([root]), alone: false }
    }

    /// A walk of one node.
    pub fn alone(pool: &'p Pool, node: NodeExpectation) -> Self {
        Self { alone: true, ..Self::new(pool, node, Order::BreadthFirst) }
    }

    fn add_children(&mut self, node: &Node) {
        let children = node.key_ptrs().iter().map(|pointer| NodeExpectation::child(pointer, node.level()));
        match self.order {
            Order::BreadthFirst => self.pending.extend(children),
            Order::DepthFirst => children.rev().for_each(|child| self.pending.push_front(child)),
        }
    }
}

impl Iterator for TreeWalk<'_> {
    type Item = Result<Arc<Node>, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let expected = self.pending.pop_front()?;
        let node = self.pool.read_node(&expected);
        if let Ok(node) = &node {
            if !self.alone {
                self.add_children(node);
            }
        }
        Some(node)
    }
}
