//! Torn files that a mount of ours lays together by itself.

use crate::{ControlError, Mounted};

/// Name of the setting that reports.
const STATISTICS: &str = "autodefrag_statistics";

impl Mounted {
    /// Numbers of the work of `autodefrag` since the mount was made, by name.
    ///
    /// # Errors
    /// A mount of the kernel, or of a version that does not have it.
    pub fn autodefrag_statistics(&self) -> Result<Vec<(String, u64)>, ControlError> {
        let report = self.setting(STATISTICS)?;
        let number = |(name, value): (&str, &str)| Some((name.to_owned(), value.parse().ok()?));
        Ok(report.split(", ").filter_map(|part| part.split_once(' ').and_then(number)).collect())
    }
}
