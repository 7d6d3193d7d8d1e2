//! A modelled drive as a device.

use crate::{Drive, DriveCounts, DriveRequestKind, Image, Ticket, VirtualTime};
use brindle_device::{
    Batch, Buffer, Device, DeviceClass, DeviceError, PendingRead, ReadAnswer, ReadRequest, ReadUnderWay,
    WritableDevice, WriteRequest,
};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

/// The longest request that a host sends to a drive.
const REQUEST_BYTES: u64 = 1 << 20;

/// Contents in memory, and the time that a drive takes for them. What is submitted is under way at once, and contents
/// change when a write is submitted. A durable write (FUA) is a write and a flush, as hosts send it to SATA drives.
pub struct ModelDevice {
    name: String,
    contents: RwLock<Image>,
    time: Arc<VirtualTime>,
    drive: usize,
    class: DeviceClass,
}

/// A read of a drive, which may be several requests.
struct Requested {
    under_way: UnderWay,
    buffer: Mutex<Option<Buffer>>,
}

/// Requests to a drive that belong together.
struct UnderWay {
    time: Arc<VirtualTime>,
    tickets: Vec<Ticket>,
}

impl ModelDevice {
    /// A device with these contents.
    pub fn new(name: impl Into<String>, contents: Image, drive: Drive, time: &Arc<VirtualTime>) -> Self {
        let class = if drive.is_rotating() { DeviceClass::Rotating } else { DeviceClass::Solid };
        let (name, drive) = (name.into(), time.add(drive));
        Self { name, contents: RwLock::new(contents), time: Arc::clone(time), drive, class }
    }

    /// Its present contents.
    pub fn image(&self) -> Image {
        self.contents().clone()
    }

    /// Counts of its drive since it was made, or since they were last reset.
    pub fn counts(&self) -> DriveCounts {
        self.time.counts(self.drive)
    }

    /// Sets all counts of its drive to 0.
    pub fn reset_counts(&self) {
        self.time.reset_counts(self.drive);
    }

    fn contents(&self) -> RwLockReadGuard<'_, Image> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the contents.
    fn change(&self, change: impl FnOnce(&mut Image)) {
        change(&mut self.contents.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// An error, unless a range lies within the device.
    fn check_range(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        let size_bytes = self.size_bytes();
        if offset.checked_add(length as u64).is_some_and(|end| end <= size_bytes) {
            return Ok(());
        }
        Err(DeviceError::BeyondEnd { device: self.name.clone(), offset, length, size_bytes })
    }

    /// Asks the drive for something with a range, in as many requests as a host would.
    fn ask(&self, kind: fn(u64, u64) -> DriveRequestKind, offset: u64, length: u64) -> UnderWay {
        let end = offset + length;
        let starts = (offset..end).step_by(usize::try_from(REQUEST_BYTES).expect("small"));
        let submit = |start: u64| self.time.submit(self.drive, kind(start, REQUEST_BYTES.min(end - start)));
        UnderWay { tickets: starts.map(submit).collect(), time: Arc::clone(&self.time) }
    }

    /// Submits a read of a range that lies within the device.
    fn submit_read(&self, offset: u64, length: usize) -> UnderWay {
        self.ask(DriveRequestKind::Read, offset, length as u64)
    }

    /// Submits a write.
    fn submit(&self, offset: u64, pieces: &[&[u8]]) -> Result<UnderWay, DeviceError> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        self.check_range(offset, length)?;
        self.change(|image| {
            let mut at = offset;
            for piece in pieces {
                image.write(at, piece);
                at += piece.len() as u64;
            }
        });
        Ok(self.ask(DriveRequestKind::Write, offset, length as u64))
    }

    /// Submits a flush, of the writes that are under way too.
    fn flushing(&self) -> UnderWay {
        let ticket = self.time.submit(self.drive, DriveRequestKind::Flush);
        UnderWay { tickets: vec![ticket], time: Arc::clone(&self.time) }
    }
}

impl UnderWay {
    fn is_answered(&self) -> bool {
        self.tickets.iter().all(|ticket| self.time.is_answered(*ticket))
    }

    fn wait(&self) {
        self.tickets.iter().for_each(|ticket| self.time.wait(*ticket));
    }
}

impl ReadUnderWay for Requested {
    fn is_answered(&self) -> bool {
        self.under_way.is_answered()
    }

    fn wait(&self) {
        self.under_way.wait();
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
        self.contents().size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.check_range(offset, buffer.len())?;
        let under_way = self.submit_read(offset, buffer.len());
        self.contents().read(offset, buffer);
        under_way.wait();
        Ok(())
    }

    fn submit_reads(&self, requests: &[ReadRequest]) -> Vec<PendingRead> {
        let submit = |read: &ReadRequest| match self.check_range(read.offset, read.length) {
            Err(error) => PendingRead::answered(Err(error)),
            Ok(()) => {
                let under_way = self.submit_read(read.offset, read.length);
                let mut buffer = Buffer::new(read.length);
                self.contents().read(read.offset, &mut buffer);
                PendingRead::under_way(Requested { under_way, buffer: Mutex::new(Some(buffer)) })
            }
        };
        requests.iter().map(submit).collect()
    }

