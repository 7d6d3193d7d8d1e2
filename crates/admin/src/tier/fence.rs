//! Fences: devices made smaller for a while.

use super::journal::{FencedDevice, Journal, StateDirectory};
use super::{Inventory, MountedDevice, TierError};
use crate::balance::BalanceState;
use crate::control::Mounted;
use crate::sysfs;
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
    /// The device has its old size, in bytes.
    Size(DevId, u64),
    /// The device has got another size meanwhile, in bytes, and keeps it.
    Left(DevId, u64),
    /// The device has left the pool; one that has its id now was never fenced.
    Gone(DevId),
}

impl<'a> Fences<'a> {
    /// None yet. The lock of the pool is the caller's.
    pub fn new(mounted: &'a Mounted, directory: &'a StateDirectory, fsid: &Uuid) -> Self {
        Self { mounted, directory, journal: Journal::new(fsid, mounted.path()) }
    }

    /// Returns true if any fence stands.
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

/// A pool whose devices may have been left fenced, however it is reached.
pub trait FencedPool {
    /// Failure of a request.
    type Error: From<TierError>;

    /// UUID and size of a device, in bytes; none of this id is `None`.
    fn device(&self, devid: DevId) -> Result<Option<(Uuid, u64)>, Self::Error>;

    /// Gives a device another size, in bytes.
    fn resize(&self, devid: DevId, bytes: u64) -> Result<(), Self::Error>;

    /// Ends the balance of a single chunk that a crash has left: no device can be resized beside it. Another balance is
    /// another program's, and is left.
    fn end_balance_of_chunk(&self) -> Result<(), Self::Error>;
}

impl FencedPool for Mounted {
    type Error = TierError;

    fn device(&self, devid: DevId) -> Result<Option<(Uuid, u64)>, TierError> {
        Ok(self.device(devid)?.map(|info| (Uuid(info.uuid), info.total_bytes)))
    }

    fn resize(&self, devid: DevId, bytes: u64) -> Result<(), TierError> {
        Ok(self.resize_device(devid, bytes)?)
    }

    fn end_balance_of_chunk(&self) -> Result<(), TierError> {
        if let (BalanceState::Running | BalanceState::Paused, Some(_)) = self.balance_state()? {
            self.cancel_balance()?;
        }
        refuse_if_busy(&Uuid(self.filesystem()?.fsid))
    }
}

/// Takes down the fences that a killed process has left; none if there is nothing. The lock of the pool is the caller's.
pub fn recover<P: FencedPool + ?Sized>(
    pool: &P,
    directory: &StateDirectory,
    fsid: &Uuid,
) -> Result<Vec<Restored>, P::Error> {
    let Some(journal) = directory.read(fsid)? else { return Ok(Vec::new()) };
    pool.end_balance_of_chunk()?;
    let restored = restore(pool, &journal)?;
    directory.remove(&journal.fsid)?;
    Ok(restored)
}

/// Says what the kernel does, if it does anything that nothing else may be done beside.
pub(super) fn refuse_if_busy(fsid: &Uuid) -> Result<(), TierError> {
    match sysfs::exclusive_operation(fsid) {
        Some(operation) if operation != "none" => Err(TierError::Busy(operation)),
        _ => Ok(()),
    }
}

/// Action for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    Nothing,
    Resize,
    /// The device was resized by another program.
    Leave,
    /// The device is no member of the pool any more.
    Gone,
}

fn repair(device: &FencedDevice, found: Option<(Uuid, u64)>) -> Repair {
    match found {
        Some((uuid, _)) if uuid.to_string() != device.uuid => Repair::Gone,
        None => Repair::Gone,
        Some((_, bytes)) if bytes == device.total_bytes => Repair::Nothing,
        Some((_, bytes)) if device.fences.contains(&bytes) => Repair::Resize,
        Some(_) => Repair::Leave,
    }
}

/// Gives all devices their sizes back; one that can't have it does not keep the others from it.
fn restore<P: FencedPool + ?Sized>(pool: &P, journal: &Journal) -> Result<Vec<Restored>, P::Error> {
    let mut restored = Vec::new();
    let mut failed = None;
    for device in &journal.devices {
        let devid = DevId::new(device.devid);
        let put_right = || -> Result<Restored, P::Error> {
            let found = pool.device(devid)?;
            match repair(device, found) {
                Repair::Nothing => {}
                Repair::Resize => pool.resize(devid, device.total_bytes)?,
                Repair::Leave => return Ok(Restored::Left(devid, found.map_or(0, |(_, bytes)| bytes))),
                Repair::Gone => return Ok(Restored::Gone(devid)),
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

    #[test]
    fn only_a_size_that_was_a_fence_is_changed() {
        let uuid = Uuid([5; 16]);
        let device =
            FencedDevice { devid: 1, uuid: uuid.to_string(), total_bytes: 100, fences: vec![60, 50] };
        assert_eq!(repair(&device, Some((uuid, 100))), Repair::Nothing);
        assert_eq!(repair(&device, Some((uuid, 50))), Repair::Resize);
        assert_eq!(repair(&device, Some((uuid, 70))), Repair::Leave);
        assert_eq!(repair(&device, None), Repair::Gone);
        assert_eq!(repair(&device, Some((Uuid([6; 16]), 50))), Repair::Gone);
    }

    /// Devices by their ids, with UUID and size.
    struct Members(std::cell::RefCell<std::collections::BTreeMap<u64, (Uuid, u64)>>);

    impl FencedPool for Members {
        type Error = TierError;

        fn device(&self, devid: DevId) -> Result<Option<(Uuid, u64)>, TierError> {
            Ok(self.0.borrow().get(&devid.get()).copied())
        }

        fn resize(&self, devid: DevId, bytes: u64) -> Result<(), TierError> {
            let mut members = self.0.borrow_mut();
            members.get_mut(&devid.get()).ok_or(TierError::OtherDevice(devid))?.1 = bytes;
            Ok(())
        }

        fn end_balance_of_chunk(&self) -> Result<(), TierError> {
            Ok(())
        }
    }

    #[test]
    fn a_fence_of_a_device_that_has_left_the_pool_counts_as_taken_down() {
        let place = tempfile::tempdir().expect("room");
        let (directory, fsid) = (StateDirectory::new(place.path().to_owned()), Uuid([9; 16]));
        let uuid = |devid: u64| Uuid([u8::try_from(devid).expect("small"); 16]);
        let fenced = |devid: u64| FencedDevice {
            devid,
            uuid: uuid(devid).to_string(),
            total_bytes: 100,
            fences: vec![50],
        };
        let mut journal = Journal::new(&fsid, std::path::Path::new("/mnt"));
        journal.devices = [1, 2, 3].map(fenced).to_vec();
        directory.write(&journal).expect("room");
        // Device 2 has been removed, and 3 is another one by now.
        let pool = Members(
            [(1, (uuid(1), 50)), (3, (uuid(4), 50))]
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>()
                .into(),
        );
        let gone = |devid| Restored::Gone(DevId::new(devid));
        let restored = recover(&pool, &directory, &fsid).expect("what is left is put right");
        assert_eq!(restored, [Restored::Size(DevId::new(1), 100), gone(2), gone(3)]);
        assert_eq!(pool.0.borrow()[&3].1, 50);
        assert!(recover(&pool, &directory, &fsid).expect("nothing is left").is_empty());
    }
}
