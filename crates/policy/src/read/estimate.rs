//! Estimated time of a read on a mirror: the value that `auto` compares.

use super::MirrorFacts;

/// Bytes of a sequential stream that `auto` leaves on one mirror. A hard disk that skips a piece read from another
/// mirror waits about half a revolution for the next: the longer the pieces, the smaller that share of its time.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// Defaults for a device without measurements: nanoseconds of a read elsewhere, and bytes a second.
const ROTATING: (u64, u64) = (8_000_000, 180 << 20);
const SOLID: (u64, u64) = (100_000, 500 << 20);

/// After how long half of what was measured is forgotten, in nanoseconds. A device that was slow once is not asked
/// any more, so nothing else would tell that it has recovered.
const HALF_LIFE_NS: u64 = 4_000_000_000;

/// Cost of a read on an idle mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Time in nanoseconds.
    pub ns: u64,
    /// Assumed throughput of the mirror.
    pub bytes_per_second: u64,
}

/// When a mirror would have answered, in nanoseconds from now: once what it has before it is done, it has to go where
/// the request begins (a hard disk the longer, the farther away that is), and to transfer it.
pub fn expected_ns(mirror: &MirrorFacts, length: u64) -> u64 {
    let load = &mirror.load;
    let queued = service_ns(mirror).saturating_mul(load.in_flight.into());
    cost(mirror, length).ns.saturating_add(queued).saturating_add(load.backlog_ns)
}

/// Cost of a read of `length` bytes.
pub fn cost(mirror: &MirrorFacts, length: u64) -> Cost {
    let load = &mirror.load;
    let service = service_ns(mirror);
    let usual = if mirror.rotating { ROTATING.1 } else { SOLID.1 };
    let bytes_per_second = if load.bytes_per_second == 0 { usual } else { load.bytes_per_second };
    let position = match load.distance {
        0 => 0,
        distance if mirror.rotating => scaled_by_distance(service, distance, load.size_bytes),
        _ => service,
    };
    let transfer = u128::from(length) * 1_000_000_000 / u128::from(bytes_per_second);
    let ns = position.saturating_add(u64::try_from(transfer).unwrap_or(u64::MAX));
    Cost { ns, bytes_per_second }
}

/// Time for which a read keeps the mirror from others, in nanoseconds.
fn service_ns(mirror: &MirrorFacts) -> u64 {
    let usual = if mirror.rotating { ROTATING.0 } else { SOLID.0 };
    faded(mirror.load.service_ns, usual, mirror.load.age_ns)
}

/// Measured value, pulled towards the usual one by its age.
fn faded(measured: u64, usual: u64, age_ns: u64) -> u64 {
    if measured == 0 {
        return usual;
    }
    let halves = u32::try_from(age_ns / HALF_LIFE_NS).unwrap_or(u32::MAX);
    let left = |difference: u64| difference.checked_shr(halves).unwrap_or(0);
    if measured > usual { usual + left(measured - usual) } else { usual - left(usual - measured) }
}

/// Half of a positioning is waiting for the sector to come round, the other half grows with the root of the way.
fn scaled_by_distance(service: u64, distance: u64, size_bytes: u64) -> u64 {
    let fraction = u128::from(distance.min(size_bytes)) * 1_000_000 / u128::from(size_bytes.max(1));
    let root = u64::try_from(fraction).unwrap_or(1_000_000).isqrt();
    service / 2 + service.saturating_mul(root) / 1000
}
