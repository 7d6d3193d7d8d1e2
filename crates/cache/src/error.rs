//! Errors of caches.

use brindle_device::DeviceError;
use thiserror::Error;

/// Reason for which a cache could not be made, loaded or changed.
#[derive(Debug, Error)]
pub enum CacheError {
    /// One of the devices failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The flash device has no cache.
    #[error("{flash} holds no cache")]
    NoCache {
        /// The flash device.
        flash: String,
    },
    /// The flash device has a cache already.
    #[error(
        "{flash} holds the cache {cache} already; --force takes its place, and its dirty blocks are lost"
    )]
    Exists {
        /// The flash device.
        flash: String,
        /// Name of the cache that is there.
        cache: String,
    },
    /// The cache was made by a later version.
    #[error("{flash}: the cache has version {found} of the format, which is not known")]
    Version {
        /// The flash device.
        flash: String,
        /// The version.
        found: u32,
    },
    /// The cache's own data on flash is damaged.
    #[error("{flash}: corrupt {what} at offset {offset}")]
    Corrupt {
        /// The flash device.
        flash: String,
        /// The damaged thing.
        what: &'static str,
        /// Its place.
        offset: u64,
    },
    /// A device does not have the size that it had.
    #[error("{device} has {found} bytes, the cache was made for {expected}")]
    Size {
        /// The device.
        device: String,
        /// Its size.
        found: u64,
        /// The size that it had.
        expected: u64,
    },
    /// The disk is not as the cache left it, and dirty blocks wait for it.
    #[error(
        "{disk} was written without the cache on {flash}, or is another disk, and {dirty_blocks} dirty blocks wait for it"
    )]
    DiskChanged {
        /// The disk.
        disk: String,
        /// The flash device.
        flash: String,
        /// Number of dirty blocks.
        dirty_blocks: u64,
    },
    /// The disk bears the mark of another cache, and is incomplete without that one.
    #[error(
        "{disk} is the disk of the flash cache {cache} on {owner}, and incomplete without: {flash} is another one"
    )]
    OtherCache {
        /// The disk.
        disk: String,
        /// Name of the cache that it belongs to.
        cache: String,
        /// The flash device of that cache, by the name that it had.
        owner: String,
        /// The flash device that was given.
        flash: String,
    },
    /// The disk was used with a later state of the cache.
    #[error(
        "{flash} has an earlier state of the cache {cache} than {disk}, which lacks blocks that are not on {flash}"
    )]
    StaleFlash {
        /// The flash device.
        flash: String,
        /// Name of the cache.
        cache: String,
        /// The disk.
        disk: String,
    },
    /// Two SSDs that do not mirror each other.
    #[error(
        "{first} and {second} do not mirror each other; `brindle cache mirror` makes one the mirror of the other"
    )]
    NoMirror {
        /// One of them.
        first: String,
        /// The other one.
        second: String,
    },
    /// Each of the two SSDs of a cache was used without the other.
    #[error(
        "{first} and {second} were each used without the other: load the cache from the one that is to count, or make the other one its mirror again with `brindle cache mirror --force`"
    )]
    Diverged {
        /// One of them.
        first: String,
        /// The other one.
        second: String,
    },
    /// The SSD waits to be brought up to date from its mirror.
    #[error("{flash} is being brought up to date from its mirror, and no use without")]
    Behind {
        /// The SSD.
        flash: String,
    },
    /// One SSD of two, of which nothing tells that it is the newest.
    #[error(
        "{flash} has {dirty_blocks} dirty blocks, but nothing on {disk} tells that its mirror has no newer ones: give both SSDs, or force it if the other one is lost"
    )]
    MaybeStale {
        /// The SSD.
        flash: String,
        /// The disk.
        disk: String,
        /// Number of dirty blocks.
        dirty_blocks: u64,
    },
    /// Dirty blocks could not be written to the disk when the cache was closed.
    #[error("{dirty_blocks} dirty blocks on {flash} can't be read, and {disk} lacks them")]
    NotCleaned {
        /// The flash device.
        flash: String,
        /// The disk.
        disk: String,
        /// Number of dirty blocks.
        dirty_blocks: u64,
    },
    /// Dirty blocks would be lost.
    #[error("{flash}: {dirty_blocks} dirty blocks are not on the disk yet")]
    Dirty {
        /// The flash device.
        flash: String,
        /// Number of dirty blocks.
        dirty_blocks: u64,
    },
    /// The cache was written while it was closed.
    #[error("{cache} was written while it was closed")]
    InUse {
        /// Name of the cache.
        cache: String,
    },
    /// A size or number that a cache can't have.
    #[error("{what} of {found}: {why}")]
    Refused {
        /// The thing.
        what: &'static str,
        /// The number given.
        found: u64,
        /// The reason.
        why: &'static str,
    },
    /// A setting that does not exist, or a value that it can't have.
    #[error("{name}={value}: {why}")]
    Setting {
        /// The setting.
        name: String,
        /// The value given.
        value: String,
        /// The reason.
        why: String,
    },
}
