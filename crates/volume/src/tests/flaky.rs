//! Devices that can be written, remember how, and fail when they are told to.

use super::support::*;
use crate::{OpenOptions, Volume};
use brindle_device::{Batch, Device, DeviceClass, DeviceError, SparseDevice, WritableDevice};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A device in memory.
#[derive(Debug)]
pub(crate) struct Flaky {
    inner: SparseDevice,
    /// Writes that touch one of these fail.
    pub(crate) bad: Mutex<Vec<Range<u64>>>,
    pub(crate) fails_reads: AtomicBool,
    pub(crate) fails_flushes: AtomicBool,
    pub(crate) writes: Mutex<Vec<Range<u64>>>,
    pub(crate) flushes: AtomicUsize,
    /// Number of requests that the host reports in flight, and number of times it was asked.
    pub(crate) in_flight: AtomicU32,
    pub(crate) asked: AtomicUsize,
    /// Told once, after a flush or writing out, before the answer, which waits for a moment then.
    pub(crate) tells: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    /// Told once, after a write, before the answer, which waits for one then.
    pub(crate) holds_answer: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    /// Contents at the last flush, if they are to come back when a flush fails.
    durable: Mutex<Option<Vec<u8>>>,
}

impl Flaky {
    pub(crate) fn new(name: &str, bytes: &[u8]) -> Self {
        let inner = SparseDevice::new(name, bytes.len() as u64, DeviceClass::Solid);
        inner.write_at(0, bytes).expect("within");
        Self {
            inner,
            bad: Mutex::default(),
            fails_reads: AtomicBool::default(),
            fails_flushes: AtomicBool::default(),
            writes: Mutex::default(),
            flushes: AtomicUsize::default(),
            in_flight: AtomicU32::default(),
            asked: AtomicUsize::default(),
            tells: Mutex::default(),
            holds_answer: Mutex::default(),
            durable: Mutex::default(),
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.size_bytes()).expect("small")];
        self.inner.read_at(0, &mut bytes).expect("within");
        bytes
    }

    /// From now on a flush that fails takes with it what was written since the last one.
    pub(crate) fn forgets_what_is_not_flushed(&self) {
        *self.durable.lock().expect("no panic") = Some(self.bytes());
    }

    /// Lets all writes fail from now on, or none.
    pub(crate) fn fail_writes(&self, fail: bool) {
        let everything = 0..u64::MAX;
        *self.bad.lock().expect("no panic") = if fail { vec![everything] } else { Vec::new() };
    }

    fn fail(&self) -> std::io::Error {
        std::io::Error::other("test failure")
    }
}

impl Device for Flaky {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        if self.fails_reads.load(Relaxed) {
            let (device, length) = (self.name().into(), buffer.len());
            return Err(DeviceError::Read { device, offset, length, source: self.fail() });
        }
        // Another thread's turn, to find races.
        std::thread::yield_now();
        self.inner.read_at(offset, buffer)
    }

    fn host_in_flight(&self) -> Option<u32> {
        self.asked.fetch_add(1, Relaxed);
        Some(self.in_flight.load(Relaxed))
    }

    fn class(&self) -> DeviceClass {
        self.inner.class()
    }
}

impl WritableDevice for Flaky {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let (device, length) = (self.name().to_owned(), bytes.len() as u64);
        let range = offset..offset + length;
        let is_bad = |bad: &Range<u64>| bad.start < range.end && range.start < bad.end;
        if self.bad.lock().expect("no panic").iter().any(is_bad) {
            return Err(DeviceError::Write { device, offset, length, source: self.fail() });
        }
        self.writes.lock().expect("no panic").push(range);
        self.inner.write_at(offset, bytes)?;
        let held = self.holds_answer.lock().expect("no panic").take();
        if let Some((has_taken, goes_on)) = held {
            has_taken.send(()).expect("a receiver");
            // A test that has failed gives no answer.
            let _ = goes_on.recv();
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.tell(self.flush_now())
    }

    fn submit_write_out<'a>(&'a self, batch: &mut Batch<'a>) {
        batch.answer(self.flush());
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.inner.discard(offset, length)
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        self.inner.set_size(size_bytes)
    }
}

impl Flaky {
    fn flush_now(&self) -> Result<(), DeviceError> {
        let mut durable = self.durable.lock().expect("no panic");
        if self.fails_flushes.load(Relaxed) {
            if let Some(durable) = &*durable {
                self.inner.write_at(0, durable)?;
            }
            return Err(DeviceError::Flush { device: self.name().into(), source: self.fail() });
        }
        if let Some(durable) = &mut *durable {
            *durable = self.bytes();
        }
        self.flushes.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Has another thread come before an answer.
    fn tell(&self, answer: Result<(), DeviceError>) -> Result<(), DeviceError> {
        let told = self.tells.lock().expect("no panic").take();
        if let Some((has_answered, goes_on)) = told {
            self.fails_flushes.store(false, Relaxed);
            has_answered.send(()).expect("a receiver");
            let _ = goes_on.recv_timeout(Duration::from_millis(50));
        }
        answer
    }
}

impl TestPool {
    /// The pool, to be written, without some of its devices; also the devices that are there.
    pub(crate) fn open_writable(&self, missing: &[usize]) -> (Volume, Vec<Arc<Flaky>>) {
        let there = self.images.iter().enumerate().filter(|(index, _)| !missing.contains(index));
        let devices: Vec<Arc<Flaky>> =
            there.map(|(index, image)| Arc::new(Flaky::new(&format!("disk{index}"), image))).collect();
        let given = devices.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
        let options = OpenOptions { degraded: true, ..OpenOptions::default() };
        let volume = Volume::open_writable(given.collect(), &options).expect("there is a pool");
        for (index, image) in self.images.iter().enumerate() {
            volume.add_device(&dev_item(index as u64 + 1, FSID, image.len() as u64)).expect("device");
        }
        volume.add_chunk(START, &self.chunk.view()).expect("chunk");
        (volume, devices)
    }

    /// Takes over what the devices that are there hold now.
    pub(crate) fn take(&mut self, devices: &[Arc<Flaky>]) {
        for device in devices {
            let index: usize = device.name()["disk".len()..].parse().expect("named so");
            self.images[index] = device.bytes();
        }
    }

    /// Changes the expected contents of the chunk.
    pub(crate) fn set_contents(&mut self, contents: Vec<u8>) {
        let algorithm = brindle_ondisk::ChecksumType::Crc32c;
        let sums = contents.chunks(SECTOR).map(|sector| algorithm.compute(sector));
        self.checksums = sums.flat_map(|sum| sum.as_bytes().to_vec()).collect();
        self.contents = contents;
    }

    /// The sets of devices that may be lost.
    pub(crate) fn tolerated_losses(&self) -> Vec<Vec<usize>> {
        let count = self.images.len();
        let layout = crate::layout::Layout::new(&self.chunk.view()).expect("layout");
        let lost = |set: u32, stripe: usize| set >> self.place(stripe, 0).0 & 1 != 0;
        let sets = (0..1u32 << count).filter(|set| layout.survives(|stripe| lost(*set, stripe)));
        let members = |set: u32| (0..count).filter(move |device| set >> device & 1 != 0).collect();
        // One device must have a superblock.
        sets.filter(|set| set.count_ones() < u32::try_from(count).expect("few")).map(members).collect()
    }
}
