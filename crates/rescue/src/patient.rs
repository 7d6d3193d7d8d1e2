//! The devices of a pool that is to be repaired, with their overlays.

use crate::error::RescueError;
use crate::patch::{Patch, Written, write};
use crate::undo;
use brindle_device::{Device, OverlayDevice, WritableDevice};
use brindle_ondisk::to_u64;
use brindle_volume::{LeaseOptions, check_leases};
use std::path::Path;
use std::sync::Arc;

/// Upper bound on the changes of one device that are kept in memory, in bytes.
const OVERLAY_BYTES_MAX: usize = 4 << 30;

/// Devices, and what a treatment has changed of them in memory.
#[derive(Debug)]
pub struct Patient {
    devices: Vec<Arc<dyn WritableDevice>>,
    overlays: Vec<Arc<OverlayDevice>>,
}

impl Patient {
    /// Takes devices in that this process has for itself.
    ///
    /// # Errors
    /// Devices that another system holds by a lease.
    pub fn new(devices: Vec<Arc<dyn WritableDevice>>) -> Result<Self, RescueError> {
        check_leases(&devices, &LeaseOptions::default())?;
        let mut patient = Self { devices, overlays: Vec::new() };
        patient.reset();
        Ok(patient)
    }

    /// Forgets everything that was changed in memory.
    pub fn reset(&mut self) {
        let overlay = |device: &Arc<dyn WritableDevice>| {
            let below = Arc::clone(device).share_device();
            Arc::new(OverlayDevice::new(below, OVERLAY_BYTES_MAX))
        };
        self.overlays = self.devices.iter().map(overlay).collect();
    }

    /// The devices with the changes in memory, to be read.
    pub fn readable(&self) -> Vec<Arc<dyn Device>> {
        self.overlays.iter().map(|overlay| Arc::clone(overlay) as Arc<dyn Device>).collect()
    }

    /// The devices with the changes in memory, to be changed further.
    pub fn writable(&self) -> Vec<Arc<dyn WritableDevice>> {
        self.overlays.iter().map(|overlay| Arc::clone(overlay) as Arc<dyn WritableDevice>).collect()
    }

    /// Pages that differ from those of the devices, device by device, in the order of their offsets.
    ///
    /// # Errors
    /// A device that can't be read where it is to be written.
    pub fn patches(&self) -> Result<Vec<Patch>, RescueError> {
        let mut patches = Vec::new();
        for (device, (base, overlay)) in self.devices.iter().zip(&self.overlays).enumerate() {
            for (offset, new) in overlay.written() {
                let mut old = vec![0; new.len()];
                base.read_at(offset, &mut old)?;
                if old != new {
                    patches.push(Patch { device, offset, old, new });
                }
            }
        }
        Ok(patches)
    }

    /// Writes what was changed in memory, after an undo file, which must not exist yet.
    ///
    /// # Errors
    /// An undo file that can't be made: nothing was written then. A device that fails: the undo file takes back what was written.
    pub fn carry_out(&self, undo_file: &Path) -> Result<Written, RescueError> {
        let patches = self.patches()?;
        if patches.is_empty() {
            return Ok(Written::default());
        }
        undo::save(undo_file, &self.devices, &patches)?;
        let contents = |patch: &Patch| patch.superblock().is_none();
        write(&self.devices, patches.iter().filter(|patch| contents(patch)), |patch| &patch.new)?;
        let first = |patch: &Patch| patch.superblock() == Some(0);
        write(&self.devices, patches.iter().filter(|patch| first(patch)), |patch| &patch.new)?;
        let others = |patch: &Patch| patch.superblock().is_some_and(|copy| copy > 0);
        write(&self.devices, patches.iter().filter(|patch| others(patch)), |patch| &patch.new)?;
        let bytes = patches.iter().map(|patch| to_u64(patch.new.len())).sum();
        Ok(Written { pages: patches.len(), bytes })
    }
}
