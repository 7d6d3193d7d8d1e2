//! The record of a lease: the holder of a pool whose devices several machines can write.
//!
//! It lies in the first MiB of each device, where no driver makes chunks, and which the kernel neither reads nor writes outside of the
//! superblock. Boot loaders may keep themselves there.

use crate::{ChecksumType, DevId, Uuid, to_u64};
use std::fmt;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Place of the record on each device, in bytes: the end of the first MiB.
pub const LEASE_OFFSET: u64 = (1 << 20) - to_u64(LEASE_BYTES);
/// Length of the record in bytes.
pub const LEASE_BYTES: usize = 4096;

const MAGIC: [u8; 16] = *b"brindle lease\0\0\0";
const VERSION: u32 = 1;

/// State of a lease.
const FREE: u32 = 0;
const HELD: u32 = 1;

/// The record of a lease. Later versions may give meaning to the zeros at its end.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LeaseRecord {
    magic: [u8; 16],
    version: U32,
    /// CRC-32C of the record with zeros in place of this.
    csum: U32,
    /// The pool.
    pub fsid: Uuid,
    /// The device.
    pub dev_uuid: Uuid,
    /// Drawn at random by each mount.
    pub holder: [u8; 16],
    /// Grows with each renewal.
    pub sequence: U64,
    state: U32,
    /// Time from one renewal to the next, in milliseconds.
    pub interval_ms: U32,
    /// Time at which it was taken by the clock of the holder, in seconds since 1970: to be shown, never to be compared.
    pub since: U64,
    /// The process that holds it.
    pub process: LeaseProcess,
    /// Name of the holder's machine, with zeros behind it.
    host: [u8; 64],
    reserved: [u8; 3880],
}
const _: () = assert!(size_of::<LeaseRecord>() == LEASE_BYTES);

/// A process, told from all others of all machines and times.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LeaseProcess {
    /// Id of the machine (`/etc/machine-id`); zeros if it has none.
    pub machine_id: [u8; 16],
    /// Id of the run of its kernel.
    pub boot_id: [u8; 16],
    /// Number of the namespace of process ids.
    pub pid_namespace: U64,
    /// Process id, in this namespace.
    pub pid: U32,
    unused: U32,
    /// Time at which it began, in ticks since the kernel did.
    pub started: U64,
}

impl LeaseProcess {
    /// A process.
    pub fn new(machine_id: [u8; 16], boot_id: [u8; 16], pid_namespace: u64, pid: u32, started: u64) -> Self {
        let (pid_namespace, pid, started) = (pid_namespace.into(), pid.into(), started.into());
        Self { machine_id, boot_id, pid_namespace, pid, unused: U32::ZERO, started }
    }
}

/// Contents of the place of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeasePlace {
    /// Zeros: it was never used.
    Unused,
    /// A record.
    Record(Box<LeaseRecord>),
    /// A record that was torn, or has decayed.
    Damaged,
    /// Something else, to be left alone: a boot loader, say.
    Foreign,
}

impl LeasePlace {
    /// Contents of a place, whatever they are.
    pub fn parse(bytes: &[u8; LEASE_BYTES]) -> Self {
        if bytes.iter().all(|byte| *byte == 0) {
            return Self::Unused;
        }
        let Ok(record) = LeaseRecord::read_from_bytes(bytes.as_slice()) else { return Self::Foreign };
        match record.magic == MAGIC {
            false => Self::Foreign,
            true if record.version.get() >= VERSION && record.csum == record.checksum() => {
                Self::Record(Box::new(record))
            }
            true => Self::Damaged,
        }
    }
}

impl LeaseRecord {
    /// A record that is free and belongs to no pool yet.
    pub fn new(process: LeaseProcess, host: &str) -> Self {
        let mut record = Self::new_zeroed();
        (record.magic, record.version, record.process) = (MAGIC, VERSION.into(), process);
        for (target, byte) in record.host.iter_mut().zip(host.bytes()) {
            *target = byte;
        }
        record
    }

    /// Returns true if a mount holds it.
    pub fn is_held(&self) -> bool {
        self.state.get() != FREE
    }

    /// Marks it as held, or as free.
    pub fn set_held(&mut self, is_held: bool) {
        self.state.set(if is_held { HELD } else { FREE });
    }

