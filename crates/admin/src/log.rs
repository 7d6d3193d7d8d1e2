//! The log of a pool that brindle has mounted.

use crate::{ControlError, Mounted, call};
use brindle_policy::log::LogProfile;
use brindle_uapi::verb;

impl Mounted {
    /// Profile of the log that a mount of ours goes by.
    ///
    /// # Errors
    /// A mount of the kernel, which has none to choose.
    pub fn log_profile(&self) -> Result<LogProfile, ControlError> {
        let what = "log profile";
        self.only_ours(what)?;
        let report = self.explain(what, call::get::<verb::ReportLog>(&self.file))?;
        Ok(LogProfile::from_disk(report.copies).unwrap_or_default())
    }

    /// Stores another profile of the log in the pool of a mount of ours, which goes by it.
    ///
    /// # Errors
    /// A mount of the kernel, or one that is not written.
    pub fn set_log_profile(&self, profile: LogProfile) -> Result<(), ControlError> {
        let what = "log profile";
        self.only_ours(what)?;
        self.explain(what, call::set::<verb::SetLogProfile>(&self.file, profile.copies()))
    }
}
