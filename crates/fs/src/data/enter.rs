//! Entry of extents on the devices into items: the transactions of a writeback.

use super::output::Output;
use crate::attributes::InodeId;
use crate::core::inodes::Inode;
use crate::data::FileData;
use crate::error::FsError;
use crate::extent::edit::{FileEditor, ITEMS_PER_LEAF, STEP_EXTENTS, need_of, set_flags, settle};
use crate::extent::file_extent::{Contents, FileExtent};
use brindle_ondisk::Incompat;
use brindle_ondisk::item::{Compression, InodeFlags};
use brindle_tree::{ChecksumTree, Editor, Tree};
use std::sync::Arc;

/// Approximate upper bound on the extents that a step of writeback replaces and makes.
const STEP_ITEMS: usize = 4 * STEP_EXTENTS;
/// Approximate upper bound on the length of a checksum item, in bytes.
const CHECKSUM_ITEM_BYTES: usize = 2048;
/// Size of the change of a writeback step.
#[derive(Clone, Copy, Debug, Default)]
struct StepSize {
    /// Number of places in the file that do not touch each other.
    places: usize,
    /// Items that are replaced and made.
    items: usize,
    /// End in the file, in bytes.
    end: u64,
}

impl StepSize {
    /// The need of metadata, in items that lie apart: of the file's items, of checksums, and the inode.
    fn need(&self) -> usize {
        need_of(self.places, self.items)
    }
}

impl FileData {
    /// Puts extents into a file, in order, in as many transactions as it takes. After each, what it has brought is
    /// forgotten in memory. Nothing from `unfinished` on is in the items when all is done.
    pub(super) fn enter(
        &self,
        inode: &Inode,
        tree: &Arc<Tree>,
        outputs: Vec<Output<'_>>,
        unfinished: Option<u64>,
        flags: InodeFlags,
    ) -> Result<(), FsError> {
        let mut outputs = outputs.into_iter().peekable();
        while let Some(first) = outputs.next() {
            let mut size = self.grown(inode, tree, StepSize::default(), &first)?;
            if size.items > STEP_ITEMS {
                let behind = outputs.peek().map(|next| next.piece.start).or(unfinished);
                self.enter_long(inode, tree, first, behind)?;
                continue;
            }
            let mut step = vec![first];
            while let Some(next) = outputs.peek() {
                let more = self.grown(inode, tree, size, next)?;
                if more.items > STEP_ITEMS {
                    break;
                }
                size = more;
                step.extend(outputs.next());
            }
            let behind = outputs.peek().map(|next| next.piece.start).or(unfinished);
            self.enter_step(inode, tree, step, size.need(), behind, flags)?;
        }
        Ok(())
    }

    /// The size of a step that enters another output.
    fn grown(
        &self,
        inode: &Inode,
        tree: &Arc<Tree>,
        size: StepSize,
        output: &Output<'_>,
    ) -> Result<StepSize, FsError> {
        let (start, end) = (output.piece.start, output.piece.end(self.core.sector()));
        let there = self.extents.extent_map(tree, inode.id(), &(start..end), STEP_ITEMS)?.extents().len();
        let touches = size.places > 0 && size.end == start;
        let checksums = output.checksums.len() / CHECKSUM_ITEM_BYTES * ITEMS_PER_LEAF;
        Ok(StepSize {
            places: size.places + usize::from(!touches),
            items: size.items + there + 2 + checksums,
            end,
        })
    }

    fn enter_step(
        &self,
        inode: &Inode,
        tree: &Arc<Tree>,
        step: Vec<Output<'_>>,
        need: usize,
        behind: Option<u64>,
        flags: InodeFlags,
    ) -> Result<(), FsError> {
        self.core.enter_transaction(need, |transaction| {
            let _changing = inode.data.begin_change();
            let mut editor = FileEditor::new(transaction, &self.extents, tree, inode.id());
            for mut output in step {
                output.piece.generation = transaction.generation();
                enter_one(&mut editor, transaction, &output.piece, &mut output.checksums)?;
                if let Some(reserved) = output.reserved {
                    reserved.keep();
                }
            }
            editor.finish(&inode.data, |item, memory| {
                settle(item, memory, behind);
                set_flags(item, flags);
            })
        })?;
        self.context.forget_written(inode.id(), &mut inode.data.memory(), behind);
        Ok(())
    }

    /// Puts an extent into a file in several transactions, as it replaces many: it grows over them.
    fn enter_long(
        &self,
        inode: &Inode,
        tree: &Arc<Tree>,
        output: Output<'_>,
        behind: Option<u64>,
    ) -> Result<(), FsError> {
        let Output { mut piece, mut reserved, mut checksums } = output;
        let end = piece.end(self.core.sector());
        let mut entered: Option<FileExtent> = None;
        loop {
            let at = entered.as_ref().map_or(piece.start, |entered| entered.end(self.core.sector()));
            if at == end {
                return Ok(());
            }
            let to = self.extents.extent_map(tree, inode.id(), &(at..end), STEP_EXTENTS)?.end();
            let next = if to == end { behind } else { Some(to) };
            let leaves = checksums.len() / CHECKSUM_ITEM_BYTES;
            self.core.enter_transaction(need_of(2 + leaves, STEP_EXTENTS), |transaction| {
                let _changing = inode.data.begin_change();
                let mut editor = FileEditor::new(transaction, &self.extents, tree, inode.id());
                match &mut entered {
                    Some(before) => self.follow(tree, inode.id(), before, &mut piece)?,
                    None => piece.generation = transaction.generation(),
                }
                let part = piece.part(piece.start, to);
                match &entered {
                    Some(before) => editor.lengthen(before, &part)?,
                    None => enter_one(&mut editor, transaction, &part, &mut checksums)?,
                }
                if let Some(reserved) = reserved.take() {
                    reserved.keep();
                }
                entered = Some(part);
                editor.finish(&inode.data, |item, memory| settle(item, memory, next))
            })?;
            self.context.forget_written(inode.id(), &mut inode.data.memory(), next);
        }
    }

    /// The extent of which a part has been entered may have been moved to another place since.
    fn follow(
        &self,
        tree: &Arc<Tree>,
        file: InodeId,
        entered: &mut FileExtent,
        whole: &mut FileExtent,
    ) -> Result<(), FsError> {
        if let Some(found) = self.extents.extent_at(tree, file, entered.start)? {
            if let (Contents::OnDisk(now), Contents::OnDisk(before), Contents::OnDisk(whole)) =
                (&found.contents, &mut entered.contents, &mut whole.contents)
            {
                (before.disk, whole.disk) = (now.disk, now.disk);
            }
        }
        Ok(())
    }
}

fn enter_one(
    editor: &mut FileEditor<'_, '_>,
    transaction: &Editor<'_>,
    piece: &FileExtent,
    checksums: &mut Vec<u8>,
) -> Result<(), FsError> {
    match piece.compression {
        Compression::Lzo => transaction.use_feature(Incompat::COMPRESS_LZO),
        Compression::Zstd => transaction.use_feature(Incompat::COMPRESS_ZSTD),
        Compression::None | Compression::Zlib => {}
    }
    editor.put(piece, true)?;
    if let Some(span) = piece.disk_part().filter(|_| !checksums.is_empty()) {
        ChecksumTree::of(transaction).insert(span.disk, checksums)?;
        checksums.clear();
    }
    Ok(())
}
