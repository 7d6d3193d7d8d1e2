//! The devices of a pool that the kernel has mounted.

use crate::call;
use crate::control::{ControlError, Mounted};
use crate::message::{self, DeviceInfo, VolumeArguments};
use crate::number;
use brindle_ondisk::DevId;
use rustix::io::Errno;
use zerocopy::FromZeros;

/// What a resize answers, as a number and not as an error, while something else is under way
/// (`BTRFS_ERROR_DEV_EXCL_RUN_IN_PROGRESS`).
const IN_PROGRESS: i32 = 8;

impl Mounted {
    /// What there is to know of a device; none of this id is `None`.
    pub fn device(&self, devid: DevId) -> Result<Option<DeviceInfo>, ControlError> {
        let mut info = DeviceInfo { devid: devid.get(), ..DeviceInfo::new_zeroed() };
        match call::update::<{ number::DEVICE_INFO }, DeviceInfo>(&self.file, &mut info) {
            Ok(()) => Ok(Some(info)),
            Err(Errno::NODEV) => Ok(None),
            Err(error) => Err(self.refused("device", error)),
        }
    }

    /// Gives a device another size. What lies beyond the new end is moved first.
    pub fn resize_device(&self, devid: DevId, bytes: u64) -> Result<(), ControlError> {
        let what = "resize a device (root may)";
        let text = format!("{devid}:{bytes}");
        let name = message::field(text.as_bytes()).expect("two numbers are shorter than the field");
        let arguments = VolumeArguments { fd: 0, name };
        match self.explain(what, call::ask::<{ number::RESIZE }, VolumeArguments>(&self.file, &arguments))? {
            IN_PROGRESS => Err(ControlError::Busy { path: self.path.clone(), what }),
            _ => Ok(()),
        }
    }
}
