//! A device that another program serves over NBD, the network block device protocol.
//!
//! The walk of a request: it gets a number and a place in the table of requests that have no answer ([`link`]), and is sent on the
//! connection, if there is one. One thread reads the answers ([`receiver`]) and wakes the waiter of each. Many are in flight.
//!
//! **A connection may be lost** at any byte, and with the server all that it had not made durable. So a write that was answered stays in
//! memory until a flush that was sent later has been answered ([`journal`]). The thread of the answers connects again
//! ([`connect`]), checks that the export has the same size and abilities, asks the [guard](crate::ReconnectGuard) of the device
//! whether it is still its own, and writes everything in memory once more, in the old order ([`repeat`]), before the requests without an answer are sent again: a flush that is answered covers all writes that were answered
//! before it was asked for, over however many connections. Writes in memory are limited; one that finds no room has a flush made
//! first.
//!
//! **Nothing waits for ever.** A connection on which a request stays unanswered for a third of the timeout is given up. A request that has
//! no answer within the timeout, whatever was tried, fails the device: that one and all others, now and later, so that the pool
//! treats it as missing. The same happens if a write can't be repeated, or the export has become another one.
//!
//! **With TLS** ([`wire`]) all of this passes by a session, and each further connection is made like the first: the server is verified, and
//! one that offers no TLS is as good as away.
//! Assumption: no other client writes the export unless the guard can tell, and the server keeps its promise of flushes.

mod connect;
mod job;
mod journal;
mod link;
mod reader;
mod receiver;
mod repeat;
mod wire;

use crate::{
    Batch, Buffer, Device, DeviceClass, DeviceError, PendingRead, ReadRequest, ReconnectGuard,
    WritableDevice, WriteRequest, read_in_turn, zero_by_writing,
};
use brindle_nbd::{Command, CommandFlags, ExportFlags, NbdAddress, NbdUri, ReplyError};
use connect::Facts;
use job::Job;
use link::Shared;
use std::io;
use std::sync::Arc;

/// Longest range of one request for zeros, in bytes.
const ZEROS_BYTES_MAX: u64 = 1 << 30;
/// Largest unit of offsets and lengths that pools keep to, in bytes.
const UNIT_BYTES_MAX: u32 = 4096;

/// An export of a server.
#[derive(Debug)]
pub struct NbdDevice {
    shared: Arc<Shared>,
}

impl NbdDevice {
    /// Connects to read.
    ///
    /// # Errors
    /// [`DeviceError::Open`] for a server that can't be reached, and an export that is not there.
    pub fn open(uri: &NbdUri) -> Result<Self, DeviceError> {
        Self::open_as(uri, false)
    }

    /// Connects to read and write. The protocol has no way to keep other clients out.
    ///
    /// # Errors
    /// As [`open`](Self::open), for an export that is read-only, and for a server without flushes.
    pub fn open_writable(uri: &NbdUri) -> Result<Self, DeviceError> {
        Self::open_as(uri, true)
    }

