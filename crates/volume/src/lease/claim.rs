//! The claim that a holder has, as far as it can be known without a lock, and the guard of devices whose connection was lost.

use super::{HOLDER_INTERVALS, INTERVAL_MIN, LeaseHost, SETTLE, StopReason, places::read};
use crate::WriteError;
use brindle_device::{Device, ReconnectError, ReconnectGuard};
use brindle_ondisk::{LeaseDevice, LeasePlace, LeaseRecord};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Claim of a holder.
#[derive(Debug)]
pub(super) struct Claim {
    /// Its number in the records.
    holder: [u8; 16],
    host: Arc<dyn LeaseHost>,
    stop: StopReason,
    /// True once another one has it, or it was given up.
    is_over: AtomicBool,
    /// True once it was given up, after everything was written.
    is_released: AtomicBool,
    /// Time until which it is known to be held, by the host's clock.
    valid_until_ms: AtomicU64,
}

impl Claim {
    pub(super) fn new(holder: [u8; 16], host: Arc<dyn LeaseHost>, stop: StopReason) -> Self {
        let (is_over, is_released) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { holder, host, stop, is_over, is_released, valid_until_ms: AtomicU64::new(0) }
    }

    /// Notes a renewal that was begun then.
    pub(super) fn is_valid_from(&self, begun: Duration, interval: Duration) {
        self.valid_until_ms.store(milliseconds(begun + interval * HOLDER_INTERVALS), Relaxed);
    }

    /// Returns true while no observer can have outlived it.
    pub(super) fn is_valid(&self) -> bool {
        milliseconds(self.host.now()) <= self.valid_until_ms.load(Relaxed)
    }

    /// Checks that it was not lost.
    ///
    /// # Errors
    /// [`WriteError::LeaseLost`].
    pub(super) fn check(&self) -> Result<(), WriteError> {
        if !self.is_over.load(Relaxed) {
            return Ok(());
        }
        let why = self.stop.get().map_or_else(|| "the lease of the pool is lost".into(), Arc::clone);
        Err(WriteError::LeaseLost { why })
    }

    /// Ends it; false if it had ended before.
    pub(super) fn release(&self) -> bool {
        self.is_released.store(true, Relaxed);
        !self.is_over.swap(true, Relaxed)
    }

    pub(super) fn lose(&self, why: String) -> WriteError {
        self.is_over.store(true, Relaxed);
        let why: Arc<str> = why.into();
        if self.stop.set(Arc::clone(&why)).is_ok() {
            tracing::error!("the pool is read-only from now on, as of its last commit: {why}");
        }
        WriteError::LeaseLost { why }
    }

    /// Compares a record of a device with the claim; the reason for which it is lost.
    pub(super) fn compare(&self, found: &LeaseRecord, device: &str) -> Result<(), String> {
        match (found.is_held(), found.holder == self.holder) {
            (true, true) => Ok(()),
            (true, false) => Err(format!("{found} has taken the lease of the pool ({device})")),
            (false, _) => Err(format!("the lease of the pool was broken, or taken and given up ({device})")),
        }
    }
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Time from a look in which a system that takes the lease now writes nothing but its record: half of the shortest wait of any.
const CONSENT: Duration = INTERVAL_MIN.checked_div(2 * SETTLE).expect("not zero");

/// Guard of a device with a record. It takes no lock: the holder may be waiting for this device.
#[derive(Debug)]
pub(super) struct PlaceGuard {
    pub(super) claim: Arc<Claim>,
    pub(super) identity: LeaseDevice,
}

impl ReconnectGuard for PlaceGuard {
    fn admit(&self, device: &dyn Device) -> Result<Duration, ReconnectError> {
        let refused = |why| Err(ReconnectError::Refused { why });
        let (claim, name) = (&self.claim, device.name());
        let is_released = claim.is_released.load(Relaxed);
        if !is_released {
            if let Err(lost) = claim.check() {
                return refused(lost.to_string());
            }
        }
        match read(device)? {
            LeasePlace::Record(found) if self.identity.is_of(&found) => {
                // Nothing can be lost any more that was given up, but what follows may be another's.
                if is_released && found.holder == claim.holder {
                    return Ok(CONSENT);
                }
                match claim.compare(&found, name) {
                    Ok(()) => Ok(CONSENT),
                    Err(why) if is_released => refused(why),
                    Err(why) => refused(claim.lose(why).to_string()),
                }
            }
            // A renewal was torn: this holder's own as long as no other one can have begun to take it.
            LeasePlace::Damaged if claim.is_valid() => Ok(CONSENT),
            LeasePlace::Damaged => refused(
                claim
                    .lose(format!("the record of the lease is torn, and may be another's ({name})"))
                    .to_string(),
            ),
            // It was made durable when the lease was taken.
            LeasePlace::Record(_) | LeasePlace::Unused | LeasePlace::Foreign => {
                refused(format!("the record of the lease is gone: these are other contents ({name})"))
            }
        }
    }
}
