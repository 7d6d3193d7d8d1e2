//! A modelled disk in real time: contents, a drive, and the power of both.

use crate::activity::Recorder;
use crate::status::Cut;
use crate::volatile::Volatile;
use crate::{Activity, Command, CutMode, CutReport, LabError, Model, ShownDisk, Status, Store};
use brindle_device::Buffer;
use brindle_sim::{DriveRequestKind, RealDrive};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A disk. Its requests return at once; the drive's thread calls their answers. An answer that the power is cut before is
/// dropped.
#[derive(Debug)]
pub struct Disk {
    model: Model,
    store: Store,
    state: Mutex<State>,
    /// Number of writes that a flush has made durable. No lock, so that the drive's thread waits for none.
    flushed: Arc<AtomicU64>,
}

#[derive(Debug)]
struct State {
    /// The drive; `None` while the power is off.
    drive: Option<RealDrive>,
    volatile: Volatile,
    cut: Option<Cut>,
    recorder: Recorder,
}

impl State {
    /// Seeks of the drive.
    fn seeks(drive: Option<&RealDrive>) -> u64 {
        drive.map_or(0, |drive| drive.counts().seeks)
    }
}

/// Result of a request.
pub type Answer<T> = Result<T, Errno>;

/// An answer that two requests have to come to.
struct Both<F>(Mutex<(u8, Option<F>)>);

impl<F: FnOnce(Answer<()>)> Both<F> {
    fn new(answer: F) -> Arc<Self> {
        Arc::new(Self(Mutex::new((2, Some(answer)))))
    }

    fn one_is_done(&self) {
        let answer = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.0 -= 1;
            if state.0 == 0 { state.1.take() } else { None }
        };
        if let Some(answer) = answer {
            answer(Ok(()));
        }
    }
}

impl Disk {
    /// A disk with these contents; its power is on.
    ///
    /// # Errors
    /// [`LabError::Size`], and a thread that can't be made.
    pub fn new(model: Model, store: Store) -> Result<Self, LabError> {
        let size_bytes = store.size_bytes();
        if !(SIZE_MIN..=SIZE_MAX).contains(&size_bytes) || size_bytes % BLOCK_BYTES != 0 {
            return Err(LabError::Size(size_bytes));
        }
        let drive = RealDrive::start(model.drive(size_bytes)).map_err(LabError::Serve)?;
        let volatile = Volatile::new(model.write_cache_bytes());
        let state = Mutex::new(State {
            drive: Some(drive),
            volatile,
            cut: None,
            recorder: Recorder::new(size_bytes, 0),
        });
        Ok(Self { model, store, state, flushed: Arc::default() })
    }

