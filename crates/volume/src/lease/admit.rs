//! The look at the records before a pool is opened to be written.

use super::{LeaseHost, LeaseOptions, OBSERVER_INTERVALS, PATIENCE, Place, interval_of};
use crate::VolumeError;
use brindle_ondisk::{LeasePlace, LeaseRecord};
use std::time::Duration;

/// Looks in an interval.
const LOOKS: u32 = 5;

/// A holder that may be writing the pool.
struct Rival {
    device: String,
    /// `None` if its record was torn.
    record: Option<Box<LeaseRecord>>,
    /// True if it is a process of this machine that runs.
    is_here: bool,
}

impl Rival {
    fn interval(&self, options: &LeaseOptions) -> Duration {
        self.record.as_ref().map_or(options.interval, |record| interval_of(record.interval_ms.get().into()))
    }

    fn into_error(self) -> VolumeError {
        let holder = self.record.map_or_else(|| "another system".to_owned(), |record| record.to_string());
        VolumeError::Held { device: self.device, holder }
    }
}

/// Refuses a pool that is held. Returns true if it took a while: what was read before may be out of date.
pub(crate) fn admit(places: &[Place], options: &LeaseOptions) -> Result<bool, VolumeError> {
    let host = options.host.as_ref();
    let begun = host.now();
    let mut first: Option<Vec<LeasePlace>> = None;
    loop {
        let seen: Vec<LeasePlace> =
            places.iter().map(|place| place.read().unwrap_or(LeasePlace::Unused)).collect();
        let waited = host.now().saturating_sub(begun);
        let Some(rival) = find_rival(places, &seen, host) else { return Ok(first.is_some()) };
        let interval = rival.interval(options);
        let has_moved = first.as_ref().is_some_and(|first| *first != seen);
        if rival.is_here && waited >= PATIENCE || !rival.is_here && has_moved {
            return Err(rival.into_error());
        }
        if waited >= interval * OBSERVER_INTERVALS {
            let holder = rival.into_error();
            tracing::warn!("{holder}; it has not renewed its lease for {} s, and loses it", waited.as_secs());
            return Ok(true);
        }
        if first.is_none() && !rival.is_here {
            tracing::info!("{}: its lease is watched", rival.device);
        }
        first.get_or_insert(seen);
        host.wait(interval / LOOKS);
    }
}

/// The first holder that is not known to have ended; one of this machine that runs, if there is one.
fn find_rival(places: &[Place], seen: &[LeasePlace], host: &dyn LeaseHost) -> Option<Rival> {
    let mut unknown = None;
    for (place, found) in places.iter().zip(seen) {
        let device = || place.device.name().to_owned();
        match found {
            LeasePlace::Record(record) if record.is_held() && place.identity.is_of(record) => {
                let record = Some(record.clone());
                match host.is_running(&record.as_ref()?.process) {
                    Some(true) => return Some(Rival { device: device(), record, is_here: true }),
                    Some(false) => {}
                    None => {
                        unknown.get_or_insert(Rival { device: device(), record, is_here: false });
                    }
                }
            }
            LeasePlace::Damaged => {
                unknown.get_or_insert(Rival { device: device(), record: None, is_here: false });
            }
            _ => {}
        }
    }
    unknown
}
