//! The mount of a pool, found in the kernel's table of mounts. Each mount of it is asked, so that the caller leaves out those whose server
//! does not answer.

use crate::control::Mounted;
use crate::pool::DeviceIdentity;
use brindle_ondisk::{DevId, Uuid};
use brindle_uapi::message::text;
use brindle_uapi::mount_table::{KERNEL_TYPE, Mount};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Mounted {
    /// The mount of a pool, wherever that is: one of the kernel, or else one of brindle. `None` if the pool is not among these
    /// mounts.
    pub fn find(mounts: &[Mount], fsid: &Uuid) -> Option<Self> {
        // A place may be hidden by another mount, or closed to the caller.
        let is_it = |mounted: &Self| mounted.filesystem().is_ok_and(|info| info.fsid == fsid.0);
        let at = |places: &[&Mount]| {
            places.iter().filter_map(|mount| Self::open(&mount.mountpoint).ok()).find(is_it)
        };
        let of_kernel: Vec<_> = mounts.iter().filter(|mount| mount.kind == KERNEL_TYPE).collect();
        let ours: Vec<_> = mounts.iter().filter(|mount| mount.is_ours()).collect();
        at(&of_kernel).or_else(|| at(&ours))
    }

    /// The mount that has a device, one of brindle or of the kernel, and the id of the device; `None` without one among these mounts.
    /// A copy of a device that is mounted is none of its mount.
    pub fn with_device(mounts: &[Mount], device: &Path) -> Option<(Self, DevId)> {
        Self::serving(mounts, device).or_else(|| {
            let identity = DeviceIdentity::read(device).ok()??;
            let mounted = Self::find(mounts, &identity.fsid).filter(Self::is_of_kernel)?;
            let devid = mounted.devid_at(&device.canonicalize().ok()?)?;
            Some((mounted, devid))
        })
    }

    /// The mount of brindle that has a device, and the id of the device; `None` without one among these mounts.
    pub fn serving(mounts: &[Mount], device: &Path) -> Option<(Self, DevId)> {
        let device = device.canonicalize().ok()?;
        mounts.iter().filter(|mount| mount.is_ours()).find_map(|mount| {
            let mounted = Self::open(&mount.mountpoint).ok()?;
            let devid = mounted.devid_at(&device)?;
            Some((mounted, devid))
        })
    }

    /// Id of the device of this canonical path.
    fn devid_at(&self, device: &Path) -> Option<DevId> {
        let is_it =
            |path: &[u8]| Path::new(OsStr::from_bytes(path)).canonicalize().is_ok_and(|path| path == device);
        let infos = self.device_infos().ok()?;
        Some(DevId::new(infos.iter().find(|info| is_it(text(&info.path)))?.devid))
    }
}
