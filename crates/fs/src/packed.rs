//! Items that pack several entries one behind the other, each a header, a name and perhaps a value: directory
//! entries and extended attributes of one hash, the names of an inode in one directory. Edits of their bytes.

use brindle_ondisk::item::{DirEntryHeader, InodeExtrefHeader, InodeRefHeader};
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed part of an entry, which says how long the rest is.
pub(crate) trait Header: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned {
    /// Length of the name, in bytes.
    fn name_bytes(&self) -> usize;

    /// Length of what follows the name, in bytes.
    fn value_bytes(&self) -> usize {
        0
    }
}

impl Header for DirEntryHeader {
    fn name_bytes(&self) -> usize {
        self.name_len.get().into()
    }

    fn value_bytes(&self) -> usize {
        self.data_len.get().into()
    }
}

impl Header for InodeRefHeader {
    fn name_bytes(&self) -> usize {
        self.name_len.get().into()
    }
}

impl Header for InodeExtrefHeader {
    fn name_bytes(&self) -> usize {
        self.name_len.get().into()
    }
}

/// One entry in its place.
#[derive(Debug)]
pub(crate) struct Packed<'a, H> {
    pub(crate) header: &'a H,
    /// Range in the bytes of the item.
    pub(crate) range: Range<usize>,
}

/// The first entry that `is_wanted`.
pub(crate) fn find<'a, H: Header>(
    packed: &'a [u8],
    mut is_wanted: impl FnMut(&H, &[u8]) -> bool,
) -> Option<Packed<'a, H>> {
    let mut start = 0;
    // What ends within an entry was refused by the tree checker; there is no more to be had of it here.
    while let Ok((header, rest)) = H::ref_from_prefix(packed.get(start..)?) {
        let (name, rest) = rest.split_at_checked(header.name_bytes())?;
        let value = rest.get(..header.value_bytes())?;
        let end = start + size_of::<H>() + name.len() + value.len();
        if is_wanted(header, name) {
            return Some(Packed { header, range: start..end });
        }
        start = end;
    }
    None
}

/// Adds an entry behind the others.
pub(crate) fn append<H: Header>(packed: &mut Vec<u8>, header: &H, name: &[u8], value: &[u8]) {
    debug_assert_eq!((header.name_bytes(), header.value_bytes()), (name.len(), value.len()));
    packed.reserve_exact(entry_bytes::<H>(name, value));
    packed.extend_from_slice(header.as_bytes());
    packed.extend_from_slice(name);
    packed.extend_from_slice(value);
}

/// Takes the first entry out that `is_wanted`; whether there was one.
pub(crate) fn remove<H: Header>(packed: &mut Vec<u8>, is_wanted: impl FnMut(&H, &[u8]) -> bool) -> bool {
    let Some(range) = find(packed, is_wanted).map(|entry| entry.range) else {
        return false;
    };
    packed.drain(range);
    true
}

/// The size of an entry.
pub(crate) const fn entry_bytes<H>(name: &[u8], value: &[u8]) -> usize {
    size_of::<H>() + name.len() + value.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_ondisk::ObjectId;
    use proptest::prelude::*;
    use zerocopy::FromZeros;
    use zerocopy::little_endian::{U16, U64};

    #[derive(Clone, Debug)]
    enum Step {
        Append(Vec<u8>, Vec<u8>),
        Remove(Vec<u8>),
        Find(Vec<u8>),
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(b'a'..b'd', 1..4)
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (name(), prop::collection::vec(any::<u8>(), 0..9))
                .prop_map(|(name, value)| Step::Append(name, value)),
            name().prop_map(Step::Remove),
            name().prop_map(Step::Find),
        ]
    }

    fn length(bytes: &[u8]) -> U16 {
        U16::new(u16::try_from(bytes.len()).expect("short"))
    }

    proptest! {
        #[test]
        fn edits_are_those_of_a_list(steps in prop::collection::vec(step(), 0..40)) {
            let mut packed = Vec::new();
            let mut model: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Append(name, value) => {
                        let mut header = DirEntryHeader::new_zeroed();
                        (header.name_len, header.data_len) = (length(&name), length(&value));
                        append(&mut packed, &header, &name, &value);
                        model.push((name, value));
                    }
                    Step::Remove(name) => {
                        let at = model.iter().position(|entry| entry.0 == name);
                        prop_assert_eq!(remove::<DirEntryHeader>(&mut packed, |_, found| found == name), at.is_some());
                        at.map(|at| model.remove(at));
                    }
                    Step::Find(name) => {
                        let found = find::<DirEntryHeader>(&packed, |_, found| found == name);
                        let value =
                            found.map(|entry| packed[entry.range.end - entry.header.value_bytes()..entry.range.end].to_vec());
                        prop_assert_eq!(value, model.iter().find(|entry| entry.0 == name).map(|entry| entry.1.clone()));
                    }
                }
                let bytes: usize = model.iter().map(|(name, value)| entry_bytes::<DirEntryHeader>(name, value)).sum();
                prop_assert_eq!(packed.len(), bytes);
            }
        }

        #[test]
        fn bytes_cut_off_anywhere_are_survived(cut in 0usize..80) {
            let mut packed = Vec::new();
            for (parent, name) in [(256, &b"first"[..]), (257, b"second"), (256, b"third")] {
                let header = InodeExtrefHeader {
                    parent_objectid: ObjectId::new(parent),
                    index: U64::new(2),
                    name_len: length(name),
                };
                append(&mut packed, &header, name, &[]);
            }
            let whole = packed.len();
            packed.truncate(cut);
            let found = find::<InodeExtrefHeader>(&packed, |header, name| {
                header.parent_objectid == ObjectId::new(256) && name == b"third"
            });
            prop_assert_eq!(found.is_some(), cut >= whole);
        }
    }
}
