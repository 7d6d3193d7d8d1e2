//! Subvolumes and snapshots.

use crate::attributes::InodeId;
use crate::core::subvolume_hold::SubvolumeHold;
use crate::error::FsError;
use crate::filesystem::Filesystem;
use crate::new_inode::NewInode;
use crate::subvolume::change::NewSubvolume;
use crate::subvolume::{ReservedId, Subvolume};
use brindle_ondisk::{QgroupId, RootId, Uuid};

impl Filesystem {
    /// The path of a subvolume from the top level, whose own is empty; `None` for one that has lost its place.
    ///
    /// # Errors
    /// Trees that can't be read.
    pub fn path_of_subvolume(&self, id: RootId) -> Result<Option<Vec<u8>>, FsError> {
        self.parts.directories.path_of_subvolume(id)
    }

    /// Makes an empty subvolume, whose root directory is new. Of its surroundings it has only the compression that is
    /// set on the root of the subvolume around it, as the kernel makes them.
    pub fn create_subvolume(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<RootId, FsError> {
        self.create_subvolume_in(parent, name, new, &[])
    }

    /// The same, as part of quota groups.
    ///
    /// # Errors
    /// Those of [`create_subvolume`](Self::create_subvolume), groups that are not there, or of level 0, and quotas that are off.
    pub fn create_subvolume_in(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
        groups: &[QgroupId],
    ) -> Result<RootId, FsError> {
        self.parts.subvolumes.create_subvolume(parent, name, new, NewSubvolume { id: None, groups })
    }

    /// Reserves the id of a subvolume that is about to be made: what is to hold for it from its first moment on can be arranged
    /// before. One that is not used is lost until the pool is opened again.
    ///
    /// # Errors
    /// A pool that is not written, trees that can't be read, and ids that are used up.
    pub fn reserve_subvolume_id(&self) -> Result<ReservedId, FsError> {
        self.parts.subvolumes.reserve_id()
    }

    /// Makes an empty subvolume of a reserved id.
    ///
    /// # Errors
    /// Those of [`create_subvolume`](Self::create_subvolume).
    pub fn create_subvolume_as(
        &self,
        id: ReservedId,
        parent: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<RootId, FsError> {
        let identity = NewSubvolume { id: Some(id), groups: &[] };
        self.parts.subvolumes.create_subvolume(parent, name, new, identity)
    }

    /// Makes a snapshot of a subvolume as it is now, with what is dirty in memory, and commits.
    pub fn snapshot(
        &self,
        source: RootId,
        parent: InodeId,
        name: &[u8],
        read_only: bool,
    ) -> Result<RootId, FsError> {
        self.snapshot_in(source, parent, name, read_only, &[])
    }

    /// The same, as part of quota groups. Their numbers, and those of the source's groups, stay known only if both are in
    /// the same.
    ///
    /// # Errors
    /// Those of [`snapshot`](Self::snapshot), groups that are not there, or of level 0, and quotas that are off.
    pub fn snapshot_in(
        &self,
        source: RootId,
        parent: InodeId,
        name: &[u8],
        read_only: bool,
        groups: &[QgroupId],
    ) -> Result<RootId, FsError> {
        self.parts.subvolumes.snapshot(source, parent, name, read_only, NewSubvolume { id: None, groups })
    }

    /// Makes a writable snapshot of a reserved id.
    ///
    /// # Errors
    /// Those of [`snapshot`](Self::snapshot).
    pub fn snapshot_as(
        &self,
        id: ReservedId,
        source: RootId,
        parent: InodeId,
        name: &[u8],
    ) -> Result<RootId, FsError> {
        let identity = NewSubvolume { id: Some(id), groups: &[] };
        self.parts.subvolumes.snapshot(source, parent, name, false, identity)
    }

    /// Deletes the subvolume of this name, with all that it holds; refused while it holds other subvolumes. Its
    /// space comes back bit by bit, by [`background_step`](Self::background_step).
    pub fn delete_subvolume(&self, parent: InodeId, name: &[u8]) -> Result<(), FsError> {
        self.parts.subvolumes.delete_subvolume(parent, name)
    }

    /// Deletes a subvolume, wherever its name is.
    pub fn delete_subvolume_by_id(&self, id: RootId) -> Result<(), FsError> {
        self.parts.subvolumes.delete_subvolume_by_id(id)
    }

    /// Sets the subvolume that is entered when none is asked for.
    pub fn set_default_subvolume(&self, id: RootId) -> Result<(), FsError> {
        self.parts.subvolumes.set_default_subvolume(id)
    }

    /// Makes a subvolume read-only or writable. One that was received and becomes writable is no longer that which
    /// was received, and loses its received UUID.
    pub fn set_subvolume_read_only(&self, id: RootId, read_only: bool) -> Result<(), FsError> {
        self.parts.subvolumes.set_subvolume_read_only(id, read_only)
    }

    /// Every subvolume that has a place in the tree of subvolumes, by ascending id, the top level first.
    pub fn subvolumes(&self) -> Result<Vec<Subvolume>, FsError> {
        self.parts.subvolumes.subvolumes()
    }

    /// Returns true if a subvolume is read-only.
    pub fn is_subvolume_read_only(&self, id: RootId) -> Result<bool, FsError> {
        self.parts.subvolumes.is_subvolume_read_only(id)
    }

    /// The subvolume that is entered when none is asked for.
    pub fn default_subvolume(&self) -> Result<RootId, FsError> {
        self.parts.subvolumes.default_subvolume()
    }

    /// Ends the receiving of a subvolume: it becomes read-only, and has the UUID and the transaction that its sender told,
    /// all in one transaction, which is durable when this returns. A crash leaves either that, or a subvolume that is
    /// writable and was not received.
    ///
    /// # Errors
    /// A subvolume that is deleted or read-only, and writes that fail, or have failed before: contents of the subvolume are lost then.
    pub fn finish_received(&self, id: RootId, uuid: Uuid, transid: u64) -> Result<(), FsError> {
        self.parts.subvolumes.finish_received(id, uuid, transid)
    }

    /// Keeps a read-only subvolume from being made writable or deleted, as long as what this returns lasts; `None` if it is
    /// writable.
    ///
    /// # Errors
    /// A subvolume that is deleted, or not there.
    pub fn hold_subvolume(&self, id: RootId) -> Result<Option<SubvolumeHold>, FsError> {
        SubvolumeHold::of(self.parts.core.subvolume_state(id)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::attributes::InodeId;
    use crate::error::FsError;
    use crate::filesystem::{Filesystem, OpenOptions};
    use crate::new_inode::NewInode;
    use crate::write_options::WriteOptions;
    use brindle_care::mkfs::{MkfsOptions, NewDevice, mkfs};
    use brindle_device::{DeviceClass, SparseDevice, WritableDevice};
    use brindle_ondisk::{RootId, Uuid};
    use brindle_sim::InterruptedDevice;
    use std::sync::Arc;

    #[test]
    fn writes_beside_a_change_to_read_only_are_written_back_before_it() {
        for ends_receiving in [false, true] {
            let inner = SparseDevice::new("memory".to_owned(), 1 << 30, DeviceClass::Rotating);
            let device = Arc::new(InterruptedDevice::new(Arc::new(inner)));
            let devices = || vec![Arc::clone(&device) as Arc<dyn WritableDevice>];
            let options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
            mkfs(&[NewDevice::new(devices().remove(0))], &options).expect("a pool");
            let options = (OpenOptions::default(), WriteOptions::default());
            let fs = Arc::new(Filesystem::open_writable(devices(), &options.0, &options.1).expect("opens"));
            let id = fs.create_subvolume(fs.root(), b"in", &NewInode::default()).expect("room");
            let new = NewInode { mode: 0o100_644, ..NewInode::default() };
            let [first, meanwhile] = [&b"first"[..], b"meanwhile"]
                .map(|name| fs.create_open(InodeId::root_of(id), name, &new).expect("room").1);
            fs.sync().expect("durable");
            let (bytes, other, number) = (vec![7; 100_000], Arc::clone(&fs), meanwhile.id());
            fs.write(&first, 0, &bytes).expect("room");
            device.before_next_write(move || {
                other.write(&meanwhile, 0, &[8; 100_000]).expect("it is writable still");
                other.close_file(meanwhile).expect("closes");
            });
            if ends_receiving {
                fs.finish_received(id, Uuid([7; 16]), 5).expect("whole");
            } else {
                fs.set_subvolume_read_only(id, true).expect("writable");
            }
            assert!(!device.is_waiting(), "it was written meanwhile");
            let of_subvolume = |tree: RootId| {
                let dirty = fs.parts.data.context.dirty_files();
                dirty.into_iter().map(|inode| inode.id()).filter(|id| id.tree == tree).collect::<Vec<_>>()
            };
            assert_eq!(of_subvolume(id), [], "of {number:?}, received: {ends_receiving}");
            fs.close_file(first).expect("closes");
        }
    }

    #[test]
    fn a_subvolume_that_has_lost_contents_is_not_marked_as_received() {
        let device = SparseDevice::new("memory".to_owned(), 1 << 30, DeviceClass::Rotating);
        let device = Arc::new(device) as Arc<dyn WritableDevice>;
        let options = MkfsOptions::new(Uuid([0x5e; 16]), [9; 16], 1_700_000_000);
        mkfs(&[NewDevice::new(Arc::clone(&device))], &options).expect("a pool");
        let fs = Filesystem::open_writable(vec![device], &OpenOptions::default(), &WriteOptions::default());
        let fs = fs.expect("opens");
        let new = NewInode { mode: 0o100_644, ..NewInode::default() };
        let [lost, whole] = [&b"lost"[..], b"whole"].map(|name| {
            let id = fs.create_subvolume(fs.root(), name, &NewInode::default()).expect("room");
            let root = InodeId::root_of(id);
            (id, fs.create(root, b"file", &new).expect("room").id)
        });
        let why = Arc::new(FsError::NotFound(b"what was to be written".to_vec()));
        fs.parts.data.context.note_loss(&fs.parts.core.inode(lost.1), &why);
        fs.sync().expect_err("told once, to whoever syncs everything");
        fs.sync().expect("told once");
        let error = fs.finish_received(lost.0, Uuid([7; 16]), 5).expect_err("contents are lost");
        assert!(matches!(error, FsError::WriteBack { file, .. } if file == lost.1), "{error}");
        fs.finish_received(whole.0, Uuid([8; 16]), 5).expect("another subvolume");
        let received: Vec<_> =
            fs.subvolumes().expect("readable").into_iter().map(|one| one.received_uuid).collect();
        assert!(!received.contains(&Uuid([7; 16])), "{received:?}");
        assert!(received.contains(&Uuid([8; 16])), "{received:?}");
    }
}
