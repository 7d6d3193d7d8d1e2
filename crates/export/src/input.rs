//! Requests of a connection, and the answers that are not sent yet.

use crate::handshake::out_of_step;
use crate::stream::Stream;
use brindle_device::Buffer;
use brindle_nbd::{Command, PAYLOAD_BYTES_MAX, REQUEST_BYTES, Request};
use std::io;

/// Bytes that are read from the socket at once.
const INPUT_BYTES: usize = 64 << 10;

/// Bytes of a socket that no thread but the leading one reads.
#[derive(Debug)]
pub(crate) struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// Answers that go out before the next wait.
    pub(crate) answers: Vec<u8>,
}

impl Default for Input {
    fn default() -> Self {
        Self { bytes: vec![0; INPUT_BYTES].into(), start: 0, end: 0, answers: Vec::new() }
    }
}

impl Input {
    /// Returns true if bytes of another request are here.
    pub(crate) fn has_more(&self) -> bool {
        self.start < self.end
    }

    /// Returns true if the next request is here, so that to take it will not wait.
    pub(crate) fn has_request(&self) -> bool {
        self.end - self.start >= REQUEST_BYTES
    }

    /// Takes the next request; `None` at the end of the connection between two requests. A payload is to be read next.
    ///
    /// # Errors
    /// Those of the socket, an end in mid-request, a wait of a request that has begun, a peer that is out of step.
    pub(crate) fn request(&mut self, stream: &Stream) -> io::Result<Option<Request>> {
        while !self.has_request() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            match stream.read(&mut self.bytes[self.end..]) {
                Ok(0) if self.end == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.end += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A client may be silent between requests.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.end == 0 => {}
                Err(error) => return Err(error),
            }
        }
        let request = Request::decode(&self.bytes[self.start..self.start + REQUEST_BYTES]);
        self.start += REQUEST_BYTES;
        let request = request.map_err(out_of_step)?;
        if request.command == Command::Write && request.length > PAYLOAD_BYTES_MAX {
            // To skip it would be work without bound.
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a payload that is too long"));
        }
        Ok(Some(request))
    }

    /// Takes the payload of a request.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub(crate) fn payload(&mut self, stream: &Stream, length: usize) -> io::Result<Buffer> {
        let mut payload = Buffer::new(length);
        let mut filled = length.min(self.end - self.start);
        payload[..filled].copy_from_slice(&self.bytes[self.start..self.start + filled]);
        self.start += filled;
        while filled < length {
            match stream.read(&mut payload[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(payload)
    }
}
