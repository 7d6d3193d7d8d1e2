//! Making durable what was written, and the superblocks that make it count.

use crate::device::{FailedFlush, Flushes, PoolDevice, count};
use crate::history::logs::root_of_log;
use crate::lost_writes::Places;
use crate::pool::Pool;
use crate::{DeviceSet, Volume, WriteError};
use brindle_device::{Batch, DeviceError, WritableDevice, WriteRequest};
use brindle_ondisk::item::{DevItem, SuperblockAge};
use brindle_ondisk::{Generation, Holders, Logical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, to_u64};
use brindle_sync::MutexGuard;
use std::num::NonZeroU64;
use std::sync::Arc;
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
        let members = Member::of(&pool, set);
        let alone = Alone::with(&members);
        // Another flush may have failed while this one waited for its turn, and the device tells that once.
        self.check_flushed()?;
        self.bear_failed_flushes(&pool, alone.flush())
    }

    /// Has the devices of a set that took writes since their last flush write them to their media, all at the same time, so
    /// that the next flush of them waits for little. It makes nothing durable; what fails is borne as by [`flush`](Self::flush),
    /// unless the device has left meanwhile. Flushes and superblocks of these devices wait for it.
    pub fn write_out(&self, set: &DeviceSet) -> Result<(), WriteError> {
        self.check_flushed()?;
        let pool = self.snapshot();
        let members = Member::of(&pool, &self.unflushed_devices().intersection(set));
        let alone = Alone::with(&members);
        let failed = alone.write_out();
        if failed.is_empty() {
            return Ok(());
        }
        let pool = self.snapshot();
        let present = failed.into_iter().filter_map(|(failed, error)| {
            // Not by its id, which another device may have by now.
            let is_it = |device: &PoolDevice| Arc::ptr_eq(&device.flushes, &failed.flushes);
            let index =
                pool.devices.iter().position(is_it).filter(|index| !pool.devices[*index].is_intruder)?;
            Some((index, pool.devices[index].flush_failed(error, Places::default())))
        });
        let present = present.collect();
        self.bear_failed_flushes(&pool, present)
    }

    fn bear_failed_flushes(&self, pool: &Pool, failed: Vec<(usize, FailedFlush)>) -> Result<(), WriteError> {
        for (index, failed) in &failed {
            tracing::warn!("{}", failed.error);
            count(&pool.devices[*index].counters.flush_errors);
        }
        let (lost, failures) = split_failures(failed);
        if self.bear(pool, lost) { Ok(()) } else { Err(WriteError::Flush { failures }) }
    }

    /// Refuses if a flush has failed that the pool could not do without.
    fn check_flushed(&self) -> Result<(), WriteError> {
        match self.unflushed.get() {
            Some(devices) => Err(WriteError::Unflushed { devices: devices.clone() }),
            None => Ok(()),
        }
    }

    /// Takes note of failed flushes: of what was lost by each device, if every chunk can be read without these, and what was lost can be
    /// read elsewhere; returns false if not. Then there may be no good copy, and no later flush means anything.
    fn bear(&self, pool: &Pool, lost: Vec<(usize, Places)>) -> bool {
        let failed: Vec<usize> = lost.iter().map(|(index, _)| *index).collect();
        let is_last = |(index, places): &(usize, Places)| pool.is_only_copy(*index, places, &failed);
        if !tolerates(pool, &failed, &[]) || lost.iter().any(is_last) {
            let names = failed.iter().map(|index| pool.devices[*index].name());
            // The first such failure tells enough.
            let _ = self.unflushed.set(names.collect());
            return false;
        }
        for (index, places) in lost {
            pool.devices[index].has_lost_all(&places);
        }
        true
    }

    /// The writable devices that have taken writes since their last flush, or were not flushed since the pool was opened:
    /// the others need no flush, but for copies of the superblock behind the first, which do not count here. What is being
    /// written while this is asked may be missing.
    pub fn unflushed_devices(&self) -> DeviceSet {
        self.devices_where(|member| member.durability.is_unflushed())
    }

    /// The writable devices that have taken writes since their superblock was last written, or for which it was not since the
    /// pool was opened, flushed or not: an older copy of such a device with the same superblock lacks something.
    pub fn unsealed_devices(&self) -> DeviceSet {
        self.devices_where(|member| member.durability.is_unsealed())
    }

    /// The writable devices with copies of the superblock behind the first that were not flushed yet. They must be before
    /// the first is written again, or that of another device: a crash may have torn them, and another one tears the first.
    pub fn unflushed_copies(&self) -> DeviceSet {
        self.devices_where(|member| member.durability.has_unflushed_copies())
    }

    /// The writable devices of which it is unknown that they hold a superblock of a generation, durably and in the first
    /// place: it was not written since the pool was opened. Devices that never had a superblock do not count: they get their first
    /// one with the commit that speaks of them.
    pub fn devices_without_superblock(&self, generation: Generation) -> DeviceSet {
        self.devices_where(|member| !member.is_new() && member.durability.durable_superblock() != generation)
    }

    /// The devices that hold a superblock of a generation, durably and in the first place, as written since the pool was
    /// opened.
    pub fn holders(&self, generation: Generation) -> Holders {
        let pool = self.snapshot();
        let members = pool.devices.iter().filter(|member| !member.is_intruder && !member.is_seed);
        Holders::of(members.map(|member| {
            let holds = member.writable.is_some() && member.durability.durable_superblock() == generation;
            (member.devid, holds)
        }))
    }

    /// The generations of the superblocks that the writable devices hold, durably and in the first place, as written since the
    /// pool was opened.
    pub fn superblock_ages(&self) -> Vec<SuperblockAge> {
        let pool = self.snapshot();
        let members = pool.devices.iter().filter(|member| member.writable.is_some());
        let ages = members.map(|member| SuperblockAge {
            devid: member.devid,
            generation: member.durability.durable_superblock(),
        });
        ages.filter(|age| age.generation.get() > 0).collect()
    }

    /// Refuses if everything could not be read without these devices and those that are behind.
    pub fn check_bears_loss_of(&self, set: &DeviceSet) -> Result<(), WriteError> {
        let pool = self.snapshot();
        let lost: Vec<usize> = Member::of(&pool, set).iter().map(|one| one.index).collect();
        if tolerates(&pool, &lost, &pool.behind()) {
            return Ok(());
        }
        let devices = lost.iter().map(|index| pool.devices[*index].name()).collect();
        Err(WriteError::Behind { devices })
    }

    /// Devices that lack writes which they failed to take, of tree blocks alone, if not everything could be read without these devices.
    pub fn indispensable_devices(&self) -> DeviceSet {
        let lacking = self.devices_where(|member| !member.lost_writes.is_empty());
        if self.check_bears_loss_of(&lacking).is_ok() { DeviceSet::default() } else { lacking }
    }

    /// Before another first superblock is written to the devices of a set: makes the other copies of those whole that were
    /// found asleep by their first one, durably and once. A crash before the pool was opened may have torn these.
    pub fn settle_copies(&self, template: &Superblock, set: &DeviceSet) -> Result<(), WriteError> {
        let doubtful = self.devices_where(|member| member.has_doubtful_copies.load(Relaxed));
        let doubtful = doubtful.intersection(set);
        if doubtful.is_empty() {
            return Ok(());
        }
        self.write_superblocks(template, &[], SuperblockCopies::Others, &doubtful)?;
        self.flush(&doubtful)?;
        let pool = self.snapshot();
        let settled = pool.devices.iter().filter(|member| doubtful.contains(member.devid));
        settled.for_each(|member| member.has_doubtful_copies.store(false, Relaxed));
        Ok(())
    }

    fn devices_where(&self, is_meant: impl Fn(&PoolDevice) -> bool) -> DeviceSet {
        let pool = self.snapshot();
        let meant = |member: &&PoolDevice| member.writable.is_some() && is_meant(member);
        pool.devices.iter().filter(meant).map(|member| member.devid).collect()
    }

    /// Writes all copies of a superblock to the devices that have never had one, and makes them durable: no
    /// superblock on disk may refer to a device that has none. One that fails is met again with the others.
    pub fn introduce_devices(&self, template: &Superblock, device_items: &[DevItem]) {
        let pool = self.snapshot();
        let behind = pool.behind();
        let is_introduced = |one: &Member<'_>| {
            let is_given = device_items.iter().any(|item| item.devid == one.member.devid);
            is_given && one.member.is_new() && !behind.contains(&one.index)
        };
        let mut members = Member::of(&pool, &DeviceSet::ALL);
        members.retain(is_introduced);
        let copies = Copies::new(template, device_items, SuperblockCopies::All, &members);
        let failed = Alone::with(&members).write(&copies, false);
        members.retain(|one| failed.iter().all(|(index, _)| *index != one.index));
        let alone = Alone::with(&members);
        let unflushed = alone.flush().into_iter().map(|(index, failed)| {
            pool.devices[index].has_lost_all(&failed.doubtful);
            (index, failed)
        });
        report(&pool, failed.into_iter().chain(unflushed).collect());
    }

    /// Writes the first superblock of the devices that get another id with it, and makes it durable: no other superblock may
    /// refer to an id that no device has. None may fail.
    pub fn announce_renumbered(
        &self,
        template: &Superblock,
        device_items: &[DevItem],
    ) -> Result<(), WriteError> {
        let pool = self.snapshot();
        let mut members = Member::of(&pool, &DeviceSet::ALL);
        members.retain(|one| one.member.written_devid.is_some());
        if members.is_empty() {
            return Ok(());
        }
        for one in &members {
            one.member.superblock_generation.fetch_max(template.generation.get(), Relaxed);
        }
        let copies = Copies::new(template, device_items, SuperblockCopies::First, &members);
        let alone = Alone::with(&members);
        let failed = report(&pool, alone.write(&copies, false));
        if !failed.is_empty() {
            return Err(WriteError::Superblocks { failures: split_failures(failed).1 });
        }
        let failures = split_failures(alone.flush()).1;
        if failures.is_empty() { Ok(()) } else { Err(WriteError::Flush { failures }) }
    }

    /// Writes a superblock to every device of a set, on all of them at the same time: each with its own device item (as
    /// given; devices that are not among those given keep what they have), its place and its checksum, and all of the
    /// series and with the holders of the given one. A device that lacks the log to which the given one points gets it without: blocks of the
    /// log may be missing there, and after the loss of the others it would lead to them. Devices that are behind get none;
    /// others may fail as long as every chunk can be read without all of these. Afterwards the pool's superblock is this
    /// one.
    pub fn write_superblocks(
        &self,
        template: &Superblock,
        device_items: &[DevItem],
        copies: SuperblockCopies,
        set: &DeviceSet,
    ) -> Result<(), WriteError> {
        if !self.is_writable() {
            return Err(WriteError::ReadOnly);
        }
        self.check_flushed()?;
        let pool = self.snapshot();
        let behind = pool.behind();
        let mut members = Member::of(&pool, set);
        // Of a new device, the first superblock is not one of before it joined.
        let waits = |one: &Member<'_>| copies == SuperblockCopies::Others && one.member.is_new();
        members.retain(|one| !behind.contains(&one.index) && !waits(one));
        for one in &members {
            one.member.superblock_generation.fetch_max(template.generation.get(), Relaxed);
        }
        let is_first = copies == SuperblockCopies::First;
        let copies = Copies::new(template, device_items, copies, &members);
        let alone = Alone::with(&members);
        self.check_flushed()?;
        let failed = alone.write(&copies, false);
        drop(alone);
        if template.log_root.get() == 0 {
            pool.devices.iter().for_each(|member| member.lacks_log.store(false, Relaxed));
        }
        let (lost, failures) = split_failures(report(&pool, failed));
        let failed: Vec<usize> = lost.into_iter().map(|(index, _)| index).collect();
        if !tolerates(&pool, &failed, &behind) {
            return Err(WriteError::Superblocks { failures });
        }
        if is_first {
            self.has_ended_log(&pool, template, &failed);
        }
        self.set_superblock(template.clone());
        Ok(())
    }

    /// The superblocks of a commit are written to a set of devices, but for those that failed: these name the log that it ends.
    fn has_ended_log(&self, pool: &Pool, template: &Superblock, failed: &[usize]) {
        let root = self.log_that_ends(pool, template.generation);
        let log_on = |index: &usize| Some((*index, self.fingerprint_of_logs_on(pool, *index, root)?));
        let logs: Vec<(usize, NonZeroU64)> = failed.iter().filter_map(log_on).collect();
        let is_known =
            root.is_none() || pool.ending.is_some_and(|(written, _)| written == template.generation);
        if !logs.is_empty() || pool.ended_log.is_some() || !is_known {
            self.change(|pool| {
                if let Some(root) = root {
                    (pool.ended_log, pool.ending) = (None, Some((template.generation, root)));
                }
                for (index, log) in logs {
                    pool.devices[index].missed_end_of = Some(log);
                }
            });
        }
    }

    /// The superblocks of a log are written to devices, but for those that failed: the others name it from now on, and these may.
    fn is_named_by_some(
        &self,
        members: &[Member<'_>],
        failed: &[(usize, FailedFlush)],
        template: &Superblock,
    ) {
        let has_failed = |index: usize| failed.iter().any(|(failed, _)| *failed == index);
        let named: Vec<usize> = members.iter().map(|one| one.index).filter(|it| !has_failed(*it)).collect();
        self.change(|pool| {
            for index in named {
                let device = &mut pool.devices[index];
                (device.names_log, device.has_missed_end) = (root_of_log(template), false);
            }
            failed.iter().for_each(|(index, _)| pool.devices[*index].may_name_log = root_of_log(template));
        });
    }

    /// Writes the first superblock of every device of a set, and makes it durable: that of the last commit, pointing to
    /// another log. Of its generation there is one without, or with an older one, on a device that fails; so none of the
    /// set may, and none of the pool may lack a write that it failed to take: a block of the log, which is taken for that of a device
    /// that was away. The devices outside of the set keep such a superblock. The set was flushed before, so that the other
    /// copies of the last commit are durable on it.
    pub fn write_log_superblocks(&self, template: &Superblock, set: &DeviceSet) -> Result<(), WriteError> {
        if !self.is_writable() {
            return Err(WriteError::ReadOnly);
        }
        self.check_flushed()?;
        let pool = self.snapshot();
        let lacks = |member: &&PoolDevice| member.writable.is_some() && !member.lost_writes.is_empty();
        if let Some(member) = pool.devices.iter().find(lacks) {
            return Err(WriteError::Behind { devices: vec![member.name()] });
        }
        let members = Member::of(&pool, set);
        for one in &members {
            one.member.superblock_generation.fetch_max(template.generation.get(), Relaxed);
            one.member.lacks_log.store(false, Relaxed);
        }
        for member in pool.devices.iter().filter(|member| !set.contains(member.devid)) {
            member.lacks_log.store(true, Relaxed);
        }
        let copies = Copies::new(template, &[], SuperblockCopies::First, &members);
        let alone = Alone::with(&members);
        self.check_flushed()?;
        let failed = alone.write(&copies, true);
        if !failed.is_empty() {
            self.is_named_by_some(&members, &failed, template);
            let (mut lost, failures) = split_failures(report(&pool, failed));
            lost.retain(|(_, places)| !places.is_empty());
            self.bear(&pool, lost);
            return Err(WriteError::Superblocks { failures });
        }
        if members.iter().any(|one| one.member.has_missed_end) {
            let indices: Vec<usize> = members.iter().map(|one| one.index).collect();
            self.change(|pool| {
                indices.into_iter().for_each(|index| pool.devices[index].has_missed_end = false);
            });
        }
        self.set_superblock(template.clone());
        Ok(())
    }
}

