//! Pipes of callers, which the server opens by `/proc`.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open, stat};
use rustix::io::Errno;
use std::io::{Error, Read, Result, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Request to end everything that waits for a pipe.
#[derive(Debug)]
pub(super) struct Stop {
    is_set: AtomicBool,
    /// Readable once it is set.
    event: OwnedFd,
}

impl Stop {
    pub(super) fn new() -> std::result::Result<Self, Errno> {
        Ok(Self { is_set: AtomicBool::new(false), event: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        // It has room for more than one.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

/// End of a pipe that another process has.
#[derive(Debug)]
pub(super) struct Pipe {
    file: OwnedFd,
    stop: Arc<Stop>,
}

impl Pipe {
    /// Opens the pipe that a process has as a descriptor, to be read.
    pub(super) fn to_read(pid: u32, descriptor: u32, stop: &Arc<Stop>) -> std::result::Result<Self, Errno> {
        Self::open(pid, descriptor, OFlags::RDONLY, stop)
    }

    /// Opens one to be written.
    pub(super) fn to_write(pid: u32, descriptor: u32, stop: &Arc<Stop>) -> std::result::Result<Self, Errno> {
        Self::open(pid, descriptor, OFlags::WRONLY, stop)
    }

    /// Opens nothing but a pipe: to open a device would already be to use it.
    fn open(pid: u32, descriptor: u32, access: OFlags, stop: &Arc<Stop>) -> std::result::Result<Self, Errno> {
        // A caller of another world of processes.
        if pid == 0 {
            return Err(Errno::SRCH);
        }
        let path = format!("/proc/{pid}/fd/{descriptor}");
        require_pipe(stat(&path)?.st_mode)?;
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = open(&path, flags, Mode::empty())?;
        require_pipe(fstat(&file)?.st_mode)?;
        Ok(Self { file, stop: Arc::clone(stop) })
    }

    /// Waits until there is something to do, or it is to end.
    fn wait(&self, what: PollFlags) -> Result<()> {
        let mut files = [PollFd::new(&self.file, what), PollFd::new(&self.stop.event, PollFlags::IN)];
        loop {
            match poll(&mut files, None) {
                Err(Errno::INTR) => {}
                done => return done.map(|_| ()).map_err(Error::from),
            }
        }
    }

    /// Does something without waiting, as often as it takes.
    fn until_done(
        &self,
        what: PollFlags,
        mut act: impl FnMut(&OwnedFd) -> std::result::Result<usize, Errno>,
    ) -> Result<usize> {
        loop {
            if self.stop.is_set() {
                return Err(Error::other("the mount ends"));
            }
            match act(&self.file) {
                Err(Errno::AGAIN) => self.wait(what)?,
                Err(Errno::INTR) => {}
                done => return done.map_err(Error::from),
            }
        }
    }
}

fn require_pipe(mode: u32) -> std::result::Result<(), Errno> {
    if FileType::from_raw_mode(mode) == FileType::Fifo { Ok(()) } else { Err(Errno::INVAL) }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.until_done(PollFlags::IN, |file| rustix::io::read(file, &mut *buffer))
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.until_done(PollFlags::OUT, |file| rustix::io::write(file, bytes))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn own(descriptor: &impl AsRawFd) -> u32 {
        descriptor.as_raw_fd().try_into().expect("an open descriptor")
    }

    #[test]
    fn nothing_but_a_pipe_is_opened() {
        let stop = Arc::new(Stop::new().expect("a descriptor"));
        let file = tempfile::tempfile().expect("a file");
        let pid = std::process::id();
        assert_eq!(Pipe::to_write(pid, own(&file), &stop).unwrap_err(), Errno::INVAL);
        assert_eq!(Pipe::to_read(pid, u32::MAX, &stop).unwrap_err(), Errno::NOENT);
        assert_eq!(Pipe::to_read(0, 0, &stop).unwrap_err(), Errno::SRCH);
    }

    #[test]
    fn a_stop_ends_what_waits() {
        let stop = Arc::new(Stop::new().expect("a descriptor"));
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let mut from = Pipe::to_read(std::process::id(), own(&reader), &stop).expect("it opens");
        let mut to = Pipe::to_write(std::process::id(), own(&writer), &stop).expect("it opens");
        to.write_all(b"text").expect("room");
        let mut bytes = [0; 4];
        from.read_exact(&mut bytes).expect("it was written");
        let full = std::thread::spawn(move || to.write_all(&vec![0; 16 << 20]).unwrap_err().to_string());
        let empty = std::thread::spawn(move || {
            std::io::copy(&mut from, &mut std::io::sink()).unwrap_err().to_string()
        });
        stop.set();
        assert_eq!(full.join().expect("it ends"), "the mount ends");
        assert_eq!(empty.join().expect("it ends"), "the mount ends");
    }
}
