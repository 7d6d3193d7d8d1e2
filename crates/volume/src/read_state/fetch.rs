//! Requests to devices whose answers may be shared by several readers, and may come before they are read.

use brindle_device::{Buffer, Device, PendingRead, ReadRequest};
use brindle_ondisk::to_usize;
use brindle_sync::{Mutex, Rank};
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Longest request, in bytes.
pub(crate) const FETCH_BYTES_MAX: u64 = 1 << 20;

/// A read of a device, from its planning to its answer.
#[derive(Debug)]
pub(crate) struct Fetch(Mutex<State>);

#[derive(Debug)]
enum State {
    /// About to be submitted.
    Planned,
    UnderWay(PendingRead),
    Answered(Arc<Buffer>),
    /// Its readers read by themselves, and hear why.
    Failed,
}

/// Part of a fetch's answer.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) fetch: Arc<Fetch>,
    /// First byte within the answer.
    pub(crate) at: usize,
}

/// Bytes of an answer, where the device has put them. The memory is free when the last of them is dropped.
#[derive(Clone, Debug)]
pub struct FetchedBytes {
    answer: Arc<Buffer>,
    range: Range<usize>,
}

impl Deref for FetchedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.answer[self.range.clone()]
    }
}

/// Fetches that are planned: adjacent ranges of a device become one request.
#[derive(Debug, Default)]
pub(crate) struct FetchPlan {
    devices: BTreeMap<usize, Vec<Planned>>,
}

#[derive(Debug)]
struct Planned {
    offset: u64,
    length: u64,
    bypasses_cache: bool,
    fetch: Arc<Fetch>,
}

impl Fetch {
    fn planned() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Rank::Fetch, State::Planned)))
    }

    /// Answers as a device would.
    #[cfg(test)]
    pub(crate) fn answer(&self, bytes: &[u8]) {
        let mut buffer = Buffer::new(bytes.len());
        buffer.copy_from_slice(bytes);
        *self.0.lock() = State::Answered(Arc::new(buffer));
    }

    /// Returns true if a reader would not wait.
    pub(crate) fn is_answered(&self) -> bool {
        // The thread that holds the lock takes the answer.
        let Some(state) = self.0.try_lock() else { return false };
        match &*state {
            State::Planned => false,
            State::UnderWay(pending) => pending.is_answered(),
            State::Answered(_) | State::Failed => true,
        }
    }
}

impl Part {
    /// Waits for the answer and copies a part of it; fails as [`bytes`](Self::bytes) does.
    pub(crate) fn copy_to(&self, buffer: &mut [u8]) -> Result<(), ()> {
        buffer.copy_from_slice(&self.bytes(buffer.len())?);
        Ok(())
    }

    /// Waits for the answer: the part of it of a length in bytes. Fails if there is no answer to be had here: the request has
    /// failed, or is not yet submitted.
    pub(crate) fn bytes(&self, length: usize) -> Result<FetchedBytes, ()> {
        let waiter = match &*self.fetch.0.lock() {
            State::UnderWay(pending) => pending.waiter(),
            _ => None,
        };
        // Others wait beside, so the lock is not held.
        if let Some(waiter) = waiter {
            waiter.wait();
        }
        let mut state = self.fetch.0.lock();
        if matches!(*state, State::UnderWay(_)) {
            if let State::UnderWay(pending) = std::mem::replace(&mut *state, State::Failed) {
                match pending.wait() {
                    Ok(answer) => *state = State::Answered(Arc::new(answer)),
                    Err(error) => tracing::debug!("{error}"),
                }
            }
        }
        let State::Answered(answer) = &*state else { return Err(()) };
        Ok(FetchedBytes { answer: Arc::clone(answer), range: self.at..self.at + length })
    }
}

impl FetchPlan {
    /// Adds a range of a device; where its answer will be. Ranges that follow each other become one request, up to
    /// [`FETCH_BYTES_MAX`].
    pub(crate) fn add(&mut self, device: usize, offset: u64, length: u64) -> Part {
        self.push(device, offset, length, false)
    }

    /// Adds a range that is to be read past the host's cache.
    pub(crate) fn add_bypassing(&mut self, device: usize, offset: u64, length: u64) -> Part {
        self.push(device, offset, length, true)
    }

    fn push(&mut self, device: usize, offset: u64, length: u64, bypasses_cache: bool) -> Part {
        let planned = self.devices.entry(device).or_default();
        let follows = |last: &&mut Planned| {
            last.offset.checked_add(last.length) == Some(offset)
                && last.length + length <= FETCH_BYTES_MAX
                && last.bypasses_cache == bypasses_cache
        };
        if let Some(last) = planned.last_mut().filter(follows) {
            let at = to_usize(last.length);
            last.length += length;
            return Part { fetch: Arc::clone(&last.fetch), at };
        }
        let fetch = Fetch::planned();
        planned.push(Planned { offset, length, bypasses_cache, fetch: Arc::clone(&fetch) });
        Part { fetch, at: 0 }
    }

    /// Submits everything to the devices that an index stands for; they work side by side from then on.
    pub(crate) fn submit<'d>(self, device_of: impl Fn(usize) -> Option<&'d dyn Device>) {
        for (device, planned) in self.devices {
            let request = |one: &Planned| ReadRequest {
                bypasses_cache: one.bypasses_cache,
                ..ReadRequest::new(one.offset, to_usize(one.length))
            };
            let requests: Vec<ReadRequest> = planned.iter().map(request).collect();
            let pending = device_of(device).map(|device| device.submit_reads(&requests));
            let pending = pending.into_iter().flatten();
            for (planned, pending) in planned.iter().zip(pending) {
                *planned.fetch.0.lock() = State::UnderWay(pending);
            }
        }
    }

    /// Bytes that are planned.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.devices.values().flatten().map(|planned| planned.length).sum()
    }
}

/// The ranges of at most [`FETCH_BYTES_MAX`] that a range is fetched in: where each begins, and its length.
pub(crate) fn slices(length: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (0..length).step_by(to_usize(FETCH_BYTES_MAX));
    starts.map(move |start| (start, FETCH_BYTES_MAX.min(length - start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_are_one_request() {
        let mut plan = FetchPlan::default();
        let strip = 64 << 10;
        let parts: Vec<Part> =
            (0..20).map(|n| plan.add(usize::from(n % 2 == 1), (n / 2) * strip, strip)).collect();
        assert_eq!(plan.devices.values().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        assert_eq!((parts[6].at, plan.bytes()), (3 << 16, 20 * strip));
        assert!(
            Arc::ptr_eq(&parts[0].fetch, &parts[18].fetch) && !Arc::ptr_eq(&parts[0].fetch, &parts[1].fetch)
        );
        plan.add(0, 11 * strip, strip);
        plan.add(0, 12 * strip, FETCH_BYTES_MAX);
        assert_eq!(plan.devices[&0].len(), 3, "a gap, and too long together");
        let slices: Vec<_> = slices(2 * FETCH_BYTES_MAX + 5).collect();
        assert_eq!(slices, [(0, 1 << 20), (1 << 20, 1 << 20), (2 << 20, 5)]);
        assert_eq!(plan.bytes(), 21 * strip + FETCH_BYTES_MAX);
    }
}
