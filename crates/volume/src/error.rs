//! Errors of volumes, and warnings of opening a pool.

use crate::{NotWritable, UnusedDevice};
use brindle_device::DeviceError;
use brindle_ondisk::{
    BlockGroupType, Checksum, CorruptNode, Defect, DevId, Generation, Logical, Physical, SuperblockDefect,
    Uuid,
};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Error of opening a pool, or of adding a chunk or device.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// No device was given.
    #[error("no devices given")]
    NoDevices,
    /// None of the devices has a usable superblock (of the pool asked for).
    #[error("no btrfs pool found{}: {}", wanted(.fsid), join(.devices))]
    NoPool {
        /// The pool asked for.
        fsid: Option<Uuid>,
        /// Reason for which each device is not used.
        devices: Vec<UnusedDevice>,
    },
    /// Of the pool there is the target of a replacement alone, which the kernel has begun.
    #[error(
        "{device} is the target of a replacement that the kernel has begun in the pool {fsid}, and no device of that by itself: name \
         the pool's other devices; if the replacement was interrupted, `brindle device replace cancel`, with all of them, ends it"
    )]
    TargetAlone {
        /// The target.
        device: String,
        /// The pool.
        fsid: Uuid,
    },
    /// A device of the pool carries a superblock that brindle may not use: an unsupported feature, by name.
    #[error("{device}: superblock at offset {offset}: {defect}")]
    Superblock {
        /// The device.
        device: String,
        /// Offset on it, in bytes.
        offset: u64,
        /// The defect.
        defect: SuperblockDefect,
    },
    /// A chunk can't be what it says.
    #[error("corrupt chunk at logical {start}: {defect}")]
    Chunk {
        /// Start of the chunk.
        start: Logical,
        /// The defect.
        defect: Defect,
    },
    /// Two chunks claim the same addresses.
    #[error("chunk at logical {start}, {length} bytes, overlaps the chunk at {other}, {other_length} bytes")]
    ChunkOverlap {
        /// Start of the refused chunk.
        start: Logical,
        /// Its length in bytes.
        length: u64,
        /// Start of the chunk that was there before.
        other: Logical,
        /// Its length in bytes.
        other_length: u64,
    },
    /// A chunk lies beyond the end of more of its devices than it can be read without.
    #[error(
        "chunk at logical {start}: its stripe of {length} bytes at offset {offset} lies beyond the end of \
         {device} at {size_bytes}"
    )]
    BeyondEnd {
        /// Start of the chunk.
        start: Logical,
        /// One of the devices.
        device: String,
        /// Start of the stripe on it.
        offset: Physical,
        /// The stripe's length in bytes.
        length: u64,
        /// The device's size in bytes.
        size_bytes: u64,
    },
    /// Devices of the pool were not given.
    #[error(
        "missing {}{}{}", join(.missing), missing_advice(.unreadable, *.degraded_helps, *.is_degraded), beside(.unused)
    )]
    MissingDevices {
        /// The missing devices.
        missing: Vec<MissingDevice>,
        /// Chunks that can't be read without them.
        unreadable: Vec<UnreadableChunk>,
        /// True if the pool can be read without them, if asked to, but for data of the unreadable chunks.
        degraded_helps: bool,
        /// True if the pool was to be written without them.
        is_degraded: bool,
        /// Given devices that are none of them.
        unused: Vec<UnusedDevice>,
    },
    /// Two devices were each written without the other.
    #[error(
        "{device} (devid {devid}, generation {generation}) and {other} (devid {other_devid}, generation {other_generation}) \
         were written apart, each without the other, and can't be used together: mount one of them alone, with -o degraded=named, \
         and copy out what only that one has; then mount the other one alone, and have the first replace the missing device \
         (`brindle device replace start -f`), which gives up what it has"
    )]
    Apart {
        /// The device of the newest superblock, or of one copy of a block.
        device: String,
        /// Its id in the pool.
        devid: DevId,
        /// Its generation.
        generation: Generation,
        /// The other one.
        other: String,
        /// Its id in the pool.
        other_devid: DevId,
        /// Its generation.
        other_generation: Generation,
    },
    /// Two devices are the same one of the pool, and the others go with the older one.
    #[error(
        "{device} (generation {generation}) and {other} (generation {other_generation}) are both devid {devid}, and {member} \
         goes with the older one: {device} was replaced and then written by itself, or {other} is an old copy of it; give one of \
         them alone. What only {device} has can be copied out of it where it is mounted alone, with -o degraded=named"
    )]
    Rivals {
        /// The newer one.
        device: String,
        /// Its generation.
        generation: Generation,
        /// The older one.
        other: String,
        /// Its generation.
        other_generation: Generation,
        /// The id that both have.
        devid: DevId,
        /// A device that goes with the older one.
        member: String,
    },
    /// A device was written without another one, by fsyncs alone.
    #[error(
        "{device} (devid {devid}) was written without {other} (devid {other_devid}) after generation {generation}: it has a log, of \
         files that were fsynced, which the other one lacks; mount the pool without {other}, with -o degraded=named, and have \
         that rejoin (`brindle device rejoin`)"
    )]
    MissedLog {
        /// The device with the log.
        device: String,
        /// Its id in the pool.
        devid: DevId,
        /// Generation of both.
        generation: Generation,
        /// The device that lacks it.
        other: String,
        /// Its id in the pool.
        other_devid: DevId,
    },
    /// Another system holds the pool.
    #[error(
        "{holder}, holds the pool, by its lease on {device}: unmount it there, or mount it read-only here; if that host is \
         gone for good, `brindle device lease --break` gives the pool back"
    )]
    Held {
        /// A device with the record of the lease.
        device: String,
        /// Description of the holder.
        holder: String,
    },
    /// The lease of the pool can't be taken.
    #[error("the lease of the pool can't be taken: {source}")]
    Lease {
        /// The failure.
        source: DeviceError,
    },
    /// The pool can be read, and may not be written.
    #[error("cannot be written: {0}")]
    NotWritable(NotWritable),
}

