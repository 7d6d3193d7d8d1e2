//! Scan of the given devices: reads every copy of every superblock, and picks those that form the pool.

use crate::first_superblock::SuperblockBytes;
use crate::lease::{LeaseOptions, Place};
use crate::{Rescue, SuperblockProblem, VolumeError, Warning};
use brindle_device::{Device, WritableDevice};
use brindle_ondisk::{
    DevId, Generation, Holders, LeaseDevice, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock,
    SuperblockDefect, Uuid, to_u64,
};
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

/// Options of opening a volume.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Go on without the missing devices if everything can be read without them; if the pool is only read, whatever is lost.
    pub degraded: bool,
    /// Use this copy of the superblock only, counted from 0.
    pub superblock_mirror: Option<usize>,
    /// UUID of the pool, if the devices are of several; otherwise that of the first device that is no seed.
    pub fsid: Option<Uuid>,
    /// Leases of pools that are written.
    pub lease: LeaseOptions,
    /// Assurances that are given up; of a pool that is written, none can be.
    pub rescue: Rescue,
    /// Write a degraded pool although data can't be read without the missing devices: they come back, or are replaced, while nothing
    /// else is done with the pool.
    pub accepts_loss: bool,
    /// Write a pool although a device is shorter than the pool has it: no chunk may lie there, and its size is to be set right.
    pub allows_short: bool,
}

/// Id of the target of a replacement that the kernel has begun (`BTRFS_DEV_REPLACE_DEVID`).
const TARGET: DevId = DevId::new(0);

/// A device that was given and is not used.
#[derive(Clone, Debug)]
pub struct UnusedDevice {
    /// Name in messages.
    pub device: String,
    /// Reason for not using it.
    pub reason: UnusedReason,
}

/// Reason for not using a device.
#[derive(Clone, Debug)]
pub enum UnusedReason {
    /// No usable superblock; this is the problem of the first.
    NoSuperblock(SuperblockProblem),
    /// Member of another pool.
    OtherPool(Uuid),
    /// Another device with the same id is newer, or came first.
    Duplicate(DevId),
    /// The pool's chunk tree doesn't know it.
    NotInPool(DevId),
    /// Stale: the pool is written without it.
    Stale(DevId),
    /// Another device has taken its place while it was away.
    Replaced(DevId),
    /// Target of a replacement that the kernel has begun: it is no device of the pool yet.
    Target,
}

impl fmt::Display for UnusedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            UnusedReason::NoSuperblock(SuperblockProblem::Defect(SuperblockDefect::NoMagic { .. })) => {
                write!(f, "{}: not a btrfs device (no superblock magic at 64 KiB)", self.device)
            }
            UnusedReason::NoSuperblock(problem) => write!(f, "{}: {problem}", self.device),
            UnusedReason::OtherPool(fsid) => write!(f, "{} belongs to the pool {fsid}", self.device),
            UnusedReason::Duplicate(devid) => {
                write!(f, "{} is devid {devid}, as is another device", self.device)
            }
            UnusedReason::NotInPool(devid) => {
                write!(f, "{} says it is devid {devid}, which the pool does not have", self.device)
            }
            UnusedReason::Stale(devid) => {
                write!(
                    f,
                    "{} (devid {devid}) has missed transactions, the pool is written without",
                    self.device
                )
            }
            UnusedReason::Replaced(devid) => {
                write!(f, "{} was devid {devid} until another device took its place", self.device)
            }
            UnusedReason::Target => {
                write!(f, "{} is the target of a replacement that the kernel has begun", self.device)
            }
        }
    }
}

/// A device as it was given.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) device: Arc<dyn Device>,
    /// The same device, if it was given to be written.
    pub(crate) writable: Option<Arc<dyn WritableDevice>>,
}

/// A device with the best of its superblocks.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) writable: Option<Arc<dyn WritableDevice>>,
    pub(crate) superblock: Arc<Superblock>,
    /// Its first superblock, if that is whole.
    pub(crate) first: Option<Box<SuperblockBytes>>,
}

impl Found {
    pub(crate) fn unused(&self, reason: UnusedReason) -> UnusedDevice {
        UnusedDevice { device: self.device.name().to_owned(), reason }
    }

    pub(crate) fn generation(&self) -> Generation {
        self.superblock.generation
    }

    pub(crate) fn devid(&self) -> DevId {
        self.superblock.dev_item.devid
    }
}

/// Roles of the given devices.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The superblock of highest generation, among equals of lowest devid.
    pub(crate) superblock: Arc<Superblock>,
    /// The devices of the pool, by devid.
    pub(crate) members: Vec<Found>,
    /// Devices that held a superblock as new as the pool's, by what the newest ones say.
    pub(crate) holders: Holders,
    /// Devices that are not used because another one of the same devid is newer, or as new and came first.
    pub(crate) duplicates: Vec<Found>,
    /// Devices of other pools: some may be the seeds of this one.
    pub(crate) strangers: Vec<Found>,
    pub(crate) unused: Vec<UnusedDevice>,
    pub(crate) warnings: Vec<Warning>,
}

