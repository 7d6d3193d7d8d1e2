//! Items of brindle's own in the device tree, which other drivers leave where they are.

use crate::{BlockGroupType, Defect, DevId, Generation, Key, KeyType, Logical, ObjectId, Profile, to_u64};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Object of these items, "brindle": it lies behind all devices. The type means something else with each object.
pub(super) const OWNER: ObjectId = ObjectId::new(0x0062_7269_6e64_6c65);

/// Settings of data placement: brindle's own item of the device tree. Later versions may append fields.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PoolSettingsItem {
    /// Version of the item that its writer knew; 1 at present.
    pub version: U64,
    /// Files up to this length, compressed, have their data on fast devices; 0 for none.
    pub small_file_bytes: U64,
}
const _: () = assert!(size_of::<PoolSettingsItem>() == 16);

impl PoolSettingsItem {
    /// The version that this is.
    pub const VERSION: u64 = 1;
    /// Its key. The object, "brindle", lies behind all devices; the type means something else with each object.
    pub const KEY: Key = Key::new(OWNER, KeyType::PERSISTENT_ITEM, 0);
}

/// Settings of the log: brindle's own item of the device tree. Later versions may append fields.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LogSettingsItem {
    /// Version of the item that its writer knew; 1 at present.
    pub version: U64,
    /// Copies of the log that are enough; 0 for as many as of other metadata.
    pub copies: U64,
}
const _: () = assert!(size_of::<LogSettingsItem>() == 16);

impl LogSettingsItem {
    /// The version that this is.
    pub const VERSION: u64 = 1;
    /// Its key, behind that of [`WriteBackHeader`].
    pub const KEY: Key = Key::new(OWNER, KeyType::PERSISTENT_ITEM, 2);
}

/// Settings and chunks of the write-back tier: brindle's own item of the device tree. As many [`WriteBackChunk`]s follow
/// as it says; later versions may append further bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct WriteBackHeader {
    /// Version of the item that its writer knew; 1 at present.
    pub version: U64,
    /// Number of the mode; 0 if none was chosen.
    pub mode: U64,
    /// Bit of the profile of its chunks, [`Self::SINGLE`] for none; 0 if none was chosen.
    pub profile: U64,
    /// Number of chunks.
    pub chunk_count: U64,
}
const _: () = assert!(size_of::<WriteBackHeader>() == 32);

impl WriteBackHeader {
    /// The version that this is.
    pub const VERSION: u64 = 1;
    /// Its key, behind that of [`PoolSettingsItem`].
    pub const KEY: Key = Key::new(OWNER, KeyType::PERSISTENT_ITEM, 1);
    /// Stands for the profile `single`, which has no bit (`BTRFS_AVAIL_ALLOC_BIT_SINGLE`).
    pub const SINGLE: u64 = 1 << 48;

    /// Profile of a number in the item.
    pub fn profile_of(number: u64) -> Option<Profile> {
        match number {
            0 => None,
            Self::SINGLE => Some(Profile::Single),
            bit => BlockGroupType::from_bits_retain(bit).profile(),
        }
    }

    /// Number of a profile in the item; 0 for none.
    pub fn number_of(profile: Option<Profile>) -> u64 {
        match profile {
            None => 0,
            Some(Profile::Single) => Self::SINGLE,
            Some(profile) => profile.attributes().flag.bits(),
        }
    }
}

/// A chunk of the write-back tier.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct WriteBackChunk {
    /// Start address.
    pub start: Logical,
    /// Time from which on data has waited in it, in seconds since 1970; 0 if none does.
    pub since: U64,
}
const _: () = assert!(size_of::<WriteBackChunk>() == 16);

/// Item of the write-back tier.
#[derive(Clone, Copy, Debug)]
pub struct WriteBackItem<'a> {
    /// Its beginning.
    pub header: &'a WriteBackHeader,
    /// Its chunks.
    pub chunks: &'a [WriteBackChunk],
}

impl<'a> WriteBackItem<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Result<Self, Defect> {
        let size = to_u64(data.len());
        let (header, rest) = WriteBackHeader::ref_from_prefix(data).map_err(|_| {
            Defect::expected("write-back item size", to_u64(size_of::<WriteBackHeader>()), size)
        })?;
        let count = usize::try_from(header.chunk_count.get()).unwrap_or(usize::MAX);
        let (chunks, _) = <[WriteBackChunk]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| Defect::new("write-back item is cut off, chunks", header.chunk_count.get()))?;
        Ok(Self { header, chunks })
    }
}

