//! A lease that is held: taken, renewed, verified, given up.

use super::claim::{Claim, PlaceGuard};
use super::places::write;
use super::{INTERVAL_MAX, INTERVAL_MIN, LeaseOptions, Place, SETTLE, StopReason};
use crate::{VolumeError, WriteError};
use brindle_device::{DeviceClass, DeviceError};
use brindle_ondisk::{LeasePlace, LeaseRecord};
use brindle_sync::{Mutex, MutexGuard, Rank, Ranked};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;

/// A lease that is held.
#[derive(Debug)]
pub(crate) struct Lease {
    options: LeaseOptions,
    record: LeaseRecord,
    claim: Arc<Claim>,
    held: Mutex<Held>,
}

/// State of the records.
#[derive(Debug, Default)]
struct Held {
    sequence: u64,
    places: Vec<Place>,
}

impl Ranked for Held {
    const RANK: Rank = Rank::Lease;
}

impl Lease {
    /// Takes the lease on devices, which [`admit`](super::admit()) has looked at. `None` if there is no place for a record.
    pub(crate) fn take(
        places: Vec<Place>,
        options: &LeaseOptions,
        stop: StopReason,
    ) -> Result<Option<Self>, VolumeError> {
        let host = options.host.as_ref();
        let mut options = options.clone();
        options.interval = options.interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        let mut record = LeaseRecord::new(host.process(), &host.name());
        (record.holder, record.since) = (host.random(), host.seconds().into());
        record.interval_ms = u32::try_from(options.interval.as_millis()).unwrap_or(u32::MAX).into();
        record.set_held(true);
        let mut places: Vec<Place> = places.into_iter().filter(has_room).collect();
        places.sort_by_key(|place| place.identity.devid);
        if places.is_empty() {
            tracing::warn!("no device has room for a lease: other machines are not kept out");
            return Ok(None);
        }
        let begun = host.now();
        let claim = Arc::new(Claim::new(record.holder, Arc::clone(&options.host), stop));
        let held = Held { sequence: 1, places };
        let unknown = Mutex::new(Rank::Lease, Held::default());
        let mut lease = Self { options, record, claim, held: unknown };
        lease.begin(&held)?;
        *lease.held.get_mut() = held;
        lease.claim.is_valid_from(begun, lease.options.interval);
        Ok(Some(lease))
    }

    /// Writes the record to all devices, and sees that no other one has come at the same time.
    fn begin(&self, held: &Held) -> Result<(), VolumeError> {
        let failed = |source| VolumeError::Lease { source };
        let all: Vec<&Place> = held.places.iter().collect();
        write(&all, &self.record_of(held)).into_iter().collect::<Result<(), _>>().map_err(failed)?;
        all.into_iter().for_each(|place| self.guard(place));
        self.options.host.wait(self.options.interval / SETTLE);
        for place in &held.places {
            match place.record().map_err(failed)? {
                Some(found) if found.holder == self.record.holder => {}
                found => {
                    self.free(held);
                    let holder = found.map_or_else(|| "another system".to_owned(), |found| found.to_string());
                    return Err(VolumeError::Held { device: place.device.name().to_owned(), holder });
                }
            }
        }
        Ok(())
    }

    /// Renews the record if it is still its own.
    ///
    /// # Errors
    /// [`WriteError::LeaseLost`], from then on always.
    pub(crate) fn renew(&self) -> Result<(), WriteError> {
        let mut held = self.held();
        let begun = self.options.host.now();
        self.look(&held)?;
        held.sequence += 1;
        let foreign: Vec<Place> =
            renewed_places(&held.places).into_iter().filter(|place| !has_room(place)).cloned().collect();
        held.places.retain(|place| !foreign.iter().any(|it| is_same(it, place)));
        let renewed = renewed_places(&held.places);
        let answers = write(&renewed, &self.record_of(&held));
        let failures = answers.iter().filter_map(|answer| answer.as_ref().err());
        failures.for_each(|error| tracing::warn!("the lease is not renewed: {error}"));
        if answers.iter().any(Result::is_ok) {
            self.claim.is_valid_from(begun, self.options.interval);
        }
        Ok(())
    }

    /// Checks that the record is still its own.
    ///
    /// # Errors
    /// Those of [`renew`](Self::renew).
    pub(crate) fn verify(&self) -> Result<(), WriteError> {
        self.look(&self.held())
    }

    /// Checks that it is held, as far as that is known: reads nothing while renewals succeed.
    ///
    /// # Errors
    /// Those of [`renew`](Self::renew).
    pub(crate) fn check(&self) -> Result<(), WriteError> {
        self.claim.check()?;
        if self.claim.is_valid() {
            return Ok(());
        }
        tracing::warn!("the lease was not renewed in time, and is verified");
        self.renew()
    }

