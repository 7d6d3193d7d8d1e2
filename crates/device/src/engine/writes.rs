//! Writes and flushes of files, many at once, which the caller waits for.
//!
//! What costs the host no more than a note in memory is done soonest by the calling thread: small writes through the
//! host's cache, and several of one device, of which the host takes one after the other anyway. The rest is given to
//! the ring in one system call. Where there is none, each device gets a thread for as long as that takes.

use super::uring::{Part, PartKind, Uring};
use crate::direct::DirectFile;
use crate::durable::{Arrival, DurableKind, DurableRequests, Turn};
use crate::meter::{MeteredRequest, Operation};
use crate::pieces::PIECES_MAX;
use crate::{Buffer, DeviceError, FileDevice, WritableDevice, WriteRequest, write_now};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;

/// Less than this is written through the host's cache by the calling thread, device after device, in bytes.
const APART_BYTES_MIN: usize = 128 << 10;
/// Bytes of one buffer of a copy.
const COPY_BYTES: usize = 1 << 20;

/// A write or a flush of a file.
#[derive(Debug)]
pub(crate) struct FileRequest<'a> {
    device: &'a FileDevice,
    kind: FileRequestKind<'a>,
}

#[derive(Debug)]
enum FileRequestKind<'a> {
    Write(WriteRequest<'a>),
    Flush,
    /// Of a descriptor of its own.
    WriteOut(File),
}

/// A request as the ring is given it.
struct Lent<'r> {
    file: &'r File,
    /// An aligned copy of bytes that are not aligned as the device wants them; else empty.
    copy: Rc<[Buffer]>,
}

impl<'a> FileRequest<'a> {
    /// A write that lies within the device.
    pub(crate) fn write(device: &'a FileDevice, write: WriteRequest<'a>) -> Self {
        Self { device, kind: FileRequestKind::Write(write) }
    }

    pub(crate) fn flush(device: &'a FileDevice) -> Self {
        Self { device, kind: FileRequestKind::Flush }
    }

    /// A flush by another descriptor of the same file.
    pub(crate) fn write_out(device: &'a FileDevice, again: File) -> Self {
        Self { device, kind: FileRequestKind::WriteOut(again) }
    }

    /// Its kind, if the host may tell it a failure of earlier writes that the descriptor of the device is told.
    fn durable_kind(&self) -> Option<DurableKind> {
        match &self.kind {
            FileRequestKind::Write(write) => write.is_durable.then_some(DurableKind::Write),
            FileRequestKind::Flush => Some(DurableKind::Flush),
            FileRequestKind::WriteOut(_) => None,
        }
    }

    /// Makes the request by the calling thread.
    fn make(&self) -> Result<(), DeviceError> {
        match &self.kind {
            FileRequestKind::Write(write) => write_now(self.device, write),
            FileRequestKind::Flush => self.device.flush(),
            FileRequestKind::WriteOut(again) => {
                let _metered = self.meter();
                let device = || crate::Device::name(self.device).to_owned();
                again.sync_all().map_err(|source| DeviceError::Flush { device: device(), source })
            }
        }
    }

    /// Begins to count it, where [`make`](Self::make) does not.
    fn meter(&self) -> MeteredRequest {
        let meter = self.device.meter_of_requests();
        match &self.kind {
            FileRequestKind::Write(write) => meter.begin(
                Operation::Write,
                write.offset,
                write.pieces.iter().map(|piece| piece.len() as u64).sum(),
            ),
            FileRequestKind::Flush | FileRequestKind::WriteOut(_) => meter.begin(Operation::Flush, 0, 0),
        }
    }

    fn direct(&self) -> Option<&DirectFile> {
        match &self.kind {
            FileRequestKind::Write(write) => self.device.direct_for(write.offset, &write.pieces),
            FileRequestKind::Flush | FileRequestKind::WriteOut(_) => None,
        }
    }

    /// Bytes that the host only takes note of; `None` if the device has to work before there is an answer.
    fn noted_bytes(&self) -> Option<usize> {
        match &self.kind {
            FileRequestKind::Write(write) if !write.is_durable && self.direct().is_none() => {
                Some(write.pieces.iter().map(|piece| piece.len()).sum())
            }
            _ => None,
        }
    }

    /// The bytes that the device wants a copy of; else none.
    fn copied_pieces(&self) -> &[&'a [u8]] {
        match &self.kind {
            FileRequestKind::Write(write) if self.direct().is_some() && !DirectFile::takes(&write.pieces) => {
                &write.pieces
            }
            _ => &[],
        }
    }