/// Ages of superblocks: brindle's own item of the device tree. As many [`SuperblockAge`]s follow as it says; later versions
/// may append further bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SuperblockAgesHeader {
    /// Version of the item that its writer knew; 1 at present.
    pub version: U64,
    /// Number of devices.
    pub device_count: U64,
}
const _: () = assert!(size_of::<SuperblockAgesHeader>() == 16);

impl SuperblockAgesHeader {
    /// The version that this is.
    pub const VERSION: u64 = 1;
    /// The most devices that may sleep: their list is one item.
    pub const DEVICES_MAX: usize = 128;
    /// Its key, behind that of [`LogSettingsItem`].
    pub const KEY: Key = Key::new(OWNER, KeyType::PERSISTENT_ITEM, 3);
}

/// The age of a device's superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SuperblockAge {
    /// The device.
    pub devid: DevId,
    /// The generation that its superblock had, durably, when the item was written.
    pub generation: Generation,
}
const _: () = assert!(size_of::<SuperblockAge>() == 16);

/// Item of the ages of superblocks.
#[derive(Clone, Copy, Debug)]
pub struct SuperblockAgesItem<'a> {
    /// Its beginning.
    pub header: &'a SuperblockAgesHeader,
    /// Its devices.
    pub devices: &'a [SuperblockAge],
}

impl<'a> SuperblockAgesItem<'a> {
    /// An item of these devices.
    pub fn encode(devices: &[SuperblockAge]) -> Vec<u8> {
        let header = SuperblockAgesHeader {
            version: SuperblockAgesHeader::VERSION.into(),
            device_count: to_u64(devices.len()).into(),
        };
        [header.as_bytes(), devices.as_bytes()].concat()
    }

    pub(super) fn parse(data: &'a [u8]) -> Result<Self, Defect> {
        let size = to_u64(data.len());
        let (header, rest) = SuperblockAgesHeader::ref_from_prefix(data).map_err(|_| {
            Defect::expected("superblock ages item size", to_u64(size_of::<SuperblockAgesHeader>()), size)
        })?;
        let count = usize::try_from(header.device_count.get()).unwrap_or(usize::MAX);
        let (devices, _) = <[SuperblockAge]>::ref_from_prefix_with_elems(rest, count).map_err(|_| {
            Defect::new("superblock ages item is cut off, devices", header.device_count.get())
        })?;
        Ok(Self { header, devices })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(count: u64, chunks: &[WriteBackChunk]) -> Vec<u8> {
        let header = WriteBackHeader {
            version: WriteBackHeader::VERSION.into(),
            mode: 2.into(),
            profile: WriteBackHeader::SINGLE.into(),
            chunk_count: count.into(),
        };
        [header.as_bytes(), chunks.as_bytes()].concat()
    }

    #[test]
    fn chunks_are_as_many_as_the_header_says_and_later_versions_may_say_more() {
        let chunks =
            [1, 2].map(|number| WriteBackChunk { start: Logical::new(number << 30), since: number.into() });
        let mut data = item(2, &chunks);
        data.extend_from_slice(b"of a later version");
        let found = WriteBackItem::parse(&data).expect("whole");
        assert_eq!(
            found.chunks.iter().map(|chunk| chunk.start.get()).collect::<Vec<_>>(),
            [1 << 30, 2 << 30]
        );
    }

    #[test]
    fn profiles_are_read_back() {
        for profile in [Profile::Single, Profile::Dup, Profile::Raid0, Profile::Raid1, Profile::Raid6] {
            assert_eq!(WriteBackHeader::profile_of(WriteBackHeader::number_of(Some(profile))), Some(profile));
        }
        assert_eq!(WriteBackHeader::profile_of(WriteBackHeader::number_of(None)), None);
    }

    #[test]
    fn ages_of_superblocks_are_read_back_and_those_of_a_cut_off_item_refused() {
        let devices = [1, 9].map(|number| SuperblockAge {
            devid: DevId::new(number),
            generation: Generation::new(70 + number),
        });
        let mut data = SuperblockAgesItem::encode(&devices);
        assert!(
            SuperblockAgesItem::parse(&data[..47]).is_err()
                && SuperblockAgesItem::parse(&data[..15]).is_err()
        );
        assert_eq!(SuperblockAgesItem::parse(&data).expect("whole").devices, devices);
        data.extend_from_slice(b"of a later version");
        assert_eq!(SuperblockAgesItem::parse(&data).expect("whole").devices, devices);
        data[8..16].fill(0xff);
        assert!(SuperblockAgesItem::parse(&data).is_err());
    }

    #[test]
    fn an_item_that_is_cut_off_is_refused() {
        assert!(WriteBackItem::parse(&[0; 31]).is_err());
        assert!(WriteBackItem::parse(&item(1, &[])).is_err());
        assert!(WriteBackItem::parse(&item(u64::MAX, &[])).is_err());
    }
}
