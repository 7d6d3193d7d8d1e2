//! Changing the size of a file.
//!
//! A file shrinks from its end, in steps; each takes the last extents away and gives the inode item the size of what is
//! left in one transaction, so that a crash between two of them finds a shorter file, never one with a hole. Dirty contents
//! are forgotten with the extents of their step: a truncation that is refused has changed nothing.

use super::write::FILE_SIZE_MAX;
use crate::attributes::InodeId;
use crate::core::Core;
use crate::core::inodes::Inode;
use crate::data::FileData;
use crate::error::FsError;
use crate::extent::edit::{FileEditor, STEP_EXTENTS, need_of, settle};
use crate::extent::file_extent::{Contents, FileExtent};
use crate::extent::open_file::OpenFile;
use brindle_ondisk::item::Compression;
use brindle_ondisk::to_usize;
use brindle_tree::{Tree, TreeError};
use std::sync::Arc;

impl FileData {
    pub(crate) fn truncate(&self, file: &OpenFile, size: u64) -> Result<(), FsError> {
        let _writing = self.core.writing()?;
        if size > FILE_SIZE_MAX {
            return Err(FsError::TooLarge(file.id()));
        }
        let subvolume = self.core.subvolume_state(file.id().tree)?;
        let _access = subvolume.begin_write()?;
        let _alone = file.inode().data.exclusive();
        // Space that was allocated behind the end goes also if the end stays where it is.
        if size <= file.size() { self.shorten(file, size) } else { self.lengthen(file, size) }
    }

    pub(crate) fn drop_file_contents(&self, id: InodeId) -> Result<(), FsError> {
        let subvolume = self.core.subvolume_state(id.tree)?;
        let _access = subvolume.begin_upkeep()?;
        let inode = self.core.inodes.get(id);
        let _alone = inode.data.exclusive();
        let tree = Arc::clone(subvolume.tree());
        self.discard_dirty(&inode, 0);
        self.drop_from(&inode, &tree, 0, || ())?;
        let mut memory = inode.data.memory();
        memory.times.changed = None;
        self.context.note(&inode, &mut memory);
        Ok(())
    }

    /// Forgets what is dirty of an inode that goes with its subvolume.
    pub(crate) fn forget_contents(&self, inode: &Arc<Inode>) {
        let _alone = inode.data.exclusive();
        self.discard_dirty(inode, 0);
        let mut memory = inode.data.memory();
        memory.times.changed = None;
        self.context.note(inode, &mut memory);
    }

    /// Lets a file end later, for a caller that has it alone.
    fn lengthen(&self, file: &OpenFile, size: u64) -> Result<(), FsError> {
        self.settle_tail_inside(file)?;
        let inode = file.inode();
        {
            let mut memory = inode.data.memory();
            memory.size = size;
            memory.times.change(self.context.now());
        }
        self.enter_size(inode)
    }

    /// Has the inode item tell the size that all callers see, where contents behind its own were lost: they are a hole.
    pub(crate) fn settle_size(&self, inode: &Arc<Inode>) -> Result<(), FsError> {
        let is_behind = || {
            let memory = inode.data.memory();
            memory.is_loaded && !memory.is_dirty() && memory.size > memory.disk_size
        };
        if !is_behind() {
            return Ok(());
        }
        let _alone = inode.data.exclusive();
        if is_behind() { self.enter_size(inode) } else { Ok(()) }
    }

    /// Brings the inode item up to date, for a caller that has the file alone.
    pub(super) fn enter_size(&self, inode: &Arc<Inode>) -> Result<(), FsError> {
        let tree = self.core.tree(inode.id().tree)?;
        self.core.enter_transaction(2, |transaction| {
            let editor = FileEditor::new(transaction, &self.extents, &tree, inode.id());
            editor.finish(&inode.data, |item, memory| settle(item, memory, None))
        })?;
        self.context.note(inode, &mut inode.data.memory());
        Ok(())
    }