    /// The request, made ready beside those `before` it, whose copies of the same bytes it shares: mirrors are given the same.
    fn lend<'r>(&'r self, before: &[(&'r Self, Lent<'r>)]) -> Lent<'r> {
        let direct = self.direct();
        let pieces = self.copied_pieces();
        let is_same = |(other, _): &&(&Self, Lent<'_>)| are_same(other.copied_pieces(), pieces);
        let copy = match before.iter().find(is_same) {
            _ if pieces.is_empty() => Rc::default(),
            Some((_, lent)) => Rc::clone(&lent.copy),
            None => copied(pieces).into(),
        };
        let file = match &self.kind {
            FileRequestKind::WriteOut(again) => again,
            _ => direct.map_or(self.device.file(), DirectFile::file),
        };
        Lent { file, copy }
    }

    /// The bytes to be written.
    fn slices<'r>(&'r self, lent: &'r Lent<'_>) -> Vec<IoSlice<'r>> {
        match &self.kind {
            FileRequestKind::Write(_) if !lent.copy.is_empty() => {
                lent.copy.iter().map(|buffer| IoSlice::new(buffer)).collect()
            }
            FileRequestKind::Write(write) => write.pieces.iter().map(|piece| IoSlice::new(piece)).collect(),
            FileRequestKind::Flush | FileRequestKind::WriteOut(_) => Vec::new(),
        }
    }

    /// The request in parts of which each is one system call.
    fn parts<'r>(&self, lent: &Lent<'r>, slices: &'r [IoSlice<'r>]) -> Vec<Part<'r>> {
        let file = lent.file;
        let FileRequestKind::Write(write) = &self.kind else {
            return vec![Part { file, kind: PartKind::Flush }];
        };
        let mut offset = write.offset;
        let part = |slices: &'r [IoSlice<'r>]| {
            let length = slices.iter().map(|slice| slice.len()).sum();
            let kind = PartKind::Write { offset, slices, length, is_durable: write.is_durable };
            offset += length as u64;
            Part { file, kind }
        };
        slices.chunks(PIECES_MAX).map(part).collect()
    }

    /// Ends a durable request of the ring, in the turn of its device; makes it if the host did not.
    fn judge_durable(
        &self,
        kind: DurableKind,
        turn: &mut Turn<'_>,
        arrival: Arrival,
        answer: Option<io::Result<()>>,
    ) -> Result<(), DeviceError> {
        let make = || {
            if let FileRequestKind::Write(write) = &self.kind {
                self.device.write_pieces_at(write.offset, &write.pieces)?;
            }
            Ok(self.device.file().sync_all())
        };
        let answer = answer.map_or_else(make, Ok)?;
        turn.judge(kind, arrival, answer).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> DeviceError {
        let device = crate::Device::name(self.device).to_owned();
        match &self.kind {
            FileRequestKind::Write(write) if !write.is_durable => {
                let length = write.pieces.iter().map(|piece| piece.len() as u64).sum();
                DeviceError::Write { device, offset: write.offset, length, source }
            }
            // Also of a durable write: the host reports the failures of earlier ones to it.
            _ => DeviceError::Flush { device, source },
        }
    }
}

/// Results that say nothing of the device. A flush that was refused was not begun.
fn is_refusal(result: i32) -> bool {
    let refusals = [Errno::INTR, Errno::AGAIN, Errno::INVAL, Errno::OPNOTSUPP, Errno::CANCELED];
    refusals.iter().any(|errno| errno.raw_os_error() == result.saturating_neg())
}

/// Returns true if both are the same memory.
fn are_same(one: &[&[u8]], other: &[&[u8]]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| std::ptr::eq(*one, *other))
}

/// A copy of adjacent pieces, aligned.
fn copied(pieces: &[&[u8]]) -> Vec<Buffer> {
    let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut copy: Vec<Buffer> = Vec::with_capacity(left.div_ceil(COPY_BYTES));
    let mut at = COPY_BYTES;
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            if copy.last().is_none_or(|last| at == last.len()) {
                copy.push(Buffer::new(left.min(COPY_BYTES)));
                at = 0;
            }
            let last = copy.last_mut().expect("one was just added");
            let (now, later) = rest.split_at(rest.len().min(last.len() - at));
            last[at..at + now.len()].copy_from_slice(now);
            (at, left, rest) = (at + now.len(), left - now.len(), later);
        }
    }
    copy
}