    /// Its model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.store.size_bytes()
    }

    /// Reads; beyond the end there is nothing.
    pub fn read(&self, offset: u64, length: usize, answer: impl FnOnce(Answer<&[u8]>) + Send + 'static) {
        let left = usize::try_from(self.size_bytes().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut buffer = Buffer::new(length.min(left));
        if let Err(error) = self.store.read(offset, &mut buffer) {
            return answer(Err(errno(&error)));
        }
        let kind = DriveRequestKind::Read(offset, buffer.len() as u64);
        let mut state = self.state();
        let State { drive: Some(drive), recorder, .. } = &mut *state else { return refuse(state, answer) };
        recorder.note(kind, || drive.counts().seeks);
        drive.submit(kind, move || answer(Ok(&buffer)));
    }

    /// Writes; a durable write is answered when it is flushed too.
    pub fn write(
        &self,
        offset: u64,
        bytes: &[u8],
        is_durable: bool,
        answer: impl FnOnce(Answer<()>) + Send + 'static,
    ) {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.size_bytes()) {
            return answer(Err(Errno::NOSPC));
        }
        let mut state = self.state();
        state.volatile.settle(self.flushed.load(Ordering::Acquire));
        let State { drive: Some(drive), volatile, recorder, .. } = &mut *state else {
            return refuse(state, answer);
        };
        if let Err(error) = volatile.write(&self.store, offset, bytes) {
            drop(state);
            return answer(Err(errno(&error)));
        }
        let kind = DriveRequestKind::Write(offset, bytes.len() as u64);
        recorder.note(kind, || drive.counts().seeks);
        if is_durable {
            let both = Both::new(answer);
            let other = Arc::clone(&both);
            drive.submit(kind, move || both.one_is_done());
            self.submit_flush(drive, volatile.writes(), move || other.one_is_done());
        } else {
            drive.submit(kind, move || answer(Ok(())));
        }
    }

    /// Makes durable what was written.
    pub fn flush(&self, answer: impl FnOnce(Answer<()>) + Send + 'static) {
        let state = self.state();
        match &state.drive {
            Some(drive) => self.submit_flush(drive, state.volatile.writes(), move || answer(Ok(()))),
            None => refuse(state, answer),
        }
    }

    fn submit_flush(&self, drive: &RealDrive, writes: u64, answer: impl FnOnce() + Send + 'static) {
        let flushed = Arc::clone(&self.flushed);
        drive.submit(DriveRequestKind::Flush, move || {
            flushed.fetch_max(writes, Ordering::AcqRel);
            answer();
        });
    }

    /// Forgets a range, which reads as zeros from then on. A hard disk can't.
    pub fn discard(&self, offset: u64, length: u64, answer: impl FnOnce(Answer<()>) + Send + 'static) {
        if self.model.is_rotating() {
            return answer(Err(Errno::OPNOTSUPP));
        }
        let end = offset.saturating_add(length).min(self.size_bytes());
        let state = self.state();
        let Some(drive) = &state.drive else { return refuse(state, answer) };
        let length = end.saturating_sub(offset);
        if let Err(error) = self.store.zero(offset, length) {
            drop(state);
            return answer(Err(errno(&error)));
        }
        drive.submit(DriveRequestKind::Discard(offset, length), move || answer(Ok(())));
    }

    /// Cuts the power: requests that are under way fail, and so do all that come, until it is restored.
    ///
    /// # Errors
    /// EALREADY if it is off; those of the contents.
    pub fn cut(&self, mode: CutMode, seed: u64) -> Answer<CutReport> {
        let mut state = self.state();
        // With its thread: an answer is given before the cut, or never. No answer waits for this lock.
        drop(state.drive.take().ok_or(Errno::ALREADY)?);
        state.volatile.settle(self.flushed.load(Ordering::Acquire));
        let report = state.volatile.cut(&self.store, mode, seed).map_err(|error| errno(&error))?;
        state.cut = Some(Cut { mode, seed, report });
        Ok(report)
    }

    /// Turns the power on. The counts begin anew.
    ///
    /// # Errors
    /// EALREADY if it is on; a thread that can't be made.
    pub fn restore(&self) -> Answer<()> {
        let mut state = self.state();
        if state.drive.is_some() {
            return Err(Errno::ALREADY);
        }
        let drive = RealDrive::start(self.model.drive(self.size_bytes())).map_err(|error| errno(&error))?;
        state.drive = Some(drive);
        Ok(())
    }

    /// Sets all counts to 0.
    pub fn reset_counts(&self) {
        if let Some(drive) = &self.state().drive {
            drive.reset_counts();
        }
    }

    /// Begins to note times and places of requests anew.
    pub fn observe(&self) {
        let mut state = self.state();
        let seeks = State::seeks(state.drive.as_ref());
        state.recorder = Recorder::new(self.size_bytes(), seeks);
    }

    /// Times and places of requests since then.
    pub fn activity(&self) -> Activity {
        let mut state = self.state();
        let seeks = State::seeks(state.drive.as_ref());
        state.recorder.activity(seeks)
    }

    /// Its state, without the loop device.
    pub fn status(&self) -> Status {
        let mut state = self.state();
        state.volatile.settle(self.flushed.load(Ordering::Acquire));
        let (unflushed_writes, unflushed_bytes) = state.volatile.pending();
        let drive = state.drive.as_ref();
        Status {
            model: self.model.to_string(),
            process: u64::from(std::process::id()),
            size_bytes: self.size_bytes(),
            loop_device: None,
            is_on: drive.is_some(),
            is_asleep: drive.is_some_and(RealDrive::is_asleep),
            in_flight: drive.map_or(0, |drive| drive.in_flight() as u64),
            unflushed_writes,
            unflushed_bytes,
            counts: drive.map(RealDrive::counts).unwrap_or_default(),
            load: drive.map(RealDrive::load).unwrap_or_default(),
            lateness: drive.map(RealDrive::lateness).unwrap_or_default(),
            cut: state.cut,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShownDisk for Disk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes()
    }

    fn is_rotating(&self) -> bool {
        self.model.is_rotating()
    }

    fn answers_later(&self) -> bool {
        // The drive waits, and no thread with it.
        true
    }

    fn read(&self, offset: u64, length: usize, answer: impl FnOnce(Answer<&[u8]>) + Send + 'static) {
        self.read(offset, length, answer);
    }

    fn write(
        &self,
        offset: u64,
        bytes: &[u8],
        is_durable: bool,
        answer: impl FnOnce(Answer<()>) + Send + 'static,
    ) {
        self.write(offset, bytes, is_durable, answer);
    }

    fn flush(&self, answer: impl FnOnce(Answer<()>) + Send + 'static) {
        self.flush(answer);
    }

    fn discard(&self, offset: u64, length: u64, answer: impl FnOnce(Answer<()>) + Send + 'static) {
        self.discard(offset, length, answer);
    }

    fn status_text(&self, loop_device: Option<&Path>) -> String {
        let mut status = self.status();
        status.loop_device = loop_device.map(Path::to_owned);
        status.to_text()
    }

    fn activity_text(&self) -> String {
        serde_json::to_string(&self.activity()).unwrap_or_default()
    }

    fn command(&self, line: &[u8]) -> Answer<()> {
        match Command::parse(line).ok_or(Errno::INVAL)? {
            Command::Reset => {
                self.reset_counts();
                Ok(())
            }
            Command::Cut(mode, seed) => self.cut(mode, seed).map(drop),
            Command::Restore => self.restore(),
            Command::Observe => {
                self.observe();
                Ok(())
            }
        }
    }
}