    /// Name of the holder's machine, without characters that would disturb a terminal.
    pub fn host(&self) -> String {
        let name: Vec<u8> = self.host.iter().copied().take_while(|byte| *byte != 0).collect();
        let name = String::from_utf8_lossy(&name);
        let shown = |letter: char| if letter.is_control() { '?' } else { letter };
        if name.is_empty() { "without a name".to_owned() } else { name.chars().map(shown).collect() }
    }

    /// The bytes to be written, with their checksum.
    pub fn sealed(&self) -> [u8; LEASE_BYTES] {
        let mut record = *self;
        record.csum = record.checksum();
        let mut bytes = [0; LEASE_BYTES];
        bytes.copy_from_slice(record.as_bytes());
        bytes
    }

    fn checksum(&self) -> U32 {
        let checked = Self { csum: U32::ZERO, ..*self };
        let mut bytes = [0; 4];
        bytes.copy_from_slice(ChecksumType::Crc32c.compute(checked.as_bytes()).as_bytes());
        U32::from_bytes(bytes)
    }
}

impl fmt::Display for LeaseRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}, process {}", self.host(), self.process.pid)
    }
}

impl fmt::Debug for LeaseRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holder = Uuid(self.holder);
        write!(f, "LeaseRecord({self}, {holder}, sequence {}, held {})", self.sequence, self.is_held())
    }
}

/// A device of a pool, as a record names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseDevice {
    /// The pool.
    pub fsid: Uuid,
    /// Id of the device in it, for messages.
    pub devid: DevId,
    /// The device.
    pub uuid: Uuid,
}

impl LeaseDevice {
    /// Returns true if a record is one of this device, and not what another pool has left there.
    pub fn is_of(&self, record: &LeaseRecord) -> bool {
        record.fsid == self.fsid && record.dev_uuid == self.uuid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> LeaseRecord {
        let mut record = LeaseRecord::new(LeaseProcess::new([1; 16], [2; 16], 3, 4, 5), "a host");
        (record.fsid, record.dev_uuid, record.holder) = (Uuid([6; 16]), Uuid([7; 16]), [8; 16]);
        (record.sequence, record.interval_ms) = (9.into(), 5000.into());
        record.set_held(true);
        record
    }

    #[test]
    fn records_are_found_as_they_were_written() {
        let LeasePlace::Record(found) = LeasePlace::parse(&record().sealed()) else { panic!("a record") };
        assert_eq!(found.sealed(), record().sealed());
        assert!(found.is_held() && found.to_string() == "host a host, process 4");
        let device = LeaseDevice { fsid: Uuid([6; 16]), devid: DevId::new(1), uuid: Uuid([7; 16]) };
        assert!(device.is_of(&found) && !LeaseDevice { uuid: Uuid([8; 16]), ..device }.is_of(&found));
    }

    #[test]
    fn other_contents_are_told_apart() {
        assert_eq!(LeasePlace::parse(&[0; LEASE_BYTES]), LeasePlace::Unused);
        assert_eq!(LeasePlace::parse(&[0xeb; LEASE_BYTES]), LeasePlace::Foreign);
        let mut later = record();
        later.version.set(7);
        assert!(matches!(LeasePlace::parse(&later.sealed()), LeasePlace::Record(_)));
        let mut odd = record();
        odd.host = [0x1b; 64];
        assert!(!odd.host().contains('\u{1b}'));
    }

    proptest! {
        #[test]
        fn bytes_are_no_record_unless_their_checksum_says_so(
            at in 0..LEASE_BYTES,
            change in 1..=255_u8,
            noise in prop::collection::vec(any::<u8>(), 512),
            sector in 0..8_usize,
        ) {
            let mut bytes = record().sealed();
            bytes[at] ^= change;
            let expected = if at < 16 { LeasePlace::Foreign } else { LeasePlace::Damaged };
            prop_assert_eq!(LeasePlace::parse(&bytes), expected);
            bytes = record().sealed();
            bytes[16] ^= change;
            prop_assert_eq!(LeasePlace::parse(&bytes), LeasePlace::Damaged, "the version is covered");
            let mut torn = record().sealed();
            torn[sector * 512..][..512].copy_from_slice(&noise);
            prop_assert!(!matches!(LeasePlace::parse(&torn), LeasePlace::Record(_)));
        }
    }
}
