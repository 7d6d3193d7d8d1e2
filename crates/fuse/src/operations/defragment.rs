//! Metadata of a mount, and contents of its files, defragmented a piece at a time.

use super::nodes::Nodes;
use crate::errno::number;
use crate::permission::Caller;
use brindle_fs::{
    Compression, CompressionChoice, ContentsWish, DefragmentPlace, DefragmentScope, Filesystem,
};
use brindle_ondisk::{Key, KeyType, ObjectId, RootId};
use brindle_uapi::message::{
    CONTENTS_COMPRESS, CONTENTS_END, CONTENTS_UNSHARE, ContentsPart, DEFRAGMENT_POOL, DefragmentPiece,
};
use rustix::io::Errno;
use std::sync::Arc;

/// Number of leaves in a piece, some megabytes: a disk writes them within a second, and reads them within several.
const LEAVES_PER_PIECE: usize = 512;

/// Defragmentation of the mounted pool.
#[derive(Debug)]
pub(super) struct Defragmentation {
    filesystem: Arc<Filesystem>,
    nodes: Arc<Nodes>,
}

impl Defragmentation {
    pub(super) fn new(filesystem: Arc<Filesystem>, nodes: Arc<Nodes>) -> Self {
        Self { filesystem, nodes }
    }

    /// Defragments a piece, and says where the next one begins.
    pub(super) fn metadata(&self, node: u64, asked: &DefragmentPiece) -> Result<DefragmentPiece, Errno> {
        let own = self.nodes.inode(node)?.tree;
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

    /// Defragments a part of a file of the caller, and says where the next one begins.
    pub(super) fn contents(
        &self,
        caller: Caller,
        node: u64,
        asked: &ContentsPart,
    ) -> Result<ContentsPart, Errno> {
        let wish = contents_wish(asked)?;
        let attributes = number(self.filesystem.attributes(self.nodes.inode(node)?))?;
        caller.require_owner(&attributes)?;
        let file = number(self.filesystem.open_known(&attributes))?;
        let done = self.filesystem.defragment_contents(&file, asked.offset, &wish);
        number(self.filesystem.close_file(file))?;
        let done = number(done)?;
        Ok(ContentsPart {
            offset: done.next.unwrap_or(CONTENTS_END),
            extents: done.extents,
            moved: done.moved,
            moved_bytes: done.moved_bytes,
            shared: done.shared,
            ..*asked
        })
    }
}

/// Wishes in a message.
fn contents_wish(asked: &ContentsPart) -> Result<ContentsWish, Errno> {
    if asked.flags & !(CONTENTS_UNSHARE | CONTENTS_COMPRESS) != 0 {
        return Err(Errno::INVAL);
    }
    let algorithm = match (asked.flags & CONTENTS_COMPRESS != 0, asked.compression) {
        (false, _) => None,
        (true, 0) => Some(Compression::None),
        (true, 1) => Some(Compression::Zlib),
        (true, 2) => Some(Compression::Lzo),
        (true, 3) => Some(Compression::Zstd),
        (true, _) => return Err(Errno::INVAL),
    };
    let level = i8::try_from(asked.level).map_err(|_| Errno::INVAL)?;
    let level = Some(level).filter(|level| *level != 0);
    let default = ContentsWish::default();
    Ok(ContentsWish {
        run_bytes: if asked.run_bytes == 0 { default.run_bytes } else { asked.run_bytes },
        compression: algorithm.map(|algorithm| CompressionChoice { algorithm, level, force: false }),
        unshares: asked.flags & CONTENTS_UNSHARE != 0,
    })
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
