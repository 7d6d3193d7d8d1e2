//! The other side of the transport: a filesystem that answers.

use crate::interrupt::Effects;
use crate::operation::Request;
use crate::turns::{DeviceWaits, Pace};

/// The kernel numbers no request so.
pub(crate) const NO_REQUEST: u64 = 0;

/// A filesystem that answers requests, of several threads at once.
pub trait Server: Send + Sync + 'static {
    /// Work that is left when the kernel has forgotten a node.
    type Leftover;

    /// A thread of the mount begins. While it does a request, it should tell before it waits for a device, and ask before it
    /// changes anything.
    fn enter_thread(&self, waits: DeviceWaits, effects: Effects);

    /// Returns true if a thread looks out for the next request for a moment before it sleeps. That takes the time of a
    /// processor, and saves that of waking up: worth it where a request is often followed by the next one at once.
    fn looks_out(&self) -> bool {
        true
    }

    /// The expected duration of a request. Does not wait.
    fn pace(&self, request: &Request<'_>) -> Pace;

    /// Answers a request, now or later.
    fn serve(&self, request: Request<'_>);

    /// The kernel has forgotten `lookups` of its lookups of a node. Does not wait: work that takes longer is returned.
    fn forget(&self, node: u64, lookups: u64) -> Option<Self::Leftover>;

    /// Does such work.
    fn clear(&self, leftover: Self::Leftover);
}
