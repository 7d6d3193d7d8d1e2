//! Metadata of a mount, defragmented a piece at a time.

use super::{Operations, number};
use brindle_fs::{DefragmentPlace, DefragmentScope};
use brindle_ondisk::{Key, KeyType, ObjectId, RootId};
use brindle_uapi::message::{DEFRAGMENT_POOL, DefragmentPiece};
use rustix::io::Errno;

/// Number of leaves in a piece, some megabytes: a disk writes them within a second, and reads them within several.
const LEAVES_PER_PIECE: usize = 512;

impl Operations {
    /// Defragments a piece, and says where the next one begins.
    pub(super) fn defragment(&self, node: u64, asked: &DefragmentPiece) -> Result<DefragmentPiece, Errno> {
        let own = self.inode(node)?.tree;
        let scope = match asked.flags {
            0 => DefragmentScope::Subvolume(own),
            DEFRAGMENT_POOL => DefragmentScope::Pool,
            _ => return Err(Errno::INVAL),
        };
        let from = place(asked)?;
        if scope == DefragmentScope::Subvolume(own) && from.is_some_and(|from| from.tree != own) {
            return Err(Errno::INVAL);
        }
        let done = number(self.filesystem.defragment(scope, from, LEAVES_PER_PIECE))?;
        let answer = DefragmentPiece {
            flags: asked.flags,
            leaves: done.leaves,
            moved: done.moved,
            ..DefragmentPiece::default()
        };
        Ok(done.next.map_or(answer, |next| DefragmentPiece {
            tree: next.tree.get(),
            objectid: next.key.objectid.get(),
            item_type: next.key.item_type.0.into(),
            offset: next.key.offset(),
            ..answer
        }))
    }
}

/// Start of a piece, if not at the beginning.
fn place(asked: &DefragmentPiece) -> Result<Option<DefragmentPlace>, Errno> {
    if asked.tree == 0 {
        return Ok(None);
    }
    let item_type = KeyType(u8::try_from(asked.item_type).map_err(|_| Errno::INVAL)?);
    let key = Key::new(ObjectId::new(asked.objectid), item_type, asked.offset);
    Ok(Some(DefragmentPlace { tree: RootId::new(asked.tree), key }))
}
