//! The volume: a pool's devices behind one logical address space.

use crate::pool::Pool;
use crate::scan::{self, OpenOptions, UnusedDevice};
use crate::{ChunkStatus, DeviceStatus, StripeStatus, VolumeError, Warning};
use brindle_device::Device;
use brindle_ondisk::item::{Chunk, DevItem};
use brindle_ondisk::{Logical, Superblock, TreeContext};
use std::sync::{Arc, PoisonError, RwLock};

/// A pool's devices behind one logical address space.
///
/// Opening registers the system chunks of the superblock. Whoever reads the chunk tree then gives each
/// device item to [`Volume::add_device`], each chunk to [`Volume::add_chunk`], and ends with
/// [`Volume::check_complete`].
#[derive(Debug)]
pub struct Volume {
    superblock: Arc<Superblock>,
    context: TreeContext,
    degraded: bool,
    pool: RwLock<Arc<Pool>>,
}

impl Volume {
    /// Finds the pool among devices in any order, more than needed: what belongs elsewhere is left alone
    /// and listed by [`Volume::unused_devices`]. Every copy of each superblock is read, and a device's valid
    /// copy of highest generation counts; the pool's superblock is that of highest generation, among equals
    /// of lowest devid.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self, VolumeError> {
        let scan = scan::scan(devices, options)?;
        let superblock = Arc::clone(&scan.superblock);
        let mut context = TreeContext::new(&superblock);
        let seeds = scan.strangers.iter().filter(|found| found.superblock.is_seeding());
        context.seed_uuids = seeds.map(|found| found.superblock.tree_uuid()).collect();
        let mut pool = Pool::new(scan);
        for chunk in superblock.system_chunks() {
            let at = Logical::new(superblock.chunk_root.get());
            let (key, chunk) = chunk.map_err(|defect| VolumeError::Chunk { start: at, defect })?;
            pool.add_chunk(Logical::new(key.offset()), &chunk)?;
        }
        Ok(Self { superblock, context, degraded: options.degraded, pool: RwLock::new(Arc::new(pool)) })
    }

    /// The pool's superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// What of the superblock decides how a tree block must look.
    pub fn tree_context(&self) -> &TreeContext {
        &self.context
    }

    /// What opening survived.
    pub fn warnings(&self) -> Vec<Warning> {
        self.snapshot().warnings.clone()
    }

    /// Devices that were given and are not used.
    pub fn unused_devices(&self) -> Vec<UnusedDevice> {
        self.snapshot().unused()
    }

    /// Adds a chunk of the chunk tree. One that is known already, such as the superblock's, changes nothing;
    /// one that overlaps another is refused, and so is one that can't be read because its devices end
    /// before it.
    pub fn add_chunk(&self, start: Logical, chunk: &Chunk<'_>) -> Result<(), VolumeError> {
        self.change(|pool| pool.add_chunk(start, chunk))
    }

    /// Adds a device of the chunk tree: finds it among the devices given, seeds included, or notes that it
    /// is missing.
    pub fn add_device(&self, item: &DevItem) -> Result<(), VolumeError> {
        self.change(|pool| {
            pool.add_device(item);
            Ok(())
        })
    }

    /// After the chunk tree has been read: whether every chunk can be, and whether there is every device
    /// (or the pool was opened degraded).
    pub fn check_complete(&self) -> Result<(), VolumeError> {
        self.change(|pool| pool.check_complete(self.degraded))
    }

    /// The chunks known so far, by address.
    pub fn chunks(&self) -> Vec<ChunkStatus> {
        let pool = self.snapshot();
        let status = |chunk: &crate::chunk::Chunk| ChunkStatus {
            start: chunk.start,
            length: chunk.length,
            kind: chunk.kind,
            stripes: chunk
                .stripes
                .iter()
                .map(|stripe| StripeStatus {
                    devid: stripe.devid,
                    physical: stripe.physical,
                    length: chunk.stripe_length(),
                    present: pool.devices[stripe.device].device.is_some(),
                })
                .collect(),
        };
        pool.chunks.iter().map(status).collect()
    }

    /// The pool's devices known so far, by devid.
    pub fn devices(&self) -> Vec<DeviceStatus> {
        let pool = self.snapshot();
        let members = pool.devices.iter().filter(|device| !device.is_intruder);
        let mut devices: Vec<DeviceStatus> = members
            .map(|device| DeviceStatus {
                devid: device.devid,
                uuid: device.uuid,
                name: device.name(),
                total_bytes: device.total_bytes,
                bytes_used: device.bytes_used,
                missing: device.device.is_none(),
                is_seed: device.is_seed,
                is_stale: device.is_stale,
                is_rotating: device.is_rotating(),
                generation: device.generation,
                counters: device.counters.snapshot(),
            })
            .collect();
        devices.sort_by_key(|device| device.devid);
        devices
    }

    /// The pool as it is known now; what is added later doesn't change it.
    pub(crate) fn snapshot(&self) -> Arc<Pool> {
        Arc::clone(&self.pool.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the pool in place, or a copy of it if somebody is reading.
    fn change<T>(&self, change: impl FnOnce(&mut Pool) -> T) -> T {
        let mut pool = self.pool.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut pool))
    }
}
