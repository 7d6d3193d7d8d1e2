//! Making durable what was written, and the superblocks that make it count.

use crate::device::{FailedFlush, PoolDevice, count};
use crate::lost_writes::Places;
use crate::pool::Pool;
use crate::{DeviceSet, Volume, WriteError};
use brindle_device::{DeviceError, WritableDevice};
use brindle_ondisk::item::DevItem;
use brindle_ondisk::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, to_u64};
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::IntoBytes;

/// Choice of the copies of the superblock to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockCopies {
    /// All that the device has room for.
    All,
    /// The first of each device: a commit, and a log that was synced.
    First,
    /// All but the first: what follows a commit once the first ones are durable, so that no crash can tear all
    /// copies of a device at once.
    Others,
}

impl Volume {
    /// Makes durable everything that was written to the devices of a set before, on all of them at the same time. Devices
    /// may fail as long as every chunk can be read without them. Unflushed writes of other devices stay
    /// [unflushed](Self::unflushed_devices).
    pub fn flush(&self, set: &DeviceSet) -> Result<(), WriteError> {
        if !self.is_writable() {
            return Err(WriteError::ReadOnly);
        }
        self.check_flushed()?;
        let pool = self.snapshot();
        let failed = on_each(&pool, set, |member, device| {
            member.flush(device).inspect_err(|failed| {
                tracing::warn!("{}", failed.error);
                count(&member.counters.flush_errors);
            })
        });
        let (lost, failures) = split_failures(failed);
        if self.bear(&pool, lost) { Ok(()) } else { Err(WriteError::Flush { failures }) }
    }

    /// Refuses if a flush has failed that the pool could not do without.
    fn check_flushed(&self) -> Result<(), WriteError> {
        match self.unflushed.get() {
            Some(devices) => Err(WriteError::Unflushed { devices: devices.clone() }),
            None => Ok(()),
        }
    }

    /// Takes note of failed flushes: of what was lost by each device, if every chunk can be read without these; returns
    /// false if not. Then there may be no good copy, and no later flush means anything.
    fn bear(&self, pool: &Pool, lost: Vec<(usize, Places)>) -> bool {
        let failed: Vec<usize> = lost.iter().map(|(index, _)| *index).collect();
        if !tolerates(pool, &failed, &[]) {
            let names = failed.iter().map(|index| pool.devices[*index].name());
            // The first such failure tells enough.
            let _ = self.unflushed.set(names.collect());
            return false;
        }
        for (index, places) in lost {
            pool.devices[index].lost_writes.absorb(&places);
        }
        true
    }

    /// The writable devices that have taken writes since their last flush, or were not flushed since the pool was opened:
    /// the others need no flush, but for copies of the superblock behind the first, which do not count here. What is being
    /// written while this is asked may be missing.
    pub fn unflushed_devices(&self) -> DeviceSet {
        let pool = self.snapshot();
        let unflushed = |member: &&PoolDevice| member.writable.is_some() && member.durability.is_unflushed();
        pool.devices.iter().filter(unflushed).map(|member| member.devid).collect()
    }

    /// Writes all copies of a superblock to the devices that have never had one, and makes them durable: no
    /// superblock on disk may refer to a device that has none. One that fails is met again with the others.
    pub fn introduce_devices(&self, template: &Superblock, device_items: &[DevItem]) {
        let pool = self.snapshot();
        let behind = pool.behind();
        on_each(&pool, &DeviceSet::ALL, |member, device| {
            let is_behind = behind.iter().any(|index| pool.devices[*index].devid == member.devid);
            let given = device_items.iter().find(|item| item.devid == member.devid);
            let Some(item) = given.filter(|_| member.is_new() && !is_behind) else { return Ok(()) };
            let written = write_copies(template, item, member, device, SuperblockCopies::All);
            let durable = written.and_then(|()| {
                member.flush(device).map_err(|failed| {
                    member.lost_writes.absorb(&failed.doubtful);
                    failed.error
                })
            });
            durable.inspect_err(|error| {
                tracing::warn!("{error}");
                count(&member.counters.write_errors);
            })
        });
    }

    /// Writes a superblock to every device, on all of them at the same time: each with its own device item (as
    /// given; devices that are not among those given keep what they have), its place and its checksum. Devices
    /// that are behind get none; others may fail as long as every chunk can be read without all of these.
    /// Afterwards the pool's superblock is this one.
    pub fn write_superblocks(
        &self,
        template: &Superblock,
        device_items: &[DevItem],
        copies: SuperblockCopies,
    ) -> Result<(), WriteError> {
        if !self.is_writable() {
            return Err(WriteError::ReadOnly);
        }
        self.check_flushed()?;
        let pool = self.snapshot();
        let behind = pool.behind();
        let failed = on_each(&pool, &DeviceSet::ALL, |member, device| {
            if behind.iter().any(|index| pool.devices[*index].devid == member.devid) {
                return Ok(());
            }
            // Its first superblock is not one of before it joined.
            if copies == SuperblockCopies::Others && member.is_new() {
                return Ok(());
            }
            member.superblock_generation.fetch_max(template.generation.get(), Relaxed);
            let given = device_items.iter().find(|item| item.devid == member.devid);
            let written = write_copies(template, given.unwrap_or(&member.item), member, device, copies);
            written.inspect_err(|error| {
                tracing::warn!("{error}");
                count(&member.counters.write_errors);
            })
        });
        let (failed, failures): (Vec<_>, Vec<_>) = failed.into_iter().unzip();
        if !tolerates(&pool, &failed, &behind) {
            return Err(WriteError::Superblocks { failures });
        }
        self.set_superblock(template.clone());
        Ok(())
    }

