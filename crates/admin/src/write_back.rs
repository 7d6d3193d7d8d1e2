//! The write-back tier of a pool: its state, of a mount of ours or on devices, and its settings.

use crate::{ControlError, Mounted, call};
use brindle_ondisk::Profile;
use brindle_ondisk::item::WriteBackHeader;
use brindle_policy::writeback::WriteBackMode;
use brindle_tree::{Pool, TreeError};
use brindle_uapi::message::{WRITE_BACK_KEEP, WriteBackReport, WriteBackRequest, text};
use brindle_uapi::verb;
use std::time::Duration;

/// State of the write-back tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBack {
    /// Mode of the mount, or of the next one.
    pub mode: WriteBackMode,
    /// Profile of new chunks.
    pub profile: Profile,
    /// The same, if it was chosen.
    pub stored_profile: Option<Profile>,
    /// Reason for which no data goes there.
    pub obstacle: Option<String>,
    /// Bytes that wait.
    pub waiting_bytes: u64,
    /// Bytes that could wait, those that do included.
    pub capacity_bytes: u64,
    /// Time since which the oldest have waited, in seconds since 1970.
    pub since: Option<u64>,
    /// Bytes that were destaged since it was mounted, and the time that this took.
    pub destaged: Option<(u64, Duration)>,
}

impl WriteBack {
    /// State in a pool that is not mounted.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn of_pool(pool: &Pool) -> Result<Self, TreeError> {
        let status = pool.write_back_status()?;
        Ok(Self {
            mode: status.mode,
            profile: status.profile,
            stored_profile: status.stored.profile,
            obstacle: status.obstacle.map(|obstacle| obstacle.to_string()),
            waiting_bytes: status.waiting_bytes,
            capacity_bytes: status.capacity_bytes,
            since: status.since,
            destaged: None,
        })
    }

    fn of_report(report: &WriteBackReport) -> Self {
        let obstacle = String::from_utf8_lossy(text(&report.obstacle)).into_owned();
        Self {
            mode: WriteBackMode::from_disk(report.mode).unwrap_or_default(),
            profile: WriteBackHeader::profile_of(report.profile).unwrap_or(Profile::Single),
            stored_profile: WriteBackHeader::profile_of(report.stored_profile),
            obstacle: Some(obstacle).filter(|obstacle| !obstacle.is_empty()),
            waiting_bytes: report.waiting_bytes,
            capacity_bytes: report.capacity_bytes,
            since: Some(report.since).filter(|since| *since > 0),
            destaged: Some((report.destaged_bytes, Duration::from_nanos(report.destaging_ns))),
        }
    }
}

impl Mounted {
    /// State of the write-back tier; of a mount of ours.
    ///
    /// # Errors
    /// A mount of the kernel, which has none.
    pub fn write_back(&self) -> Result<WriteBack, ControlError> {
        let what = "write-back tier";
        self.only_ours(what)?;
        Ok(WriteBack::of_report(&self.explain(what, call::get::<verb::ReportWriteBack>(&self.file))?))
    }

    /// Stores another mode of write-back in the pool of a mount of ours, which goes by it.
    ///
    /// # Errors
    /// A mount of the kernel, or one that is not written.
    pub fn set_write_back_mode(&self, mode: WriteBackMode) -> Result<(), ControlError> {
        self.request_write_back(WriteBackRequest { mode: mode.to_disk(), profile: WRITE_BACK_KEEP })
    }

    /// Stores another profile of waiting data in the pool of a mount of ours; `None` for that of other data.
    ///
    /// # Errors
    /// A mount of the kernel, or one that is not written.
    pub fn set_write_back_profile(&self, profile: Option<Profile>) -> Result<(), ControlError> {
        let profile = WriteBackHeader::number_of(profile);
        self.request_write_back(WriteBackRequest { mode: WRITE_BACK_KEEP, profile })
    }

    fn request_write_back(&self, request: WriteBackRequest) -> Result<(), ControlError> {
        let what = "write-back tier";
        self.only_ours(what)?;
        self.explain(what, call::set::<verb::SetWriteBack>(&self.file, request))
    }
}
