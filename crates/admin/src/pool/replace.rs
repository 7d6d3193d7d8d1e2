//! State of a replacement.

use brindle_care::job::Progress;
use brindle_ondisk::item::DevReplaceItem;
use brindle_ondisk::{DevId, Key, KeyType, ObjectId};
use zerocopy::FromBytes;

/// Id in the record of a replacement that the kernel has finished.
const NO_DEVICE: DevId = DevId::new(u64::MAX);

/// State of the replacement of a device, running or the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplaceStatus {
    /// The state.
    pub state: ReplaceState,
    /// The device that is, or was, to be replaced, if it is known: the kernel forgets it at the end.
    pub devid: Option<DevId>,
    /// Progress of one that runs.
    pub progress: Progress,
    /// Begin, in seconds since 1970; 0 if it is unknown.
    pub started: u64,
    /// End, in seconds since 1970.
    pub stopped: u64,
    /// Writes that the target has failed to take.
    pub write_errors: u64,
    /// Reads that no copy could serve.
    pub lost_reads: u64,
}

/// A replacement that the kernel was interrupted in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptedReplacement {
    /// The device that is to be replaced.
    pub devid: DevId,
    /// The target, if it was found.
    pub target: Option<String>,
}

/// State of a replacement, as the pool records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceState {
    /// No device was ever replaced.
    Never,
    /// Begun, and not ended.
    Started,
    /// Ended.
    Finished,
    /// Ended before its time.
    Canceled,
    /// Interrupted, to be gone on with by the kernel.
    Suspended,
}

impl ReplaceStatus {
    /// No device was ever replaced.
    pub(super) const NEVER: Self = Self {
        state: ReplaceState::Never,
        devid: None,
        progress: Progress { expected: 0, done: 0, left: 0, expected_bytes: 0, moved_bytes: 0 },
        started: 0,
        stopped: 0,
        write_errors: 0,
        lost_reads: 0,
    };

    /// One that was begun and has not ended, of a pool in which none runs; its target, if that is there.
    pub fn interrupted(&self, target: Option<String>) -> Option<InterruptedReplacement> {
        let is_interrupted = matches!(self.state, ReplaceState::Started | ReplaceState::Suspended);
        let devid = self.devid.filter(|_| is_interrupted)?;
        Some(InterruptedReplacement { devid, target })
    }

    /// Key of the record in the device tree.
    pub(super) fn key() -> Key {
        Key::new(ObjectId::new(0), KeyType::DEV_REPLACE, 0)
    }

    /// State by the record in the device tree, if there is one.
    pub(super) fn of_record(record: Option<&[u8]>) -> Self {
        let Some(Ok((item, _))) = record.map(DevReplaceItem::read_from_prefix) else { return Self::NEVER };
        Self {
            state: ReplaceState::of_number(item.replace_state.get()),
            devid: Some(item.src_devid).filter(|devid| *devid != NO_DEVICE),
            started: item.time_started.get(),
            stopped: item.time_stopped.get(),
            write_errors: item.num_write_errors.get(),
            lost_reads: item.num_uncorrectable_read_errors.get(),
            ..Self::NEVER
        }
    }
}

impl ReplaceState {
    /// State by its number, on disk and in the kernel's answers.
    pub(super) fn of_number(number: u64) -> Self {
        match number {
            1 => Self::Started,
            2 => Self::Finished,
            3 => Self::Canceled,
            4 => Self::Suspended,
            _ => Self::Never,
        }
    }
}
