//! A stream as it is read from its source.

use brindle_device::Buffer;
use std::io::{self, BufRead, Read};

/// Unit of reading, in bytes.
const READ_BYTES: usize = 1 << 20;

/// A source that is read by long pieces, into memory that begins at a page: to other places some processors copy what the host has at
/// a tenth of the speed, and large allocations begin a few bytes behind a page.
pub(super) struct Source<R> {
    source: R,
    buffer: Buffer,
    /// The part of the buffer that was read and not taken yet.
    start: usize,
    end: usize,
}

impl<R: Read> Source<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, buffer: Buffer::new(READ_BYTES), start: 0, end: 0 }
    }
}

impl<R: Read> BufRead for Source<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.end = self.source.read(&mut self.buffer)?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn consume(&mut self, amount: usize) {
        self.start = self.end.min(self.start + amount);
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let there = self.fill_buf()?;
        let length = there.len().min(bytes.len());
        bytes[..length].copy_from_slice(&there[..length]);
        self.consume(length);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time, and is interrupted each second time.
    struct Hesitant<'b>(&'b [u8], bool);

    impl Read for Hesitant<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let length = bytes.len().min(7);
            self.0.read(&mut bytes[..length])
        }
    }

    #[test]
    fn every_byte_comes_once_and_in_order() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * READ_BYTES + 5).collect();
        let mut found = Vec::new();
        Source::new(&bytes[..]).read_to_end(&mut found).expect("memory");
        assert!(found == bytes);
        let few = &bytes[..1000];
        let mut found = Vec::new();
        Source::new(Hesitant(few, false)).read_to_end(&mut found).expect("memory");
        assert_eq!(found, few);
    }
}