    /// Cuts a file off, for a caller that has it alone.
    fn shorten(&self, file: &OpenFile, size: u64) -> Result<(), FsError> {
        let inode = file.inode();
        let tree = self.core.tree(file.id().tree)?;
        let done = self.drop_from(inode, &tree, size, || {
            let mut memory = inode.data.memory();
            memory.times.change(self.context.now());
            memory.is_emptied |= size == 0;
        });
        if done.is_err() {
            self.context.note(inode, &mut inode.data.memory());
        }
        if !done? {
            match self.settle_tail_inside(file) {
                // Nothing may be seen there, but so it is on disk for now; it is settled again before the file grows.
                Ok(()) | Err(FsError::Tree(TreeError::NoSpace(_) | TreeError::Quota(_))) => {}
                Err(error) => return Err(error),
            }
        }
        self.context.note(inode, &mut inode.data.memory());
        Ok(())
    }

    /// Forgets what is dirty behind a size.
    fn discard_dirty(&self, inode: &Arc<Inode>, size: u64) {
        let end = size.next_multiple_of(self.core.sector());
        let mut memory = inode.data.memory();
        let surplus = self.context.discard(inode.id(), &mut memory, &(end..u64::MAX));
        memory.dirty.zero(&(size..end));
        drop(memory);
        if surplus > 0 {
            self.core.pool().release_data(surplus);
        }
    }

    /// Takes all contents behind a size out of a file, from the end on; whether what is left of the last sector is known
    /// to end there. The inode item gets the size, unless it has a lesser one. `begin` is called before the first change.
    fn drop_from(
        &self,
        inode: &Arc<Inode>,
        tree: &Arc<Tree>,
        size: u64,
        begin: impl FnOnce(),
    ) -> Result<bool, FsError> {
        let end = size.next_multiple_of(self.core.sector());
        let mut begin = Some(begin);
        loop {
            let pieces = self.extents.last_extents(tree, inode.id(), end, STEP_EXTENTS)?;
            let is_last = pieces.len() < STEP_EXTENTS;
            let from = match pieces.first() {
                Some(first) if !is_last => first.start.max(end),
                _ => end,
            };
            let inline = if is_last { self.cut_inline(inode.id(), tree, size)? } else { None };
            let transaction = self.core.pool().join(Core::removal(tree, need_of(1, pieces.len())))?;
            if let Some(begin) = begin.take() {
                begin();
            }
            self.discard_dirty(inode, if is_last { size } else { from.max(size) });
            self.core.act_in(&transaction, |transaction| {
                let mut editor = FileEditor::new(transaction, &self.extents, tree, inode.id());
                editor.make_room(&(from..u64::MAX))?;
                if let Some((before, after)) = &inline {
                    editor.exchange_inline(before, after)?;
                }
                editor.finish(&inode.data, |item, memory| {
                    if is_last {
                        memory.size = size;
                        settle(item, memory, None);
                    } else {
                        // Should the next step be refused, the file ends here.
                        memory.size = memory.size.min(from.max(size));
                        item.size = item.size.get().min(memory.size).into();
                    }
                })
            })?;
            if is_last {
                return Ok(inline.is_some() || size == end);
            }
        }
    }

    /// The contents in the item, if there are some and they reach behind a size: as they are, and cut off.
    fn cut_inline(
        &self,
        file: InodeId,
        tree: &Arc<Tree>,
        size: u64,
    ) -> Result<Option<(FileExtent, FileExtent)>, FsError> {
        if size == 0 || size >= self.core.sector() {
            return Ok(None);
        }
        let Some(before) = self.extents.extent_at(tree, file, 0)? else {
            return Ok(None);
        };
        if before.compression != Compression::None || before.ram_bytes <= size {
            return Ok(None);
        }
        let Contents::Inline(data) = &before.contents else {
            return Ok(None);
        };
        let mut after = before.clone();
        after.ram_bytes = size;
        after.contents = Contents::Inline(data[..to_usize(size)].to_vec());
        Ok(Some((before, after)))
    }
}
