//! Settings that the pool keeps, and what is done to it as a whole.

use crate::errno::number;
use brindle_fs::{AllocationHint, DeviceClasses, Filesystem, LogProfile, PlacementMode, WriteBackSettings};
use brindle_ondisk::{DevId, Logical};
use brindle_uapi::message::{
    ClassesRequest, HintRequest, Label, TrimRange, WRITE_BACK_KEEP, WriteBackRequest, field, text,
};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

/// Settings of the pool.
#[derive(Debug)]
pub(super) struct PoolSettings {
    filesystem: Arc<Filesystem>,
}

impl PoolSettings {
    pub(super) fn new(filesystem: Arc<Filesystem>) -> Self {
        Self { filesystem }
    }

    pub(super) fn set_label(&self, label: &Label) -> Result<(), Errno> {
        let is_text = label.0.contains(&0) && !text(&label.0).contains(&b'\n');
        let label = field(text(&label.0)).filter(|_| is_text).ok_or(Errno::INVAL)?;
        number(self.filesystem.pool().set_label(&label).map_err(Into::into))?;
        number(self.filesystem.sync())
    }

    pub(super) fn set_hint(&self, request: &HintRequest) -> Result<(), Errno> {
        let hint = AllocationHint::from_disk(request.stored_type).filter(|hint| hint.is_stored());
        let (devid, pool) = (DevId::new(request.devid), self.filesystem.pool());
        number(pool.set_allocation_hint(devid, hint.ok_or(Errno::INVAL)?).map_err(Into::into))?;
        number(self.filesystem.sync())
    }

    pub(super) fn set_classes(&self, request: &ClassesRequest) -> Result<(), Errno> {
        let length = usize::try_from(request.length).map_err(|_| Errno::INVAL)?;
        let item = request.item.get(..length).ok_or(Errno::INVAL)?;
        let classes = match item.is_empty() {
            true => DeviceClasses::default(),
            false => DeviceClasses::decode(item).map_err(|_| Errno::INVAL)?,
        };
        number(self.filesystem.pool().set_classes(&classes).map_err(Into::into))?;
        number(self.filesystem.sync())
    }

    pub(super) fn set_placement(&self, mode: u64) -> Result<(), Errno> {
        let mode = match mode {
            0 => PlacementMode::Classic,
            1 => PlacementMode::Preferred,
            2 => PlacementMode::Strict,
            _ => return Err(Errno::INVAL),
        };
        // What waits is written first, where it was promised to be.
        number(self.filesystem.sync())?;
        number(self.filesystem.pool().set_placement(mode).map_err(Into::into))
    }

    pub(super) fn set_small_files(&self, bytes: u64) -> Result<(), Errno> {
        number(self.filesystem.set_small_file_bytes(bytes))?;
        number(self.filesystem.sync())
    }

    pub(super) fn set_log_profile(&self, copies: u64) -> Result<(), Errno> {
        let profile = LogProfile::from_disk(copies).ok_or(Errno::INVAL)?;
        number(self.filesystem.set_log_profile(profile))?;
        number(self.filesystem.sync())
    }

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

    pub(super) fn trim(&self, mut range: TrimRange) -> Result<TrimRange, Errno> {
        let wanted = trimmed_addresses(&range, self.filesystem.pool().superblock().sectorsize.get())?;
        range.length = number(self.filesystem.trim(wanted, range.minimum))?;
        Ok(range)
    }
}

/// The logical addresses that `FITRIM` names; what the kernel refuses is refused.
fn trimmed_addresses(range: &TrimRange, sector: u32) -> Result<Range<Logical>, Errno> {
    if range.length < u64::from(sector) || range.start == u64::MAX {
        return Err(Errno::INVAL);
    }
    // The greatest length stands for all that follows.
    let end = match range.length {
        u64::MAX => u64::MAX,
        length => range.start.checked_add(length).ok_or(Errno::INVAL)?,
    };
    Ok(Logical::new(range.start)..Logical::new(end))
}
