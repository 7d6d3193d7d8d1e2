//! A read-only subvolume that stays as it is.

use crate::core::subvolumes::SubvolumeState;
use crate::error::FsError;
use std::sync::Arc;

/// A read-only subvolume that is neither made writable nor deleted as long as this lasts.
#[derive(Debug)]
#[must_use = "the subvolume stays as it is as long as this lasts"]
pub struct SubvolumeHold(Arc<SubvolumeState>);

impl SubvolumeHold {
    /// Holds a subvolume; `None` if it is writable.
    pub(crate) fn of(subvolume: Arc<SubvolumeState>) -> Result<Option<Self>, FsError> {
        let is_counted = subvolume.count_hold()?;
        // Not built for a writable one: its end would be counted.
        Ok(is_counted.then(|| Self(subvolume)))
    }
}

impl Drop for SubvolumeHold {
    fn drop(&mut self) {
        self.0.end_hold();
    }
}