/// A device of the pool that was not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingDevice {
    /// Its id in the pool.
    pub devid: DevId,
    /// Its UUID.
    pub uuid: Uuid,
    /// UUID of the seed that it belongs to, if it does.
    pub seed: Option<Uuid>,
}

impl fmt::Display for MissingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "devid {} (uuid {}", self.devid, self.uuid)?;
        match self.seed {
            Some(seed) => write!(f, ", of the seed {seed} that the pool has grown from)"),
            None => write!(f, ")"),
        }
    }
}

/// A chunk that has lost more than its profile tolerates: some of it can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableChunk {
    /// Start address.
    pub start: Logical,
    /// Its length in bytes.
    pub length: u64,
    /// Content and profile.
    pub kind: BlockGroupType,
}

impl UnreadableChunk {
    /// Returns true if it holds data and no metadata.
    pub fn is_data_alone(&self) -> bool {
        !self.kind.intersects(BlockGroupType::METADATA | BlockGroupType::SYSTEM)
    }
}

fn wanted(fsid: &Option<Uuid>) -> String {
    fsid.map_or_else(String::new, |fsid| format!(" with fsid {fsid}"))
}

fn join<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    items.join(", ")
}

fn missing_advice(unreadable: &[UnreadableChunk], degraded_helps: bool, is_degraded: bool) -> String {
    match unreadable.first() {
        Some(first) => format!(
            ": {} can't be read without, the first at logical {} ({}){}{}",
            plural(unreadable.len(), "chunk"),
            first.start,
            first.kind,
            if degraded_helps {
                "; name the other devices of the pool, or go without: everything else can be read with -o degraded (as a mount: \
                 -o degraded,ro)"
            } else {
                "; name all devices of the pool, or read what does not lie there with -o degraded (as a mount: -o degraded,ro)"
            },
            if degraded_helps && is_degraded {
                ". While it is not mounted, `brindle device rejoin` takes a device in that comes back, and `brindle device replace \
                 start -f missing` replaces one that does not, and gives up what it had"
            } else {
                ""
            }
        ),
        None if degraded_helps => {
            ": name the other devices of the pool, or go without: everything can be read with -o degraded"
                .into()
        }
        None => String::new(),
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn lengths(chunks: &[UnreadableChunk]) -> u64 {
    chunks.iter().fold(0, |sum, chunk| sum.saturating_add(chunk.length))
}

fn beside(unused: &[UnusedDevice]) -> String {
    if unused.is_empty() { String::new() } else { format!("; given, and not used: {}", join(unused)) }
}

/// Error of a read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// No chunk holds the address.
    #[error("logical {logical}: no chunk holds this address")]
    Unmapped {
        /// The address.
        logical: Logical,
    },
    /// Every way to obtain the bytes failed.
    #[error("logical {logical} (chunk {chunk}), {length} bytes: {}", join(.attempts))]
    Failed {
        /// Start of the block or sector.
        logical: Logical,
        /// Start of its chunk.
        chunk: Logical,
        /// Its length in bytes.
        length: u64,
        /// Attempts.
        attempts: Vec<Attempt>,
    },
    /// The request is not one that can be answered.
    #[error("logical {logical}, {length} bytes: {why}")]
    Request {
        /// Start address.
        logical: Logical,
        /// Its length in bytes.
        length: u64,
        /// The problem.
        why: &'static str,
    },
}

impl ReadError {
    /// Returns true if a copy that was read is damaged, and not only devices have failed.
    pub fn is_damage(&self) -> bool {
        let is_damage = |attempt: &Attempt| {
            matches!(attempt.failure, AttemptFailure::Checksum { .. } | AttemptFailure::Block(_))
        };
        matches!(self, Self::Failed { attempts, .. } if attempts.iter().any(is_damage))
    }

    /// Returns true if every copy lies on a device that is missing.
    pub fn lacks_devices(&self) -> bool {
        let is_missing = |attempt: &Attempt| matches!(attempt.failure, AttemptFailure::Missing);
        matches!(self, Self::Failed { attempts, .. } if attempts.iter().all(is_missing))
    }
}

/// Error of a write, or of making it durable.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The volume was opened to be read.
    #[error("the pool was opened read-only")]
    ReadOnly,
    /// No chunk holds the address.
    #[error("logical {logical}: no chunk holds this address")]
    Unmapped {
        /// The address.
        logical: Logical,
    },
    /// The request is not one that can be met.
    #[error("writing logical {logical}, {length} bytes: {why}")]
    Request {
        /// Start address.
        logical: Logical,
        /// Its length in bytes.
        length: u64,
        /// The problem.
        why: &'static str,
    },
    /// More devices failed than the profile tolerates.
    #[error("writing logical {logical}, {length} bytes: {}", join(.attempts))]
    Failed {
        /// Start of the lost range.
        logical: Logical,
        /// Its length in bytes.
        length: u64,
        /// Attempts.
        attempts: Vec<Attempt>,
    },
    /// Too many devices failed to make durable what they were given.
    #[error("flushing: {}", join(.failures))]
    Flush {
        /// Failures.
        failures: Vec<DeviceError>,
    },
    /// A flush has failed that too many devices had a part in. What they took before it may be lost, though a later flush
    /// succeeds: a host reports a failed write once. Nothing is committed any more.
    #[error("writes may be lost, for these devices failed to flush before: {}", .devices.join(", "))]
    Unflushed {
        /// Names of the devices.
        devices: Vec<String>,
    },
    /// Too many devices failed to take something, and fail still.
    #[error("too many devices lack what could not be written to them: {}", .devices.join(", "))]
    Behind {
        /// Names of the devices.
        devices: Vec<String>,
    },
    /// One of the only devices that took a write failed to make it durable.
    #[error("a flush failed of devices that alone took a write: {}", join(.devices))]
    Relied {
        /// The devices.
        devices: Vec<DevId>,
    },
    /// A device that is to take the place of another did not take its superblock.
    #[error("a device that replaces another did not take its superblock: {}", .devices.join(", "))]
    NotReplaced {
        /// Names of the devices.
        devices: Vec<String>,
    },
    /// A device holds a superblock that was not written here: another writer has it, too.
    #[error(
        "{device} (devid {devid}): another system or program writes the pool: found a superblock at {offset} of {found}, \
         expected {expected}"
    )]
    OtherWriter {
        /// Name of the device.
        device: String,
        /// Its id in the pool.
        devid: DevId,
        /// Offset of the superblock.
        offset: u64,
        /// Description of the one that was found.
        found: String,
        /// Description of the one that was written here, or found when the pool was opened.
        expected: String,
    },
    /// The lease of the pool is another's, or can't be verified.
    #[error("{why}")]
    LeaseLost {
        /// The reason.
        why: Arc<str>,
    },
    /// Too many devices have no new superblock.
    #[error("writing superblocks: {}", join(.failures))]
    Superblocks {
        /// Failures.
        failures: Vec<DeviceError>,
    },
}