const SIZE_MIN: u64 = 1 << 20;
const SIZE_MAX: u64 = 1 << 63;
const BLOCK_BYTES: u64 = 4096;

/// Refuses a request, as the power is off.
fn refuse<T>(state: MutexGuard<'_, State>, answer: impl FnOnce(Answer<T>)) {
    drop(state);
    answer(Err(Errno::IO));
}

/// The error of the host that keeps the contents.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Longest wait for an answer: a test that needs it has failed.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn disk(line: &str) -> Disk {
        let store = Store::in_memory(1 << 30).expect("memory");
        Disk::new(Model::parse(line).expect("a model"), store).expect("a disk")
    }

    /// Waits for the answer of a request; `None` if there is none.
    fn wait<T: Send + 'static>(ask: impl FnOnce(Box<dyn FnOnce(Answer<T>) + Send>)) -> Option<Answer<T>> {
        let (sender, answers) = mpsc::channel();
        ask(Box::new(move |answer| sender.send(answer).expect("the test waits")));
        match answers.recv_timeout(PATIENCE) {
            Ok(answer) => Some(answer),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no answer"),
        }
    }

    fn write(disk: &Disk, offset: u64, fill: u8, is_durable: bool) -> Option<Answer<()>> {
        wait(|answer| disk.write(offset, &[fill; 4096], is_durable, answer))
    }

    fn first_byte(disk: &Disk, offset: u64) -> Option<Answer<u8>> {
        wait(|answer: Box<dyn FnOnce(Answer<u8>) + Send>| {
            disk.read(offset, 512, move |read| answer(read.map(|bytes| bytes[0])));
        })
    }

    #[test]
    fn flushed_writes_survive_a_cut_and_others_may_not() {
        let disk = disk("ssd");
        assert_eq!(write(&disk, 0, 1, false), Some(Ok(())));
        assert_eq!(wait(|answer| disk.flush(answer)), Some(Ok(())));
        assert_eq!(write(&disk, 4096, 2, true), Some(Ok(())));
        assert_eq!(write(&disk, 8192, 3, false), Some(Ok(())));
        assert_eq!(first_byte(&disk, 8192), Some(Ok(3)));
        let status = disk.status();
        assert_eq!((status.unflushed_writes, status.unflushed_bytes), (1, 4096));
        assert_eq!((status.counts.writes, status.counts.flushes, status.counts.reads), (3, 2, 1));
        let report = disk.cut(CutMode::Lost, 1).expect("it is on");
        assert_eq!(report, CutReport { lost: 1, ..CutReport::default() });
        assert_eq!(disk.cut(CutMode::Lost, 1), Err(Errno::ALREADY));
        assert_eq!(write(&disk, 0, 9, false), Some(Err(Errno::IO)));
        assert_eq!(first_byte(&disk, 0), Some(Err(Errno::IO)));
        assert_eq!(wait(|answer| disk.flush(answer)), Some(Err(Errno::IO)));
        assert_eq!(wait(|answer| disk.discard(0, 4096, answer)), Some(Err(Errno::IO)));
        assert!(!disk.status().is_on);
        disk.restore().expect("it is off");
        assert_eq!(disk.restore(), Err(Errno::ALREADY));
        let bytes = [0, 4096, 8192].map(|offset| first_byte(&disk, offset));
        assert_eq!(bytes, [Some(Ok(1)), Some(Ok(2)), Some(Ok(0))]);
        assert_eq!(disk.status().cut.map(|cut| (cut.mode, cut.seed)), Some((CutMode::Lost, 1)));
    }

    #[test]
    fn activity_has_the_requests_since_it_was_asked_for() {
        let disk = disk("hdd");
        assert_eq!(write(&disk, 0, 1, true), Some(Ok(())));
        disk.observe();
        assert_eq!(disk.activity().cells, []);
        assert_eq!(write(&disk, 512 << 20, 2, true), Some(Ok(())));
        assert_eq!(first_byte(&disk, 256 << 20), Some(Ok(0)));
        let told = serde_json::from_str::<Activity>(&ShownDisk::activity_text(&disk)).expect("JSON");
        let (read, written) =
            told.cells.iter().fold((0, 0), |sum, (_, _, read, written)| (sum.0 + read, sum.1 + written));
        assert_eq!((read, written, told.first_byte), (1, 4, 256 << 20), "{told:?}");
        assert_eq!(told.seeks.iter().sum::<u64>(), 2, "{told:?}");
        disk.cut(CutMode::Lost, 1).expect("it is on");
        disk.observe();
        assert!(disk.activity().seeks.is_empty());
    }

    #[test]
    fn flush_that_was_answered_just_before_a_cut_holds() {
        for line in ["nvme", "hdd", "smr"] {
            let disk = disk(line);
            assert_eq!(write(&disk, 4096, 5, true), Some(Ok(())));
            assert_eq!(disk.cut(CutMode::Lost, 1), Ok(CutReport::default()), "{line}");
            disk.restore().expect("it is off");
            assert_eq!(write(&disk, 8192, 6, false), Some(Ok(())));
            assert_eq!(wait(|answer| disk.flush(answer)), Some(Ok(())));
            assert_eq!(disk.cut(CutMode::Lost, 1), Ok(CutReport::default()), "{line}");
            disk.restore().expect("it is off");
            assert_eq!([4096, 8192].map(|offset| first_byte(&disk, offset)), [Some(Ok(5)), Some(Ok(6))]);
        }
    }

    #[test]
    fn cut_leaves_no_request_waiting() {
        // It takes an hour to wake up, and a minute to seek.
        let disk = disk("hdd,spindown=1,spinup=3600,seek=10000000");
        let (sender, answers) = mpsc::channel::<()>();
        for number in 0..100 {
            let sender = sender.clone();
            disk.read(number * (1 << 20), 4096, move |_| drop(sender));
        }
        disk.flush(move |_| drop(sender));
        disk.cut(CutMode::Lost, 1).expect("it is on");
        assert_eq!(answers.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
        assert_eq!(disk.status().in_flight, 0);
    }

    #[test]
    fn requests_that_cannot_be_are_refused() {
        let (ssd, hard_disk) = (disk("ssd"), disk("hdd"));
        assert_eq!(write(&ssd, (1 << 30) - 2048, 1, false), Some(Err(Errno::NOSPC)));
        assert_eq!(wait(|answer| hard_disk.discard(0, 4096, answer)), Some(Err(Errno::OPNOTSUPP)));
        assert_eq!(write(&ssd, 4096, 1, false), Some(Ok(())));
        assert_eq!(wait(|answer| ssd.discard(4096, u64::MAX, answer)), Some(Ok(())));
        assert_eq!(first_byte(&ssd, 4096), Some(Ok(0)));
        let beyond = wait(|answer: Box<dyn FnOnce(Answer<usize>) + Send>| {
            ssd.read((1 << 30) - 512, 4096, move |read| answer(read.map(<[u8]>::len)));
        });
        assert_eq!(beyond, Some(Ok(512)));
        for size in [0, 4096, (1 << 20) + 512] {
            let store = Store::in_memory(size).expect("memory");
            let refused = Disk::new(Model::parse("ssd").expect("a model"), store);
            assert!(matches!(refused, Err(LabError::Size(found)) if found == size));
        }
    }
}