/// Makes requests, all at the same time, and waits for them.
pub(super) fn make(
    requests: &[&FileRequest<'_>],
    uring: Option<&Arc<Uring>>,
) -> Vec<Result<(), DeviceError>> {
    if !is_worth_a_ring(requests) {
        return requests.iter().map(|request| request.make()).collect();
    }
    match uring {
        Some(uring) => make_by_ring(requests, uring),
        None => make_by_threads(requests),
    }
}

/// Returns true if devices would wait for each other, or one could do several things at once.
fn is_worth_a_ring(requests: &[&FileRequest<'_>]) -> bool {
    let Some((first, rest)) = requests.split_first() else { return false };
    let works = requests.iter().filter(|request| request.noted_bytes().is_none()).count();
    if rest.iter().all(|request| std::ptr::eq(request.device, first.device)) {
        return works > 1;
    }
    works > 0 || requests.iter().filter_map(|request| request.noted_bytes()).sum::<usize>() >= APART_BYTES_MIN
}

fn make_by_ring(requests: &[&FileRequest<'_>], uring: &Arc<Uring>) -> Vec<Result<(), DeviceError>> {
    let mut lent: Vec<(&FileRequest<'_>, Lent<'_>)> = Vec::with_capacity(requests.len());
    for &request in requests {
        let next = request.lend(&lent);
        lent.push((request, next));
    }
    let slices: Vec<Vec<IoSlice<'_>>> = lent.iter().map(|(request, lent)| request.slices(lent)).collect();
    let mut parts = Vec::new();
    let mut counts = Vec::with_capacity(requests.len());
    for ((request, lent), slices) in lent.iter().zip(&slices) {
        let of_one = request.parts(lent, slices);
        counts.push(of_one.len());
        parts.extend(of_one);
    }
    let arrivals: Vec<Arrival> =
        requests.iter().map(|request| request.device.durable_requests().arrive()).collect();
    let mut turns = turns(requests);
    let metered: Vec<_> = requests.iter().map(|request| request.meter()).collect();
    let results = uring.perform(&parts);
    drop(metered);
    let mut at = 0;
    let mut answers: Vec<Option<io::Result<()>>> = Vec::with_capacity(requests.len());
    for count in counts {
        let range = at..at + count;
        at = range.end;
        answers.push(answer_of(&parts[range.clone()], &results[range]));
    }
    let mut judged: Vec<Option<Result<(), DeviceError>>> = requests.iter().map(|_| None).collect();
    // Durable writes come first: a flush beside them is told their failures.
    for kind in [DurableKind::Write, DurableKind::Flush] {
        for (index, request) in requests.iter().enumerate().filter(|(_, it)| it.durable_kind() == Some(kind))
        {
            let durable = request.device.durable_requests();
            let turn = turns.iter_mut().find(|turn| turn.is_of(durable)).expect("it was taken");
            judged[index] = Some(request.judge_durable(kind, turn, arrivals[index], answers[index].take()));
        }
    }
    drop(turns);
    let mut ended = Vec::with_capacity(requests.len());
    for ((request, answer), judged) in requests.iter().zip(answers).zip(judged) {
        ended.push(match (judged, answer) {
            (Some(judged), _) => judged,
            (None, Some(answer)) => answer.map_err(|source| request.failed(source)),
            (None, None) => request.make(),
        });
    }
    ended
}

/// Waits for the durable requests of others, of all devices that are to make some.
fn turns<'r>(requests: &[&'r FileRequest<'_>]) -> Vec<Turn<'r>> {
    let durable = requests.iter().filter(|request| request.durable_kind().is_some());
    let mut devices: Vec<&DurableRequests> =
        durable.map(|request| request.device.durable_requests()).collect();
    devices.sort_unstable_by_key(|device| device.key());
    devices.dedup_by_key(|device| device.key());
    devices.into_iter().map(DurableRequests::turn).collect()
}

/// The answer of the host, by the results of the parts of a request; `None` if it has stopped in the middle, or refuses to do it
/// this way.
fn answer_of(parts: &[Part<'_>], results: &[i32]) -> Option<io::Result<()>> {
    let mut is_done = true;
    for (part, result) in parts.iter().zip(results) {
        match usize::try_from(*result) {
            Ok(length) => is_done &= length == part.length(),
            Err(_) if is_refusal(*result) => is_done = false,
            Err(_) => return Some(Err(Errno::from_raw_os_error(result.saturating_neg()).into())),
        }
    }
    is_done.then_some(Ok(()))
}

/// Gives each device a thread, but for the first, which is the calling thread's.
fn make_by_threads(requests: &[&FileRequest<'_>]) -> Vec<Result<(), DeviceError>> {
    let mut devices: Vec<Vec<usize>> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let is_its = |known: &&mut Vec<usize>| std::ptr::eq(requests[known[0]].device, request.device);
        match devices.iter_mut().find(is_its) {
            Some(known) => known.push(index),
            None => devices.push(vec![index]),
        }
    }
    let make = |indices: &Vec<usize>| -> Vec<(usize, Result<(), DeviceError>)> {
        indices.iter().map(|index| (*index, requests[*index].make())).collect()
    };
    let mut answers = std::thread::scope(|scope| {
        let start = |indices| std::thread::Builder::new().spawn_scoped(scope, move || make(indices)).ok();
        let others: Vec<_> = devices[1..].iter().map(|indices| (indices, start(indices))).collect();
        let mut answers = make(&devices[0]);
        for (indices, other) in others {
            // Where no thread is to be had, the calling one makes these, too.
            answers
                .extend(other.map_or_else(|| make(indices), |it| it.join().expect("writing does not panic")));
        }
        answers
    });
    answers.sort_unstable_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Device};
    use std::path::Path;
    use std::sync::atomic::Ordering::Relaxed;

    const SIZE: usize = 4 << 20;

    /// A generator of test numbers (xorshift).
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % limit as u64).expect("small")
        }
    }

    type Make = Box<dyn Fn(&[&FileRequest<'_>]) -> Vec<Result<(), DeviceError>>>;

    /// The engines, one of them a ring that is forbidden half of the time.
    fn engines() -> Vec<(&'static str, Make)> {
        let mut engines: Vec<(&str, Make)> = vec![("threads", Box::new(|requests| make(requests, None)))];
        match Uring::new().and_then(|ring| Ok((ring, Uring::new()?))) {
            Ok((ring, forbidden)) => {
                let (ring, forbidden) = (Arc::new(ring), Arc::new(forbidden));
                engines.push(("io_uring", Box::new(move |requests| make(requests, Some(&ring)))));
                engines.push((
                    "forbidden io_uring",
                    Box::new(move |requests| {
                        let answers = make(requests, Some(&forbidden));
                        forbidden.fault.store(Errno::PERM.raw_os_error(), Relaxed);
                        answers
                    }),
                ));
            }
            Err(error) => println!("skipped: no io_uring: {error}"),
        }
        engines
    }

    fn devices(directory: &Path) -> Vec<FileDevice> {
        let new = |number| {
            let device =
                FileDevice::create(&directory.join(format!("image{number}")), SIZE as u64).expect("create");
            // The last ones are written around the cache, where the filesystem can.
            if number > 0 {
                device.bypass_cache();
            }
            device
        };
        (0..3).map(new).collect()
    }

    /// A write of random bytes and pieces, and the model's part.
    fn write<'a>(numbers: &mut Numbers, offset: usize, bytes: &'a [u8]) -> WriteRequest<'a> {
        let mut pieces = Vec::new();
        let mut rest = bytes;
        // Few pieces, pages, or more than a system call takes.
        let most = [rest.len().max(1), 4096, 100][numbers.below(3)];
        while !rest.is_empty() {
            let length = if most == 4096 { 4096 } else { 1 + numbers.below(most) };
            let (now, later) = rest.split_at(length.min(rest.len()));
            pieces.push(now);
            rest = later;
        }
        WriteRequest { offset: offset as u64, pieces, is_durable: numbers.below(4) == 0 }
    }

    #[test]
    fn batches_leave_what_a_plain_vector_holds() {
        let mut source = Buffer::new(SIZE + 7);
        source.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 / 7).to_le_bytes()[0]);
        for (name, make) in engines() {
            let directory = tempfile::tempdir().expect("temporary directory");
            let devices = devices(directory.path());
            let mut models = vec![vec![0u8; SIZE]; devices.len()];
            let mut numbers = Numbers(0x5eed);
            for round in 0..60 {
                let mut requests = Vec::new();
                let unit = [1, 512, 4096][numbers.below(3)];
                for (device, model) in devices.iter().zip(&mut models).take(1 + numbers.below(3)) {
                    let mut at = numbers.below(SIZE / 4) / unit * unit;
                    for _ in 0..numbers.below(5) {
                        let longest = [3000, 700_000][numbers.below(2)];
                        let length = (1 + numbers.below(longest)).next_multiple_of(unit);
                        if at + length > SIZE {
                            break;
                        }
                        let from = numbers.below(SIZE + 7 - length) / unit * unit;
                        let bytes = &source[from..from + length];
                        model[at..at + length].copy_from_slice(bytes);
                        requests.push(FileRequest::write(device, write(&mut numbers, at, bytes)));
                        at += length + numbers.below(3) * unit;
                    }
                    if numbers.below(3) == 0 {
                        requests.push(FileRequest::flush(device));
                    }
                }
                let answers = make(&requests.iter().collect::<Vec<_>>());
                assert_eq!(answers.len(), requests.len());
                answers.into_iter().for_each(|answer| answer.expect("nothing fails"));
                for (device, model) in devices.iter().zip(&models) {
                    let mut found = vec![1; SIZE];
                    device.read_at(0, &mut found).expect("read");
                    assert!(found == *model, "{name}, round {round}: {}", device.name());
                }
            }
        }
    }

    #[test]
    fn mirrors_share_one_aligned_copy() {
        const LENGTH: usize = 300 << 10;
        let directory = tempfile::tempdir().expect("temporary directory");
        let devices = devices(directory.path());
        let mut source = Buffer::new(2 * LENGTH + 1);
        source.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 / 7).to_le_bytes()[0]);
        let (bytes, others) = source[1..].split_at(LENGTH);
        let write = |device, offset, bytes| {
            FileRequest::write(device, WriteRequest { offset, pieces: vec![bytes], is_durable: false })
        };
        let requests = [
            write(&devices[1], 0, bytes),
            write(&devices[2], 4096, bytes),
            write(&devices[1], 1 << 20, others),
        ];
        let first = requests[0].lend(&[]);
        if first.copy.is_empty() {
            return println!("skipped: no way around the cache");
        }
        let lent = [(&requests[0], first)];
        assert!(Rc::ptr_eq(&requests[1].lend(&lent).copy, &lent[0].1.copy));
        assert!(!Rc::ptr_eq(&requests[2].lend(&lent).copy, &lent[0].1.copy));
        for (name, make) in engines() {
            make(&requests.each_ref()).into_iter().for_each(|answer| answer.expect(name));
            for (device, offset, bytes) in [(1, 0, bytes), (2, 4096, bytes), (1, 1 << 20, others)] {
                let mut found = vec![0; LENGTH];
                devices[device].read_at(offset, &mut found).expect("read");
                assert!(found == *bytes, "{name}: device {device}");
                devices[device].write_at(offset, &[0; LENGTH]).expect("write");
            }
        }
    }

    #[test]
    fn a_failure_is_that_of_its_request_alone() {
        let bytes = vec![7; 200_000];
        for (name, make) in engines() {
            let directory = tempfile::tempdir().expect("temporary directory");
            let devices = devices(directory.path());
            let read_only = FileDevice::open(&directory.path().join("image2")).expect("open");
            let write = |device, is_durable| {
                FileRequest::write(device, WriteRequest { offset: 4096, pieces: vec![&bytes], is_durable })
            };
            let requests = [write(&devices[0], false), write(&read_only, false), write(&devices[1], true)];
            let answers = make(&requests.each_ref());
            assert!(answers[0].is_ok() && answers[2].is_ok(), "{name}: {answers:?}");
            match &answers[1] {
                Err(DeviceError::Write { device, offset: 4096, length: 200_000, .. }) => {
                    assert!(device.ends_with("image2"), "{name}: {device}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_batch_answers_in_the_order_of_its_requests() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let devices = devices(directory.path());
        let memory = crate::SparseDevice::new("memory", 8192, crate::DeviceClass::Solid);
        let bytes = [5; 4096];
        let at =
            |offset| WriteRequest { offset, pieces: vec![&bytes[..1000], &bytes[1000..]], is_durable: true };
        let mut batch = Batch::default();
        devices[0].submit_write(at(0), &mut batch);
        devices[0].submit_write(at(SIZE as u64 - 1), &mut batch);
        memory.submit_write(at(4096), &mut batch);
        memory.submit_write(at(4097), &mut batch);
        devices[1].submit_write(at(8192), &mut batch);
        devices[1].submit_flush(&mut batch);
        let answers: Vec<bool> = batch.run().into_iter().map(|answer| answer.is_ok()).collect();
        assert_eq!(answers, [true, false, true, false, true, true]);
        let read = |device: &dyn Device, offset| {
            let mut found = [0; 4096];
            device.read_at(offset, &mut found).expect("read");
            found == bytes
        };
        assert!(read(&devices[0], 0) && read(&memory, 4096) && read(&devices[1], 8192));
        assert!(Batch::default().run().is_empty());
    }
}