impl Scan {
    /// The places of records of leases on devices that may be written.
    pub(crate) fn lease_places(&self) -> Vec<Place> {
        let place = |found: &Found| {
            let (fsid, item) = (found.superblock.fsid, &found.superblock.dev_item);
            let identity = LeaseDevice { fsid, devid: item.devid, uuid: item.uuid };
            Some(Place { identity, device: Arc::clone(found.writable.as_ref()?) })
        };
        self.members.iter().filter_map(place).collect()
    }
}

/// Reads all superblocks and picks the pool.
pub(crate) fn scan(devices: Vec<Given>, options: &OpenOptions) -> Result<Scan, VolumeError> {
    if devices.is_empty() {
        return Err(VolumeError::NoDevices);
    }
    let (mut found, mut unused, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
    for device in devices {
        match examine(device, options) {
            Examined::Usable(device, warnings) => found.push((device, warnings)),
            Examined::Unusable(device) => unused.push(device),
            Examined::Refused(refusal) => refusals.push(refusal),
        }
    }
    let fsid = choose_pool(&found, options.fsid);
    let of_pool = |refusal: &Refusal| fsid.or(options.fsid).is_none_or(|fsid| fsid == refusal.fsid);
    if let Some(Refusal { device, offset, defect, .. }) =
        refusals.iter().find(|refusal| of_pool(refusal)).cloned()
    {
        return Err(VolumeError::Superblock { device, offset, defect });
    }
    unused.extend(refusals.into_iter().map(Refusal::into_unused));
    let Some(fsid) = fsid else {
        unused.extend(found.iter().map(|(f, _)| f.unused(UnusedReason::OtherPool(f.superblock.fsid))));
        return Err(VolumeError::NoPool { fsid: options.fsid, devices: unused });
    };
    let (members, strangers): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(found, _)| found.superblock.fsid == fsid);
    let strangers = strangers.into_iter().map(|(found, _)| found).collect();
    let (targets, members): (Vec<_>, Vec<_>) =
        members.into_iter().partition(|(found, _)| found.devid() == TARGET);
    unused.extend(targets.iter().map(|(target, _)| target.unused(UnusedReason::Target)));
    let (members, warnings): (Vec<_>, Vec<_>) = members.into_iter().unzip();
    let (members, duplicates) = without_duplicates(members, &mut unused);
    let best = members.iter().max_by_key(|found| (found.generation(), Reverse(found.devid())));
    let Some(best) = best else {
        let target = targets.first().map(|(target, _)| target.device.name().to_owned());
        return Err(match target {
            Some(device) => VolumeError::TargetAlone { device, fsid },
            None => VolumeError::NoPool { fsid: Some(fsid), devices: unused },
        });
    };
    let superblock = Arc::clone(&best.superblock);
    let mut warnings: Vec<Warning> = warnings.into_iter().flatten().collect();
    let newest = |found: &&Found| {
        found.generation() == superblock.generation && found.superblock.is_of_series(&superblock)
    };
    let holders = members.iter().filter(newest).map(|found| found.superblock.holders());
    let holders = holders.fold(Holders::default(), Holders::union);
    let expected = superblock.generation;
    let stale = |found: &Found| {
        let (device, devid, generation) = (found.device.name().to_owned(), found.devid(), found.generation());
        let is_stale = generation < expected && !may_be_asleep(&found.superblock, &superblock, holders);
        is_stale.then_some(Warning::Stale { device, devid, generation, expected })
    };
    warnings.extend(members.iter().filter_map(stale));
    Ok(Scan { superblock, members, holders, duplicates, strangers, unused, warnings })
}

/// Returns true if a device with an older superblock may have been left alone since: it is of the same series, and not known
/// to have held a newer one.
pub(crate) fn may_be_asleep(older: &Superblock, newest: &Superblock, holders: Holders) -> bool {
    older.is_of_series(newest) && !holders.contains(older.dev_item.devid)
}

/// The pool asked for, or that of the first device, where a pool that is no seed comes first, and a target last.
fn choose_pool(found: &[(Found, Vec<Warning>)], asked: Option<Uuid>) -> Option<Uuid> {
    let superblocks = || found.iter().map(|(found, _)| &found.superblock);
    let rank = |superblock: &&Arc<Superblock>| (superblock.dev_item.devid == TARGET, superblock.is_seeding());
    match asked {
        Some(fsid) => superblocks().find(|superblock| superblock.fsid == fsid),
        None => superblocks().min_by_key(rank),
    }
    .map(|superblock| superblock.fsid)
}

