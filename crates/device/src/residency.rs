//! The share of a file that the host has in its page cache, by cachestat(2), which needs Linux 6.5.
#![expect(unsafe_code, reason = "no crate has this system call; the module has all of it")]

use std::fs::File;
use std::os::fd::AsRawFd;

/// The same number on all architectures that Debian runs on.
const CACHESTAT: libc::c_long = 451;

/// The range asked for (`struct cachestat_range`, kernel header `linux/mman.h`).
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// The answer (`struct cachestat`), in pages.
#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    under_writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Bytes of a range that are in the page cache, or on the way into it; `None` if the host does not say.
pub(crate) fn cached_bytes(file: &File, offset: u64, length: u64) -> Option<u64> {
    let page_bytes = rustix::param::page_size() as u64;
    let (range, mut pages) = (Range { offset, length }, Pages::default());
    // SAFETY: the call reads the range and writes the answer, both of the kernel's layout, and keeps neither address.
    let answer = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut pages,
            std::ffi::c_uint::default(),
        )
    };
    (answer == 0).then(|| pages.cached * page_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_range_is_cached_once_it_was_written() {
        let mut image = tempfile::NamedTempFile::new().expect("temporary file");
        image.write_all(&[7; 1 << 20]).expect("write");
        image.as_file().set_len(4 << 20).expect("room");
        let Some(written) = cached_bytes(image.as_file(), 0, 1 << 20) else {
            return println!("skipped: no cachestat");
        };
        assert_eq!(written, 1 << 20);
        assert_eq!(cached_bytes(image.as_file(), 2 << 20, 1 << 20), Some(0));
        assert_eq!(cached_bytes(image.as_file(), 512 << 10, 2 << 20), Some(512 << 10));
    }
}
