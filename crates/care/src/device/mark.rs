//! The mark on a device that is to take the place of one of a pool, by a replacement or because it was away: until it has
//! everything, it has no superblock and is no device of the pool.

use brindle_device::{Device, DeviceError, WritableDevice};
use brindle_ondisk::{DevId, Uuid};
use brindle_tree::Pool;
use brindle_volume::DeviceStatus;

/// Place of the mark on a target, in bytes: before the first device extent, and away from superblocks and boot sectors.
const MARK_OFFSET: u64 = 128 << 10;
const MARK_BYTES: usize = 4096;
const TITLE: &str = "brindle: to replace a device";

/// The pool, and the device of it whose place a device is to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetMark {
    /// UUID of the pool.
    pub fsid: Uuid,
    /// Id of the device in it.
    pub devid: DevId,
    /// UUID of that device.
    pub uuid: Uuid,
}

impl TargetMark {
    /// The mark that a device has; `None` without one.
    ///
    /// # Errors
    /// A failed read.
    pub fn read(device: &dyn Device) -> Result<Option<Self>, DeviceError> {
        let mut found = vec![0; MARK_BYTES];
        if device.size_bytes() < MARK_OFFSET + MARK_BYTES as u64 {
            return Ok(None);
        }
        device.read_at(MARK_OFFSET, &mut found)?;
        Ok(Self::parse(&found))
    }

    /// The mark of a target for a device of a pool.
    pub(super) fn of(pool: &Pool, source: &DeviceStatus) -> Self {
        Self { fsid: pool.superblock().fsid, devid: source.devid, uuid: source.uuid }
    }

    /// Returns true if a device has this mark.
    pub(super) fn is_on(&self, device: &dyn Device) -> Result<bool, DeviceError> {
        Ok(Self::read(device)? == Some(*self))
    }

    pub(super) fn write(&self, target: &dyn WritableDevice) -> Result<(), DeviceError> {
        put(target, &self.bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { fsid, devid, uuid } = self;
        let mut mark = format!("{TITLE}\nfsid {fsid}\ndevid {devid}\nuuid {uuid}\n").into_bytes();
        mark.resize(MARK_BYTES, 0);
        mark
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let mut lines = std::str::from_utf8(&bytes[..end]).ok()?.lines();
        let is_titled = lines.next() == Some(TITLE);
        let mut value = |name| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let (fsid, devid, uuid) = (value("fsid")?, value("devid")?, value("uuid")?);
        let mark = Self {
            fsid: Uuid::parse(fsid)?,
            devid: DevId::new(devid.parse().ok()?),
            uuid: Uuid::parse(uuid)?,
        };
        // Nothing else may stand there.
        (is_titled && mark.bytes() == bytes).then_some(mark)
    }
}

/// Takes the mark from a target.
pub(super) fn clear(target: &dyn WritableDevice) -> Result<(), DeviceError> {
    put(target, &[0; MARK_BYTES])
}

fn put(target: &dyn WritableDevice, bytes: &[u8]) -> Result<(), DeviceError> {
    target.write_at(MARK_OFFSET, bytes)?;
    target.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_nothing_else_is_taken_for_one() {
        let mark = TargetMark { fsid: Uuid([1; 16]), devid: DevId::new(2), uuid: Uuid([3; 16]) };
        let bytes = mark.bytes();
        assert_eq!(TargetMark::parse(&bytes), Some(mark));
        let mut longer = bytes.clone();
        longer[4000] = 1;
        for other in [vec![0; MARK_BYTES], vec![0xff; MARK_BYTES], longer, bytes[..20].to_vec()] {
            assert_eq!(TargetMark::parse(&other), None);
        }
    }
}