    fn open_as(uri: &NbdUri, is_writable: bool) -> Result<Self, DeviceError> {
        let failed = |source| DeviceError::Open { device: uri.to_string(), source };
        let limits = connect::Limits::of(uri);
        let uri = &with_absolute_paths(uri);
        let (wire, facts) = connect::connect(uri, limits.hang).map_err(failed)?;
        check_facts(&facts, is_writable).map_err(failed)?;
        let shared = Arc::new(Shared::new(uri.clone(), limits, facts, wire));
        let receiver = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("nbd answers".to_owned()).spawn(move || receiver::run(&shared))
        };
        // It ends by itself when the device is closed, and is not waited for: it may be connecting.
        receiver.map_err(failed)?;
        Ok(Self { shared })
    }

    fn facts(&self) -> &Facts {
        &self.shared.facts
    }

    fn check_range(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        let size_bytes = self.size_bytes();
        if crate::file::fits(offset, length, size_bytes) {
            return Ok(());
        }
        Err(DeviceError::BeyondEnd { device: self.name().to_owned(), offset, length, size_bytes })
    }

    /// Returns true if a range keeps to the unit of the server.
    fn is_aligned(&self, offset: u64, length: u64) -> bool {
        let unit = u64::from(self.facts().unit);
        offset % unit == 0 && length % unit == 0
    }

    /// Submits a read that is one request for the server.
    fn submit_read(&self, offset: u64, length: usize) -> Arc<Job> {
        let length = u32::try_from(length).expect("it was compared with the longest payload");
        self.shared.submit(Command::Read, CommandFlags::empty(), offset, length, Vec::new())
    }

    fn read_error(&self, offset: u64, length: usize, source: io::Error) -> DeviceError {
        DeviceError::Read { device: self.name().to_owned(), offset, length, source }
    }

    fn write_error(&self, offset: u64, length: u64, source: io::Error) -> DeviceError {
        DeviceError::Write { device: self.name().to_owned(), offset, length, source }
    }

    /// Reads the aligned range around another one.
    fn read_around(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let unit = u64::from(self.facts().unit);
        let start = offset / unit * unit;
        let end = (offset + buffer.len() as u64).next_multiple_of(unit).min(self.size_bytes());
        let whole = usize::try_from(end - start).expect("little more than a buffer");
        let mut around = Buffer::new(whole);
        self.read_at(start, &mut around)?;
        let from = usize::try_from(offset - start).expect("less than a unit");
        buffer.copy_from_slice(&around[from..from + buffer.len()]);
        Ok(())
    }

    /// Submits a write, cut into requests that the server takes, and returns them.
    fn submit_pieces(&self, write: &WriteRequest<'_>) -> Result<Vec<Arc<Job>>, DeviceError> {
        let mut bytes = write.pieces.concat();
        let (mut offset, length) = (write.offset, bytes.len() as u64);
        self.check_range(offset, bytes.len())?;
        if !self.is_aligned(offset, length) {
            let unit = self.facts().unit;
            let source = io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the server takes multiples of {unit} bytes"),
            );
            return Err(self.write_error(offset, length, source));
        }
        let flags = if write.is_durable && self.facts().flags.contains(ExportFlags::SEND_FUA) {
            CommandFlags::FUA
        } else {
            CommandFlags::empty()
        };
        let mut jobs = Vec::new();
        while !bytes.is_empty() {
            let rest = bytes.split_off(bytes.len().min(self.facts().payload_max));
            let length = u32::try_from(bytes.len()).expect("a payload");
            let payload = std::mem::replace(&mut bytes, rest);
            self.shared.make_room(payload.len()).map_err(|source| self.flush_error(source))?;
            jobs.push(self.shared.submit(Command::Write, flags, offset, length, payload));
            offset += u64::from(length);
        }
        Ok(jobs)
    }

    /// Waits for the parts of a write. One that the server can't make durable by itself is followed by a flush.
    fn finish_write(&self, write: (u64, u64, bool), jobs: &[Arc<Job>]) -> Result<(), DeviceError> {
        let (offset, length, is_durable) = write;
        let answers: Vec<_> = jobs.iter().map(|job| self.shared.wait(job)).collect();
        for answer in answers {
            answer.map_err(|source| self.write_error(offset, length, source))?;
        }
        if is_durable && !self.facts().flags.contains(ExportFlags::SEND_FUA) {
            self.flush_for_write()
        } else {
            Ok(())
        }
    }

    fn flush_error(&self, source: io::Error) -> DeviceError {
        DeviceError::Flush { device: self.name().to_owned(), source }
    }

    /// Makes a range zeros, without its bytes on the wire; false if the server declines.
    fn write_zeroes(&self, flags: CommandFlags, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let mut done = 0;
        while done < length {
            let piece = (length - done).min(ZEROS_BYTES_MAX);
            self.shared.make_room(0).map_err(|source| self.flush_error(source))?;
            let wire_length = u32::try_from(piece).expect("it is limited");
            let job = self.shared.submit(Command::WriteZeroes, flags, offset + done, wire_length, Vec::new());
            match self.shared.wait(&job) {
                Ok(_) => done += piece,
                Err(error) if is_declined(&error) => return Ok(false),
                Err(source) => return Err(self.write_error(offset, length, source)),
            }
        }
        Ok(true)
    }
}

/// The URI as it has to be after a change of the working directory.
fn with_absolute_paths(uri: &NbdUri) -> NbdUri {
    let mut uri = uri.clone();
    let socket = match &mut uri.address {
        NbdAddress::Unix(path) => Some(path),
        NbdAddress::Tcp(..) => None,
    };
    let certificates = uri.tls.as_mut().and_then(|tls| tls.certificates.as_mut());
    for path in socket.into_iter().chain(certificates) {
        if let Ok(absolute) = std::path::absolute(&*path) {
            *path = absolute;
        }
    }
    uri
}

fn is_declined(error: &io::Error) -> bool {
    error.raw_os_error().and_then(|number| u32::try_from(number).ok())
        == Some(ReplyError::Unsupported.number())
}

/// Refuses an export that can't be a device of a pool.
fn check_facts(facts: &Facts, is_writable: bool) -> io::Result<()> {
    let refused = |kind, why: &str| Err(io::Error::new(kind, why.to_owned()));
    if facts.unit > UNIT_BYTES_MAX || facts.payload_max < UNIT_BYTES_MAX as usize {
        return refused(io::ErrorKind::Unsupported, "the server does not take requests of 4096 bytes");
    }
    if is_writable && facts.flags.contains(ExportFlags::READ_ONLY) {
        return refused(io::ErrorKind::ReadOnlyFilesystem, "the server has the export read-only");
    }
    if is_writable && !facts.flags.contains(ExportFlags::SEND_FLUSH) {
        return refused(
            io::ErrorKind::Unsupported,
            "the server knows no flush, so no write would be durable",
        );
    }
    Ok(())
}