    /// Devices have joined or left the pool: those that are new get the record, too.
    pub(crate) fn follow(&self, places: &[Place]) {
        let mut held = self.held();
        let is_known = |place: &Place| held.places.iter().any(|known| is_same(known, place));
        if places.len() == held.places.len() && places.iter().all(is_known) {
            return;
        }
        let new: Vec<Place> = places.iter().filter(|place| !is_known(place)).cloned().collect();
        let new: Vec<Place> = new.into_iter().filter(has_room).collect();
        held.places.retain(|known| places.iter().any(|place| is_same(known, place)));
        for (place, answer) in new.iter().zip(write(&new.iter().collect::<Vec<_>>(), &self.record_of(&held)))
        {
            match answer {
                Ok(()) => self.guard(place),
                Err(error) => tracing::warn!("{error}"),
            }
        }
        held.places.extend(new);
        held.places.sort_by_key(|place| place.identity.devid);
    }

    /// Marks it as free, durably, if it is still held; nothing can be written afterwards.
    pub(crate) fn release(&self) {
        let mut held = self.held();
        if self.claim.release() {
            held.sequence += 1;
            self.free(&held);
        }
    }

    /// Marks the records as free that are its own.
    fn free(&self, held: &Held) {
        let own = |place: &&Place| {
            place.record().is_ok_and(|found| found.is_some_and(|found| found.holder == self.record.holder))
        };
        let own: Vec<&Place> = held.places.iter().filter(own).collect();
        let mut record = self.record_of(held);
        record.set_held(false);
        for answer in write(&own, &record) {
            answer.unwrap_or_else(|error| tracing::warn!("a lease is not given up: {error}"));
        }
    }

    /// Reads the record of the first device that can be read.
    fn look(&self, held: &Held) -> Result<(), WriteError> {
        self.claim.check()?;
        let renewed = renewed_places(&held.places);
        let others = held.places.iter().filter(|place| !renewed.iter().any(|it| is_same(it, place)));
        let mut failure = "no device is left".to_owned();
        for place in renewed.iter().copied().chain(others) {
            match place.record() {
                Ok(found) => {
                    if let Some(found) = found {
                        let compared = self.claim.compare(&found, place.device.name());
                        compared.map_err(|why| self.claim.lose(why))?;
                    }
                    // What is written there is no other holder's, and is written over by the next renewal. But a guard may have
                    // found one on another device meanwhile.
                    return self.claim.check();
                }
                Err(error) => failure = error.to_string(),
            }
        }
        // A guard that failed the last device knows more.
        self.claim.check()?;
        Err(self.claim.lose(format!("the lease of the pool can't be verified: {failure}")))
    }

    /// Has a device with the record ask it before it repeats writes.
    fn guard(&self, place: &Place) {
        let guard = PlaceGuard { claim: Arc::clone(&self.claim), identity: place.identity };
        place.device.guard_reconnects(Arc::new(guard));
    }

    fn record_of(&self, held: &Held) -> LeaseRecord {
        let mut record = self.record;
        record.sequence = held.sequence.into();
        record
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }
}

fn is_same(one: &Place, other: &Place) -> bool {
    Arc::ptr_eq(&one.device, &other.device)
}

/// Returns true if a record may be written there: nothing else is.
fn has_room(place: &Place) -> bool {
    match place.read() {
        Ok(LeasePlace::Foreign) => {
            let device = place.device.name();
            tracing::warn!(
                "{device}: a boot loader or other program uses the place of the lease, which is left alone"
            );
            false
        }
        Ok(_) => true,
        Err(error) => {
            tracing::warn!("{error}");
            false
        }
    }
}

/// Devices on which the record is renewed: none that sleeps. Those that other machines can write, if any is, or else all; of disks alone,
/// the first.
fn renewed_places(places: &[Place]) -> Vec<&Place> {
    let is_awake = |place: &&Place| place.device.class() != DeviceClass::Rotating;
    let shared: Vec<&Place> = places.iter().filter(|place| place.device.is_shared()).collect();
    let candidates: Vec<&Place> = if shared.is_empty() { places.iter().collect() } else { shared };
    let awake: Vec<&Place> = candidates.iter().copied().filter(is_awake).collect();
    if awake.is_empty() { candidates.into_iter().take(1).collect() } else { awake }
}

/// The holder of a lease for a volume: renews it by a thread, and gives it up when it is dropped.
pub(crate) struct Keeper {
    lease: Arc<Lease>,
    thread: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Keeper {
    pub(crate) fn new(lease: Lease) -> Result<Self, VolumeError> {
        let lease = Arc::new(lease);
        let mut keeper = Self { lease: Arc::clone(&lease), thread: None };
        if lease.options.host.has_threads() {
            let (end, ended) = mpsc::channel();
            let failed = |source| VolumeError::Lease {
                source: DeviceError::Open { device: "lease".to_owned(), source },
            };
            let interval = lease.options.interval;
            let keep = move || {
                while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    if lease.renew().is_err() {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new().name("lease".to_owned()).spawn(keep).map_err(failed)?;
            keeper.thread = Some((end, thread));
        }
        Ok(keeper)
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            thread.join().ok();
        }
        self.lease.release();
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}
