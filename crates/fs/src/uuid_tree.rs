//! The UUID tree: which subvolumes have a UUID, or were received under it.

use crate::core::edit::Edit;
use crate::core::item_bytes_max;
use brindle_ondisk::{Key, KeyType, ObjectId, RootId, Uuid};
use brindle_tree::TreeError;
use zerocopy::IntoBytes;

/// Kind of a subvolume's UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UuidKind {
    /// Its own.
    Subvolume,
    /// The UUID that it had where it was sent from.
    Received,
}

/// The key under which a UUID's subvolumes are filed: its halves are the outer parts.
fn key(kind: UuidKind, uuid: Uuid) -> Key {
    let half = |from: usize| {
        let bytes = uuid.0[from..from + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    let item_type = match kind {
        UuidKind::Subvolume => KeyType::UUID_KEY_SUBVOL,
        UuidKind::Received => KeyType::UUID_KEY_RECEIVED_SUBVOL,
    };
    Key::new(ObjectId::new(half(0)), item_type, half(8))
}

/// Takes an id out of a list of them.
fn remove_id(data: &mut Vec<u8>, id: RootId) {
    let size = size_of::<RootId>();
    if let Some(at) = data.chunks_exact(size).position(|found| found == id.as_bytes()) {
        data.drain(at * size..(at + 1) * size);
    }
}

/// Adds an id to a list of them, unless the list is full. Returns true if the list has it.
fn add_id(data: &mut Vec<u8>, id: RootId, bytes_max: usize) -> bool {
    remove_id(data, id);
    let has_room = data.len() + size_of::<RootId>() <= bytes_max;
    if has_room {
        data.extend_from_slice(id.as_bytes());
    }
    has_room
}

impl Edit<'_> {
    /// Files a subvolume under a UUID; under none if that is nil, or the pool has no UUID tree (the kernel makes
    /// one at its next mount). A leaf full of ids, such as those of snapshots of what was received, takes no more: the
    /// tree is an index, from which only the search for the source of a clone while receiving profits.
    pub(crate) fn add_uuid(&self, kind: UuidKind, uuid: Uuid, id: RootId) -> Result<(), TreeError> {
        let bytes_max = item_bytes_max(self.editor.store());
        let is_filed = self.with_ids(kind, uuid, |data| add_id(data, id, bytes_max))?;
        if is_filed == Some(false) {
            tracing::warn!(
                "subvolume {id} is not filed under {uuid}: a leaf holds no more subvolumes of one UUID"
            );
        }
        Ok(())
    }

    /// Takes a subvolume off a UUID.
    pub(crate) fn remove_uuid(&self, kind: UuidKind, uuid: Uuid, id: RootId) -> Result<(), TreeError> {
        self.with_ids(kind, uuid, |data| remove_id(data, id)).map(|_| ())
    }

    fn with_ids<T>(
        &self,
        kind: UuidKind,
        uuid: Uuid,
        change: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> Result<Option<T>, TreeError> {
        if uuid.is_nil() {
            return Ok(None);
        }
        match self.editor.store().tree(RootId::UUID_TREE) {
            Ok(tree) => self.editor.edit(&tree, &key(kind, uuid), change).map(Some),
            Err(TreeError::NoTree(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_uuid_in_two_halves() {
        // As `dump-tree` shows the entry of a subvolume of this UUID.
        let uuid = Uuid::parse("b3757bb8-8031-4602-abe7-3647cafb00f1").expect("a UUID");
        let key = key(UuidKind::Subvolume, uuid);
        assert_eq!((key.objectid.get(), key.offset()), (0x0246_3180_b87b_75b3, 0xf100_fbca_4736_e7ab));
        assert_eq!(key.item_type, KeyType::UUID_KEY_SUBVOL);
    }

    #[test]
    fn a_full_list_takes_no_more_ids() {
        let mut data = Vec::new();
        assert!(add_id(&mut data, RootId::new(256), 20) && add_id(&mut data, RootId::new(257), 20));
        assert!(!add_id(&mut data, RootId::new(258), 20));
        assert!(add_id(&mut data, RootId::new(256), 20), "it has that one");
        assert_eq!(data, [257u64, 256].map(u64::to_le_bytes).concat());
    }

    #[test]
    fn ids_leave_the_list_one_by_one() {
        let mut data = [5u64, 256, 257].map(u64::to_le_bytes).concat();
        remove_id(&mut data, RootId::new(256));
        assert_eq!(data, [5u64, 257].map(u64::to_le_bytes).concat());
        remove_id(&mut data, RootId::new(300));
        remove_id(&mut data, RootId::new(257));
        remove_id(&mut data, RootId::new(5));
        assert!(data.is_empty());
    }
}
