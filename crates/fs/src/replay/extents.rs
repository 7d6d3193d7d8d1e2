//! Extents that a log has, entered where the kernel would have committed them.

use crate::attributes::InodeId;
use crate::error::FsError;
use crate::extent::edit::FileEditor;
use crate::extent::file_extent::FileExtent;
use crate::replay::Replay;
use brindle_ondisk::item::{self, Compression, InodeFlags, InodeItem};
use brindle_ondisk::{Defect, Incompat, Key};
use brindle_tree::{ChecksumTree, LogReplay};

impl Replay<'_> {
    /// Takes everything out of a file that begins behind its end.
    pub(super) fn drop_behind(&self, file: InodeId, size: u64) -> Result<(), FsError> {
        let mut file = FileEditor::new(&self.edit.editor, self.extents, self.tree, file);
        if let Some(end) = size.checked_next_multiple_of(self.core.sector()) {
            file.make_room(&(end..u64::MAX))?;
        }
        file.finish_bytes()
    }

    /// Puts an extent of a log into its file, and its checksums into their tree. An extent that only the log knows is taken
    /// out of free space.
    pub(super) fn replay_extent(
        &self,
        (file, inode): (InodeId, &InodeItem),
        (key, extent): (Key, &item::FileExtent<'_>),
    ) -> Result<(), FsError> {
        let (editor, tree, log) = (&self.edit.editor, self.tree, self.log);
        let piece = FileExtent::from_item(key.offset(), extent);
        let end = piece.end(self.core.sector());
        if !inode.is_regular() && !inode.is_symlink() {
            let defect = Defect::new("file extent of a log is of no file, mode", inode.mode.get().into());
            return Err(FsError::Item { file, key, defect });
        }
        if piece.generation > editor.generation() {
            let defect =
                Defect::new("file extent of a log is of the future, generation", piece.generation.get());
            return Err(FsError::Item { file, key, defect });
        }
        if self.extents.extent_at(tree, file, piece.start)?.as_ref() == Some(&piece) {
            return Ok(());
        }
        let mut change = FileEditor::new(editor, self.extents, tree, file);
        if piece.is_hole() && self.core.has_implicit_holes() {
            change.make_room(&(piece.start..end))?;
            return change.finish_bytes();
        }
        match piece.compression {
            Compression::Lzo => editor.use_feature(Incompat::COMPRESS_LZO),
            Compression::Zstd => editor.use_feature(Incompat::COMPRESS_ZSTD),
            Compression::None | Compression::Zlib => {}
        }
        let is_new = match piece.disk_part() {
            Some(span) => LogReplay::of(editor).claim_data(span.extent())?,
            None => false,
        };
        change.put(&piece, is_new)?;
        change.finish_bytes()?;
        let Some(range) = piece.checksummed() else { return Ok(()) };
        if !inode.inode_flags().contains(InodeFlags::NODATASUM) {
            for (start, checksums) in LogReplay::of(editor).checksums(log, range)? {
                ChecksumTree::of(editor).insert(start, &checksums)?;
            }
        }
        Ok(())
    }
}
