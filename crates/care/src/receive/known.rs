//! Subvolumes that a stream builds on, found by the UUIDs that the sender gave them.

use super::error::ReceiveProblem;
use brindle_fs::{Filesystem, RootId, Subvolume, SubvolumeHold};
use brindle_stream::Origin;
use std::collections::HashMap;

/// Subvolumes that were looked up. They stay as they are, for files of theirs may be cloned later.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<(brindle_ondisk::Uuid, u64), (RootId, SubvolumeHold)>);

impl Known {
    /// The subvolume that is what the sender knows: one that was received under its UUID, or the subvolume itself where a stream
    /// comes back to the pool that sent it. It is read-only, and as of the transaction that the sender tells.
    pub(super) fn find(&mut self, filesystem: &Filesystem, wanted: Origin) -> Result<RootId, ReceiveProblem> {
        let key = (wanted.uuid, wanted.transid);
        if let Some((known, _)) = self.0.get(&key) {
            return Ok(*known);
        }
        let found = choose(&filesystem.subvolumes()?, wanted)?;
        let hold = filesystem.hold_subvolume(found)?.ok_or(ReceiveProblem::Writable(wanted.uuid))?;
        // It may have been another one until it was held.
        if choose(&filesystem.subvolumes()?, wanted)? != found {
            return Err(ReceiveProblem::Writable(wanted.uuid));
        }
        self.0.insert(key, (found, hold));
        Ok(found)
    }
}

fn choose(subvolumes: &[Subvolume], wanted: Origin) -> Result<RootId, ReceiveProblem> {
    let mut problem = ReceiveProblem::NoSource(wanted);
    if wanted.uuid.is_nil() {
        return Err(problem);
    }
    let received = subvolumes.iter().filter(|one| one.received_uuid == wanted.uuid);
    let received = received.map(|one| (one, one.sent_generation));
    let itself = subvolumes.iter().filter(|one| one.uuid == wanted.uuid);
    let itself = itself.map(|one| (one, one.changed_generation));
    for (one, transid) in received.chain(itself) {
        if !one.is_read_only() {
            problem = ReceiveProblem::Writable(wanted.uuid);
        } else if transid != wanted.transid {
            problem = ReceiveProblem::OtherState { wanted, found: transid };
        } else {
            return Ok(one.id);
        }
    }
    Err(problem)
}
