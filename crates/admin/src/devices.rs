//! The devices of a pool that the kernel has mounted.

use crate::call;
use crate::control::{ControlError, Mounted};
use brindle_ondisk::DevId;
use brindle_uapi::message::{
    self, DeviceInfo, DeviceReport, DeviceStart, REMOVE_BY_ID, VolumeArguments, VolumeArgumentsV2,
};
use brindle_uapi::verb;
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use zerocopy::FromZeros;

/// Answer to a resize, as a number and not as an error, while something else is under way
/// (`BTRFS_ERROR_DEV_EXCL_RUN_IN_PROGRESS`).
const IN_PROGRESS: i32 = 8;

/// Name of the command for a change of devices of a mount of brindle.
pub(crate) fn name_of_change(change: u64) -> &'static str {
    match change {
        message::DEVICE_ADD => "device add",
        message::DEVICE_REMOVE => "device remove",
        message::DEVICE_REPLACE => "device replace",
        message::DEVICE_REJOIN => "device rejoin",
        _ => "filesystem resize",
    }
}

impl Mounted {
    /// Facts about a device; `None` if there is none of this id.
    pub fn device(&self, devid: DevId) -> Result<Option<DeviceInfo>, ControlError> {
        let mut info = DeviceInfo { devid: devid.get(), ..DeviceInfo::new_zeroed() };
        match call::update::<verb::DescribeDevice>(&self.file, &mut info) {
            Ok(()) => Ok(Some(info)),
            Err(Errno::NODEV) => Ok(None),
            Err(error) => Err(self.refused("device", error)),
        }
    }

    /// Gives a device another size. What lies beyond the new end is moved first.
    pub fn resize_device(&self, devid: DevId, bytes: u64) -> Result<(), ControlError> {
        self.resize_device_to(devid, &bytes.to_string())
    }

    /// The same, in the kernel's words: bytes, with a sign if they are more or less, or `max`.
    pub fn resize_device_to(&self, devid: DevId, size: &str) -> Result<(), ControlError> {
        let what = "resize a device (root may)";
        let name = message::field(format!("{devid}:{size}").as_bytes());
        let name = name.ok_or_else(|| self.refused(what, Errno::NAMETOOLONG))?;
        let mut arguments = VolumeArguments { fd: 0, name };
        let answer = call::ask::<verb::Resize>(&self.file, &mut arguments);
        let refusal = match answer {
            Err(Errno::FBIG) => "a size beyond the end of the device",
            Err(Errno::INVAL) => "a size that no device can have: the least is 256 MiB",
            Err(Errno::NOSPC) => "a size that is too small for what the pool holds",
            _ => what,
        };
        match self.explain(refusal, answer)? {
            IN_PROGRESS => Err(ControlError::Busy { path: self.path.clone(), what }),
            _ => Ok(()),
        }
    }

    /// Adds a device, on which nothing must be that could be taken for a filesystem.
    pub fn add_device(&self, device: &Path) -> Result<(), ControlError> {
        let what = "add a device (root may)";
        let name = message::field(device.as_os_str().as_bytes());
        let name = name.ok_or_else(|| self.refused(what, Errno::NAMETOOLONG))?;
        let mut arguments = VolumeArguments { fd: 0, name };
        let answer = call::ask::<verb::AddDevice>(&self.file, &mut arguments);
        self.unless_in_progress(what, answer)
    }

    /// Removes a device, or the first that is missing; returns when everything on it lies elsewhere.
    pub fn remove_device(&self, devid: Option<DevId>) -> Result<(), ControlError> {
        let what = "remove a device (root may)";
        let mut arguments = VolumeArgumentsV2::new_zeroed();
        match devid {
            Some(devid) => {
                arguments.flags = REMOVE_BY_ID;
                arguments.name[..8].copy_from_slice(&devid.get().to_ne_bytes());
            }
            None => arguments.name = message::field(b"missing").expect("shorter than the field"),
        }
        let answer = call::ask::<verb::RemoveDevice>(&self.file, &mut arguments);
        self.unless_in_progress(what, answer)
    }

    fn unless_in_progress(&self, what: &'static str, answer: Result<i32, Errno>) -> Result<(), ControlError> {
        match self.explain(what, answer)? {
            0 => Ok(()),
            IN_PROGRESS => Err(ControlError::Busy { path: self.path.clone(), what }),
            // Too few devices would be left for a profile, or none that can be written.
            _ => Err(ControlError::TooFewDevices { path: self.path.clone() }),
        }
    }
}

/// Requests to a mount of ours; it does the work itself.
impl Mounted {
    /// Has it begin a change of devices.
    pub fn start_device_change(&self, start: DeviceStart) -> Result<(), ControlError> {
        let what = "change of devices";
        match call::set::<verb::StartDeviceChange>(&self.file, start) {
            Err(Errno::INPROGRESS) => Err(ControlError::Busy { path: self.path.clone(), what }),
            answer => self.explain(what, answer),
        }
    }

    /// Has it stop; what was moved stays moved. False if there is none.
    pub fn stop_device_change(&self) -> Result<bool, ControlError> {
        match call::set::<verb::StopDeviceChange>(&self.file, 0) {
            Err(Errno::NOTCONN) => Ok(false),
            answer => self.explain("stop a change of devices", answer).map(|()| true),
        }
    }

    /// Progress of a change of devices.
    pub fn device_report(&self) -> Result<DeviceReport, ControlError> {
        let answer = call::get::<verb::ReportDeviceChange>(&self.file);
        self.explain("state of a change of devices", answer)
    }
}
