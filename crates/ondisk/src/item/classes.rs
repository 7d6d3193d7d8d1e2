//! Classes of devices: brindle's own item of the device tree, which other drivers leave where it is.
//!
//! Its contents are no concern of the gate: an item that is damaged costs the names of classes, and not the device tree.

use super::own::OWNER;
use crate::{Defect, Key, KeyType, Uuid, to_u64};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Beginning of the item. As many [`ClassEntry`]s follow as it says, then as many [`ClassMember`]s.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DeviceClassesHeader {
    /// Version of the item; 1 at present. The contents of another one are not known.
    pub version: U64,
    /// Number of classes.
    pub class_count: U64,
    /// Number of devices that have a class of their own.
    pub member_count: U64,
}
const _: () = assert!(size_of::<DeviceClassesHeader>() == 24);

impl DeviceClassesHeader {
    /// The version that this is.
    pub const VERSION: u64 = 1;
    /// Its key, behind that of [`SuperblockAgesHeader`](super::SuperblockAgesHeader).
    pub const KEY: Key = Key::new(OWNER, KeyType::PERSISTENT_ITEM, 4);
}

/// A class. The fastest comes first.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ClassEntry {
    /// 0 if metadata and small files prefer it, 1 if other data does.
    pub side: U64,
    /// Its name, with zeros behind it.
    pub name: [u8; 16],
}
const _: () = assert!(size_of::<ClassEntry>() == 24);

/// A device that has a class of its own.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ClassMember {
    /// UUID of the device, which a replacement inherits.
    pub device: Uuid,
    /// Number of its class in the list, from 0.
    pub class: U64,
}
const _: () = assert!(size_of::<ClassMember>() == 24);

/// Item of the classes of devices.
#[derive(Clone, Copy, Debug)]
pub struct DeviceClassesItem<'a> {
    /// Classes, the fastest first.
    pub classes: &'a [ClassEntry],
    /// Devices that have one of their own.
    pub members: &'a [ClassMember],
}

impl<'a> DeviceClassesItem<'a> {
    /// Bytes of an item of these classes.
    pub fn encode(classes: &[ClassEntry], members: &[ClassMember]) -> Vec<u8> {
        let header = DeviceClassesHeader {
            version: DeviceClassesHeader::VERSION.into(),
            class_count: to_u64(classes.len()).into(),
            member_count: to_u64(members.len()).into(),
        };
        [header.as_bytes(), classes.as_bytes(), members.as_bytes()].concat()
    }

    /// The lists of an item.
    ///
    /// # Errors
    /// Another version, or a length that the numbers do not account for.
    pub fn parse(data: &'a [u8]) -> Result<Self, Defect> {
        let size = to_u64(data.len());
        let (header, rest) = DeviceClassesHeader::ref_from_prefix(data).map_err(|_| {
            Defect::expected("device classes item size", to_u64(size_of::<DeviceClassesHeader>()), size)
        })?;
        if header.version.get() != DeviceClassesHeader::VERSION {
            let (known, found) = (DeviceClassesHeader::VERSION, header.version.get());
            return Err(Defect::expected("device classes item version", known, found));
        }
        let count = |count: U64| usize::try_from(count.get()).unwrap_or(usize::MAX);
        let cut_off = || Defect::new("device classes item is cut off, size", size);
        let (classes, rest) = <[ClassEntry]>::ref_from_prefix_with_elems(rest, count(header.class_count))
            .map_err(|_| cut_off())?;
        let (members, rest) = <[ClassMember]>::ref_from_prefix_with_elems(rest, count(header.member_count))
            .map_err(|_| cut_off())?;
        if !rest.is_empty() {
            return Err(Defect::new("device classes item has bytes behind its lists", to_u64(rest.len())));
        }
        Ok(Self { classes, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_as_long_as_the_header_says() {
        let class = ClassEntry { side: 1.into(), name: *b"smr\0\0\0\0\0\0\0\0\0\0\0\0\0" };
        let member = ClassMember { device: Uuid([7; 16]), class: 0.into() };
        let data = DeviceClassesItem::encode(&[class], &[member, member]);
        let found = DeviceClassesItem::parse(&data).expect("whole");
        assert_eq!((found.classes.len(), found.members.len()), (1, 2));
        assert_eq!(found.members[1].device, Uuid([7; 16]));
        for length in 0..data.len() {
            assert!(DeviceClassesItem::parse(&data[..length]).is_err(), "{length}");
        }
        assert!(DeviceClassesItem::parse(&[&data[..], &[0]].concat()).is_err(), "bytes behind the lists");
        let mut later = data.clone();
        later[0] = 2;
        let error = DeviceClassesItem::parse(&later).expect_err("not known");
        assert!(error.to_string().contains("version"), "{error}");
        let mut endless = data;
        endless[8..16].fill(0xff);
        assert!(DeviceClassesItem::parse(&endless).is_err());
    }
}
