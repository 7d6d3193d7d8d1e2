//! A pool that the kernel has mounted.

use super::change::absolute;
use super::{
    AdminError, BalanceJob, BalanceStatus, Change, Changed, DefragmentObserver, DeviceErrors, Member,
    PoolAdmin, PoolFacts, ReplaceStatus, device_errors_of, kernel_balance, kernel_replace, members_of,
};
use crate::control::Mounted;
use crate::tier::{FencedPool, Inventory};
use brindle_care::device::prepare;
use brindle_care::job::{Control, Ended, Observer};
use brindle_device::FileDevice;
use brindle_ondisk::{DevId, Uuid};
use brindle_policy::class::DeviceClasses;

/// A mount of the kernel.
#[derive(Debug)]
pub struct KernelMount(pub Mounted);

impl PoolFacts for KernelMount {
    fn fsid(&self) -> Result<Uuid, AdminError> {
        Ok(Uuid(self.0.filesystem()?.fsid))
    }

    fn members(&self) -> Result<Vec<Member>, AdminError> {
        members_of(&self.0)
    }

    fn inventory(&self) -> Result<Inventory, AdminError> {
        Ok(self.0.inventory()?)
    }

    fn classes(&self) -> Result<DeviceClasses, AdminError> {
        Ok(self.0.stored_classes()??)
    }

    fn balance_status(&self) -> Result<BalanceStatus, AdminError> {
        kernel_balance::status(&self.0)
    }

    fn device_errors(&self) -> Result<Vec<DeviceErrors>, AdminError> {
        device_errors_of(&self.0, false)
    }

    fn replace_status(&self) -> Result<ReplaceStatus, AdminError> {
        kernel_replace::status(&self.0)
    }
}

impl PoolAdmin for KernelMount {
    fn balance(&self, job: &BalanceJob, observer: Observer<'_>) -> Result<Ended, AdminError> {
        kernel_balance::carry_out(&self.0, job, observer)
    }

    fn pause_balance(&self) -> Result<bool, AdminError> {
        kernel_balance::stop(&self.0, Control::Pause)
    }

    fn cancel_balance(&self) -> Result<bool, AdminError> {
        kernel_balance::stop(&self.0, Control::Cancel)
    }

    fn cancel_replace(&self) -> Result<bool, AdminError> {
        kernel_replace::cancel(&self.0)
    }

    /// The kernel works in the calling process, and hears no control but those of a replacement and of a balance.
    fn carry_out(&self, change: &Change, observer: Observer<'_>) -> Result<Changed, AdminError> {
        match change {
            Change::Add { class: Some(_), .. } | Change::Add { class_name: Some(_), .. } => {
                Err(AdminError::KernelClasses)
            }
            Change::Add { path, options, .. } => {
                let path = absolute(path)?;
                // It has to be free again when the kernel takes it.
                prepare(&FileDevice::open_writable(&path)?, options)?;
                self.0.add_device(&path)?;
                Ok(Changed::at_once(None))
            }
            Change::Remove(which) => {
                self.0.remove_device(which.devid().map(DevId::new))?;
                Ok(Changed::at_once(which.devid()))
            }
            Change::Replace { which, path, options } => {
                kernel_replace::carry_out(&self.0, *which, path, options, observer)
            }
            Change::Rejoin { .. } => Err(AdminError::KernelRejoins(self.0.path().to_owned())),
            Change::Resize(devid, size) => {
                self.0.resize_device_to(*devid, &size.to_string())?;
                Ok(Changed::at_once(Some(devid.get())))
            }
        }
    }

    fn set_classes(&self, _: &DeviceClasses) -> Result<(), AdminError> {
        Err(AdminError::KernelClasses)
    }

    fn defragment(&self, whole_pool: bool, _: DefragmentObserver<'_>) -> Result<Control, AdminError> {
        self.0.defragment(whole_pool, None)?;
        Ok(Control::Continue)
    }

    fn reset_device_errors(&self) -> Result<Vec<DeviceErrors>, AdminError> {
        device_errors_of(&self.0, true)
    }

    fn close(&self) -> Result<(), AdminError> {
        Ok(())
    }

    fn end_balance_of_chunk(&self) -> Result<(), AdminError> {
        Ok(FencedPool::end_balance_of_chunk(&self.0)?)
    }
}