/// A device that is asked for something.
struct Member<'p> {
    index: usize,
    member: &'p PoolDevice,
    device: &'p dyn WritableDevice,
}

impl<'p> Member<'p> {
    /// The devices of a set that may be written.
    fn of(pool: &'p Pool, set: &DeviceSet) -> Vec<Self> {
        let asked = pool.devices.iter().enumerate().filter(|(_, member)| set.contains(member.devid));
        let there = |(index, member): (usize, &'p PoolDevice)| {
            member.writable.as_deref().map(|device| Self { index, member, device })
        };
        asked.filter_map(there).collect()
    }
}

/// Copies of the superblock, each for one place of a device.
struct Copies(Vec<Copy>);

struct Copy {
    /// Number of the device among those given.
    number: usize,
    /// True for the first copy of the device, which counts: the others are ignored while it is there.
    is_first: bool,
    superblock: Box<Superblock>,
}

impl Copies {
    /// The wanted copies for each device, with its own device item (as given, or else what it has), its place and its
    /// checksum.
    fn new(
        template: &Superblock,
        device_items: &[DevItem],
        wanted: SuperblockCopies,
        members: &[Member<'_>],
    ) -> Self {
        let mut copies = Vec::new();
        for (number, one) in members.iter().enumerate() {
            let given = device_items.iter().find(|item| item.devid == one.member.devid);
            let item = match given {
                Some(given) => *given,
                // A superblock of before the device got another id.
                None => DevItem {
                    devid: one.member.written_devid.unwrap_or(one.member.item.devid),
                    ..one.member.item
                },
            };
            let size_bytes = item.total_bytes.get().min(one.device.size_bytes());
            let fits = |offset: &u64| offset + to_u64(SUPERBLOCK_SIZE) <= size_bytes;
            let offsets = SUPERBLOCK_OFFSETS.into_iter().filter(fits).enumerate();
            for (copy, offset) in offsets.filter(|(copy, _)| wanted.has(*copy)) {
                let mut superblock = Box::new(template.clone());
                superblock.dev_item = item;
                // These are in the chunk tree alone.
                superblock.dev_item.set_log_fingerprint(None);
                superblock.dev_item.set_placed_in(Generation::new(0));
                if one.member.lacks_log.load(Relaxed) {
                    (superblock.log_root, superblock.log_root_level) = (Logical::new(0), 0);
                }
                superblock.set_series(template.series());
                superblock.add_holders(template.holders());
                superblock.bytenr.set(offset);
                let checksum = superblock.compute_checksum(superblock.checksum_type());
                superblock.csum.fill(0);
                superblock.csum[..checksum.as_bytes().len()].copy_from_slice(checksum.as_bytes());
                copies.push(Copy { number, is_first: copy == 0, superblock });
            }
        }
        Self(copies)
    }
}

impl SuperblockCopies {
    /// Returns true if a copy is to be written.
    fn has(self, copy: usize) -> bool {
        match self {
            Self::All => true,
            Self::First => copy == 0,
            Self::Others => copy > 0,
        }
    }
}

/// Devices of which no one else makes a flush, a durable write or a superblock until it is dropped: of two that cover the same writes, the
/// host might tell a failure to one alone, and the other would count.
struct Alone<'m, 'p> {
    members: &'m [Member<'p>],
    _locks: Vec<MutexGuard<'p, Flushes>>,
}

