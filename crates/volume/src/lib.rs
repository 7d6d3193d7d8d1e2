//! Logical to physical: the chunk map, RAID geometry and mirror choice. Turns a read or write of a logical
//! range into I/O on devices, answers a bad copy from another one or rebuilds it from parity, keeps parity
//! right, and counts what each device got wrong.
//! Must not know: trees (but that blocks lead to blocks: [`history`]), transactions, files, or where chunk items are stored.
//!
//! What is known of the pool (its devices, its chunks) is one immutable snapshot, replaced as a whole when
//! something is added: a reader takes the snapshot that there is, and no lock is held while a device works.

mod bypass;
mod checksums;
mod chunk;
mod composed;
mod device;
mod device_set;
mod error;
mod first_superblock;
mod history;
mod layout;
mod lease;
mod locks;
mod lost_writes;
mod parity;
mod pool;
mod read;
mod read_state;
mod replace;
mod rescue;
mod scan;
mod scrub;
mod status;
mod traffic;
mod volume;
mod writable;
mod write;

#[cfg(test)]
mod tests;

pub use bypass::CacheBypass;
pub use checksums::DataChecksums;
pub use device_set::DeviceSet;
pub use error::{
    Attempt, AttemptFailure, MissingDevice, ReadError, SuperblockProblem, UnreadableChunk, VolumeError,
    Warning, WriteError,
};
pub use layout::{ParityStripes, StripePlaces, device_extent_length, parity_stripes, stripe_places};
pub use lease::{
    LEASE_INTERVAL, LeaseFound, LeaseHost, LeaseMode, LeaseOptions, StopReason, ThisHost, break_leases,
    check_leases, find_leases,
};
pub use parity::syndromes;
pub use read::{FetchedData, ParityRow, read_for};
pub use read_state::FetchedBytes;
pub use replace::{ReplaceError, Replacement};
pub use rescue::Rescue;
pub use scan::{OpenOptions, UnusedDevice, UnusedReason};
pub use scrub::{
    Content, CopyFindings, CopyOptions, CopyRead, Expected, ScrubCounts, ScrubFault, ScrubFindings,
    ScrubRead, ScrubStripe, ScrubWindow, SuperblockScrub,
};
pub use status::{
    ChunkStatus, DeviceCounters, DeviceStatus, ReadStatistics, StripeStatus, WritableDeviceStatus,
};
pub use traffic::DeviceTraffic;
pub use volume::Volume;
pub use writable::NotWritable;
pub use write::{SuperblockCopies, Witness, wipe_superblocks};
