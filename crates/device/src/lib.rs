//! Devices: an image file, a block device or an export of an NBD server ([`NbdDevice`]), read at plain byte offsets by many threads at once, and the
//! device's class (does it rotate?). A [`WritableDevice`] can be written too.
//!
//! The walk of a read: a batch of [`ReadRequest`]s is submitted ([`Device::submit_reads`]), an engine reads each into a
//! [`Buffer`] of its own, and the [`PendingRead`] hands the buffer to its waiter. What is under way is known exactly. A
//! device that has no engine (memory, a simulation) answers as it is asked. A single read that is wanted at once has no
//! use for an engine: [`Device::read_at`] makes it by the calling thread. Where nothing need be known of what is under
//! way, and the host caches the device, [`Device::prefetch`] has the host fetch into its own memory. A long run is
//! better fetched past that memory, by requests that say so, unless it is there already ([`Device::cached_bytes`]); their buffers lie on huge pages, or
//! the device would get them in too many pieces.
//!
//! The walk of a write: devices add their parts of it to a [`Batch`], which the engine makes all at once while the caller
//! waits; likewise flushes. One write to one device is made by the calling thread.
//! Must not know: btrfs.

mod anchor;
mod batch;
mod buffer;
mod claim;
mod class;
mod direct;
mod durable;
mod engine;
mod error;
mod file;
pub mod host;
mod huge_page;
mod loop_device;
mod memory;
mod meter;
mod nbd;
mod open;
mod overlay;
mod pieces;
mod reconnect;
mod request;
mod residency;
mod sparse;
mod wait;

pub use anchor::Anchor;
pub use batch::{Batch, WriteRequest, write_now};
pub use buffer::Buffer;
pub use claim::Claim;
pub use class::DeviceClass;
pub use direct::DIRECT_ALIGNMENT;
pub use error::DeviceError;
pub use file::FileDevice;
pub use loop_device::LoopDevice;
pub use memory::MemoryDevice;
pub use meter::{Meter, Operation, RecordedRequest, Tally, Traffic};
pub use nbd::NbdDevice;
pub use open::{is_remote, open_device, open_device_to_write, open_device_with_claim};
pub use overlay::OverlayDevice;
pub use reconnect::{ReconnectError, ReconnectGuard};
pub use request::{PendingRead, ReadAnswer, ReadRequest, ReadUnderWay, ReadWaiter};
pub use sparse::SparseDevice;
pub use wait::before_wait;

use std::fmt;
use std::sync::Arc;

/// A run of bytes that can be read at any place, by several threads at once.
pub trait Device: Send + Sync + fmt::Debug {
    /// The name in messages: the path, where there is one.
    fn name(&self) -> &str;

    /// Its size in bytes.
    fn size_bytes(&self) -> u64;

    /// Fills `buffer` from `offset` on, or fails as a whole.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError>;

    /// Submits reads, which are under way together from then on; the pending reads are in the order of the requests.
    /// A device without an engine reads at once, one after the other.
    fn submit_reads(&self, requests: &[ReadRequest]) -> Vec<PendingRead> {
        read_in_turn(self, requests)
    }

    /// Tells the host, if it caches the device, that a range will be read soon, so that reading it waits less. Returns
    /// false if no host caches the device: a range is fetched in advance by [`submit_reads`](Self::submit_reads) then.
    fn prefetch(&self, _offset: u64, _length: u64) -> bool {
        false
    }

    /// Bytes of a range that the host has in its cache, or fetches into it; `None` if there is no such cache, no way around it
    /// ([`ReadRequest::bypasses_cache`]), or no word of the host.
    fn cached_bytes(&self, _offset: u64, _length: u64) -> Option<u64> {
        None
    }

    /// The extent of data or of zeros that begins at `offset`, up to `length` bytes of it, more than none. A device that knows no
    /// holes says that all of it is data.
    ///
    /// # Errors
    /// A range that passes the end; those of the host.
    fn extent_at(&self, _offset: u64, length: u64) -> Result<Extent, DeviceError> {
        Ok(Extent { length, is_hole: false })
    }

    /// Has the host forget what it caches of a range, so that the next read of it is one of the medium. What waits to be
    /// written stays. A device that no host caches has nothing to do.
    fn forget_cached(&self, _offset: u64, _length: u64) {}

    /// Fills `buffer` from `offset` on with what the medium holds, also where another machine has written it since this host read
    /// it. Both are multiples of [`DIRECT_ALIGNMENT`].
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    fn read_uncached(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.read_at(offset, buffer)
    }

    /// Number of requests, of all processes, that wait for the disk that this is or is a part of; `None` if the host does
    /// not say, as of image files. Costs a system call.
    fn host_in_flight(&self) -> Option<u32> {
        None
    }

    /// Counters of its requests, if they are counted.
    fn meter(&self) -> Option<&Meter> {
        None
    }

    /// The class of the device.
    fn class(&self) -> DeviceClass {
        DeviceClass::Unknown
    }

    /// Returns true if other machines can write it, too.
    fn is_shared(&self) -> bool {
        false
    }

