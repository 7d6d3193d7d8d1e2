//! Fields of a message, taken one after the other.

use crate::WireError;

/// The rest of a message.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'m> {
    what: &'static str,
    length: usize,
    rest: &'m [u8],
}

impl<'m> Fields<'m> {
    /// All of a message, which errors call `what`.
    pub(crate) fn new(what: &'static str, message: &'m [u8]) -> Self {
        Self { what, length: message.len(), rest: message }
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'m [u8], WireError> {
        let short = WireError::Short { what: self.what, found: self.length };
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], WireError> {
        let short = WireError::Short { what: self.what, found: self.length };
        let (taken, rest) = self.rest.split_first_chunk().ok_or(short)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn magic32(&mut self, expected: u32) -> Result<(), WireError> {
        let found = self.u32()?;
        if found == expected {
            Ok(())
        } else {
            Err(WireError::Magic { what: self.what, found: found.into() })
        }
    }

    pub(crate) fn magic64(&mut self, expected: u64) -> Result<(), WireError> {
        let found = self.u64()?;
        if found == expected { Ok(()) } else { Err(WireError::Magic { what: self.what, found }) }
    }

    /// A string behind its length.
    pub(crate) fn text(&mut self) -> Result<String, WireError> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        let bytes = self.bytes(length)?;
        text(self.what, bytes)
    }

    /// The rest, which the message does not limit.
    pub(crate) fn rest(&mut self) -> &'m [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Refuses a message that goes on.
    pub(crate) fn end(self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            found => Err(WireError::Long { what: self.what, found }),
        }
    }
}

/// A string of a peer.
pub(crate) fn text(what: &'static str, bytes: &[u8]) -> Result<String, WireError> {
    let refused = WireError::Text { what, found: bytes.len() };
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= crate::NAME_BYTES_MAX && !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(refused),
    }
}
