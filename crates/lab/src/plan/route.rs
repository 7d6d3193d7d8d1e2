//! Way of a request: the disk that it was for, or the SSD that is thought of.

use super::{TraceOperation, TraceRequest};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Unit in which the SSD holds ranges of disks, in bytes.
const BLOCK_BYTES: u64 = 64 << 10;

/// Role of the SSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No SSD.
    None,
    /// Home of the metadata.
    Metadata,
    /// Home of the metadata, and of all writes of data, which wait there for a quiet time.
    WriteBack,
    /// Copies of blocks that were read or written last; writes also go to the disk.
    CacheThrough,
    /// Copies of blocks that were read last, and blocks that were written last, which go to the disk when they make way.
    CacheBack,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] =
        [Self::None, Self::Metadata, Self::WriteBack, Self::CacheThrough, Self::CacheBack];

    /// Name of the role.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Metadata => "metadata",
            Self::WriteBack => "write-back",
            Self::CacheThrough => "cache-thru",
            Self::CacheBack => "cache-back",
        }
    }

    fn is_cache(self) -> bool {
        matches!(self, Self::CacheThrough | Self::CacheBack)
    }
}

/// A device that a request is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The disk of the record.
    Disk,
    /// The SSD, at this offset.
    Ssd(u64),
    /// A disk of the record, at this offset: a block that makes way.
    Home(usize, u64),
}

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The device.
    pub target: Target,
    /// First byte within the request.
    pub at: u64,
    /// Length in bytes.
    pub length: u64,
    /// Operation of the device.
    pub operation: TraceOperation,
    /// True if the request ends only with it.
    pub is_awaited: bool,
}

/// The contents of the SSD: blocks of disks, each in a slot.
#[derive(Debug)]
pub struct Route {
    role: Role,
    slots: u64,
    /// Slot and last use, by disk and block.
    held: HashMap<(usize, u64), (u64, u64)>,
    /// Blocks by their last use.
    uses: BTreeMap<u64, (usize, u64)>,
    /// Blocks of a cache that the disk does not have.
    dirty: HashSet<(usize, u64)>,
    used: u64,
    clock: u64,
    /// Bytes of requests that the SSD could not take for want of room.
    pub refused_bytes: u64,
    /// Bytes read from the SSD, and from disks.
    pub read_bytes: [u64; 2],
}

impl Route {
    /// An empty SSD of this size in a role.
    pub fn new(role: Role, size_bytes: u64) -> Self {
        let slots = if role == Role::None { 0 } else { size_bytes / BLOCK_BYTES };
        let (held, uses) = (HashMap::new(), BTreeMap::new());
        let dirty = HashSet::new();
        Self { role, slots, held, uses, dirty, used: 0, clock: 0, refused_bytes: 0, read_bytes: [0; 2] }
    }

    /// Blocks that it holds, in bytes.
    pub fn held_bytes(&self) -> u64 {
        (self.held.len() as u64).saturating_mul(BLOCK_BYTES)
    }

    /// Blocks that wait on it for the disks, by disk and offset: metadata does if the SSD is a cache.
    pub fn waiting(&self, is_metadata: impl Fn(usize, u64) -> bool) -> Vec<(usize, u64)> {
        let offset = |(disk, block): &(usize, u64)| (*disk, block * BLOCK_BYTES);
        let mut waiting: Vec<_> = match self.role {
            Role::WriteBack => {
                let held = self.held.keys().map(offset);
                held.filter(|(disk, offset)| !is_metadata(*disk, *offset)).collect()
            }
            Role::CacheBack => self.dirty.iter().map(offset).collect(),
            Role::None | Role::Metadata | Role::CacheThrough => Vec::new(),
        };
        waiting.sort_unstable();
        waiting
    }

    /// Length of a block that waits, in bytes.
    pub const fn block_bytes() -> u64 {
        BLOCK_BYTES
    }

