//! A device that fails as its script says.

use crate::Random;
use brindle_device::{Device, DeviceClass, DeviceError, WritableDevice};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One line of a script. Calls are counted from the making of the device, each kind by itself, the first is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This write fails, and writes nothing.
    Write {
        /// Its number.
        number: u64,
    },
    /// This write and all after it fail.
    WritesFrom {
        /// Number of the first.
        number: u64,
    },
    /// Writes that touch this range of bytes fail.
    WritesWithin(Range<u64>),
    /// This write writes its first bytes, then fails.
    ShortWrite {
        /// Its number.
        number: u64,
        /// Bytes that it writes.
        bytes: usize,
    },
    /// Reads that touch this range of bytes fail.
    ReadsWithin(Range<u64>),
    /// Reads that touch this range of bytes give wrong ones, without a word: each bit of its first byte turned.
    WrongReadsWithin(Range<u64>),
    /// This read fails.
    Read {
        /// Its number.
        number: u64,
    },
    /// This read and all after it fail.
    ReadsFrom {
        /// Number of the first.
        number: u64,
    },
    /// This read gives wrong bytes, without an error.
    WrongRead {
        /// Its number.
        number: u64,
    },
    /// This read and all after it give wrong bytes, without an error.
    WrongReadsFrom {
        /// Number of the first.
        number: u64,
    },
    /// This flush fails.
    Flush {
        /// Its number.
        number: u64,
    },
    /// This flush and all after it fail.
    FlushesFrom {
        /// Number of the first.
        number: u64,
    },
    /// No space from this write on, as in an image on a full filesystem.
    FullFrom {
        /// Number of the first write that finds none.
        number: u64,
    },
    /// The device can't be written.
    ReadOnly,
    /// The device is gone after a number of calls of all kinds.
    VanishAfter {
        /// Number of calls that still find it.
        calls: u64,
    },
}

/// Numbers of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes and discards.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Number of calls that failed by the script.
    pub faults: u64,
}

/// A device before another one, that fails as its script says.
#[derive(Debug)]
pub struct FaultyDevice {
    inner: Arc<dyn WritableDevice>,
    script: Mutex<Script>,
}

#[derive(Debug, Default)]
struct Script {
    faults: Vec<Fault>,
    counts: Counts,
}

/// Outcome that replaces a call's own.
enum InjectedResult {
    Fail(Errno),
    FailAfter(usize),
    Lie(u64),
}

#[derive(Clone, Copy)]
enum Call {
    Read { number: u64, offset: u64, length: u64 },
    Write { number: u64, offset: u64, length: u64 },
    Flush { number: u64 },
    SetSize,
}

impl FaultyDevice {
    /// A device that works, until something is added to its script.
    #[must_use]
    pub fn new(inner: Arc<dyn WritableDevice>) -> Self {
        Self { inner, script: Mutex::default() }
    }

    /// A device with this script.
    #[must_use]
    pub fn with(inner: Arc<dyn WritableDevice>, faults: Vec<Fault>) -> Self {
        let script = Script { faults, counts: Counts::default() };
        Self { inner, script: Mutex::new(script) }
    }

    /// Adds to the script. Where several lines of it apply to a call, the first decides.
    pub fn inject(&self, fault: Fault) {
        self.script().faults.push(fault);
    }

    /// The device is gone from now on.
    pub fn vanish(&self) {
        self.script().faults.insert(0, Fault::VanishAfter { calls: 0 });
    }

    /// From now on the device works.
    pub fn heal(&self) {
        self.script().faults.clear();
    }

    /// Numbers of calls until now.
    pub fn counts(&self) -> Counts {
        self.script().counts
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and looks up what the script says of it.
    fn judge(&self, call: impl FnOnce(&mut Counts) -> Call) -> Option<InjectedResult> {
        let mut script = self.script();
        let calls = script.counts.reads + script.counts.writes + script.counts.flushes;
        let call = call(&mut script.counts);
        let verdict = script.faults.iter().find_map(|fault| fault.verdict(call, calls));
        script.counts.faults += u64::from(verdict.is_some());
        verdict
    }

    fn write_failed(&self, offset: u64, length: u64, errno: Errno) -> DeviceError {
        DeviceError::Write { device: self.name().to_owned(), offset, length, source: errno.into() }
    }
}

impl Fault {
    /// Random fault in the course of `writes` writes and `flushes` flushes.
    pub fn any(random: &mut Random, writes: u64, flushes: u64) -> Self {
        let number = random.below(writes.max(1));
        let flush = random.below(flushes.max(1));
        match random.below(7) {
            0 => Self::Write { number },
            1 => Self::WritesFrom { number },
            2 => Self::ShortWrite { number, bytes: random.index(16) * 512 },
            3 => Self::Flush { number: flush },
            4 => Self::FlushesFrom { number: flush },
            5 => Self::FullFrom { number },
            _ => Self::VanishAfter { calls: random.below((writes + flushes).max(1)) },
        }
    }

    /// Random fault of reading, on a device of this size in the course of `reads` reads.
    pub fn any_of_reading(random: &mut Random, reads: u64, size_bytes: u64) -> Self {
        /// Number of parts of the device, one of which is struck: small enough to be met seldom, and large enough to
        /// be met.
        const PARTS: u64 = 16;
        let number = random.below(reads.max(1));
        let part = size_bytes / PARTS;
        let start = random.below(PARTS) * part;
        match random.below(6) {
            0 => Self::Read { number },
            1 => Self::ReadsFrom { number },
            2 => Self::WrongRead { number },
            3 => Self::WrongReadsFrom { number },
            4 => Self::ReadsWithin(start..start + part),
            _ => Self::WrongReadsWithin(start..start + part),
        }
    }

