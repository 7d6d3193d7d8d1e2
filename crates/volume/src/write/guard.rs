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
use crate::{DeviceSet, Volume, WriteError};
use brindle_device::{DeviceClass, DeviceError, WritableDevice};
use brindle_ondisk::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use brindle_sync::{Mutex, Rank, Ranked, parallel};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Contents of the place of a first superblock.
pub(crate) type SuperblockBytes = [u8; SUPERBLOCK_SIZE];

/// The first superblock of a device as it was written here, or found.
#[derive(Debug, Default)]
pub(crate) struct FirstSuperblock(Mutex<KnownBytes>);

/// The bytes; `None` if they are not known.
#[derive(Debug, Default)]
struct KnownBytes(Option<Box<SuperblockBytes>>);

impl Ranked for KnownBytes {
    const RANK: Rank = Rank::FirstSuperblock;
}

impl FirstSuperblock {
    /// One that was found.
    pub(crate) fn found(bytes: Option<Box<SuperblockBytes>>) -> Self {
        Self(Mutex::new(Rank::FirstSuperblock, KnownBytes(bytes)))
    }

    /// Notes one that was written.
    pub(crate) fn is(&self, superblock: &Superblock) {
        let mut bytes = Box::new([0; SUPERBLOCK_SIZE]);
        bytes.copy_from_slice(superblock.as_bytes());
        self.0.lock().0 = Some(bytes);
    }

    /// Notes that a write or a flush has failed.
    pub(crate) fn is_in_doubt(&self) {
        self.0.lock().0 = None;
    }

    fn is_known(&self) -> bool {
        self.0.lock().0.is_some()
    }

    /// Returns the proof that another writer has left these bytes.
    fn compare(&self, bytes: &SuperblockBytes) -> Option<Trace> {
        let known = self.0.lock();
        let expected = known.0.as_deref().filter(|expected| *expected != bytes)?;
        let found = match Superblock::parse(bytes, SUPERBLOCK_OFFSETS[0]) {
            Ok(found) => describe(&found),
            Err(_) if !Superblock::from_bytes(bytes).has_magic() => "no superblock of btrfs".to_owned(),
            Err(_) => return None,
        };
        Some(Trace { found, expected: describe(&Superblock::from_bytes(expected)) })
    }
}

/// Trace of another writer.
struct Trace {
    found: String,
    expected: String,
}

fn describe(superblock: &Superblock) -> String {
    let checksum = superblock.compute_checksum(superblock.checksum_type());
    format!("generation {} (checksum {checksum})", superblock.generation)
}

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
        let looks = match &asked[..] {
            [(member, device)] => vec![look(member, device.as_ref())],
            _ => parallel::map(&asked, |(member, device)| look(member, device.as_ref())),
        };
        looks.into_iter().collect()
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
