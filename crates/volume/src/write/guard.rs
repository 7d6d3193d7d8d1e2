//! Guard against another writer of the same devices: another machine, a mount of the kernel by way of another path, a loop
//! device over an image.
//!
//! A writer cannot keep all others out. So before superblocks are written, those of the devices that take part are read back, past
//! the host's cache where the device is a block device, and compared with what was written here, or found when the pool was opened.
//! A valid superblock with other contents, or none at all, is the work of another writer: the caller publishes nothing.
//!
//! No proof of another writer, and left to the commit, which writes it anew:
//! - a superblock with its magic number and a wrong checksum: a torn write, or decay of the medium;
//! - one that cannot be read;
//! - that of a device which failed to take its superblock, or a flush, and may hold either.
//!
//! A device that is behind gets no superblock, and is not asked. Between the look and the write another writer may come: it finds ours
//! with its own next look, if it has one. The guard limits damage; the [lease](crate::lease) prevents it.

use crate::device::{PoolDevice, count};
use crate::first_superblock::Trace;
use crate::{DeviceSet, Volume, WriteError};
use brindle_device::{DeviceClass, DeviceError, WritableDevice};
use brindle_ondisk::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use brindle_sync::parallel;
use std::sync::Arc;

impl Volume {
    /// Refuses if a device of a set holds another first superblock than the one that was written here or found, or if the lease of the
    /// pool is lost.
    ///
    /// # Errors
    /// [`WriteError::OtherWriter`], [`WriteError::LeaseLost`].
    pub fn check_superblocks(&self, set: &DeviceSet) -> Result<(), WriteError> {
        let pool = self.snapshot();
        if let Some(lease) = self.lease() {
            lease.follow(&pool.lease_places(self.superblock().fsid));
            lease.verify()?;
        }
        let behind = pool.behind();
        let asked = pool.devices.iter().enumerate().filter(|(index, member)| {
            set.contains(member.devid) && !behind.contains(index) && member.first_superblock.is_known()
        });
        let asked = asked.filter_map(|(_, member)| Some((member, member.writable.as_ref()?)));
        let asked: Vec<(&PoolDevice, &Arc<dyn WritableDevice>)> = asked.collect();
        match &asked[..] {
            [(member, device)] => look(member, device.as_ref()),
            _ => {
                parallel::try_map_waiting(&asked, |(member, device)| look(member, device.as_ref())).map(drop)
            }
        }
    }

    /// The same for one device that has part in every commit: a fast one, if there is one. To be asked before anything is written
    /// to space that another writer may have used meanwhile.
    pub fn check_one_superblock(&self) -> Result<(), WriteError> {
        let pool = self.snapshot();
        let known = || pool.devices.iter().filter(|member| member.first_superblock.is_known());
        let is_fast = |member: &&PoolDevice| {
            member.writable.as_ref().is_some_and(|device| device.class() == DeviceClass::Solid)
        };
        let chosen = known().find(is_fast).or_else(|| known().min_by_key(|member| member.devid));
        chosen.map_or(Ok(()), |member| self.check_superblocks(&[member.devid].into_iter().collect()))
    }
}

fn look(member: &PoolDevice, device: &dyn WritableDevice) -> Result<(), WriteError> {
    let offset = SUPERBLOCK_OFFSETS[0];
    let mut bytes = Box::new([0; SUPERBLOCK_SIZE]);
    if let Err(error) = device.read_uncached(offset, bytes.as_mut_slice()) {
        has_failed(member, &error);
        return Ok(());
    }
    match member.first_superblock.compare(&bytes) {
        None => Ok(()),
        Some(Trace { found, expected }) => {
            let device = device.name().to_owned();
            Err(WriteError::OtherWriter { device, devid: member.devid, offset, found, expected })
        }
    }
}

fn has_failed(member: &PoolDevice, error: &DeviceError) {
    tracing::warn!("{error}");
    count(&member.counters.read_errors);
}
