//! A modelled drive as a device.

use crate::{Drive, DriveRequestKind, Image, Ticket, VirtualTime};
use brindle_device::{
    Buffer, Device, DeviceClass, DeviceError, PendingRead, ReadAnswer, ReadRequest, ReadUnderWay,
};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The longest request that a host sends to a drive.
const REQUEST_BYTES: u64 = 1 << 20;

/// Contents in memory, and the time that a drive takes for them. Reads that are submitted are under way at once.
pub struct ModelDevice {
    name: String,
    contents: Image,
    time: Arc<VirtualTime>,
    drive: usize,
    class: DeviceClass,
}

/// A read of a drive, which may be several requests.
struct Requested {
    time: Arc<VirtualTime>,
    tickets: Vec<Ticket>,
    buffer: Mutex<Option<Buffer>>,
}

impl ModelDevice {
    /// A device with these contents.
    pub fn new(name: impl Into<String>, contents: Image, drive: Drive, time: &Arc<VirtualTime>) -> Self {
        let class = if drive.is_rotating() { DeviceClass::Rotating } else { DeviceClass::Solid };
        let (name, drive) = (name.into(), time.add(drive));
        Self { name, contents, time: Arc::clone(time), drive, class }
    }

    /// Asks the drive for a range.
    fn ask(&self, offset: u64, length: usize) -> Result<Vec<Ticket>, DeviceError> {
        let size_bytes = self.size_bytes();
        let end = offset.checked_add(length as u64).filter(|end| *end <= size_bytes);
        let beyond = || DeviceError::BeyondEnd { device: self.name.clone(), offset, length, size_bytes };
        let end = end.ok_or_else(beyond)?;
        let starts = (offset..end).step_by(usize::try_from(REQUEST_BYTES).expect("small"));
        let submit = |start: u64| {
            let kind = DriveRequestKind::Read(start, REQUEST_BYTES.min(end - start));
            self.time.submit(self.drive, kind)
        };
        Ok(starts.map(submit).collect())
    }
}

impl ReadUnderWay for Requested {
    fn is_answered(&self) -> bool {
        self.tickets.iter().all(|ticket| self.time.is_answered(*ticket))
    }

    fn wait(&self) {
        self.tickets.iter().for_each(|ticket| self.time.wait(*ticket));
    }

    fn take(&self) -> ReadAnswer {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(buffer.take().expect("an answer is taken once"))
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
        for ticket in self.ask(offset, buffer.len())? {
            self.time.wait(ticket);
        }
        self.contents.read(offset, buffer);
        Ok(())
    }

    fn submit_reads(&self, requests: &[ReadRequest]) -> Vec<PendingRead> {
        let submit = |read: &ReadRequest| match self.ask(read.offset, read.length) {
            Err(error) => PendingRead::answered(Err(error)),
            Ok(tickets) => {
                let mut buffer = Buffer::new(read.length);
                self.contents.read(read.offset, &mut buffer);
                let buffer = Mutex::new(Some(buffer));
                PendingRead::under_way(Requested { time: Arc::clone(&self.time), tickets, buffer })
            }
        };
        requests.iter().map(submit).collect()
    }

    fn class(&self) -> DeviceClass {
        self.class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submitted_reads_are_under_way_together() {
        let time = VirtualTime::new();
        let disks = [0, 1].map(|number| {
            let image = Image::new(1 << 30);
            ModelDevice::new(format!("disk{number}"), image, Drive::hard_disk(), &time)
        });
        let requests = [64 << 20, 68 << 20].map(|offset| ReadRequest { offset, length: 4 << 20 });
        let pending: Vec<_> = disks.iter().flat_map(|disk| disk.submit_reads(&requests)).collect();
        assert_eq!(time.now_ns(), 0, "nothing waits yet");
        assert!(pending.iter().all(|read| !read.is_answered()));
        for read in pending {
            assert!(read.wait().expect("inside").iter().all(|byte| *byte == 0));
        }
        let both = time.now_ns();
        assert!((38_000_000..60_000_000).contains(&both), "{both}: the disks work side by side");
        let mut buffer = vec![1; 8192];
        disks[0].read_at(1 << 29, &mut buffer[..4096]).expect("inside");
        assert!(time.now_ns() > both);
        let beyond = ReadRequest { offset: (1 << 30) - 4096, length: 8192 };
        disks[0].read_at(beyond.offset, &mut buffer).expect_err("beyond the end");
        disks[0].submit_reads(&[beyond]).remove(0).wait().expect_err("beyond the end");
    }
}
