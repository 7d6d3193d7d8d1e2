//! Times of changes, once the host has told which of them were writes of a program.

use crate::core::inodes::Inode;
use crate::data::FileData;
use crate::error::FsError;
use crate::extent::edit::FileEditor;
use std::sync::Arc;

impl FileData {
    pub(crate) fn confirm_times(&self, inode: &Arc<Inode>) -> Result<(), FsError> {
        if !inode.data.memory().times.forget_provisional() {
            return Ok(());
        }
        let _writing = self.core.writing()?;
        let subvolume = self.core.subvolume_state(inode.id().tree)?;
        let _access = subvolume.begin_upkeep()?;
        let _entry = inode.data.shared();
        let _turn = inode.data.writeback_turn();
        match self.items.quick_attributes(inode.id()) {
            Ok(attributes) if attributes.nlink > 0 => {}
            Ok(_) | Err(FsError::NoInode(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.core.enter_transaction(1, |transaction| {
            let editor = FileEditor::new(transaction, &self.extents, subvolume.tree(), inode.id());
            editor.finish(&inode.data, |item, memory| memory.times.restore(item))
        })
    }
}
