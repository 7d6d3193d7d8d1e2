//! Reads on a new connection, before the device uses it.

use super::connect::Facts;
use super::wire::Wire;
use crate::{Device, DeviceClass, DeviceError};
use brindle_nbd::{Command, CommandFlags, Request, SIMPLE_REPLY_BYTES, SimpleReply};
use std::io::{self, Read, Write};

/// Number of each request: none of the device is under way on the connection.
const COOKIE: u64 = 0;

/// The device on a connection that has no other user.
#[derive(Debug)]
pub(super) struct Reader<'r> {
    pub(super) name: &'r str,
    pub(super) facts: Facts,
    pub(super) wire: &'r Wire,
}

impl Reader<'_> {
    /// Makes one request of whole units.
    fn read_units(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (command, flags) = (Command::Read, CommandFlags::empty());
        let length = u32::try_from(buffer.len()).map_err(io::Error::other)?;
        let mut wire = self.wire;
        wire.write_all(&Request { flags, command, cookie: COOKIE, offset, length }.encode())?;
        let mut header = [0; SIMPLE_REPLY_BYTES];
        wire.read_exact(&mut header)?;
        let reply = SimpleReply::decode(&header).map_err(io::Error::other)?;
        if let Some(error) = reply.error {
            return Err(io::Error::from_raw_os_error(error.number() as i32));
        }
        if reply.cookie != COOKIE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer to no request"));
        }
        wire.read_exact(buffer)
    }
}

impl Device for Reader<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn size_bytes(&self) -> u64 {
        self.facts.size_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let (length, size_bytes) = (buffer.len(), self.size_bytes());
        if !crate::file::fits(offset, length, size_bytes) {
            return Err(DeviceError::BeyondEnd { device: self.name.to_owned(), offset, length, size_bytes });
        }
        let failed = |source| DeviceError::Read { device: self.name.to_owned(), offset, length, source };
        let unit = u64::from(self.facts.unit);
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let before = usize::try_from(at % unit).expect("a unit is short");
            let piece = (length - done).min(self.facts.payload_max - before);
            let units = (before + piece).next_multiple_of(self.facts.unit as usize);
            let mut bytes = vec![0; units];
            self.read_units(at - before as u64, &mut bytes).map_err(failed)?;
            buffer[done..done + piece].copy_from_slice(&bytes[before..before + piece]);
            done += piece;
        }
        Ok(())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn class(&self) -> DeviceClass {
        DeviceClass::Unknown
    }
}
