//! The lease: which machine writes a pool whose devices several machines can write.
//!
//! Each device has a [record](brindle_ondisk::LeaseRecord) of its holder. The walk of a mount:
//!
//! 1. [`admit`] looks at the records before anything is read for good. A holder of this machine is running or not. One of another
//!    machine is watched for three of its intervals: it renews its record, and is refused, or it is gone.
//! 2. [`Lease::take`] writes the record to all devices, durably, waits, and reads them back: of two that do so at once, the one that
//!    finds another's record loses, and gives up its own. Only then is anything else written.
//! 3. A thread [renews](Lease::renew) it each interval, on devices that never sleep.
//! 4. Each commit and log sync [verifies](Lease::verify) that the record is still its own, and so does a write when no renewal has
//!    succeeded for two intervals: that of a server that hung, or a machine that slept. A holder that finds another record loses: the
//!    pool is read-only at once, and nothing more is written.
//! 5. A device whose connection was lost asks [its guard](claim::PlaceGuard) when it is there again, before it repeats a write. Another
//!    record, or none, fails the device for good; another's, or one that was broken, loses the lease as well.
//! 6. The end of the volume marks it as free.
//!
//! An observer waits for three intervals of its own monotonic clock from its first look; a holder writes for two intervals after the
//! last renewal that it began, by its own. Times of two machines are never compared.
//!
//! **Limits.** A machine whose clock stops with it (a virtual machine that was paused for longer than three intervals) may make
//! writes, up to its next commit or renewal, that were on their way; so may one whose requests are held up between it and the device.
//! No record can fence these. What they damage is not published, and the [guard](crate::write) of superblocks is independent.

mod admit;
mod claim;
mod held;
mod host;
mod places;
#[cfg(test)]
mod reconnect_tests;
#[cfg(test)]
mod tests;

pub(crate) use admit::admit;
pub(crate) use held::{Keeper, Lease};
pub use host::{LeaseHost, ThisHost};
pub use places::{LeaseFound, break_leases, check_leases, find_leases};
pub(crate) use places::{Place, break_held, held_places};

use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Time from one renewal to the next unless told otherwise.
pub const LEASE_INTERVAL: Duration = Duration::from_secs(5);
/// Limits of the interval; a record with another one counts as the nearest.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Part of an interval for which one that takes the lease waits for others that take it at once.
const SETTLE: u32 = 10;
/// Intervals for which a holder writes without a renewal.
const HOLDER_INTERVALS: u32 = 2;
/// Intervals for which an observer waits for a renewal.
const OBSERVER_INTERVALS: u32 = 3;
/// Time in which a process of this machine may end that is about to, and give up its lease.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reason for which a pool is not written any more, once there is one.
pub type StopReason = Arc<OnceLock<Arc<str>>>;

/// Pools that get a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseMode {
    /// Those with a device that other machines can write, or whose last holder has not given it up.
    #[default]
    Shared,
    /// All.
    Always,
    /// None; one that another has is respected, and broken if it was outlived.
    Never,
    /// None, and another's is not looked at: nothing that is written lasts.
    Ignored,
}

/// Options of leases.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// Pools that get one.
    pub mode: LeaseMode,
    /// Time from one renewal to the next.
    pub interval: Duration,
    /// Identity and clock.
    pub host: Arc<dyn LeaseHost>,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self { mode: LeaseMode::default(), interval: LEASE_INTERVAL, host: Arc::new(ThisHost) }
    }
}

/// Interval of a record, or of an option.
fn interval_of(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).clamp(INTERVAL_MIN, INTERVAL_MAX)
}
