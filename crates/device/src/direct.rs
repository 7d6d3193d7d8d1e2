//! Large writes to a block device, or to an image when asked, around the host's page cache.
//!
//! What is written in bulk is not read again soon: the copy in the page cache would cost memory and the time to fill it,
//! and everything would reach the device at the next flush only, instead of while more is being prepared. Reading goes
//! through the page cache as ever; the host throws out of it what a direct write replaces.

use crate::buffer::Buffer;
use crate::pieces::write_all_vectored;
use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Alignment of offsets, lengths and addresses in memory that suffices for all devices, in bytes. Memory aligned to it is
/// not copied on its way around the page cache.
pub const DIRECT_ALIGNMENT: usize = 4096;
const ALIGNMENT: usize = DIRECT_ALIGNMENT;
/// Less than this is better left to the host, which puts small writes together.
const BYTES_MIN: usize = 256 << 10;
/// Pieces are larger than a tree block on average: those are small, and read again.
const PIECE_BYTES_MIN: usize = (64 << 10) + 1;
/// Bytes handed to the device at once.
const BUFFER_BYTES: usize = 1 << 20;

/// A block device, or an image, opened once more.
#[derive(Debug)]
pub(crate) struct DirectFile {
    file: File,
    /// True once the device has asked for more than [`ALIGNMENT`].
    is_refused: AtomicBool,
}

impl DirectFile {
    /// Opens the device that is open already; `None` if it can't be written so.
    pub(crate) fn of(path: &Path, known: &File) -> Option<Self> {
        let flags = OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path).ok()?;
        // Another device may have got the name meanwhile.
        let is_same = fstat(&file).ok()?.st_rdev == fstat(known).ok()?.st_rdev;
        is_same.then(|| Self { file, is_refused: AtomicBool::new(false) })
    }

    /// Returns true if adjacent pieces are for this file to write.
    pub(crate) fn wants(&self, offset: u64, pieces: &[&[u8]]) -> bool {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        bytes >= BYTES_MIN
            && (bytes >= pieces.len() * PIECE_BYTES_MIN || are_aligned(pieces))
            && bytes % ALIGNMENT == 0
            && offset % (ALIGNMENT as u64) == 0
            && !self.is_refused.load(Ordering::Relaxed)
    }

    /// The file that is written.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns true if the device can take pieces from where they are in memory.
    pub(crate) fn takes(pieces: &[&[u8]]) -> bool {
        are_aligned(pieces)
    }

    /// Writes pieces that lie one behind the other; false if the device does not take them this way.
    pub(crate) fn write(&self, offset: u64, pieces: &[&[u8]]) -> io::Result<bool> {
        let written = match are_aligned(pieces) {
            true => write_all_vectored(&self.file, offset, pieces),
            false => self.copy_and_write(offset, pieces),
        };
        match written {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.is_refused.store(true, Ordering::Relaxed);
                Ok(false)
            }
            written => written.map(|()| true),
        }
    }

    fn copy_and_write(&self, offset: u64, pieces: &[&[u8]]) -> io::Result<()> {
        let mut buffer = Buffer::new(BUFFER_BYTES);
        let (mut at, mut filled) = (offset, 0);
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(BUFFER_BYTES - filled));
                buffer[filled..filled + now.len()].copy_from_slice(now);
                (filled, rest) = (filled + now.len(), later);
                if filled == BUFFER_BYTES {
                    self.file.write_all_at(&buffer, at)?;
                    (at, filled) = (at + BUFFER_BYTES as u64, 0);
                }
            }
        }
        self.file.write_all_at(&buffer[..filled], at)
    }
}

/// A block device or an image, opened once more to read it past the host's cache.
#[derive(Debug)]
pub(crate) struct UncachedReader(Arc<File>);

impl UncachedReader {
    /// Opens the device that is open already; `None` if it can't be read so, by units of [`ALIGNMENT`].
    pub(crate) fn of(known: &File) -> Option<Self> {
        // By its descriptor: whatever its name stands for by now, this is the same device.
        let path = format!("/proc/self/fd/{}", known.as_raw_fd());
        let flags = OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let reader = Self(Arc::new(file));
        reader.read(ALIGNMENT as u64, &mut [0; ALIGNMENT]).is_ok().then_some(reader)
    }

    /// The file, which takes reads that are aligned to [`ALIGNMENT`], in memory too.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.0
    }

    /// Returns true if it takes a read into aligned memory.
    pub(crate) fn takes(offset: u64, length: usize) -> bool {
        offset % (ALIGNMENT as u64) == 0 && length % ALIGNMENT == 0
    }

    /// Fills a buffer; the range is aligned.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut aligned = Buffer::new(buffer.len());
        self.0.read_exact_at(&mut aligned, offset)?;
        buffer.copy_from_slice(&aligned);
        Ok(())
    }
}

/// Returns true if the device can take pieces from where they are in memory.
fn are_aligned(pieces: &[&[u8]]) -> bool {
    let is_aligned = |piece: &&[u8]| piece.as_ptr().addr() % ALIGNMENT == 0 && piece.len() % ALIGNMENT == 0;
    pieces.iter().all(is_aligned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &Path) -> Option<DirectFile> {
        let known =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("open");
        // Where the temporary folder is in memory, it may not be written so.
        DirectFile::of(path, &known)
    }

    #[test]
    fn only_large_pieces_are_wanted() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let Some(direct) = opened(&directory.path().join("file")) else { return };
        let large = vec![0; 1 << 20];
        assert!(direct.wants(8192, &[&large, &large[..4096]]));
        assert!(!direct.wants(512, &[&large]), "not aligned");
        assert!(!direct.wants(0, &[&large[..1000]]), "small");
        assert!(!direct.wants(0, &[&large[..65536]; 64]), "tree blocks");
    }

    #[test]
    fn pieces_follow_each_other() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("file");
        let Some(direct) = opened(&path) else { return };
        let bytes: Vec<u8> = (0..251).cycle().take(2 * BUFFER_BYTES + 12288).collect();
        let pieces = [&bytes[..100], &bytes[100..BUFFER_BYTES + 5], &bytes[BUFFER_BYTES + 5..]];
        if direct.write(4096, &pieces).expect("writes") {
            let found = std::fs::read(&path).expect("read");
            assert!(found[..4096].iter().all(|byte| *byte == 0) && found[4096..] == bytes);
        }
    }
}
