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
        let found = choose(&states(filesystem)?, wanted)?;
        let hold = filesystem.hold_subvolume(found)?.ok_or(ReceiveProblem::Writable(wanted.uuid))?;
        // It may have been another one until it was held.
        if choose(&states(filesystem)?, wanted)? != found {
            return Err(ReceiveProblem::Writable(wanted.uuid));
        }
        self.0.insert(key, (found, hold));
        Ok(found)
    }
}

fn states(filesystem: &Filesystem) -> Result<Vec<SourceState>, ReceiveProblem> {
    Ok(filesystem.subvolumes()?.iter().map(SourceState::from).collect())
}

/// State of a subvolume that a stream may build on.
#[derive(Clone, Copy, Debug)]
pub struct SourceState {
    /// Its id.
    pub id: RootId,
    /// Its own UUID, and the transaction that changed it last.
    pub own: Origin,
    /// The UUID that it was received under, and the transaction that the sender told.
    pub received: Origin,
    /// True if it can't be written.
    pub is_read_only: bool,
}

impl From<&Subvolume> for SourceState {
    fn from(one: &Subvolume) -> Self {
        Self {
            id: one.id,
            own: Origin { uuid: one.uuid, transid: one.changed_generation },
            received: Origin { uuid: one.received_uuid, transid: one.sent_generation },
            is_read_only: one.is_read_only(),
        }
    }
}

/// The subvolume, of those that there are, that is what the sender knows.
///
/// # Errors
/// None is.
pub fn choose(subvolumes: &[SourceState], wanted: Origin) -> Result<RootId, ReceiveProblem> {
    let mut problem = ReceiveProblem::NoSource(wanted);
    if wanted.uuid.is_nil() {
        return Err(problem);
    }
    let received = subvolumes.iter().map(|one| (one, one.received));
    let itself = subvolumes.iter().map(|one| (one, one.own));
    for (one, known) in received.chain(itself).filter(|(_, known)| known.uuid == wanted.uuid) {
        if !one.is_read_only {
            problem = ReceiveProblem::Writable(wanted.uuid);
        } else if known.transid != wanted.transid {
            problem = ReceiveProblem::OtherState { wanted, found: known.transid };
        } else {
            return Ok(one.id);
        }
    }
    Err(problem)
}
