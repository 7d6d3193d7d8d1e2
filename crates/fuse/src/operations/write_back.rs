//! The write-back tier: its state, and its settings.

use super::{Operations, number};
use brindle_fs::WriteBackSettings;
use brindle_uapi::message::{WRITE_BACK_KEEP, WriteBackReport, WriteBackRequest, field};
use rustix::io::Errno;

impl Operations {
    pub(super) fn set_write_back(&self, request: &WriteBackRequest) -> Result<(), Errno> {
        let mut numbers = number(self.filesystem.write_back_status())?.stored.to_numbers();
        for (number, wanted) in numbers.iter_mut().zip([request.mode, request.profile]) {
            if wanted != WRITE_BACK_KEEP {
                *number = wanted;
            }
        }
        let settings = WriteBackSettings::from_numbers(numbers).ok_or(Errno::INVAL)?;
        number(self.filesystem.set_write_back(settings))?;
        number(self.filesystem.sync())
    }

    pub(super) fn write_back_report(&self) -> Result<WriteBackReport, Errno> {
        let status = number(self.filesystem.write_back_status())?;
        let destaged = self.filesystem.destage_statistics();
        let counts = WriteBackSettings { mode: Some(status.mode), profile: Some(status.profile) };
        let ([mode, profile], [stored_mode, stored_profile]) =
            (counts.to_numbers(), status.stored.to_numbers());
        let obstacle = status.obstacle.map(|obstacle| obstacle.to_string()).unwrap_or_default();
        Ok(WriteBackReport {
            mode,
            stored_mode,
            profile,
            stored_profile,
            waiting_bytes: status.waiting_bytes,
            capacity_bytes: status.capacity_bytes,
            since: status.since.unwrap_or(0),
            destaged_bytes: destaged.bytes,
            destaging_ns: u64::try_from(destaged.time.as_nanos()).unwrap_or(u64::MAX),
            obstacle: field(obstacle.as_bytes()).ok_or(Errno::OVERFLOW)?,
        })
    }
}
