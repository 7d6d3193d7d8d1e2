//! The gate: how bytes become a [`Node`].

use super::{TreeContext, check_body, check_first_key, check_header};
use crate::node::{CorruptNode, NodeProblem};
use crate::{Checksum, Node, NodeExpectation};

impl Node {
    /// The gate: takes a block if its checksum, its identity and every field of it are right.
    pub fn check(
        bytes: Box<[u8]>,
        context: &TreeContext,
        expected: &NodeExpectation,
    ) -> Result<Self, CorruptNode> {
        let node = sized(bytes, context, expected)?;
        let refuse = |owner, problem| CorruptNode { at: expected.bytenr, owner, problem };
        let stored =
            Checksum::from_slice(node.header().csum.get(..context.checksum_type.size()).unwrap_or_default());
        let computed = context.checksum_type.compute(node.as_bytes().get(32..).unwrap_or_default());
        if stored != computed {
            return Err(refuse(None, NodeProblem::Checksum { stored, computed }));
        }
        node.verify(context, expected)?;
        Ok(node)
    }

    /// The gate without the checksum: for a rescue that gave it up.
    pub fn check_unsummed(
        bytes: Box<[u8]>,
        context: &TreeContext,
        expected: &NodeExpectation,
    ) -> Result<Self, CorruptNode> {
        let node = sized(bytes, context, expected)?;
        node.verify(context, expected)?;
        Ok(node)
    }

    /// Checks a block as the gate does, except for its checksum; a changed block is verified before it is written.
    pub fn verify(&self, context: &TreeContext, expected: &NodeExpectation) -> Result<(), CorruptNode> {
        let refuse = |owner, problem| CorruptNode { at: expected.bytenr, owner, problem };
        check_header(self.header(), context, expected).map_err(|problem| refuse(None, problem))?;
        check_body(self, context)
            .and_then(|()| check_first_key(self, expected))
            .map_err(|problem| refuse(Some(self.header().owner), problem))
    }
}

/// Takes a block of the right size.
fn sized(bytes: Box<[u8]>, context: &TreeContext, expected: &NodeExpectation) -> Result<Node, CorruptNode> {
    Node::unchecked(bytes, context.nodesize).map_err(|defect| CorruptNode {
        at: expected.bytenr,
        owner: None,
        problem: NodeProblem::Header(defect),
    })
}