/// One device for each devid, the newest; in the order of their devids. And the others.
fn without_duplicates(mut members: Vec<Found>, unused: &mut Vec<UnusedDevice>) -> (Vec<Found>, Vec<Found>) {
    members.sort_by_key(|found| (found.devid(), Reverse(found.generation())));
    let (mut kept, mut duplicates): (Vec<Found>, Vec<Found>) = (Vec::new(), Vec::new());
    for found in members {
        if kept.last().is_none_or(|last| last.devid() != found.devid()) {
            kept.push(found);
        } else {
            unused.push(found.unused(UnusedReason::Duplicate(found.devid())));
            duplicates.push(found);
        }
    }
    (kept, duplicates)
}

enum Examined {
    Usable(Found, Vec<Warning>),
    Unusable(UnusedDevice),
    Refused(Refusal),
}

/// A good superblock that asks for what brindle doesn't have.
#[derive(Clone)]
struct Refusal {
    device: String,
    fsid: Uuid,
    offset: u64,
    defect: SuperblockDefect,
}

impl Refusal {
    fn into_unused(self) -> UnusedDevice {
        let reason = UnusedReason::NoSuperblock(SuperblockProblem::Defect(self.defect));
        UnusedDevice { device: self.device, reason }
    }
}

/// Reads the copies of one device's superblock; among equal generations the first copy is the best, because
/// the log's root is written to that one alone.
fn examine(given: Given, options: &OpenOptions) -> Examined {
    let Given { device, writable } = given;
    let name = device.name().to_owned();
    let mut best: Option<Box<Superblock>> = None;
    let mut problems = Vec::new();
    let mut first = None;
    for (mirror, offset) in SUPERBLOCK_OFFSETS.into_iter().enumerate() {
        let fits = offset + to_u64(SUPERBLOCK_SIZE) <= device.size_bytes();
        if options.superblock_mirror.is_some_and(|asked| asked != mirror) {
            continue;
        }
        if !fits {
            if problems.is_empty() {
                problems.push((offset, SuperblockProblem::NotThere));
            }
            continue;
        }
        let read = read_bytes(device.as_ref(), offset, writable.is_some());
        // One that is torn, or was not read as it is, is no proof of another writer later.
        if mirror == 0 {
            first = read.as_ref().ok().filter(|bytes| parse_copy(bytes, offset).is_ok()).cloned();
        }
        match read.and_then(|bytes| parse_copy(&bytes, offset)) {
            Ok(copy) if best.as_ref().is_none_or(|best| best.generation < copy.generation) => {
                best = Some(copy);
            }
            Ok(_) => {}
            Err(Problem::Refused(fsid, defect)) => {
                return Examined::Refused(Refusal { device: name, fsid, offset, defect });
            }
            Err(Problem::Unusable(problem)) => problems.push((offset, problem)),
        }
    }
    let Some(superblock) = best else {
        let problem = problems.into_iter().next().map_or(SuperblockProblem::NotThere, |(_, problem)| problem);
        return Examined::Unusable(UnusedDevice {
            device: name,
            reason: UnusedReason::NoSuperblock(problem),
        });
    };
    problems.retain(|(_, problem)| !matches!(problem, SuperblockProblem::NotThere));
    let warn = |(offset, problem)| Warning::Superblock { device: name.clone(), offset, problem };
    let warnings = problems.into_iter().map(warn).collect();
    Examined::Usable(Found { device, writable, superblock: Arc::from(superblock), first }, warnings)
}

enum Problem {
    Unusable(SuperblockProblem),
    Refused(Uuid, SuperblockDefect),
}

/// Reads a copy; of a device that is to be written, as the medium has it.
fn read_bytes(device: &dyn Device, offset: u64, is_written: bool) -> Result<Box<SuperblockBytes>, Problem> {
    let mut bytes = Box::new([0; SUPERBLOCK_SIZE]);
    let read = match is_written {
        true => device.read_uncached(offset, bytes.as_mut_slice()),
        false => device.read_at(offset, bytes.as_mut_slice()),
    };
    let failed = |error| Problem::Unusable(SuperblockProblem::Io(Arc::new(error)));
    read.map(|()| bytes).map_err(failed)
}

fn parse_copy(bytes: &SuperblockBytes, offset: u64) -> Result<Box<Superblock>, Problem> {
    Superblock::parse(bytes, offset).map_err(|defect| match defect {
        SuperblockDefect::Features(_) | SuperblockDefect::SectorSize(_) => {
            Problem::Refused(Superblock::from_bytes(bytes).fsid, defect)
        }
        _ => Problem::Unusable(SuperblockProblem::Defect(defect)),
    })
}
