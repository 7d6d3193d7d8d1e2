//! The shape of a tree block, without any check: what is about to be damaged is known to be good, and what
//! has been damaged must not be refused here.

use brindle_ondisk::{ChecksumType, ItemHeader, Key, KeyPtr, NodeHeader, to_usize};
use zerocopy::{FromBytes, IntoBytes};

const HEADER_BYTES: usize = size_of::<NodeHeader>();

/// One item of a leaf, taken out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafItem {
    /// Its key.
    pub key: Key,
    /// Its data.
    pub data: Vec<u8>,
}

/// The header of a block.
#[must_use]
pub fn header(block: &[u8]) -> &NodeHeader {
    NodeHeader::ref_from_prefix(block).expect("a block is longer than its header").0
}

/// The header of a block, to be changed.
#[must_use]
pub fn header_mut(block: &mut [u8]) -> &mut NodeHeader {
    NodeHeader::mut_from_prefix(block).expect("a block is longer than its header").0
}

/// The children of a node, as many as it says and as fit; none of a leaf.
#[must_use]
pub fn pointers_mut(block: &mut [u8]) -> &mut [KeyPtr] {
    let count = if header(block).level == 0 { 0 } else { slot_count(block, size_of::<KeyPtr>()) };
    <[KeyPtr]>::mut_from_prefix_with_elems(&mut block[HEADER_BYTES..], count).expect("they fit").0
}

/// The slots of a leaf, as many as it says and as fit; none of a node.
#[must_use]
pub fn slots_mut(block: &mut [u8]) -> &mut [ItemHeader] {
    let count = if header(block).level == 0 { slot_count(block, size_of::<ItemHeader>()) } else { 0 };
    <[ItemHeader]>::mut_from_prefix_with_elems(&mut block[HEADER_BYTES..], count).expect("they fit").0
}

fn slot_count(block: &[u8], slot_bytes: usize) -> usize {
    to_usize(header(block).nritems.get().into()).min((block.len() - HEADER_BYTES) / slot_bytes)
}

pub(super) fn pointers(block: &[u8]) -> Vec<KeyPtr> {
    pointers_mut(&mut block.to_vec()).to_vec()
}

/// The items of a leaf.
pub(super) fn items(block: &[u8]) -> Vec<LeafItem> {
    let mut copy = block.to_vec();
    let data_of = |slot: &ItemHeader| {
        let start = HEADER_BYTES + to_usize(slot.offset.get().into());
        // A leaf that is damaged already may have data nowhere.
        block.get(start..start + to_usize(slot.size.get().into())).unwrap_or_default().to_vec()
    };
    slots_mut(&mut copy).iter().map(|slot| LeafItem { key: slot.key, data: data_of(slot) }).collect()
}

/// Makes a leaf hold these items, packed from its end as btrfs does.
///
/// # Panics
/// If they don't fit.
pub(super) fn set_items(block: &mut [u8], items: &[LeafItem]) {
    let (header, body) = NodeHeader::mut_from_prefix(block).expect("a block is longer than its header");
    header.nritems.set(u32::try_from(items.len()).expect("a leaf is small"));
    body.fill(0);
    let mut end = body.len();
    for (slot, item) in items.iter().enumerate() {
        let start = end.checked_sub(item.data.len()).expect("the items fit the leaf");
        let small = |number: usize| u32::try_from(number).expect("a leaf is small").into();
        let header = ItemHeader { key: item.key, offset: small(start), size: small(item.data.len()) };
        let place = slot * size_of::<ItemHeader>()..(slot + 1) * size_of::<ItemHeader>();
        assert!(place.end <= start, "the items fit the leaf");
        body[place].copy_from_slice(header.as_bytes());
        body[start..end].copy_from_slice(&item.data);
        end = start;
    }
}

/// Gives a block the checksum of what it holds now.
pub(super) fn seal(block: &mut [u8], algorithm: ChecksumType) {
    let sum = algorithm.compute(&block[32..]);
    block[..32].fill(0);
    block[..sum.as_bytes().len()].copy_from_slice(sum.as_bytes());
}