    fn class(&self) -> DeviceClass {
        self.class
    }
}

impl WritableDevice for ModelDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.submit(offset, &[bytes])?.wait();
        Ok(())
    }

    fn write_pieces_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        self.submit(offset, pieces)?.wait();
        Ok(())
    }

    fn submit_write<'a>(&'a self, write: WriteRequest<'a>, batch: &mut Batch<'a>) {
        match self.submit(write.offset, &write.pieces) {
            Err(error) => batch.answer(Err(error)),
            Ok(written) => {
                let flushed = write.is_durable.then(|| self.flushing());
                batch.under_way(move || {
                    written.wait();
                    flushed.iter().for_each(UnderWay::wait);
                    Ok(())
                });
            }
        }
    }

    fn submit_flush<'a>(&'a self, batch: &mut Batch<'a>) {
        let flushed = self.flushing();
        batch.under_way(move || {
            flushed.wait();
            Ok(())
        });
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flushing().wait();
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let end = offset.saturating_add(length).min(self.size_bytes());
        if self.class == DeviceClass::Rotating || offset >= end {
            return Ok(self.class != DeviceClass::Rotating);
        }
        self.change(|image| image.zero(offset, end - offset));
        let ticket = self.time.submit(self.drive, DriveRequestKind::Discard(offset, end - offset));
        self.time.wait(ticket);
        Ok(true)
    }

    fn set_size(&self, _size_bytes: u64) -> Result<(), DeviceError> {
        Err(DeviceError::FixedSize { device: self.name.clone() })
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
        let requests = [64 << 20, 68 << 20].map(|offset| ReadRequest::new(offset, 4 << 20));
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
        let beyond = ReadRequest::new((1 << 30) - 4096, 8192);
        disks[0].read_at(beyond.offset, &mut buffer).expect_err("beyond the end");
        disks[0].submit_reads(&[beyond]).remove(0).wait().expect_err("beyond the end");
    }

    fn ssd_and_disk(time: &Arc<VirtualTime>) -> [ModelDevice; 2] {
        [("ssd", Drive::sata_ssd()), ("disk", Drive::hard_disk())]
            .map(|(name, drive)| ModelDevice::new(name, Image::new(1 << 30), drive, time))
    }

    #[test]
    fn writes_are_read_again_and_counted() {
        let time = VirtualTime::new();
        for device in ssd_and_disk(&time) {
            device.write_at(4096, &[1; 8192]).expect("inside");
            device.write_pieces_at(8192, &[&[2; 4096], &[3; 4096]]).expect("inside");
            device.flush().expect("works");
            let mut bytes = vec![9; 5 * 4096];
            device.read_at(0, &mut bytes).expect("inside");
            let pages: Vec<u8> = bytes.chunks(4096).map(|page| page[0]).collect();
            assert_eq!(pages, [0, 1, 2, 3, 0]);
            device.write_at(1 << 20, &[4; 3 << 20]).expect("inside");
            let rotates = device.class() == DeviceClass::Rotating;
            assert_eq!(device.discard(4096, 8192).expect("works"), !rotates);
            assert_eq!(device.image().page(1).is_some(), rotates, "a hard disk forgets nothing");
            let counts = device.counts();
            assert_eq!((counts.reads, counts.writes, counts.flushes), (1, 5, 1), "3 MiB are three requests");
            assert_eq!((counts.read_bytes, counts.written_bytes), (5 * 4096, (3 << 20) + 4 * 4096));
            assert_eq!((counts.discards, counts.discarded_bytes), if rotates { (0, 0) } else { (1, 8192) });
            assert_eq!((counts.seeks > 0, counts.wake_ups), (rotates, 0));
            device.reset_counts();
            assert_eq!(device.counts(), DriveCounts::default());
            assert!(matches!(device.write_at(1 << 30, &[0]), Err(DeviceError::BeyondEnd { .. })));
            assert!(matches!(device.set_size(0), Err(DeviceError::FixedSize { .. })));
            assert_eq!(device.counts().requests(), 0, "what is refused is no request");
        }
    }

    #[test]
    fn writes_and_flushes_of_a_batch_are_under_way_together() {
        let time = VirtualTime::new();
        let disks = [0, 1].map(|number| {
            ModelDevice::new(format!("disk{number}"), Image::new(1 << 30), Drive::hard_disk(), &time)
        });
        let bytes = vec![5; 8 << 20];
        let write = |is_durable| WriteRequest { offset: 1 << 20, pieces: vec![&bytes[..]], is_durable };
        let took = |count: usize| {
            let begin = time.now_ns();
            let mut batch = Batch::default();
            disks.iter().take(count).for_each(|disk| disk.submit_write(write(true), &mut batch));
            assert!(batch.run().iter().all(Result::is_ok));
            time.now_ns() - begin
        };
        let (one, two) = (took(1), took(2));
        assert!((38_000_000..80_000_000).contains(&one), "{one}: the platters have it");
        assert!(two < one * 5 / 4, "{two}, one disk takes {one}");
        let mut batch = Batch::default();
        disks.iter().for_each(|disk| disk.submit_flush(&mut batch));
        disks[0].submit_write(WriteRequest { offset: 1 << 30, ..write(false) }, &mut batch);
        let answers = batch.run();
        assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(disks.each_ref().map(|disk| disk.counts().flushes), [3, 2]);
    }
}
