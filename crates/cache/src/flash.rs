//! The flash of a cache: one SSD, or two that mirror each other. Each write goes to all SSDs in use, a read to one of them.
//!
//! An SSD that fails a write or flush which the other one took is given up, for as long as the cache is in use. It lacks what is
//! written from then on: the commit that follows says so durably (`mirror.rs`) before anything of it is acknowledged.
//! A write that all SSDs fail leaves them as they are, and is the caller's.

use crate::CacheClock;
use crate::device_errors::DeviceErrors;
use crate::format::{PAGE_BYTES, Superblock, TABLE_OFFSET, Uuid};
use brindle_device::{Batch, DeviceError, PendingRead, ReadRequest, WritableDevice, WriteRequest};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Adjacent slots that are read from the same SSD; the next ones are read from the other.
const SLOTS_IN_TURN: u32 = 64;

/// An SSD of a cache.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) device: Arc<dyn WritableDevice>,
    pub(crate) uuid: Uuid,
    /// Its number among the SSDs of the cache, 0 or 1.
    pub(crate) number: u8,
}

/// The SSDs of a cache that are in use.
pub(crate) struct Flash {
    name: String,
    members: Vec<Member>,
    given_up: OnceLock<Loss>,
    /// Requests that failed, of the first SSD and of its mirror, by their numbers.
    errors: [DeviceErrors; 2],
    clock: Arc<dyn CacheClock>,
}

/// The SSD that was given up, by its index, and the time of that.
struct Loss {
    index: usize,
    calendar_seconds: u64,
}

/// A request that was submitted to SSDs, by their indices.
pub(crate) struct Submitted(Vec<usize>);

impl Flash {
    pub(crate) fn new(first: Member, clock: Arc<dyn CacheClock>) -> Self {
        let name = first.device.name().to_owned();
        Self { name, members: vec![first], given_up: OnceLock::new(), errors: Default::default(), clock }
    }

    /// Adds the second SSD, which has the contents of the first.
    pub(crate) fn join(&mut self, second: Member) {
        assert_eq!(self.members.len(), 1, "a mirror has two SSDs");
        let names = [&self.members[0], &second].map(|member| (member.number, member.device.name()));
        let (low, high) = if names[0].0 < names[1].0 { (0, 1) } else { (1, 0) };
        self.name = format!("{}+{}", names[low].1, names[high].1);
        self.members.push(second);
    }

    /// Names of the SSDs, with a `+` between them.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The SSD that is read and written first.
    pub(crate) fn first(&self) -> &Member {
        &self.members[0]
    }

    /// Number of SSDs in use.
    pub(crate) fn in_use(&self) -> usize {
        self.active().count()
    }

    /// The SSD that was given up, and the time of that in seconds since 1970.
    pub(crate) fn given_up(&self) -> Option<(&Member, u64)> {
        let Loss { index, calendar_seconds } = self.given_up.get()?;
        Some((&self.members[*index], *calendar_seconds))
    }

    /// Requests that failed, of the first SSD and of its mirror.
    pub(crate) fn errors(&self) -> [&DeviceErrors; 2] {
        self.errors.each_ref()
    }

    /// Counts a request that an SSD failed, which may not be in use yet.
    pub(crate) fn note_error(&self, member: &Member, error: &DeviceError) {
        self.errors[usize::from(member.number != 0)].note(error);
    }

    /// The answer of an SSD to a request; counted if it failed.
    pub(crate) fn noted<T>(&self, index: usize, answer: Result<T, DeviceError>) -> Result<T, DeviceError> {
        answer.inspect_err(|error| self.note_error(&self.members[index], error))
    }

    /// An SSD in use: the one that goes on when the other one was given up.
    pub(crate) fn survivor(&self) -> &Member {
        self.active().next().expect("one SSD is in use").1
    }

    /// Index of the SSD that a slot is read from.
    pub(crate) fn reader_of(&self, slot: u32) -> usize {
        match self.given_up.get() {
            None => (slot / SLOTS_IN_TURN) as usize % self.members.len(),
            Some(lost) => 1 - lost.index,
        }
    }

    /// Index of another SSD in use.
    pub(crate) fn other(&self, index: usize) -> Option<usize> {
        self.active().map(|(other, _)| other).find(|other| *other != index)
    }

    pub(crate) fn submit_reads(&self, index: usize, requests: &[ReadRequest]) -> Vec<PendingRead> {
        self.members[index].device.submit_reads(requests)
    }

    pub(crate) fn submit_read(&self, index: usize, offset: u64, length: usize) -> PendingRead {
        let request = ReadRequest::new(offset, length);
        self.submit_reads(index, &[request]).pop().expect("an answer to each")
    }

    pub(crate) fn read_at(&self, index: usize, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.noted(index, self.members[index].device.read_at(offset, buffer))
    }

    /// Writes over what an SSD has wrong. One that fails is given up, if there is another one.
    pub(crate) fn mend(&self, index: usize, offset: u64, bytes: &[u8]) {
        let is_in_use = self.active().any(|(active, _)| active == index);
        if !is_in_use {
            return;
        }
        if let Err(error) = self.noted(index, self.members[index].device.write_at(offset, bytes)) {
            self.give_up(index, &error);
        }
    }

    /// Adds a write on all SSDs to a batch.
    pub(crate) fn submit_write<'a>(
        &'a self,
        offset: u64,
        pieces: &[&'a [u8]],
        batch: &mut Batch<'a>,
    ) -> Submitted {
        let submit = |(index, member): (usize, &'a Member)| {
            let write = WriteRequest { offset, pieces: pieces.to_vec(), is_durable: false };
            member.device.submit_write(write, batch);
            index
        };
        Submitted(self.active().map(submit).collect())
    }

