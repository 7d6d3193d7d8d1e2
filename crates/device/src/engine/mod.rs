//! Engines: requests of files, many at once. An engine takes a batch of reads, each into a buffer of its own, and answers
//! them in any order; or it makes a batch of writes and flushes ([`writes`]) while the caller waits. There is one for the
//! process, which all its devices share.
//!
//! - [`uring`]: the kernel's `io_uring`: a batch is one system call, and no thread of ours waits for it.
//! - [`threads`]: `pread` by a few threads, where the host forbids `io_uring`.
//!
//! An answer costs no switch of threads if its waiter can fetch it itself: the thread that waits first collects the
//! answers of all from the ring, and a read that no thread has begun yet is made by its waiter.

mod threads;
mod uring;
mod writes;

pub(crate) use writes::FileRequest;

use crate::meter::{Meter, MeteredRequest, Operation};
use crate::{Buffer, PendingRead};
use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};
use threads::Threads;
use uring::Uring;

/// A file that reads are made of.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) file: Arc<File>,
    /// Its name in messages.
    pub(crate) name: Arc<str>,
    /// Counters of its requests.
    pub(crate) meter: Arc<Meter>,
}

/// A read of a file.
#[derive(Debug)]
struct Read {
    target: Target,
    offset: u64,
    buffer: Buffer,
    /// Counts the read, until it has an answer.
    metered: Option<MeteredRequest>,
}

impl Read {
    fn new(target: &Target, offset: u64, length: usize) -> Self {
        let metered = Some(target.meter.begin(Operation::Read, offset, length as u64));
        Self { target: target.clone(), offset, buffer: Buffer::new(length), metered }
    }

    /// Makes the read by the calling thread, from the byte `filled` of the buffer on.
    fn make(mut self, filled: usize) -> crate::ReadAnswer {
        use std::os::unix::fs::FileExt;
        let (offset, length) = (self.offset, self.buffer.len());
        let filled = filled.min(length);
        match self.target.file.read_exact_at(&mut self.buffer[filled..], offset + filled as u64) {
            Ok(()) => Ok(self.buffer),
            Err(source) => Err(self.target.read_error(offset, length, source)),
        }
    }
}

impl Target {
    pub(crate) fn read_error(&self, offset: u64, length: usize, source: io::Error) -> crate::DeviceError {
        crate::DeviceError::Read { device: self.name.to_string(), offset, length, source }
    }
}

/// Submits reads; the pending reads are in the order of the requests.
pub(crate) fn submit(target: &Target, requests: &[crate::ReadRequest]) -> Vec<PendingRead> {
    let reads = requests.iter().map(|request| Read::new(target, request.offset, request.length));
    static THREADS: OnceLock<Arc<Threads>> = OnceLock::new();
    match uring() {
        Some(uring) => uring.submit(reads.collect()),
        None => THREADS.get_or_init(Arc::default).submit(reads.collect()),
    }
}

