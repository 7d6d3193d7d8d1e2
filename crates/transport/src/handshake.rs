//! The agreement of kernel and server before the first request (`FUSE_INIT`).

use crate::channel::Channel;
use crate::flags::Features;
use crate::ring;
use crate::wire::{self, InHeader, InitIn, InitOut, OutHeader, opcode};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use zerocopy::{FromBytes, IntoBytes};

/// Features and limits that a server would like. Those that the kernel does not offer are left out.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// Features.
    pub features: Features,
    /// Bytes of data in the largest request.
    pub request_bytes: u32,
    /// Number of background requests (readahead and writeback) at once.
    pub background: u16,
    /// Use of rings.
    pub rings: RingUse,
}

/// Use of rings (FUSE over `io_uring`), by which requests and answers take fewer system calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingUse {
    /// All requests come by `/dev/fuse`.
    #[default]
    Off,
    /// Rings where the host has them switched on.
    Auto,
    /// Rings, or no mount.
    On,
}

/// Features that both sides have agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreement {
    /// Features, of those that were wished.
    pub features: Features,
}

/// The largest head that comes before data, with room for growth.
pub(crate) const HEAD_BYTES_MAX: usize = 4096;
/// The least buffer that the kernel takes (`FUSE_MIN_READ_BUFFER`).
const BUFFER_BYTES_MIN: usize = 8192;
const PAGE_BYTES: u32 = 4096;

impl Channel {
    /// Agrees with the kernel on what to do how, on a descriptor of `/dev/fuse` that a mount belongs to.
    ///
    /// # Errors
    /// EPROTO for a kernel older than Linux 5.4, or a message that is no handshake; ECONNABORTED if the mount has ended
    /// already; those of read(2) and write(2).
    pub fn open(device: OwnedFd, wishes: &Wishes) -> io::Result<(Self, Agreement)> {
        let write_bytes_max = usize::try_from(wishes.request_bytes).map_err(|_| Errno::INVAL)?;
        let mut channel = Self::new(device, write_bytes_max);
        let mut buffer = vec![0; BUFFER_BYTES_MIN];
        loop {
            let message = channel.descriptor.receive(&mut buffer)?.ok_or(Errno::CONNABORTED)?;
            let (header, offer) = parse(message).ok_or(Errno::PROTO)?;
            if offer.major > wire::MAJOR {
                // A newer kernel asks again, in our version.
                channel.send_init(header.unique, &InitOut { major: wire::MAJOR, ..InitOut::default() })?;
                continue;
            }
            if offer.major < wire::MAJOR || offer.minor < wire::MINOR_MIN {
                channel.descriptor.send(header.unique, -Errno::PROTO.raw_os_error(), &[])?;
                return Err(io::Error::other(format!(
                    "the kernel speaks FUSE {}.{}; {}.{} (Linux 5.4) is the least",
                    offer.major,
                    offer.minor,
                    wire::MAJOR,
                    wire::MINOR_MIN
                )));
            }
            let rings = rings(wishes.rings, offer.features)?;
            let mut wished = wishes.features;
            wished.set(Features::OVER_IO_URING, rings.is_some());
            let features = wished & offer.features;
            (channel.queues, channel.needs_rings) = (rings, wishes.rings == RingUse::On);
            channel.send_init(header.unique, &answer(&offer, features, wishes))?;
            channel.has_long_setxattr = features.contains(Features::SETXATTR_EXT);
            return Ok((channel, Agreement { features }));
        }
    }

    fn send_init(&self, unique: u64, answer: &InitOut) -> io::Result<()> {
        Ok(self.descriptor.send(unique, 0, &[answer.as_bytes()])?)
    }
}

/// Number of queues, if there are to be rings.
fn rings(wish: RingUse, offered: Features) -> io::Result<Option<u16>> {
    if wish == RingUse::Off {
        return Ok(None);
    }
    let queues = if offered.contains(Features::OVER_IO_URING) {
        ring::queues()
    } else {
        const REASON: &str = "the kernel does not offer it (/sys/module/fuse/parameters/enable_uring)";
        Err(io::Error::other(REASON))
    };
    match queues {
        Ok(queues) => Ok(Some(queues)),
        Err(error) if wish == RingUse::On => Err(without_rings(&error)),
        Err(error) => {
            tracing::debug!("{}", without_rings(&error));
            Ok(None)
        }
    }
}

/// The error of a mount that can't have rings.
pub(crate) fn without_rings(error: &io::Error) -> io::Error {
    io::Error::other(format!("no FUSE over io_uring: {error}"))
}

/// Offer of the kernel.
struct Offer {
    major: u32,
    minor: u32,
    readahead_bytes_max: u32,
    features: Features,
}

fn parse(message: &[u8]) -> Option<(InHeader, Offer)> {
    let (header, body) = InHeader::read_from_prefix(message).ok()?;
    if header.opcode != opcode::INIT {
        return None;
    }
    let (init, rest) = InitIn::read_from_prefix(body).ok()?;
    let more = u32::read_from_prefix(rest).map_or(0, |(more, _)| more);
    let features = Features::from_bits_retain(u64::from(init.flags));
    let features = if features.contains(Features::INIT_EXT) {
        features | Features::from_bits_retain(u64::from(more) << 32)
    } else {
        features
    };
    let InitIn { major, minor, readahead_bytes_max, .. } = init;
    Some((header, Offer { major, minor, readahead_bytes_max, features }))
}

fn answer(offer: &Offer, features: Features, wishes: &Wishes) -> InitOut {
    let halves = features.bits();
    let low = u32::try_from(halves & u64::from(u32::MAX)).expect("32 bits fit");
    InitOut {
        major: wire::MAJOR,
        minor: wire::MINOR.min(offer.minor),
        readahead_bytes_max: offer.readahead_bytes_max,
        flags: low,
        background_max: wishes.background,
        // The share at which the kernel calls the mount congested.
        congestion_threshold: wishes.background - wishes.background / 4,
        write_bytes_max: wishes.request_bytes,
        time_granularity: 1,
        pages_max: u16::try_from(wishes.request_bytes.div_ceil(PAGE_BYTES)).unwrap_or(u16::MAX),
        more_flags: u32::try_from(halves >> 32).expect("32 bits fit"),
        ..InitOut::default()
    }
}

/// Bytes of a buffer that holds every request.
pub(crate) fn buffer_bytes(write_bytes_max: usize) -> usize {
    (HEAD_BYTES_MAX + write_bytes_max).max(BUFFER_BYTES_MIN + size_of::<OutHeader>())
}
