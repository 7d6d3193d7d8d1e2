//! Commands read one after the other.

use crate::attributes::Attributes;
use crate::decode::decode;
use crate::{COMMAND_BYTES_MAX, COMMAND_HEADER_BYTES, HEADER_BYTES, MAGIC, VERSION_MAX};
use crate::{CommandNumber, Placed, StreamError, StreamProblem};
use std::io::{self, BufRead, Read};

/// A stream that is read.
#[derive(Debug)]
pub struct StreamReader<R> {
    source: R,
    version: u32,
    /// Offset of the next command.
    offset: u64,
    payload: Vec<u8>,
}

impl<R: BufRead> StreamReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// No stream, a version that is not supported, or a source that fails.
    pub fn new(source: R) -> Result<Self, StreamError> {
        Self::begin(source, 0)
    }

    /// Reads the header of the stream that follows this one in the same source; `None` at its end. Senders put one
    /// stream for each subvolume behind the other.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn next_stream(mut self) -> Result<Option<Self>, StreamError> {
        let mut first = [0];
        let offset = self.offset;
        let fail = |problem| StreamError { offset, command: None, problem };
        if fill(&mut self.source, &mut first).map_err(fail)? == 0 {
            return Ok(None);
        }
        let mut next = self;
        next.read_header(&first)?;
        Ok(Some(next))
    }

    fn begin(source: R, offset: u64) -> Result<Self, StreamError> {
        let mut reader = Self { source, version: 0, offset, payload: Vec::new() };
        reader.read_header(&[])?;
        Ok(reader)
    }

    /// Reads the header, whose first bytes the caller has.
    fn read_header(&mut self, first: &[u8]) -> Result<(), StreamError> {
        let offset = self.offset;
        let fail = |problem| StreamError { offset, command: None, problem };
        let mut header = [0; MAGIC.len() + 4];
        header[..first.len()].copy_from_slice(first);
        let found = first.len() + fill(&mut self.source, &mut header[first.len()..]).map_err(fail)?;
        let (magic, version) = header.split_at(MAGIC.len());
        if magic[..found.min(MAGIC.len())] != MAGIC[..found.min(MAGIC.len())] {
            return Err(fail(StreamProblem::Magic { found: magic[..found.min(MAGIC.len())].to_vec() }));
        }
        check_whole(found, header.len()).map_err(fail)?;
        self.version = u32::from_le_bytes(version.try_into().expect("four bytes"));
        if !(1..=VERSION_MAX).contains(&self.version) {
            return Err(fail(StreamProblem::Version { found: self.version }));
        }
        self.offset += HEADER_BYTES;
        Ok(())
    }

    /// Version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Offset of the next command in the stream, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next command; `None` at the end of the source. Callers stop at [`Command::End`](crate::Command::End).
    ///
    /// # Errors
    /// Whatever the format forbids; the reader is not to be used any further.
    #[expect(clippy::should_implement_trait, reason = "a command borrows the buffer")]
    pub fn next(&mut self) -> Result<Option<Placed<'_>>, StreamError> {
        let offset = self.offset;
        let fail = |command, problem| StreamError { offset, command, problem };
        let mut header = [0; COMMAND_HEADER_BYTES];
        let found = fill(&mut self.source, &mut header).map_err(|problem| fail(None, problem))?;
        if found == 0 {
            return Ok(None);
        }
        check_whole(found, header.len()).map_err(|problem| fail(None, problem))?;
        let length = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
        let number = CommandNumber(u16::from_le_bytes(header[4..6].try_into().expect("two bytes")));
        let fail = |problem| fail(Some(number), problem);
        if length > COMMAND_BYTES_MAX {
            return Err(fail(StreamProblem::TooLong { found: length }));
        }
        let length_in_memory = usize::try_from(length).expect("bounded");
        self.read_payload(length_in_memory).map_err(|error| fail(error.into()))?;
        check_whole(self.payload.len(), length_in_memory).map_err(fail)?;
        let checksum = u32::from_le_bytes(header[6..].try_into().expect("four bytes"));
        let computed = checksum_of(&header, &self.payload);
        if checksum != computed {
            return Err(fail(StreamProblem::Checksum { found: checksum, computed }));
        }
        if !number.is_of(self.version) {
            return Err(fail(StreamProblem::Unknown { version: self.version }));
        }
        self.offset += u64::from(length) + u64::try_from(header.len()).expect("small");
        let attributes = Attributes::find(&self.payload, self.version).map_err(fail)?;
        let command = decode(number, &attributes).map_err(fail)?;
        Ok(Some(Placed { offset, command }))
    }

    /// Reads the attributes of a command, fewer bytes if the source ends. Takes as much memory as there are bytes: the length is a claim.
    fn read_payload(&mut self, length: usize) -> io::Result<()> {
        self.payload.clear();
        while self.payload.len() < length {
            let there = match self.source.fill_buf() {
                Ok(there) => there,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if there.is_empty() {
                break;
            }
            let taken = there.len().min(length - self.payload.len());
            self.payload.extend_from_slice(&there[..taken]);
            self.source.consume(taken);
        }
        Ok(())
    }
}

/// Checksum of a command: its header, with zeros for the checksum, and its attributes.
pub(crate) fn checksum_of(header: &[u8; COMMAND_HEADER_BYTES], payload: &[u8]) -> u32 {
    // Inverted on the way in and out: the format begins with 0 and does not invert.
    let crc = crc32c::crc32c_append(!0, &header[..6]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    !crc32c::crc32c_append(crc, payload)
}

fn check_whole(found: usize, expected: usize) -> Result<(), StreamProblem> {
    let count = |bytes| u64::try_from(bytes).expect("bounded");
    if found < expected {
        return Err(StreamProblem::Truncated { found: count(found), expected: count(expected) });
    }
    Ok(())
}

/// Reads until the buffer is full or the source ends. Returns the number of bytes.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> Result<usize, StreamProblem> {
    let mut done = 0;
    while done < buffer.len() {
        match source.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}
