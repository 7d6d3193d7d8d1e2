//! Writes of several pieces, as many in one system call as it takes.

use rustix::io::{Errno, pwritev};
use std::fs::File;
use std::io::{self, IoSlice};

/// The most pieces that one system call takes (`IOV_MAX`).
pub(crate) const PIECES_MAX: usize = 1024;

/// Writes adjacent pieces from an offset on.
pub(crate) fn write_all_vectored(file: &File, offset: u64, pieces: &[&[u8]]) -> io::Result<()> {
    let mut at = offset;
    for pieces in pieces.chunks(PIECES_MAX) {
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left = &mut slices[..];
        // Takes away what is empty at the beginning.
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match pwritev(file, left, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}