/// One failed attempt to obtain or to write some bytes.
#[derive(Debug)]
pub struct Attempt {
    /// The device that failed; of a rebuild that went through, the device that should hold the bytes.
    pub device: String,
    /// Its id in the pool.
    pub devid: DevId,
    /// Offset on it.
    pub offset: Physical,
    /// Devices taken to be wrong, if the bytes were rebuilt from parity.
    pub rebuilt_without: Vec<DevId>,
    /// The failure.
    pub failure: AttemptFailure,
}

/// Failure of an attempt.
#[derive(Debug)]
pub enum AttemptFailure {
    /// The device was not given.
    Missing,
    /// The device failed.
    Io(DeviceError),
    /// The device failed when this was written, so that it holds something older.
    LostWrite,
    /// The data don't match their checksum.
    Checksum {
        /// Checksum of the data as read.
        found: Checksum,
        /// Stored checksum.
        expected: Checksum,
    },
    /// The tree block was refused.
    Block(CorruptNode),
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} offset {}", self.device, self.offset)?;
        if !self.rebuilt_without.is_empty() {
            write!(f, " rebuilt without devid {}", join(&self.rebuilt_without).replace(", ", " and "))?;
        }
        write!(f, ": {}", self.failure)
    }
}

impl fmt::Display for AttemptFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("device is missing"),
            Self::Io(error) => error.fmt(f),
            Self::LostWrite => f.write_str("writing here has failed before"),
            Self::Checksum { found, expected } => write!(f, "checksum {found} expected {expected}"),
            Self::Block(corrupt) => corrupt.fmt(f),
        }
    }
}

