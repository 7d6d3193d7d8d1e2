//! Subvolumes of a mounted filesystem: made, deleted, and changed as a whole.

use super::{ControlError, Kind, Mounted, SubvolumeRecord, named, numbers};
use crate::call;
use brindle_ondisk::QgroupId;
use brindle_uapi::message::{
    self, BY_ID, KernelReceived, READ_ONLY, SnapshotRequest, SubvolumeInfo, SubvolumePage, VolumeArgumentsV2,
};
use brindle_uapi::verb;
use std::os::fd::AsRawFd;
use zerocopy::FromZeros;

impl Mounted {
    /// Makes a subvolume in this directory.
    pub fn create_subvolume(&self, name: &[u8]) -> Result<(), ControlError> {
        self.create_subvolume_in(name, &[])
    }

    /// Makes a subvolume in this directory, as part of quota groups.
    pub fn create_subvolume_in(&self, name: &[u8], groups: &[QgroupId]) -> Result<(), ControlError> {
        let answer = match self.kind {
            // FUSE does not hand on what a pointer leads to.
            Kind::Brindle if !groups.is_empty() => self.make_in(0, 0, name, groups)?,
            _ => call::set_with_groups::<verb::SubvolumeCreateV2>(
                &self.file,
                named(name, 0)?,
                &numbers(groups),
            ),
        };
        self.explain("make a subvolume", answer)
    }

    /// Has brindle make a snapshot of the subvolume whose root is this inode, or an empty subvolume.
    fn make_in(
        &self,
        source: u64,
        flags: u64,
        name: &[u8],
        groups: &[QgroupId],
    ) -> Result<rustix::io::Result<()>, ControlError> {
        let name = message::field(name).ok_or_else(|| ControlError::Name(name.to_vec()))?;
        let mut request = SnapshotRequest { source, flags, groups: [0; 32], name };
        let places = request.groups.get_mut(..groups.len()).ok_or(ControlError::TooManyGroups)?;
        places.copy_from_slice(&numbers(groups));
        Ok(call::set::<verb::Snapshot>(&self.file, request))
    }

    /// Makes a snapshot of a subvolume in this directory.
    pub fn snapshot(&self, source: &Self, name: &[u8], is_read_only: bool) -> Result<(), ControlError> {
        self.snapshot_in(source, name, is_read_only, &[])
    }

    /// Makes a snapshot of a subvolume in this directory, as part of quota groups.
    pub fn snapshot_in(
        &self,
        source: &Self,
        name: &[u8],
        is_read_only: bool,
        groups: &[QgroupId],
    ) -> Result<(), ControlError> {
        let what = "make a snapshot";
        let stat = source.subvolume_root()?;
        // What the kernel holds back of the source is to be in the snapshot.
        self.explain(what, source.hand_over())?;
        let flags = if is_read_only { READ_ONLY } else { 0 };
        let answer = match self.kind {
            Kind::Brindle => self.make_in(stat, flags, name, groups)?,
            Kind::Kernel => {
                let mut arguments = named(name, flags)?;
                arguments.fd = source.file.as_raw_fd().into();
                call::set_with_groups::<verb::SnapshotCreateV2>(&self.file, arguments, &numbers(groups))
            }
        };
        self.explain(what, answer)
    }

    /// Deletes the subvolume of this name in this directory.
    pub fn delete_subvolume(&self, name: &[u8]) -> Result<(), ControlError> {
        let arguments = named(name, 0)?;
        let answer = call::set::<verb::SnapshotDestroyV2>(&self.file, arguments);
        self.explain("delete the subvolume", answer)
    }

    /// Deletes the subvolume of this id, wherever it is in the pool.
    pub fn delete_subvolume_by_id(&self, id: u64) -> Result<(), ControlError> {
        let mut arguments = VolumeArgumentsV2 { flags: BY_ID, ..VolumeArgumentsV2::new_zeroed() };
        arguments.name[..size_of::<u64>()].copy_from_slice(&id.to_ne_bytes());
        let answer = call::set::<verb::SnapshotDestroyV2>(&self.file, arguments);
        self.explain("delete the subvolume", answer)
    }

    /// Returns true if it is the root of a subvolume.
    pub fn is_subvolume_root(&self) -> bool {
        self.subvolume_root().is_ok()
    }

    /// Facts about the subvolume that this lies in.
    pub fn subvolume(&self) -> Result<SubvolumeInfo, ControlError> {
        let answer = call::get::<verb::DescribeSubvolume>(&self.file);
        self.explain("subvolume", answer)
    }

    /// Returns true if the subvolume of which this is the root is read-only.
    pub fn is_read_only(&self) -> Result<bool, ControlError> {
        let answer = call::get::<verb::SubvolumeGetFlags>(&self.file);
        Ok(self.explain("subvolume flags", answer)? & READ_ONLY != 0)
    }

    /// Makes the subvolume of which this is the root read-only, or writable. One that is made writable is not marked as
    /// received any more, or streams would build on contents that are not those of their parent.
    pub fn set_read_only(&self, is_read_only: bool) -> Result<(), ControlError> {
        let what = "subvolume flags";
        // What the kernel holds back could not be written any more.
        self.explain(what, self.hand_over())?;
        let flags = if is_read_only { READ_ONLY } else { 0 };
        let answer = call::set::<verb::SubvolumeSetFlags>(&self.file, flags);
        self.explain(what, answer)?;
        // A mount of brindle takes the mark away in the same transaction; the kernel does for writable subvolumes alone.
        if !is_read_only && self.is_of_kernel() && self.is_received()? {
            let answer = call::update::<verb::MarkReceived>(&self.file, &mut KernelReceived::new_zeroed());
            self.explain("mark as received", answer)?;
        }
        Ok(())
    }

    /// Returns true if the subvolume is marked as received.
    pub fn is_received(&self) -> Result<bool, ControlError> {
        Ok(self.subvolume()?.received_uuid != [0; 16])
    }

    /// Makes a subvolume the one that is mounted if none is named.
    pub fn set_default_subvolume(&self, id: u64) -> Result<(), ControlError> {
        let answer = call::set::<verb::DefaultSubvolume>(&self.file, id);
        self.explain("set the default subvolume", answer)
    }

    /// All subvolumes and the id of the default one; of a mount of ours.
    pub fn subvolumes(&self) -> Result<(Vec<SubvolumeRecord>, u64), ControlError> {
        let what = "list subvolumes";
        if self.kind == Kind::Kernel {
            return Err(ControlError::KernelMount { path: self.path.clone(), what });
        }
        let mut found: Vec<SubvolumeRecord> = Vec::new();
        let mut page = SubvolumePage::empty(0);
        loop {
            let answer = call::update::<verb::ListSubvolumes>(&self.file, &mut page);
            self.explain(what, answer)?;
            let before = found.len();
            found.extend(page.iter().map(|(info, path)| SubvolumeRecord { info, path: path.to_vec() }));
            match found.last() {
                Some(last) if found.len() > before && last.info.id > page.after => page.after = last.info.id,
                _ => return Ok((found, page.default_subvolume)),
            }
            page.used = 0;
        }
    }
}
