//! Inode items and attributes of a log.

use super::Replay;
use crate::error::FsError;
use crate::packed::find;
use brindle_ondisk::item::{DirEntryHeader, InodeItem};
use brindle_ondisk::{Defect, Generation, Item, Key, KeyType, ObjectId};
use brindle_tree::Readahead;
use std::ops::RangeInclusive;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

impl Replay<'_> {
    pub(super) fn replay_inode(&mut self, number: ObjectId, logged: &InodeItem) -> Result<(), FsError> {
        self.drop_xattrs(number)?;
        if logged.is_directory() {
            for range in self.complete_ranges(number)? {
                self.drop_names(number, range)?;
            }
        }
        self.write_inode(number, logged)?;
        if let Some(item) = self.inode_item(number)?.filter(InodeItem::is_regular) {
            self.drop_behind(self.id(number), item.size.get())?;
        }
        self.touched.insert(number);
        Ok(())
    }

    /// Writes the inode item. The size of a directory follows from its names, and what a file has on disk from its extents.
    fn write_inode(&self, number: ObjectId, logged: &InodeItem) -> Result<(), FsError> {
        let key = Key::new(number, KeyType::INODE_ITEM, 0);
        // The log has it only because something else refers to it.
        let only_exists = logged.generation == Generation::new(0);
        let mut new = *logged;
        let before = self.inode_item(number)?;
        if before.as_ref().is_some_and(|before| before.file_type_bits() != logged.file_type_bits()) {
            let defect = Defect::new("inode of a log has another type, mode", logged.mode.get().into());
            return Err(FsError::Item { file: self.id(number), key, defect });
        }
        match before {
            None => {
                new.nbytes = U64::new(0);
                if new.is_directory() {
                    new.size = U64::new(0);
                }
                if only_exists {
                    new.generation = self.edit.generation();
                }
                self.edit.editor.insert(self.tree, &key, new.as_bytes())?;
            }
            Some(old) if only_exists => {
                if old.is_regular() && logged.is_regular() && logged.size.get() != 0 {
                    new = old;
                    new.size = logged.size;
                    self.edit.editor.replace(self.tree, &key, new.as_bytes())?;
                }
            }
            Some(old) => {
                new.nbytes = old.nbytes;
                if new.is_directory() {
                    new.size = old.size;
                }
                self.edit.editor.replace(self.tree, &key, new.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Removes the attributes that the log does not have: it has all.
    fn drop_xattrs(&self, number: ObjectId) -> Result<(), FsError> {
        let id = self.id(number);
        let pool = self.core.pool();
        let mut cursor = pool.cursor(self.tree, Readahead::None);
        cursor.seek(&id.key(KeyType::XATTR_ITEM, 0))?;
        let mut gone = Vec::new();
        while let Some((key, data)) =
            cursor.item().filter(|(key, _)| (key.objectid, key.item_type) == (number, KeyType::XATTR_ITEM))
        {
            let logged = pool.with_item(&self.log.tree, &key, <[u8]>::to_vec)?.unwrap_or_default();
            if let Ok(Item::Xattr(entries)) = Item::parse(&key, data) {
                let names = entries.flatten().map(|entry| entry.name.to_vec());
                gone.extend(names.filter(|name| {
                    find::<DirEntryHeader>(&logged, |_, logged| logged == &name[..]).is_none()
                }));
            }
            cursor.next()?;
        }
        for name in gone {
            self.edit.drop_xattr(self.tree, id, &name)?;
        }
        Ok(())
    }

    /// All attributes of one hash.
    pub(super) fn replay_xattr(&self, key: &Key, data: &[u8]) -> Result<(), FsError> {
        if self.inode_item(key.objectid)?.is_some() {
            self.edit.editor.edit(self.tree, key, |there| {
                there.clear();
                there.extend_from_slice(data);
            })?;
        }
        Ok(())
    }

    /// The ranges of a directory's indexes in which the log has every name.
    fn complete_ranges(&self, number: ObjectId) -> Result<Vec<RangeInclusive<u64>>, FsError> {
        let mut cursor = self.core.pool().cursor(&self.log.tree, Readahead::None);
        cursor.seek(&Key::first_of(number, KeyType::DIR_LOG_INDEX))?;
        let mut found = Vec::new();
        while let Some((key, data)) = cursor.item() {
            match Item::parse(&key, data) {
                Ok(Item::DirLog(range)) if key.objectid == number => {
                    found.push(key.offset()..=range.end.get());
                }
                _ => break,
            }
            cursor.next()?;
        }
        Ok(found)
    }
}