/// Fault that opening a pool survived.
#[derive(Clone, Debug, Error)]
pub enum Warning {
    /// One copy of a superblock can't be used, another one of the same device was.
    #[error("{device}: superblock at offset {offset} can't be used ({problem}), another copy is")]
    Superblock {
        /// The device.
        device: String,
        /// Offset on it, in bytes.
        offset: u64,
        /// The problem.
        problem: SuperblockProblem,
    },
    /// A device has missed transactions.
    #[error("{device} (devid {devid}) is stale: its generation is {generation}, the pool's {expected}")]
    Stale {
        /// The device.
        device: String,
        /// Its id in the pool.
        devid: DevId,
        /// The last transaction it took part in.
        generation: Generation,
        /// The pool's last transaction.
        expected: Generation,
    },
    /// Chunks can't be read for want of devices.
    #[error(
        "missing {}: {} of {}, {} bytes, can't be read whole without, the first at logical {}; reads of what is lost \
         fail",
        join(.missing), plural(.unreadable.len(), "chunk"),
        if .unreadable.iter().all(UnreadableChunk::is_data_alone) { "data" } else { "data and metadata" },
        lengths(.unreadable),
        .unreadable.first().map_or(0, |chunk| chunk.start.get())
    )]
    LostChunks {
        /// The missing devices.
        missing: Vec<MissingDevice>,
        /// Chunks that can't be read whole without them.
        unreadable: Vec<UnreadableChunk>,
    },
    /// A device is shorter than the pool has it: an image that was cut off, or a resize that was not finished.
    #[error("{device} (devid {devid}) ends at {size_bytes}, the pool has it as {total_bytes} bytes long")]
    Short {
        /// The device.
        device: String,
        /// Its id in the pool.
        devid: DevId,
        /// Its size in bytes.
        size_bytes: u64,
        /// Its size in bytes by its device item.
        total_bytes: u64,
    },
    /// A device is shorter than a chunk on it needs.
    #[error(
        "{device}: a stripe of {length} bytes at offset {offset}, of the chunk at logical {chunk}, lies \
         beyond its end at {size_bytes}"
    )]
    BeyondEnd {
        /// The device.
        device: String,
        /// The chunk.
        chunk: Logical,
        /// Start of the stripe.
        offset: Physical,
        /// The stripe's length in bytes.
        length: u64,
        /// The device's size in bytes.
        size_bytes: u64,
    },
    /// A device says that it belongs to the pool, the pool says that it doesn't.
    #[error(
        "{device} says it is devid {devid} (uuid {uuid}) of the pool, which has no such device (any more); it is left \
         alone"
    )]
    NotInPool {
        /// The device.
        device: String,
        /// The id it claims.
        devid: DevId,
        /// Its UUID.
        uuid: Uuid,
    },
}

impl Warning {
    /// Device, offset and problem of a copy of a superblock that can't be used.
    pub fn bad_superblock(&self) -> Option<(&str, u64, &SuperblockProblem)> {
        match self {
            Self::Superblock { device, offset, problem } => Some((device, *offset, problem)),
            _ => None,
        }
    }
}

/// Problem of a copy of the superblock.
#[derive(Clone, Debug)]
pub enum SuperblockProblem {
    /// A failed read.
    Io(Arc<DeviceError>),
    /// An invalid superblock.
    Defect(SuperblockDefect),
    /// The device ends before it.
    NotThere,
}

impl fmt::Display for SuperblockProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Defect(defect) => defect.fmt(f),
            Self::NotThere => f.write_str("the device ends before it"),
        }
    }
}
