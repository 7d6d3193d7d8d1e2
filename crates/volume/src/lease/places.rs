//! Records on devices.

use super::LeaseOptions;
use crate::VolumeError;
use brindle_device::{Batch, Device, DeviceError, WritableDevice, WriteRequest};
use brindle_ondisk::{
    LEASE_BYTES, LEASE_OFFSET, LeaseDevice, LeasePlace, LeaseRecord, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE,
    Superblock, to_u64,
};
use std::sync::Arc;

/// The place of a record on a device of the pool.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) identity: LeaseDevice,
    pub(crate) device: Arc<dyn WritableDevice>,
}

impl Place {
    pub(crate) fn read(&self) -> Result<LeasePlace, DeviceError> {
        read(self.device.as_ref())
    }

    /// The record there, if it is one of this device.
    pub(crate) fn record(&self) -> Result<Option<Box<LeaseRecord>>, DeviceError> {
        Ok(match self.read()? {
            LeasePlace::Record(record) if self.identity.is_of(&record) => Some(record),
            _ => None,
        })
    }
}

/// Writes a record to devices, durably and at the same time; answers for each.
pub(crate) fn write(places: &[&Place], record: &LeaseRecord) -> Vec<Result<(), DeviceError>> {
    let sealed: Vec<[u8; LEASE_BYTES]> = places
        .iter()
        .map(|place| {
            let mut record = *record;
            (record.fsid, record.dev_uuid) = (place.identity.fsid, place.identity.uuid);
            record.sealed()
        })
        .collect();
    let mut batch = Batch::default();
    for (place, bytes) in places.iter().zip(&sealed) {
        let request = WriteRequest { offset: LEASE_OFFSET, pieces: vec![bytes.as_slice()], is_durable: true };
        place.device.submit_write(request, &mut batch);
    }
    batch.run()
}

pub(super) fn read(device: &(impl Device + ?Sized)) -> Result<LeasePlace, DeviceError> {
    let mut bytes = [0; LEASE_BYTES];
    device.read_uncached(LEASE_OFFSET, &mut bytes)?;
    Ok(LeasePlace::parse(&bytes))
}

/// Places whose records are held.
pub(crate) fn held_places(places: &[Place]) -> Vec<(&Place, LeaseRecord)> {
    let held =
        |place: &Place| place.record().ok().flatten().map(|record| *record).filter(LeaseRecord::is_held);
    places.iter().filter_map(|place| Some((place, held(place)?))).collect()
}

/// Marks records as free, durably: a holder that still runs finds that, and stops.
pub(crate) fn break_held(places: &[(&Place, LeaseRecord)]) -> Result<(), DeviceError> {
    for (place, record) in places {
        let mut record = *record;
        record.set_held(false);
        record.sequence += 1;
        write(&[*place], &record).into_iter().collect::<Result<(), _>>()?;
    }
    Ok(())
}

/// A record that a device has.
#[derive(Clone, Debug)]
pub struct LeaseFound {
    /// Name of the device.
    pub device: String,
    /// The record.
    pub record: LeaseRecord,
}

/// Finds the records that devices have of the pools that they belong to. A device that can't be read has none.
pub fn find_leases<'d>(devices: impl IntoIterator<Item = &'d dyn Device>) -> Vec<LeaseFound> {
    let find = |device: &'d dyn Device| {
        let identity = identity_of(device)?;
        match read(device) {
            Ok(LeasePlace::Record(record)) if identity.is_of(&record) => {
                Some(LeaseFound { device: device.name().to_owned(), record: *record })
            }
            _ => None,
        }
    };
    devices.into_iter().filter_map(find).collect()
}

/// Refuses devices that another system holds, whatever is to become of them.
///
/// # Errors
/// [`VolumeError::Held`].
pub fn check_leases(devices: &[Arc<dyn WritableDevice>], options: &LeaseOptions) -> Result<(), VolumeError> {
    let place = |device: &Arc<dyn WritableDevice>| {
        let identity = identity_of(device.as_device())?;
        Some(Place { identity, device: Arc::clone(device) })
    };
    let places: Vec<Place> = devices.iter().filter_map(place).collect();
    super::admit(&places, options).map(drop)
}

/// Marks the records that devices have as free: a holder that still runs finds that, and stops. Returns the records
/// that were held.
///
/// # Errors
/// A device that can't be written.
pub fn break_leases(devices: &[Arc<dyn WritableDevice>]) -> Result<Vec<LeaseFound>, DeviceError> {
    let mut broken = Vec::new();
    for device in devices {
        let found = find_leases([device.as_device()]);
        for found in found.into_iter().filter(|found| found.record.is_held()) {
            let mut record = found.record;
            record.set_held(false);
            record.sequence += 1;
            device.write_at(LEASE_OFFSET, &record.sealed())?;
            device.flush()?;
            broken.push(found);
        }
    }
    Ok(broken)
}

fn identity_of(device: &dyn Device) -> Option<LeaseDevice> {
    let best = SUPERBLOCK_OFFSETS.into_iter().filter_map(|offset| {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let fits = offset + to_u64(SUPERBLOCK_SIZE) <= device.size_bytes();
        let read = fits && device.read_at(offset, &mut bytes).is_ok();
        Superblock::parse(&bytes, offset).ok().filter(|_| read)
    });
    let superblock = best.max_by_key(|superblock| superblock.generation)?;
    let item = &superblock.dev_item;
    Some(LeaseDevice { fsid: superblock.fsid, devid: item.devid, uuid: item.uuid })
}
