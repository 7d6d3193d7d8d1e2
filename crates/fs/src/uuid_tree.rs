//! The UUID tree: which subvolumes have a UUID, or were received under it.

use crate::namespace::edit::Edit;
use brindle_ondisk::{Key, KeyType, ObjectId, RootId, Uuid};
use brindle_tree::TreeError;
use zerocopy::IntoBytes;

/// What a UUID is to a subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UuidKind {
    /// Its own.
    Subvolume,
    /// That which it had where it was sent from.
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

impl Edit<'_> {
    /// Files a subvolume under a UUID; under none if that is nil, or the pool has no UUID tree (the kernel makes
    /// one at its next mount).
    pub(crate) fn add_uuid(&self, kind: UuidKind, uuid: Uuid, id: RootId) -> Result<(), TreeError> {
        self.with_ids(kind, uuid, |data| {
            remove_id(data, id);
            data.extend_from_slice(id.as_bytes());
        })
    }

    /// Takes a subvolume off a UUID.
    pub(crate) fn remove_uuid(&self, kind: UuidKind, uuid: Uuid, id: RootId) -> Result<(), TreeError> {
        self.with_ids(kind, uuid, |data| remove_id(data, id))
    }

    fn with_ids(
        &self,
        kind: UuidKind,
        uuid: Uuid,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TreeError> {
        if uuid.is_nil() {
            return Ok(());
        }
        match self.editor.pool().tree(RootId::UUID_TREE) {
            Ok(tree) => self.editor.edit(&tree, &key(kind, uuid), change),
            Err(TreeError::NoTree(_)) => Ok(()),
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
