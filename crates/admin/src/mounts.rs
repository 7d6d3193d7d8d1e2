//! The mount of a pool, found in the kernel's table of mounts.

use crate::control::Mounted;
use brindle_ondisk::Uuid;
use brindle_uapi::mount_table::{self, KERNEL_TYPE, Mount};

impl Mounted {
    /// The mount of a pool, wherever that is: one of the kernel, or else one of brindle. `None` if the pool is not mounted,
    /// as far as the caller sees.
    pub fn find(fsid: &Uuid) -> Option<Self> {
        let mounts = mount_table::read().ok()?;
        // A place may be hidden by another mount, or closed to the caller.
        let is_it = |mounted: &Self| mounted.filesystem().is_ok_and(|info| info.fsid == fsid.0);
        let at = |places: &[&Mount]| {
            places.iter().filter_map(|mount| Self::open(&mount.mountpoint).ok()).find(is_it)
        };
        let of_kernel: Vec<_> = mounts.iter().filter(|mount| mount.kind == KERNEL_TYPE).collect();
        let ours: Vec<_> = mounts.iter().filter(|mount| mount.is_ours()).collect();
        at(&of_kernel).or_else(|| at(&ours))
    }
}