    /// Writes the first superblock of every device of a set, and makes it durable: that of the last commit, pointing to
    /// another log. Of its generation there is one without, or with an older one, on a device that fails; so none of the
    /// set may, and none of the pool may be behind. The devices outside of the set keep such a superblock. The set was
    /// flushed before, so that the other copies of the last commit are durable on it.
    pub fn write_log_superblocks(&self, template: &Superblock, set: &DeviceSet) -> Result<(), WriteError> {
        if !self.is_writable() {
            return Err(WriteError::ReadOnly);
        }
        self.check_flushed()?;
        let pool = self.snapshot();
        if let Some(index) = pool.behind().first() {
            return Err(WriteError::Behind { devices: vec![pool.devices[*index].name()] });
        }
        let failed = on_each(&pool, set, |member, device| {
            let written = write_copies(template, &member.item, member, device, SuperblockCopies::First);
            let unwritten = |error| FailedFlush { error, doubtful: Places::default() };
            written.map_err(unwritten).and_then(|()| member.flush(device)).inspect_err(|failed| {
                tracing::warn!("{}", failed.error);
                count(&member.counters.write_errors);
            })
        });
        if !failed.is_empty() {
            let (mut lost, failures) = split_failures(failed);
            lost.retain(|(_, places)| !places.is_empty());
            self.bear(&pool, lost);
            return Err(WriteError::Superblocks { failures });
        }
        self.set_superblock(template.clone());
        Ok(())
    }
}

/// Writes one device's copies. The first one counts: the others are ignored while it is there.
fn write_copies(
    template: &Superblock,
    item: &DevItem,
    member: &PoolDevice,
    device: &dyn WritableDevice,
    copies: SuperblockCopies,
) -> Result<(), DeviceError> {
    let size_bytes = item.total_bytes.get().min(device.size_bytes());
    let fits = |offset: &u64| offset + to_u64(SUPERBLOCK_SIZE) <= size_bytes;
    let is_wanted = |copy: usize| match copies {
        SuperblockCopies::All => true,
        SuperblockCopies::First => copy == 0,
        SuperblockCopies::Others => copy > 0,
    };
    let mut superblock = Box::new(template.clone());
    superblock.dev_item = *item;
    let mut first = Ok(());
    let offsets = SUPERBLOCK_OFFSETS.into_iter().filter(fits).enumerate();
    for (copy, offset) in offsets.filter(|(copy, _)| is_wanted(*copy)) {
        superblock.bytenr.set(offset);
        let checksum = superblock.compute_checksum(superblock.checksum_type());
        superblock.csum.fill(0);
        superblock.csum[..checksum.as_bytes().len()].copy_from_slice(checksum.as_bytes());
        match device.write_at(offset, superblock.as_bytes()) {
            Err(error) if copy == 0 => first = Err(error),
            Err(error) => tracing::warn!("{error}"),
            // The others have to be durable before the first is written again, no sooner: see `unflushed_devices`.
            Ok(()) if copy == 0 => member.durability.has_written(),
            Ok(()) => {}
        }
    }
    first
}

/// Does something with every device of a set that may be written, all at the same time; answers with those that failed.
fn on_each<E: Send>(
    pool: &Pool,
    set: &DeviceSet,
    act: impl Fn(&PoolDevice, &dyn WritableDevice) -> Result<(), E> + Sync,
) -> Vec<(usize, E)> {
    let there = |(index, member)| {
        let member: &PoolDevice = member;
        member.writable.as_ref().map(|device| (index, member, device.as_ref()))
    };
    let asked = pool.devices.iter().enumerate().filter(|(_, member)| set.contains(member.devid));
    let there: Vec<_> = asked.filter_map(there).collect();
    let act = &act;
    let do_one = move |(index, member, device): (usize, &PoolDevice, &dyn WritableDevice)| {
        act(member, device).err().map(|error| (index, error))
    };
    if let [only] = there[..] {
        return do_one(only).into_iter().collect();
    }
    brindle_sync::thread::scope(|scope| {
        let threads: Vec<_> = there.into_iter().map(|one| scope.spawn(move || do_one(one))).collect();
        threads.into_iter().filter_map(|it| it.join().expect("writing does not panic")).collect()
    })
}

/// Failed flushes, as what was lost by which device, and the errors.
fn split_failures(failed: Vec<(usize, FailedFlush)>) -> (Vec<(usize, Places)>, Vec<DeviceError>) {
    failed.into_iter().map(|(index, failed)| ((index, failed.doubtful), failed.error)).unzip()
}

/// Returns true if no device failed, or if everything can be read without those that did and those that are behind, and
/// one is neither.
fn tolerates(pool: &Pool, failed: &[usize], behind: &[usize]) -> bool {
    failed.is_empty() || pool.survives(|index| failed.contains(&index) || behind.contains(&index))
}