    /// Facts, settings and counters of a device that is made of others, by name; none of a plain one.
    fn report(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Changes a setting of a device that is made of others.
    ///
    /// # Errors
    /// [`DeviceError::Setting`] for an unknown name, as all are of a plain device, or a value out of range.
    fn change(&self, name: &str, _value: &str) -> Result<(), DeviceError> {
        let (device, why) = (self.name().to_owned(), format!("no setting {name}"));
        Err(DeviceError::Setting { device, why })
    }

    /// Number of requests that it works on at once.
    fn queue_depth(&self) -> u32 {
        QUEUE_DEPTH
    }
}

/// A part of a device with or without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its length in bytes.
    pub length: u64,
    /// True if it takes no space, and reads as zeros.
    pub is_hole: bool,
}

/// The device behind a [`WritableDevice`], to be read: Rust converts one trait into the other since 1.86 alone.
pub trait AsDevice {
    /// The device.
    fn as_device(&self) -> &dyn Device;

    /// The device, shared.
    fn share_device(self: Arc<Self>) -> Arc<dyn Device>;
}

impl<D: Device + 'static> AsDevice for D {
    fn as_device(&self) -> &dyn Device {
        self
    }

    fn share_device(self: Arc<Self>) -> Arc<dyn Device> {
        self
    }
}

/// A device that may be written.
///
/// A write that has returned may still be lost until [`flush`](Self::flush) has; among the writes between two
/// flushes, any may be lost.
pub trait WritableDevice: Device + AsDevice {
    /// Writes all of `bytes` from `offset` on; a failure may leave a part of them written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Writes several pieces, one behind the other, from `offset` on; a failure may leave a part of them written.
    fn write_pieces_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        match pieces {
            [] => Ok(()),
            [one] => self.write_at(offset, one),
            several => self.write_at(offset, &several.concat()),
        }
    }

    /// Adds a write to a batch. A device without an engine makes it at once.
    fn submit_write<'a>(&'a self, write: WriteRequest<'a>, batch: &mut Batch<'a>) {
        batch.answer(write_now(self, &write));
    }

    /// Adds a flush of everything written before to a batch: writes of the same batch are not covered. A device without
    /// an engine makes it at once.
    fn submit_flush<'a>(&'a self, batch: &mut Batch<'a>) {
        batch.answer(self.flush());
    }

    /// Says that much will be written from now on, in long runs that are not read soon: pieces aligned to
    /// [`DIRECT_ALIGNMENT`] in memory and on the device may go around a cache then, until
    /// [`return_to_cache`](Self::return_to_cache) was called as often. Costs little, fails silently.
    fn bypass_cache(&self) {}

    /// Ends what [`bypass_cache`](Self::bypass_cache) began.
    fn return_to_cache(&self) {}

    /// Makes durable everything written before.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Flushes as a part of a durable write. A device that tells a failure of earlier writes once tells it to the next
    /// [`flush`](Self::flush), too.
    fn flush_for_write(&self) -> Result<(), DeviceError> {
        self.flush()
    }

    /// Adds to a batch: what was taken before goes to the medium, so that the next flush has little to wait for. It covers nothing.
    /// Failures of the host's earlier writes are left for that flush to tell; of [`DeviceError::Flush`] from the device itself
    /// no later flush may know. A device that can't tell these apart does nothing.
    fn submit_write_out<'a>(&'a self, batch: &mut Batch<'a>) {
        batch.answer(Ok(()));
    }

    /// Gives back the space of a range. Best effort: true if the range reads as zeros from now on, false if the
    /// device can't, and the range is as it was.
    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError>;

    /// Writes zeros that keep their space, so that a later write of the range does not lack it.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at); a part may have been written.
    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        zero_by_writing(self, offset, length)
    }

    /// Has a guard asked each time when the device is reached again after its connection was lost, before anything is written;
    /// a later one replaces it. Devices without a connection need none.
    fn guard_reconnects(&self, _guard: Arc<dyn ReconnectGuard>) {}

    /// Asks the host for the present size, which another process may have changed, in bytes.
    fn refresh_size(&self) -> Result<u64, DeviceError> {
        Ok(self.size_bytes())
    }

    /// Makes the device this long: what is cut off is lost, what is added reads as zeros. Refused unless it is
    /// an image.
    fn set_size(&self, size_bytes: u64) -> Result<(), DeviceError>;
}

/// Number of requests that a device works on at once if it does not say: as many as SATA can tell apart.
pub const QUEUE_DEPTH: u32 = 32;

/// Bytes of zeros that one write has.
const ZEROS_BYTES: usize = 1 << 20;

fn zero_by_writing(
    device: &(impl WritableDevice + ?Sized),
    offset: u64,
    length: u64,
) -> Result<(), DeviceError> {
    static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];
    let mut done = 0;
    while done < length {
        let piece = usize::try_from(length - done).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
        device.write_at(offset + done, &ZEROS[..piece])?;
        done += piece as u64;
    }
    Ok(())
}

/// Makes reads one after the other, by the calling thread.
pub fn read_in_turn(device: &(impl Device + ?Sized), requests: &[ReadRequest]) -> Vec<PendingRead> {
    let read = |request: &ReadRequest| {
        let mut buffer = Buffer::new(request.length);
        device.read_at(request.offset, &mut buffer).map(|()| buffer)
    };
    requests.iter().map(|request| PendingRead::answered(read(request))).collect()
}
