//! Looking into the trees of a pool that the kernel has mounted.

use crate::call;
use crate::control::{ControlError, Mounted};
use brindle_ondisk::{Key, KeyType, ObjectId, RootId, to_usize};
use brindle_uapi::message::{FoundItem, TreeSearch};
use brindle_uapi::verb;
use std::ops::ControlFlow;
use zerocopy::{FromBytes, FromZeros};

impl Mounted {
    /// All items of a tree from one key to another, both included.
    pub fn search(&self, tree: RootId, from: Key, to: Key) -> Result<Vec<(Key, Vec<u8>)>, ControlError> {
        let mut found = Vec::new();
        self.search_each(tree, from, to, &mut |key, data| {
            found.push((key, data.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// The same, one by one, until the caller has seen enough.
    pub fn search_each(
        &self,
        tree: RootId,
        from: Key,
        to: Key,
        see: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), ControlError> {
        self.search_since(tree, from, to, 0, see)
    }

    /// The same, of leaves that were written by this transaction or later.
    pub(crate) fn search_since(
        &self,
        tree: RootId,
        from: Key,
        to: Key,
        since: u64,
        see: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), ControlError> {
        let what = "look into a tree (root may)";
        let mut from = from;
        loop {
            let mut page = TreeSearch { transid_min: since, ..page(tree, from, to) };
            let answer = call::update::<verb::SearchTree>(&self.file, &mut page);
            self.explain(what, answer)?;
            if page.items == 0 {
                return Ok(());
            }
            let nonsense = || ControlError::Nonsense { path: self.path.clone(), what };
            let mut records: &[u8] = &page.records;
            for _ in 0..page.items {
                let (key, data, rest) = record(records).ok_or_else(nonsense)?;
                // The bounds are those of a range of keys, but for items the kernel may see them part by part.
                if key >= from && key <= to && see(key, data).is_break() {
                    return Ok(());
                }
                records = rest;
                match key.successor().filter(|next| *next <= to) {
                    Some(next) => from = next,
                    None => return Ok(()),
                }
            }
        }
    }
}

fn page(tree: RootId, from: Key, to: Key) -> TreeSearch {
    TreeSearch {
        tree: tree.get(),
        objectid_min: from.objectid.get(),
        objectid_max: to.objectid.get(),
        offset_min: from.offset(),
        offset_max: to.offset(),
        transid_max: u64::MAX,
        type_min: from.item_type.0.into(),
        type_max: to.item_type.0.into(),
        items: u32::MAX,
        ..TreeSearch::new_zeroed()
    }
}

/// The first item of what was answered, and what follows it.
fn record(bytes: &[u8]) -> Option<(Key, &[u8], &[u8])> {
    let (header, rest) = FoundItem::read_from_prefix(bytes).ok()?;
    let (data, rest) = rest.split_at_checked(to_usize(header.length.into()))?;
    let item_type = KeyType(u8::try_from(header.item_type).ok()?);
    Some((Key::new(ObjectId::new(header.objectid), item_type, header.offset), data, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn records_are_taken_apart_and_what_is_cut_off_is_none() {
        let header = FoundItem { transid: 9, objectid: 256, offset: 4096, item_type: 228, length: 3 };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(b"abcrest");
        let (key, data, rest) = record(&bytes).expect("whole");
        assert_eq!(key, Key::new(ObjectId::new(256), KeyType::CHUNK_ITEM, 4096));
        assert_eq!((data, rest), (&b"abc"[..], &b"rest"[..]));
        assert!(record(&bytes[..34]).is_none() && record(&bytes[..31]).is_none());
    }
}