    /// Returns true if it strikes readers.
    pub fn is_of_reading(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::ReadsFrom { .. }
                | Self::WrongRead { .. }
                | Self::WrongReadsFrom { .. }
                | Self::ReadsWithin(_)
                | Self::WrongReadsWithin(_)
        )
    }

    /// `calls` is how many there were before this one.
    fn verdict(&self, call: Call, calls: u64) -> Option<InjectedResult> {
        let fails = |condition: bool, errno| condition.then_some(InjectedResult::Fail(errno));
        match (self, call) {
            (Self::VanishAfter { calls: found }, _) => fails(calls >= *found, Errno::NODEV),
            (Self::Write { number: bad }, Call::Write { number, .. }) => fails(number == *bad, Errno::IO),
            (Self::WritesFrom { number: bad }, Call::Write { number, .. }) => {
                fails(number >= *bad, Errno::IO)
            }
            (Self::FullFrom { number: bad }, Call::Write { number, .. }) => {
                fails(number >= *bad, Errno::NOSPC)
            }
            (Self::WritesWithin(range), Call::Write { offset, length, .. }) => {
                fails(touch(range, offset, length), Errno::IO)
            }
            (Self::ShortWrite { number: bad, bytes }, Call::Write { number, .. }) => {
                (number == *bad).then_some(InjectedResult::FailAfter(*bytes))
            }
            (Self::Read { number: bad }, Call::Read { number, .. }) => fails(number == *bad, Errno::IO),
            (Self::ReadsFrom { number: bad }, Call::Read { number, .. }) => fails(number >= *bad, Errno::IO),
            (Self::WrongRead { number: bad }, Call::Read { number, offset, .. }) => {
                (number == *bad).then_some(InjectedResult::Lie(offset))
            }
            (Self::WrongReadsFrom { number: bad }, Call::Read { number, offset, .. }) => {
                (number >= *bad).then_some(InjectedResult::Lie(offset))
            }
            (Self::ReadsWithin(range), Call::Read { offset, length, .. }) => {
                fails(touch(range, offset, length), Errno::IO)
            }
            (Self::WrongReadsWithin(range), Call::Read { offset, length, .. }) => {
                touch(range, offset, length).then_some(InjectedResult::Lie(range.start.max(offset)))
            }
            (Self::Flush { number: bad }, Call::Flush { number }) => fails(number == *bad, Errno::IO),
            (Self::FlushesFrom { number: bad }, Call::Flush { number }) => fails(number >= *bad, Errno::IO),
            (Self::ReadOnly, Call::Write { .. } | Call::SetSize) => fails(true, Errno::ROFS),
            _ => None,
        }
    }
}

fn touch(range: &Range<u64>, offset: u64, length: u64) -> bool {
    offset < range.end && range.start < offset.saturating_add(length)
}

impl Device for FaultyDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let length = buffer.len();
        let verdict = self.judge(|counts| {
            counts.reads += 1;
            Call::Read { number: counts.reads - 1, offset, length: length as u64 }
        });
        let failed = |errno: Errno| {
            let source: io::Error = errno.into();
            DeviceError::Read { device: self.name().to_owned(), offset, length, source }
        };
        match verdict {
            None => self.inner.read_at(offset, buffer),
            Some(InjectedResult::Lie(at)) => {
                self.inner.read_at(offset, buffer)?;
                let wrong = usize::try_from(at - offset).expect("within the buffer");
                buffer[wrong] = !buffer[wrong];
                Ok(())
            }
            Some(InjectedResult::Fail(errno)) => Err(failed(errno)),
            Some(InjectedResult::FailAfter(_)) => Err(failed(Errno::IO)),
        }
    }

    fn class(&self) -> DeviceClass {
        self.inner.class()
    }
}

impl WritableDevice for FaultyDevice {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let length = bytes.len() as u64;
        let verdict = self.judge(|counts| {
            counts.writes += 1;
            Call::Write { number: counts.writes - 1, offset, length }
        });
        match verdict {
            None | Some(InjectedResult::Lie(_)) => self.inner.write_at(offset, bytes),
            Some(InjectedResult::Fail(errno)) => Err(self.write_failed(offset, length, errno)),
            Some(InjectedResult::FailAfter(written)) => {
                self.inner.write_at(offset, &bytes[..written.min(bytes.len())])?;
                Err(self.write_failed(offset, length, Errno::IO))
            }
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let verdict = self.judge(|counts| {
            counts.flushes += 1;
            Call::Flush { number: counts.flushes - 1 }
        });
        match verdict {
            Some(InjectedResult::Fail(errno)) => {
                Err(DeviceError::Flush { device: self.name().to_owned(), source: errno.into() })
            }
            _ => self.inner.flush(),
        }
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        let verdict = self.judge(|counts| {
            counts.writes += 1;
            Call::Write { number: counts.writes - 1, offset, length }
        });
        match verdict {
            None | Some(InjectedResult::Lie(_)) => self.inner.discard(offset, length),
            Some(InjectedResult::Fail(errno)) => Err(self.write_failed(offset, length, errno)),
            Some(InjectedResult::FailAfter(_)) => Err(self.write_failed(offset, length, Errno::IO)),
        }
    }

    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError> {
        match self.judge(|_| Call::SetSize) {
            Some(InjectedResult::Fail(errno)) => {
                let (device, source) = (self.name().to_owned(), errno.into());
                Err(DeviceError::SetSize { device, size_bytes, source })
            }
            _ => self.inner.set_size(size_bytes),
        }
    }
}