    /// The parts of a request, adjacent ones of one device as one.
    pub fn parts(&mut self, request: &TraceRequest) -> Vec<Part> {
        if !matches!(request.operation, TraceOperation::Read | TraceOperation::Write) {
            // The caller flushes each device that has taken writes.
            return vec![part(Target::Disk, 0, request.length, request.operation, true)];
        }
        let mut parts: Vec<Part> = Vec::new();
        let mut at = 0;
        while at < request.length {
            let offset = request.offset + at;
            let length = (BLOCK_BYTES - offset % BLOCK_BYTES).min(request.length - at);
            for piece in self.block(request, offset, at, length) {
                match parts.iter_mut().rev().find(|last| joins(last, &piece)) {
                    Some(last) => last.length += piece.length,
                    None => parts.push(piece),
                }
            }
            at += length;
        }
        parts
    }

    /// The parts of a piece within one block.
    fn block(&mut self, request: &TraceRequest, offset: u64, at: u64, length: u64) -> Vec<Part> {
        let key = (request.disk, offset / BLOCK_BYTES);
        let is_write = request.operation == TraceOperation::Write;
        let takes = match self.role {
            Role::None => false,
            // Metadata that was there before is copied first.
            Role::Metadata => request.is_metadata,
            Role::WriteBack => request.is_metadata || is_write,
            Role::CacheThrough | Role::CacheBack => true,
        };
        let was_held = self.held.contains_key(&key);
        let (slot, home) = if takes || was_held { self.hold(key) } else { (None, None) };
        if slot.is_some() && is_write && self.role == Role::CacheBack {
            self.dirty.insert(key);
        }
        let on_ssd = |slot: u64| Target::Ssd(slot * BLOCK_BYTES + offset % BLOCK_BYTES);
        let operation = request.operation;
        let mut parts = match (slot, self.role) {
            (None, _) => {
                self.refused_bytes += if takes { length } else { 0 };
                vec![part(Target::Disk, at, length, operation, true)]
            }
            (Some(slot), Role::CacheThrough) if is_write => vec![
                part(Target::Disk, at, length, operation, true),
                part(on_ssd(slot), at, length, operation, false),
            ],
            (Some(slot), role) if role.is_cache() && !is_write && !was_held => vec![
                part(Target::Disk, at, length, operation, true),
                part(on_ssd(slot), at, length, TraceOperation::Write, false),
            ],
            (Some(slot), _) => vec![part(on_ssd(slot), at, length, operation, true)],
        };
        if !is_write {
            let is_disk = parts.first().is_some_and(|part| part.target == Target::Disk);
            self.read_bytes[usize::from(is_disk)] += length;
        }
        let home = home.map(|(disk, block)| Target::Home(disk, block * BLOCK_BYTES));
        parts.extend(home.map(|home| part(home, at, BLOCK_BYTES, TraceOperation::Write, false)));
        parts
    }

    /// The slot of a block, which is used now, and the block that has to go home for it. Only a cache gives up blocks.
    fn hold(&mut self, key: (usize, u64)) -> (Option<u64>, Option<(usize, u64)>) {
        self.clock += 1;
        if let Some((slot, last)) = self.held.get_mut(&key) {
            self.uses.remove(last);
            *last = self.clock;
            self.uses.insert(self.clock, key);
            return (Some(*slot), None);
        }
        let mut home = None;
        let slot = if self.used < self.slots {
            self.used += 1;
            Some(self.used - 1)
        } else if self.role.is_cache() {
            self.uses.pop_first().and_then(|(_, oldest)| {
                home = self.dirty.take(&oldest);
                self.held.remove(&oldest).map(|(slot, _)| slot)
            })
        } else {
            None
        };
        if let Some(slot) = slot {
            self.held.insert(key, (slot, self.clock));
            self.uses.insert(self.clock, key);
        }
        (slot, home)
    }
}

fn part(target: Target, at: u64, length: u64, operation: TraceOperation, is_awaited: bool) -> Part {
    Part { target, at, length, operation, is_awaited }
}

/// Returns true if a part goes on where another ends, on the same device.
fn joins(last: &Part, next: &Part) -> bool {
    let is_adjacent = match (last.target, next.target) {
        (Target::Disk, Target::Disk) => true,
        (Target::Ssd(last_offset), Target::Ssd(offset)) => last_offset + last.length == offset,
        _ => false,
    };
    is_adjacent
        && last.at + last.length == next.at
        && (last.operation, last.is_awaited) == (next.operation, next.is_awaited)
}
