//! An opened filesystem: a pool, and the subvolume that it is entered by.

use crate::attributes::InodeId;
use crate::core::inodes::Inode;
use crate::core::{Core, WriteState};
use crate::error::FsError;
use crate::filesystem::parts::Parts;
use crate::relocation::end_relocations;
use crate::replay::replay_log;
use crate::subvolume::SubvolumeChoice;
use crate::write_options::WriteOptions;
use brindle_device::{Device, OverlayDevice, WritableDevice};
use brindle_tree::{Pool, WriterOptions};
use std::sync::Arc;

/// The most that the replay of a log in memory writes to a device, in bytes.
const REPLAYED_BYTES_MAX: usize = 1 << 30;

/// Options of opening a filesystem.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Options of the pool.
    pub pool: brindle_tree::OpenOptions,
    /// Subvolume that becomes the root.
    pub subvolume: SubvolumeChoice,
}

/// A filesystem, read and (if it was opened for that) written by many threads at once. Its methods hand on to parts, which
/// the crate's text draws.
#[derive(Debug)]
pub struct Filesystem {
    parts: Parts,
    /// The directory that is entered.
    root: InodeId,
    warnings: Vec<String>,
}

mod bulk;
mod contents;
mod durability;
mod inodes;
mod names;
mod parts;
mod settings;
mod subvolumes;
mod upkeep;

impl Filesystem {
    /// Opens the pool that lies on `devices`, given in any order.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self, FsError> {
        let pool = Pool::open(devices, &options.pool)?;
        let lost = pool.volume().lost_metadata();
        Self::new(pool, options, None).map_err(|error| match lost {
            Some(lost) if error.lacks_devices() => lost.into(),
            _ => error,
        })
    }

    /// Opens the pool that lies on `devices`, given in any order, to read and write it.
    pub fn open_writable(
        devices: Vec<Arc<dyn WritableDevice>>,
        options: &OpenOptions,
        write: &WriteOptions,
    ) -> Result<Self, FsError> {
        Self::open_to_write(devices, options, write, &write.for_pool())
    }

    /// Opens the pool to write it, and ends a replacement that the kernel was interrupted in, with the first commit.
    pub fn open_ending_replacement(
        devices: Vec<Arc<dyn WritableDevice>>,
        options: &OpenOptions,
        write: &WriteOptions,
    ) -> Result<Self, FsError> {
        let writer = WriterOptions { cancels_replacement: true, ..write.for_pool() };
        Self::open_to_write(devices, options, write, &writer)
    }

    /// Opens the pool that lies on `devices`, given in any order, to read it with what its log says. Nothing is
    /// written to the devices: the log is replayed in memory. For pools that can't be written, such as one with a
    /// replacement that the kernel has to end.
    pub fn open_replayed(
        devices: Vec<Arc<dyn Device>>,
        options: &OpenOptions,
        write: &WriteOptions,
    ) -> Result<Self, FsError> {
        let overlay = |device| Arc::new(OverlayDevice::new(device, REPLAYED_BYTES_MAX));
        let overlays: Vec<Arc<OverlayDevice>> = devices.into_iter().map(overlay).collect();
        let write = WriteOptions { discard: false, ..write.clone() };
        let transient = WriterOptions { is_transient: true, ..write.for_pool() };
        let writable = overlays.iter().map(|device| Arc::clone(device) as Arc<dyn WritableDevice>);
        // The replay is a commit of its own.
        drop(Self::open_to_write(writable.collect(), options, &write, &transient)?);
        Self::open(overlays.into_iter().map(|device| device as Arc<dyn Device>).collect(), options)
    }

    fn open_to_write(
        devices: Vec<Arc<dyn WritableDevice>>,
        options: &OpenOptions,
        write: &WriteOptions,
        writer: &WriterOptions,
    ) -> Result<Self, FsError> {
        let pool = Pool::open_writable(devices, &options.pool, writer)?;
        if let Some((tree, source)) = pool.damaged_trees().into_iter().next() {
            return Err(FsError::DamagedTree { tree, source: Box::new(source) });
        }
        if writer.cancels_replacement {
            pool.cancel_replacement()?;
        }
        let mut write = write.clone();
        if write.small_file_bytes.is_none() {
            write.small_file_bytes = Some(pool.settings()?.small_file_bytes);
        }
        let state = WriteState::new(write);
        Self::new(pool, options, Some(state))
    }

    fn new(pool: Pool, options: &OpenOptions, write: Option<WriteState>) -> Result<Self, FsError> {
        let mut warnings: Vec<String> = pool.volume().warnings().iter().map(ToString::to_string).collect();
        if write.is_none() && pool.has_log() {
            warnings.push(
                "the pool has a log, which is replayed when the pool is mounted and can be written: until then, what \
                 was fsynced after the last commit is not shown"
                    .to_owned(),
            );
        }
        pool.check_root_tree()?;
        warnings.extend(crate::read::rescue::warnings(&pool));
        let write_options = write.as_ref().map(|write| write.options.clone()).unwrap_or_default();
        let parts = Parts::new(Core::new(pool, write), &write_options);
        if !parts.core.is_only_read() {
            replay_log(&parts.core, &parts.extents, &parts.directories)
                .map_err(|error| FsError::Log(Box::new(error)))?;
            if !parts.core.pool().is_transient() {
                end_relocations(&parts.core, &parts.orphans)
                    .map_err(|error| FsError::Relocation(Box::new(error)))?;
            }
        }
        let root = parts.subvolumes.choose_root(&options.subvolume)?;
        Ok(Self { parts, root, warnings })
    }

    /// The root directory.
    pub fn root(&self) -> InodeId {
        self.root
    }

    /// Makes another subvolume the root.
    ///
    /// # Errors
    /// [`FsError::NoSubvolume`] and trees that can't be read.
    pub fn choose_subvolume(&mut self, choice: &SubvolumeChoice) -> Result<(), FsError> {
        self.root = self.parts.subvolumes.choose_root(choice)?;
        Ok(())
    }

    /// The trees below.
    pub fn pool(&self) -> &Pool {
        self.parts.core.pool()
    }

    /// Returns true if anything can be changed; false from the first error on that left a commit undone.
    pub fn is_writable(&self) -> bool {
        self.parts.core.is_writable()
    }

    /// Warnings for users: damaged superblocks, missing devices, a log that is not replayed.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The inode in memory, shared by all its users. Its existence in the pool is not checked.
    pub fn inode(&self, id: InodeId) -> Arc<Inode> {
        self.parts.core.inode(id)
    }

    /// Panics unless counts of dirty contents and of space agree with recounts: a costly check, for tests. No other
    /// thread uses the filesystem meanwhile. Of a pool whose writing has ended, nothing is asked.
    pub fn verify(&self) {
        self.parts.data.verify();
    }
}