    /// Outcome of a request that was submitted; takes its answers.
    pub(crate) fn settle(
        &self,
        submitted: &Submitted,
        answers: &mut impl Iterator<Item = Result<(), DeviceError>>,
    ) -> Result<(), DeviceError> {
        let answers: Vec<_> = submitted.0.iter().zip(answers).collect();
        assert_eq!(answers.len(), submitted.0.len(), "an answer to each");
        let has_success = answers.iter().any(|(_, answer)| answer.is_ok());
        let mut outcome = Ok(());
        for (index, answer) in answers {
            let Err(error) = self.noted(*index, answer) else { continue };
            // A success counts only on an SSD that was not given up.
            if !(has_success && self.give_up(*index, &error)) {
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }

    /// Makes everything durable that was written to the SSDs.
    pub(crate) fn flush(&self) -> Result<(), DeviceError> {
        let mut batch = Batch::default();
        let mut submitted = Submitted(Vec::new());
        for (index, member) in self.active() {
            member.device.submit_flush(&mut batch);
            submitted.0.push(index);
        }
        self.settle(&submitted, &mut batch.run().into_iter())
    }

    /// Writes both copies of the superblock on all SSDs, one after the other: on each SSD one is whole at any time.
    pub(crate) fn write_superblock(&self, superblock: &Superblock) -> Result<(), DeviceError> {
        for copy in [0, TABLE_OFFSET / 2] {
            let indices: Vec<usize> = self.active().map(|(index, _)| index).collect();
            let write = |index: &usize| {
                let member = &self.members[*index];
                let page =
                    superblock.of_member(member.number, member.uuid, self.other_uuid(*index)).to_page();
                debug_assert_eq!(page.len(), PAGE_BYTES, "a superblock is a page");
                member.device.write_at(copy, &page)?;
                member.device.flush()
            };
            let answers: Vec<_> = indices.iter().map(write).collect();
            self.settle(&Submitted(indices), &mut answers.into_iter())?;
        }
        Ok(())
    }

    /// Uuid of the other SSD, if it is or was in use.
    fn other_uuid(&self, index: usize) -> Option<Uuid> {
        self.members.get(1 - index).map(|member| member.uuid)
    }

    /// Gives an SSD up; false if that is the last one.
    fn give_up(&self, index: usize, error: &DeviceError) -> bool {
        if self.members.len() < 2 {
            return false;
        }
        let loss = Loss { index, calendar_seconds: self.clock.calendar_seconds() };
        if self.given_up.set(loss).is_ok() {
            let member = self.members[index].device.name();
            tracing::error!("{member} is given up, its mirror has all dirty blocks alone: {error}");
        }
        self.given_up.get().is_some_and(|loss| loss.index == index)
    }

    fn active(&self) -> impl Iterator<Item = (usize, &Member)> {
        let given_up = self.given_up.get().map(|loss| loss.index);
        self.members.iter().enumerate().filter(move |(index, _)| Some(*index) != given_up)
    }
}

impl fmt::Debug for Flash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flash").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostClock;
    use brindle_device::DeviceClass;
    use brindle_sim::{Fault, FaultyDevice, Image, ImageDevice};

    fn flash() -> ([Arc<FaultyDevice>; 2], Flash) {
        let device = |name| {
            let device = ImageDevice::new(name, Image::new(1 << 16), DeviceClass::Solid);
            Arc::new(FaultyDevice::new(Arc::new(device)))
        };
        let devices = [device("one"), device("two")];
        let member = |number: u8| {
            let device = Arc::clone(&devices[usize::from(number)]) as _;
            Member { device, uuid: [number + 1; 16], number }
        };
        let mut flash = Flash::new(member(1), Arc::new(HostClock::new()));
        flash.join(member(0));
        (devices, flash)
    }

    fn write(flash: &Flash, offset: u64) -> Result<(), DeviceError> {
        let mut batch = Batch::default();
        let submitted = flash.submit_write(offset, &[&[7; 512]], &mut batch);
        flash.settle(&submitted, &mut batch.run().into_iter())
    }

    #[test]
    fn an_ssd_that_fails_is_given_up_unless_it_is_the_last() {
        let (devices, flash) = flash();
        assert_eq!(flash.name(), "one+two");
        write(&flash, 0).expect("both take it");
        assert!(flash.given_up().is_none());
        devices.iter().for_each(|device| device.inject(Fault::WritesWithin(512..1024)));
        write(&flash, 512).expect_err("none takes it");
        assert!(flash.given_up().is_none(), "both are as good as before");
        devices[0].vanish();
        write(&flash, 1024).expect("one takes it");
        assert_eq!((flash.given_up().map(|(member, _)| member.number), flash.in_use()), (Some(0), 1));
        assert_eq!((flash.reader_of(0), flash.reader_of(SLOTS_IN_TURN)), (0, 0));
        devices[0].heal();
        devices[1].vanish();
        write(&flash, 2048).expect_err("the first one is stale");
        flash.flush().expect_err("the first one is stale");
    }

    #[test]
    fn a_success_on_an_ssd_that_was_given_up_meanwhile_does_not_count() {
        let (devices, flash) = flash();
        let fault = |device: usize, at: u64| devices[device].inject(Fault::WritesWithin(at..at + 512));
        fault(0, 0);
        fault(1, 512);
        let mut batch = Batch::default();
        let both = [0, 512].map(|offset| flash.submit_write(offset, &[&[7; 512]], &mut batch));
        let mut answers = batch.run().into_iter();
        flash.settle(&both[0], &mut answers).expect("the second one took it");
        flash.settle(&both[1], &mut answers).expect_err("only the stale one took it");
    }
}