impl<'m, 'p> Alone<'m, 'p> {
    /// Waits for the flushes that are under way.
    fn with(members: &'m [Member<'p>]) -> Self {
        let lock = |one: &Member<'p>| one.member.flushes.lock_by_key(u128::from(to_u64(one.index)));
        Self { members, _locks: members.iter().map(lock).collect() }
    }

    /// Flushes them, all at the same time; answers with those that failed.
    fn flush(&self) -> Vec<(usize, FailedFlush)> {
        let begun: Vec<_> = self.members.iter().map(|one| one.member.begin_flush()).collect();
        let mut batch = Batch::default();
        self.members.iter().for_each(|one| one.device.submit_flush(&mut batch));
        let answers = self.members.iter().zip(begun).zip(batch.run());
        let ended = answers.map(|((one, flush), answer)| (one.index, one.member.end_flush(flush, answer)));
        ended.filter_map(|(index, ended)| Some((index, ended.err()?))).collect()
    }

    /// Has them write out what they took; answers with those that failed.
    fn write_out(&self) -> Vec<(&'p PoolDevice, DeviceError)> {
        let mut batch = Batch::default();
        self.members.iter().for_each(|one| one.device.submit_write_out(&mut batch));
        let answers = self.members.iter().zip(batch.run());
        answers.filter_map(|(one, answer)| Some((one.member, answer.err()?))).collect()
    }

    /// Writes copies of the superblock, all at the same time; answers with the devices whose first copy failed. A durable write that fails as a
    /// flush does tells of other writes, too.
    fn write(&self, copies: &Copies, is_durable: bool) -> Vec<(usize, FailedFlush)> {
        let members = self.members;
        let contents: Vec<u64> = members.iter().map(|one| one.member.durability.contents()).collect();
        let mut batch = Batch::default();
        for copy in &copies.0 {
            let (offset, pieces) = (copy.superblock.bytenr.get(), vec![copy.superblock.as_bytes()]);
            let request = WriteRequest { offset, pieces, is_durable };
            members[copy.number].device.submit_write(request, &mut batch);
        }
        let mut failed = Vec::new();
        for (copy, answer) in copies.0.iter().zip(batch.run()) {
            let (one, generation) = (&members[copy.number], copy.superblock.generation);
            if copy.is_first {
                match &answer {
                    Ok(()) => one.member.first_superblock.is(&copy.superblock),
                    Err(_) => one.member.first_superblock.is_in_doubt(),
                }
            }
            match answer {
                // Those of a log leave the other copies as they are, and do not count.
                Ok(()) if copy.is_first && is_durable => {}
                Ok(()) if copy.is_first => {
                    one.member.durability.has_written_superblock(generation, contents[copy.number]);
                }
                // The others have to be durable before the first is written again, no sooner: see `unflushed_devices`.
                Ok(()) => one.member.durability.has_written_copies(),
                Err(error @ DeviceError::Flush { .. }) if copy.is_first && is_durable => {
                    failed.push((one.index, one.member.flush_failed(error, Places::default())));
                }
                Err(error) if copy.is_first => {
                    failed.push((one.index, FailedFlush { error, doubtful: Places::default() }));
                }
                Err(error) => tracing::warn!("{error}"),
            }
        }
        failed
    }
}

/// Counts devices that failed to take a superblock.
fn report(pool: &Pool, failed: Vec<(usize, FailedFlush)>) -> Vec<(usize, FailedFlush)> {
    failed
        .into_iter()
        .inspect(|(index, failed)| {
            tracing::warn!("{}", failed.error);
            count(&pool.devices[*index].counters.write_errors);
        })
        .collect()
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