/// Makes writes and flushes, all at the same time, and waits for them; the answers are in the order of the requests.
pub(crate) fn make(requests: &[&FileRequest<'_>]) -> Vec<Result<(), crate::DeviceError>> {
    // The ring is shared by the whole process: without a request of a file it is left alone.
    if requests.is_empty() { Vec::new() } else { writes::make(requests, uring()) }
}

/// The process' ring, unless the host has none, or it was given up.
fn uring() -> Option<&'static Arc<Uring>> {
    static URING: OnceLock<Option<Arc<Uring>>> = OnceLock::new();
    let uring = URING.get_or_init(|| Uring::new().ok().map(Arc::new)).as_ref();
    uring.filter(|uring| !uring.is_given_up())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceError;
    use std::io::Write;

    type Submit = Box<dyn Fn(Vec<Read>) -> Vec<PendingRead> + Send + Sync>;

    fn engines() -> Vec<(&'static str, Submit)> {
        let threads = Arc::new(Threads::default());
        let mut engines: Vec<(&str, Submit)> =
            vec![("threads", Box::new(move |reads| threads.submit(reads)))];
        match Uring::new() {
            Ok(uring) => {
                let uring = Arc::new(uring);
                engines.push(("io_uring", Box::new(move |reads| uring.submit(reads))));
            }
            Err(error) => println!("skipped: no io_uring: {error}"),
        }
        engines
    }

    fn image() -> (tempfile::NamedTempFile, Target, Vec<u8>) {
        let mut image = tempfile::NamedTempFile::new().expect("temporary file");
        let bytes: Vec<u8> = (0..4u32 << 20).map(|at| (at / 512 * 7 + at % 251).to_le_bytes()[0]).collect();
        image.write_all(&bytes).expect("write");
        let file = Arc::new(File::open(image.path()).expect("open"));
        (image, Target { file, name: "image".into(), meter: Arc::default() }, bytes)
    }

    fn read(target: &Target, offset: u64, length: usize) -> Read {
        Read::new(target, offset, length)
    }

    #[test]
    fn batches_of_many_threads_are_answered() {
        let (_image, target, bytes) = image();
        for (name, submit) in engines() {
            std::thread::scope(|scope| {
                for thread in 0..8u64 {
                    let (submit, target, bytes) = (&submit, &target, &bytes);
                    scope.spawn(move || {
                        for round in 0..40u64 {
                            let places: Vec<(u64, usize)> = (0..1 + (round + thread) % 50)
                                .map(|n| {
                                    (
                                        (n * 77_777 + round * 4096) % (3 << 20),
                                        1 + (n * 9973 % 70_000) as usize,
                                    )
                                })
                                .collect();
                            let reads = places.iter().map(|(offset, length)| read(target, *offset, *length));
                            let mut pending = submit(reads.collect());
                            // Some are given up, the others waited for in another order.
                            let kept = places.iter().zip(pending.drain(..)).enumerate();
                            let mut kept: Vec<_> = kept.filter(|(n, _)| n % 5 != 3).collect();
                            kept.reverse();
                            for (_, ((offset, length), pending)) in kept {
                                let buffer = pending.wait().expect("answered");
                                let at = usize::try_from(*offset).expect("small");
                                assert!(*buffer == bytes[at..at + length], "{name}: {length} at {offset}");
                            }
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn more_reads_than_the_ring_holds_are_answered() {
        let (_image, target, bytes) = image();
        for (name, submit) in engines() {
            let pending = submit((0..5000).map(|n| read(&target, n * 512, 512)).collect());
            for (n, pending) in pending.into_iter().enumerate() {
                assert!(*pending.wait().expect("answered") == bytes[n * 512..][..512], "{name}: {n}");
            }
        }
    }

    #[test]
    fn a_read_beyond_the_end_is_an_error_that_names_the_place() {
        let (_image, target, _) = image();
        for (name, submit) in engines() {
            let answer = submit(vec![read(&target, (4 << 20) - 512, 4096)]).remove(0).wait();
            match answer.expect_err("beyond the end") {
                DeviceError::Read { device, offset, length, source } => {
                    assert_eq!((&*device, offset, length), ("image", (4 << 20) - 512, 4096), "{name}");
                    assert_eq!(source.kind(), io::ErrorKind::UnexpectedEof, "{name}");
                }
                other => panic!("{name}: {other}"),
            }
        }
    }

    #[test]
    fn a_ring_that_the_host_forbids_answers_what_it_has_and_what_it_has_not() {
        use rustix::io::Errno;
        use std::sync::atomic::Ordering::Relaxed;
        let (_image, target, bytes) = image();
        for errno in [Errno::PERM, Errno::AGAIN] {
            let Ok(uring) = Uring::new() else { return println!("skipped: no io_uring") };
            let uring = Arc::new(uring);
            let batch =
                |from: u64| uring.submit((from..from + 20).map(|n| read(&target, n * 4096, 4096)).collect());
            let before = batch(0);
            uring.fault.store(errno.raw_os_error(), Relaxed);
            let after = batch(20);
            std::thread::scope(|scope| {
                for (n, pending) in before.into_iter().chain(after).enumerate() {
                    let bytes = &bytes;
                    scope.spawn(move || {
                        assert!(
                            *pending.wait().expect("answered") == bytes[n * 4096..][..4096],
                            "{errno}: {n}"
                        );
                    });
                }
            });
            assert!(uring.is_given_up());
            let pending = batch(0).remove(0);
            assert!(pending.is_answered() && *pending.wait().expect("read") == bytes[..4096]);
        }
    }

    #[test]
    fn a_failure_that_passes_does_not_end_a_ring() {
        use std::sync::atomic::Ordering::Relaxed;
        let (_image, target, bytes) = image();
        let Ok(uring) = Uring::new() else { return println!("skipped: no io_uring") };
        let uring = Arc::new(uring);
        uring.fault.store(rustix::io::Errno::AGAIN.raw_os_error(), Relaxed);
        let pending = uring.submit(vec![read(&target, 4096, 4096)]).remove(0);
        assert!(!pending.is_answered());
        uring.fault.store(0, Relaxed);
        assert!(*pending.wait().expect("answered") == bytes[4096..8192] && !uring.is_given_up());
    }

    #[test]
    fn an_answer_is_seen_without_a_wait() {
        let (_image, target, _) = image();
        for (name, submit) in engines() {
            let pending = submit(vec![read(&target, 0, 4096)]).remove(0);
            while !pending.is_answered() {
                std::thread::yield_now();
            }
            assert_eq!(pending.wait().expect("answered").len(), 4096, "{name}");
        }
    }

    #[test]
    fn several_threads_wait_for_one_read() {
        let (_image, target, bytes) = image();
        for (name, submit) in engines() {
            for round in 0..200 {
                let reads = (0..4).map(|n| read(&target, (n + round) * 4096, 4096)).collect();
                let pending = submit(reads);
                std::thread::scope(|scope| {
                    for pending in pending.iter().chain(&pending) {
                        let waiter = pending.waiter();
                        scope.spawn(move || waiter.iter().for_each(crate::ReadWaiter::wait));
                    }
                });
                for (n, pending) in pending.into_iter().enumerate() {
                    let at = (n + usize::try_from(round).expect("small")) * 4096;
                    assert!(*pending.wait().expect("answered") == bytes[at..at + 4096], "{name}");
                }
            }
        }
    }
}
