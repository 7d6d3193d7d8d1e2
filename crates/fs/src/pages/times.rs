//! The times of a file's last changes, as far as the inode item does not say them yet.
//!
//! A write through the library, and one that a program does past the host's page cache, sets the time by our clock: it is
//! `changed` until an edit of the inode item takes it over. A write that the host's page cache brings
//! ([`write_cached`](crate::Filesystem::write_cached)) is otherwise: the host has stamped the file when the program wrote, and
//! tells that time by itself, before the write arrives, after it, or not at all if it had told the same time already, as it
//! may when a program changes a file twice within a tick of the host's clock. It is the same with space that a host's
//! program asks for or gives back ([`allocate_for_host`](crate::Filesystem::allocate_for_host)) and with ranges that it copies
//! ([`copy_range_for_host`](crate::Filesystem::copy_range_for_host)). So such a change has no time of its own, but no commit may
//! hold new contents under an old time either. It leaves a *provisional* time:
//!
//! - the item gets it with the contents, and what the item said before is kept (`confirmed`) and shown instead;
//! - times that the host tells replace both;
//! - a write with a time of our own replaces both;
//! - once the host has told everything (it asks for a sync, or closes a file that it could write),
//!   [`confirm_times`](crate::Filesystem::confirm_times) takes the provisional time back to what the host said last.
//!
//! So a provisional time outlives a crash only, and only where contents came home before their time did.

use crate::attributes::{Attributes, Timestamp};
use brindle_ondisk::item::{InodeItem, Timespec};

/// Times of the last changes of contents that the inode item does not have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// The time of the last change with a time of our own, until the inode item has it.
    pub(crate) changed: Option<Timestamp>,
    /// The time at which the last cached write arrived, until the inode item has it.
    provisional: Option<Timestamp>,
    /// The times that the item had before it was given a provisional one.
    confirmed: Option<Confirmed>,
}

/// Times that were replaced by a provisional one.
#[derive(Clone, Copy, Debug)]
struct Confirmed {
    modified: Timestamp,
    changed: Timestamp,
    /// The item's times since: where it has others by now, those count.
    given: (Timestamp, Timestamp),
}

impl Times {
    /// Contents have changed at a time of our own.
    pub(crate) fn change(&mut self, now: Timestamp) {
        *self = Self { changed: Some(now), ..Self::default() };
    }

    /// Contents have come from the host's page cache.
    pub(crate) fn change_cached(&mut self, now: Timestamp) {
        // A time of our own that the item does not have yet comes with the new contents, and is no host's to confirm.
        if self.changed.is_none() {
            self.provisional = Some(now);
        }
    }

    /// Gives the item the times that it lacks.
    pub(crate) fn settle(&mut self, item: &mut InodeItem) {
        if let Some(changed) = self.changed.take() {
            self.confirmed = None;
            set_times(item, changed);
        }
        let Some(provisional) = self.provisional.take() else { return };
        let before = shown(item, self.confirmed);
        set_times(item, provisional);
        let given = (Timestamp::from(&item.mtime), Timestamp::from(&item.ctime));
        self.confirmed = Some(Confirmed { modified: before.0, changed: before.1, given });
    }

    /// The item is about to be given times: both if `with_modified`, otherwise the time of its last change alone.
    pub(crate) fn replace(&mut self, item: &mut InodeItem, with_modified: bool) {
        if with_modified {
            (item.mtime, item.ctime) = {
                let (modified, changed) = shown(item, self.confirmed);
                (modified.into(), changed.into())
            };
            *self = Self::default();
        } else if let Some(changed) = self.changed.take() {
            self.confirmed = None;
            set_times(item, changed);
        }
    }

    /// Forgets a provisional time that the item lacks. Returns true if the item has one.
    pub(crate) fn forget_provisional(&mut self) -> bool {
        self.provisional = None;
        self.confirmed.is_some()
    }

    /// Returns true if the host has not told all times yet.
    pub(crate) fn are_provisional(&self) -> bool {
        self.provisional.is_some() || self.confirmed.is_some()
    }

    /// Takes provisional times out of the item.
    pub(crate) fn restore(&mut self, item: &mut InodeItem) {
        let (modified, changed) = shown(item, self.confirmed.take());
        (item.mtime, item.ctime) = (modified.into(), changed.into());
    }

    /// Lays the times over what the item says.
    pub(crate) fn overlay(&self, attributes: &mut Attributes) {
        let in_item = (attributes.modified, attributes.changed);
        (attributes.modified, attributes.changed) = choose(in_item, self.confirmed);
        if let Some(changed) = self.changed {
            attributes.modified = changed;
            attributes.changed = attributes.changed.max(changed);
        }
    }
}

/// The times of an item: those confirmed, where it still has the provisional ones.
fn choose(item: (Timestamp, Timestamp), confirmed: Option<Confirmed>) -> (Timestamp, Timestamp) {
    let Some(confirmed) = confirmed else { return item };
    let modified = if item.0 == confirmed.given.0 { confirmed.modified } else { item.0 };
    let changed = if item.1 == confirmed.given.1 { confirmed.changed } else { item.1 };
    (modified, changed)
}

fn shown(item: &InodeItem, confirmed: Option<Confirmed>) -> (Timestamp, Timestamp) {
    choose((Timestamp::from(&item.mtime), Timestamp::from(&item.ctime)), confirmed)
}

fn set_times(item: &mut InodeItem, time: Timestamp) {
    item.mtime = Timespec::from(time);
    // The inode may have been changed since.
    item.ctime = Timespec::from(time.max(Timestamp::from(&item.ctime)));
}
