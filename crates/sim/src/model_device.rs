//! A modelled drive as a device.

use crate::{Drive, DriveRequestKind, Image, Ticket, VirtualTime};
use brindle_device::{Device, DeviceClass, DeviceError};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The longest request that a host sends to a drive.
const REQUEST_BYTES: u64 = 1 << 20;
/// Bytes of prefetched data that the host keeps in memory.
const FETCHED_BYTES_MAX: u64 = 1 << 30;

/// Contents in memory, and the time that a drive takes for them. What was announced by [`Device::prefetch`] is fetched
/// into the host's memory, where a read finds it or waits for it; anything else is read from the drive.
pub struct ModelDevice {
    name: String,
    contents: Image,
    time: Arc<VirtualTime>,
    drive: usize,
    class: DeviceClass,
    fetched: Mutex<Fetched>,
}

#[derive(Debug, Default)]
struct Fetched {
    ranges: BTreeMap<u64, (u64, Ticket)>,
    order: VecDeque<u64>,
}

impl ModelDevice {
    /// A device with these contents.
    pub fn new(name: impl Into<String>, contents: Image, drive: Drive, time: &Arc<VirtualTime>) -> Self {
        let class = if drive.is_rotating() { DeviceClass::Rotating } else { DeviceClass::Solid };
        let (name, drive) = (name.into(), time.add(drive));
        Self { name, contents, time: Arc::clone(time), drive, class, fetched: Mutex::default() }
    }

    /// Tickets that a range waits for: pieces being fetched, and requests for the gaps between them.
    fn ask(&self, start: u64, end: u64, is_kept: bool) -> Vec<Ticket> {
        let mut fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut at, mut tickets) = (start, Vec::new());
        while at < end {
            let before = fetched.ranges.range(..=at).next_back().map(|(_, known)| *known);
            if let Some((known_end, ticket)) = before.filter(|(known_end, _)| at < *known_end) {
                tickets.push(ticket);
                at = known_end;
                continue;
            }
            let next = fetched.ranges.range(at..).next().map_or(end, |(next, _)| *next);
            let until = end.min(next).min(at + REQUEST_BYTES);
            let ticket = self.time.submit(self.drive, DriveRequestKind::Read(at, until - at));
            tickets.push(ticket);
            if is_kept {
                fetched.add(at, until, ticket);
            }
            at = until;
        }
        tickets
    }
}

impl Fetched {
    fn add(&mut self, start: u64, end: u64, ticket: Ticket) {
        self.ranges.insert(start, (end, ticket));
        self.order.push_back(start);
        while self.order.len() as u64 > FETCHED_BYTES_MAX / REQUEST_BYTES {
            if let Some(oldest) = self.order.pop_front() {
                self.ranges.remove(&oldest);
            }
        }
    }
}

impl fmt::Debug for ModelDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDevice").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Device for ModelDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.contents.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let (length, size_bytes) = (buffer.len(), self.size_bytes());
        let end = offset.checked_add(length as u64).filter(|end| *end <= size_bytes);
        let beyond = || DeviceError::BeyondEnd { device: self.name.clone(), offset, length, size_bytes };
        let end = end.ok_or_else(beyond)?;
        for ticket in self.ask(offset, end, false) {
            self.time.wait(ticket);
        }
        self.contents.read(offset, buffer);
        Ok(())
    }

    fn prefetch(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.size_bytes());
        self.ask(offset, end, true);
    }

    fn has_fetched(&self, offset: u64) -> Option<bool> {
        let fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        let before = fetched.ranges.range(..=offset).next_back();
        let ticket = before.filter(|(_, (end, _))| offset < *end).map(|(_, (_, ticket))| *ticket);
        Some(ticket.is_some_and(|ticket| self.time.is_answered(ticket)))
    }

    fn class(&self) -> DeviceClass {
        self.class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetched_data_is_not_read_again() {
        let time = VirtualTime::new();
        let device = ModelDevice::new("disk", Image::new(1 << 30), Drive::hard_disk(), &time);
        device.prefetch(64 << 20, 8 << 20);
        assert_eq!(time.now_ns(), 0, "nobody waits yet");
        let mut buffer = vec![1; 8 << 20];
        device.read_at(64 << 20, &mut buffer).expect("inside");
        let first = time.now_ns();
        assert!(first > 38_000_000 && buffer.iter().all(|byte| *byte == 0));
        device.read_at(65 << 20, &mut buffer[..4096]).expect("inside");
        assert_eq!(time.now_ns(), first);
        device.read_at(1 << 29, &mut buffer[..4096]).expect("inside");
        assert!(time.now_ns() > first);
        device.read_at((1 << 30) - 4096, &mut buffer[..8192]).expect_err("beyond the end");
    }
}
