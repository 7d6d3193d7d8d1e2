//! Facts of the host and of the kernel about the space of a pool.

use super::Space;
use crate::call;
use crate::control::{ControlError, Mounted};
use brindle_cache::look_at_device;
use brindle_ondisk::BlockGroupType;
use brindle_uapi::message::{SPACE_RESERVE, SpaceList};
use brindle_uapi::verb;
use std::path::Path;
use zerocopy::FromZeros;

/// Bytes of a device behind the part that the pool uses; none if it can't be opened.
pub(super) fn slack_bytes(path: &Path, total_bytes: u64) -> u64 {
    if path.as_os_str().is_empty() {
        return 0;
    }
    look_at_device(path).map_or(0, |device| device.size_bytes().saturating_sub(total_bytes))
}

impl Mounted {
    /// Sums of a mount of the kernel by content and profile, and the global reserve.
    pub(super) fn spaces(&self) -> Result<Vec<Space>, ControlError> {
        let mut list = SpaceList::new_zeroed();
        list.slots = list.entries.len() as u64;
        let answer = call::update_with_room::<verb::ListSpaces>(&self.file, &mut list);
        self.explain("space", answer)?;
        let count = usize::try_from(list.total).unwrap_or(usize::MAX).min(list.entries.len());
        let space = |entry: &brindle_uapi::message::SpaceEntry| Space {
            kind: BlockGroupType::from_bits_retain(entry.kind) & BlockGroupType::all(),
            is_reserve: entry.kind & SPACE_RESERVE != 0,
            total_bytes: entry.total_bytes,
            used_bytes: entry.used_bytes,
        };
        Ok(list.entries[..count].iter().map(space).collect())
    }

    /// Bytes that an ordinary user may still write, as `statfs` tells them.
    pub(super) fn free_bytes(&self) -> Result<Option<u64>, ControlError> {
        let found = self.explain("statfs", rustix::fs::fstatvfs(&self.file))?;
        Ok(found.f_bavail.checked_mul(found.f_frsize))
    }
}
