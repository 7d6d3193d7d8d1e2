//! Settings stored in the pool, and its space.

use crate::error::FsError;
use crate::filesystem::Filesystem;
use crate::statfs::SpaceStatistics;
use brindle_policy::log::LogProfile;

impl Filesystem {
    /// Files up to this length, compressed, have their data on fast devices; 0 for none.
    pub fn small_file_bytes(&self) -> u64 {
        self.parts.tiers.small_file_bytes()
    }

    /// Stores another limit for small files in the pool; durable with the next commit.
    pub fn set_small_file_bytes(&self, bytes: u64) -> Result<(), FsError> {
        self.parts.tiers.set_small_file_bytes(bytes)
    }

    /// Profile of the log: of a filesystem that is written the one that it goes by, else the stored one.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn log_profile(&self) -> Result<LogProfile, FsError> {
        self.parts.tiers.log_profile()
    }

    /// Stores another profile of the log in the pool, and goes by it from now on; durable with the next commit.
    ///
    /// # Errors
    /// A filesystem that is not written.
    pub fn set_log_profile(&self, profile: LogProfile) -> Result<(), FsError> {
        self.parts.tiers.set_log_profile(profile)
    }

    /// Space statistics of the pool. The blocks in use include the reserve that the kernel keeps for its own trees,
    /// and room for contents that wait in memory: the kernel counts those after it has written them.
    pub fn space(&self) -> Result<SpaceStatistics, FsError> {
        self.parts.space.space()
    }
}
