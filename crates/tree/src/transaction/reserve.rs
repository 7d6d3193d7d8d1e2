//! Reservations of space that may need a commit first.

use super::Transactions;
use crate::error::TreeError;
use crate::space::{MetadataReservation, Urgency};

/// Number of attempts to reserve metadata space, with a commit in between.
const METADATA_TRIES: usize = 8;
/// Number of attempts to reserve data space after a commit; others may be faster every time.
const DATA_TRIES: usize = 4;

impl Transactions {
    /// Promises metadata space, after a commit if that helps: what is pinned is free then. Others may be faster, so
    /// that it takes several; an operation that frees space does not give up because of them.
    pub(super) fn reserve_metadata(
        &self,
        bytes: u64,
        urgency: Urgency,
    ) -> Result<MetadataReservation, TreeError> {
        let mut tries = 0;
        while tries < METADATA_TRIES {
            if let Some(reservation) =
                self.changes.space.reserve_metadata(&self.store, self.load(), bytes, urgency)?
            {
                return Ok(reservation);
            }
            self.commit()?;
            self.changes.space.wait_for_readers();
            if urgency == Urgency::Normal || !self.changes.space.wait_for_others() {
                tries += 1;
            }
        }
        Err(TreeError::NoSpace("metadata".to_owned()))
    }

    /// Reserves `bytes` bytes of data space; [`TreeError::NoSpace`] if there are not enough. May commit if that
    /// helps: not to be called within a transaction, nor with a tree locked.
    pub(crate) fn reserve_data(&self, bytes: u64) -> Result<(), TreeError> {
        for _ in 0..DATA_TRIES {
            if self.changes.space.promise_data(&self.store, self.load(), bytes)? {
                return Ok(());
            }
            self.commit()?;
            self.changes.space.wait_for_readers();
        }
        Err(TreeError::NoSpace(format!("no {bytes} bytes for data")))
    }
}