impl Device for NbdDevice {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn size_bytes(&self) -> u64 {
        self.shared.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let length = buffer.len();
        self.check_range(offset, length)?;
        if !self.is_aligned(offset, length as u64) {
            return self.read_around(offset, buffer);
        }
        let mut jobs = Vec::new();
        let mut at = offset;
        for piece in buffer.chunks(self.facts().payload_max) {
            jobs.push(self.submit_read(at, piece.len()));
            at += piece.len() as u64;
        }
        crate::wait::announce();
        for (piece, job) in buffer.chunks_mut(self.facts().payload_max).zip(jobs) {
            let answer = self.shared.wait(&job).map_err(|source| self.read_error(offset, length, source))?;
            piece.copy_from_slice(&answer.expect("a read is answered by bytes"));
        }
        Ok(())
    }

    fn submit_reads(&self, requests: &[ReadRequest]) -> Vec<PendingRead> {
        let is_one_job = |read: &ReadRequest| {
            self.check_range(read.offset, read.length).is_ok()
                && self.is_aligned(read.offset, read.length as u64)
                && (1..=self.facts().payload_max).contains(&read.length)
        };
        let submit = |read: &ReadRequest| {
            if !is_one_job(read) {
                return read_in_turn(self, std::slice::from_ref(read)).remove(0);
            }
            let job = self.submit_read(read.offset, read.length);
            PendingRead::under_way(link::ReadJob { shared: Arc::clone(&self.shared), job })
        };
        requests.iter().map(submit).collect()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn class(&self) -> DeviceClass {
        if self.facts().flags.contains(ExportFlags::ROTATIONAL) {
            DeviceClass::Rotating
        } else {
            DeviceClass::Unknown
        }
    }
}

impl WritableDevice for NbdDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.write_pieces_at(offset, &[bytes])
    }

    fn write_pieces_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        let write = WriteRequest { offset, pieces: pieces.to_vec(), is_durable: false };
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.finish_write((offset, length, false), &self.submit_pieces(&write)?)
    }

    fn submit_write<'a>(&'a self, write: WriteRequest<'a>, batch: &mut Batch<'a>) {
        let length = write.pieces.iter().map(|piece| piece.len() as u64).sum();
        match self.submit_pieces(&write) {
            Err(error) => batch.answer(Err(error)),
            Ok(jobs) => {
                let (offset, is_durable) = (write.offset, write.is_durable);
                batch.under_way(move || self.finish_write((offset, length, is_durable), &jobs));
            }
        }
    }

    fn submit_flush<'a>(&'a self, batch: &mut Batch<'a>) {
        let job = self.shared.submit_flush();
        batch.under_way(move || self.shared.wait(&job).map(drop).map_err(|source| self.flush_error(source)));
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let job = self.shared.submit_flush();
        self.shared.wait(&job).map(drop).map_err(|source| self.flush_error(source))
    }

    fn flush_for_write(&self) -> Result<(), DeviceError> {
        let job = self.shared.submit_flush_for_write();
        self.shared.wait(&job).map(drop).map_err(|source| self.flush_error(source))
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let end = offset.saturating_add(length).min(self.size_bytes());
        if offset >= end {
            return Ok(true);
        }
        // Trim alone would leave anything there.
        let needed = ExportFlags::SEND_WRITE_ZEROES | ExportFlags::SEND_FAST_ZERO;
        if !self.facts().flags.contains(needed) || !self.is_aligned(offset, end - offset) {
            return Ok(false);
        }
        self.write_zeroes(CommandFlags::FAST_ZERO, offset, end - offset)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.check_range(offset, usize::try_from(length).unwrap_or(usize::MAX))?;
        let can =
            self.facts().flags.contains(ExportFlags::SEND_WRITE_ZEROES) && self.is_aligned(offset, length);
        if can && self.write_zeroes(CommandFlags::NO_HOLE, offset, length)? {
            return Ok(());
        }
        zero_by_writing(self, offset, length)
    }

    fn guard_reconnects(&self, guard: Arc<dyn ReconnectGuard>) {
        self.shared.state().guard = Some(guard);
    }

    /// Asks by a connection of its own: the protocol tells the size in the handshake alone.
    fn refresh_size(&self) -> Result<u64, DeviceError> {
        let Shared { uri, limits, .. } = &*self.shared;
        let failed = |source| DeviceError::Open { device: self.name().to_owned(), source };
        let (_, facts) = connect::connect(uri, limits.hang).map_err(failed)?;
        if facts.size_bytes < self.size_bytes() {
            let (found, known) = (facts.size_bytes, self.size_bytes());
            let why = format!("the export has {found} bytes now, and had {known}");
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        self.shared.grow(facts.size_bytes);
        Ok(self.size_bytes())
    }

    fn set_size(&self, _size_bytes: u64) -> Result<(), DeviceError> {
        Err(DeviceError::FixedSize { device: self.name().to_owned() })
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        self.shared.close();
    }
}
