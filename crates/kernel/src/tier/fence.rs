//! Fences: devices made smaller for a while.

use super::journal::{FencedDevice, Journal, StateDirectory};
use super::{Inventory, MountedDevice, TierError, host};
use crate::balance::BalanceState;
use crate::control::Mounted;
use crate::message::DeviceInfo;
use brindle_ondisk::{DevId, Uuid};
use brindle_policy::tier::plan::Fence;

/// The fences of a pool, for as long as this lives; they are down when it is dropped, as far as the kernel lets us.
#[derive(Debug)]
pub struct Fences<'a> {
    mounted: &'a Mounted,
    directory: &'a StateDirectory,
    journal: Journal,
}

/// A device that was fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// It has the size that it had, in bytes.
    Size(DevId, u64),
    /// Somebody has given it another size meanwhile, in bytes, and it was left at that.
    Left(DevId, u64),
}

impl<'a> Fences<'a> {
    /// None yet. The lock of the pool is the caller's.
    pub fn new(mounted: &'a Mounted, directory: &'a StateDirectory, fsid: &Uuid) -> Self {
        Self { mounted, directory, journal: Journal::new(fsid, mounted.path()) }
    }

    /// Whether any stands.
    pub fn is_closed(&self) -> bool {
        !self.journal.devices.is_empty()
    }

    /// Returns true if these stand, and no others.
    pub fn stand_around(&self, fences: &[Fence]) -> bool {
        let fenced = self.journal.devices.iter().map(|device| device.devid);
        fenced.eq(fences.iter().map(|fence| fence.devid.get()))
    }

    /// The same inventory with the sizes that devices have without fences.
    pub fn unfenced(&self, mut inventory: Inventory) -> Inventory {
        for device in &mut inventory.devices {
            let mut fenced = self.journal.devices.iter();
            if let Some(before) = fenced.find(|fenced| fenced.devid == device.devid.get()) {
                device.total_bytes = before.total_bytes;
            }
        }
        inventory
    }

    /// Puts fences up. The journal is durable before the first device changes.
    pub fn close(&mut self, fences: &[Fence], devices: &[MountedDevice]) -> Result<(), TierError> {
        assert!(!self.is_closed(), "fences are taken down before others are put up");
        for fence in fences {
            let device = devices.iter().find(|device| device.devid == fence.devid);
            let device = device.ok_or(TierError::OtherDevice(fence.devid))?;
            self.journal.devices.push(FencedDevice {
                devid: fence.devid.get(),
                uuid: device.uuid.to_string(),
                total_bytes: fence.total_bytes,
                fences: vec![fence.fenced_bytes],
            });
        }
        if !self.is_closed() {
            return Ok(());
        }
        self.directory.write(&self.journal)?;
        for fence in fences {
            self.mounted.resize_device(fence.devid, fence.fenced_bytes)?;
        }
        Ok(())
    }

    /// Takes them down.
    pub fn open(&mut self) -> Result<(), TierError> {
        if self.is_closed() {
            restore(self.mounted, &self.journal)?;
            self.directory.remove(&self.journal.fsid)?;
            self.journal.devices.clear();
        }
        Ok(())
    }

    /// Takes them down, whatever happened before, and says what matters more.
    pub fn open_after<T>(&mut self, before: Result<T, TierError>) -> Result<T, TierError> {
        match (self.open(), before) {
            (Ok(()), before) => before,
            (Err(source), before) => {
                // The next try, when this is dropped, would fail alike.
                self.journal.devices.clear();
                Err(TierError::Fenced { source: Box::new(source), first: before.err().map(Box::new) })
            }
        }
    }
}

impl Drop for Fences<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.open() {
            tracing::error!("{error}; the sizes of devices are to be restored by `brindle tier recover`");
        }
    }
}

/// Takes down what a process that is no more has put up; none if there is nothing.
pub fn recover(
    mounted: &Mounted,
    directory: &StateDirectory,
    fsid: &Uuid,
) -> Result<Vec<Restored>, TierError> {
    let Some(journal) = directory.read(fsid)? else { return Ok(Vec::new()) };
    // After a crash the kernel goes on with the balance that was under way; nothing can be resized beside it. One for
    // a single chunk is ours.
    if let (BalanceState::Running | BalanceState::Paused, Some(_)) = mounted.balance_state()? {
        mounted.cancel_balance()?;
    }
    refuse_if_busy(fsid)?;
    let restored = restore(mounted, &journal)?;
    directory.remove(&journal.fsid)?;
    Ok(restored)
}

/// Says what the kernel does, if it does anything that nothing else may be done beside.
pub(super) fn refuse_if_busy(fsid: &Uuid) -> Result<(), TierError> {
    match host::exclusive_operation(fsid) {
        Some(operation) if operation != "none" => Err(TierError::Busy(operation)),
        _ => Ok(()),
    }
}

/// What is to be done about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    Nothing,
    Resize,
    /// Somebody else has resized it.
    Leave,
    /// It is another device.
    Refuse,
}

fn repair(device: &FencedDevice, found: Option<&DeviceInfo>) -> Repair {
    match found {
        Some(found) if Uuid(found.uuid).to_string() != device.uuid => Repair::Refuse,
        None => Repair::Refuse,
        Some(found) if found.total_bytes == device.total_bytes => Repair::Nothing,
        Some(found) if device.fences.contains(&found.total_bytes) => Repair::Resize,
        Some(_) => Repair::Leave,
    }
}

/// Gives all devices their sizes back; one that can't have it does not keep the others from it.
fn restore(mounted: &Mounted, journal: &Journal) -> Result<Vec<Restored>, TierError> {
    let mut restored = Vec::new();
    let mut failed = None;
    for device in &journal.devices {
        let devid = DevId::new(device.devid);
        let put_right = || -> Result<Restored, TierError> {
            let found = mounted.device(devid)?;
            match repair(device, found.as_ref()) {
                Repair::Nothing => {}
                Repair::Resize => mounted.resize_device(devid, device.total_bytes)?,
                Repair::Leave => {
                    let size = found.map_or(0, |found| found.total_bytes);
                    return Ok(Restored::Left(devid, size));
                }
                Repair::Refuse => return Err(TierError::OtherDevice(devid)),
            }
            Ok(Restored::Size(devid, device.total_bytes))
        };
        match put_right() {
            Ok(done) => restored.push(done),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(restored), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn only_a_size_that_was_a_fence_is_changed() {
        let uuid = Uuid([5; 16]);
        let device =
            FencedDevice { devid: 1, uuid: uuid.to_string(), total_bytes: 100, fences: vec![60, 50] };
        let found =
            |total_bytes| DeviceInfo { devid: 1, uuid: uuid.0, total_bytes, ..DeviceInfo::new_zeroed() };
        assert_eq!(repair(&device, Some(&found(100))), Repair::Nothing);
        assert_eq!(repair(&device, Some(&found(50))), Repair::Resize);
        assert_eq!(repair(&device, Some(&found(70))), Repair::Leave);
        assert_eq!(repair(&device, None), Repair::Refuse);
        let other = DeviceInfo { uuid: [6; 16], ..found(50) };
        assert_eq!(repair(&device, Some(&other)), Repair::Refuse);
    }
}
