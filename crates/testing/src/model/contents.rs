//! Bytes of files.

use super::{Body, Errno, InodePlace, Model, TreePath};
use brindle_sim::Image;

/// Unit of reflinks, in bytes.
pub const SECTOR_BYTES: u64 = 4096;

impl Model {
    /// Writes, and makes the file longer where need be.
    pub fn write(&mut self, path: &TreePath, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let place = self.file(path)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let end = end_of(offset, bytes.len() as u64)?;
        let contents = self.contents_mut(place);
        contents.set_size(contents.size_bytes().max(end));
        contents.write(offset, bytes);
        Ok(())
    }

    /// Sets the size.
    pub fn truncate(&mut self, path: &TreePath, size: u64) -> Result<(), Errno> {
        let place = self.file(path)?;
        self.contents_mut(place).set_size(size);
        Ok(())
    }

    /// Reserves space, as `fallocate`; the file gets longer unless `keeps_size`.
    pub fn allocate(
        &mut self,
        path: &TreePath,
        offset: u64,
        length: u64,
        keeps_size: bool,
    ) -> Result<(), Errno> {
        let place = self.file(path)?;
        let end = range_end(offset, length)?;
        let contents = self.contents_mut(place);
        if !keeps_size {
            contents.set_size(contents.size_bytes().max(end));
        }
        Ok(())
    }

    /// Zeros a range and gives back its space; the size stays.
    pub fn punch_hole(&mut self, path: &TreePath, offset: u64, length: u64) -> Result<(), Errno> {
        let place = self.file(path)?;
        let end = range_end(offset, length)?;
        let contents = self.contents_mut(place);
        zero_within(contents, offset, end);
        Ok(())
    }

    /// Zeros a range and keeps its space; the file gets longer unless `keeps_size`.
    pub fn zero_range(
        &mut self,
        path: &TreePath,
        offset: u64,
        length: u64,
        keeps_size: bool,
    ) -> Result<(), Errno> {
        let place = self.file(path)?;
        let end = range_end(offset, length)?;
        let contents = self.contents_mut(place);
        if !keeps_size {
            contents.set_size(contents.size_bytes().max(end));
        }
        zero_within(contents, offset, end);
        Ok(())
    }

    /// Makes a range of one file share another's bytes, as `FICLONERANGE`; a `length` of 0 means to the end.
    pub fn clone_range(
        &mut self,
        from: &TreePath,
        from_offset: u64,
        to: &TreePath,
        to_offset: u64,
        length: u64,
    ) -> Result<(), Errno> {
        let target = self.file(to)?;
        let source = self.resolve(from)?;
        let Body::File(contents) = &self.at(source).body else {
            return Err(if self.at(source).is_directory() { Errno::IsDirectory } else { Errno::Invalid });
        };
        let (source_size, contents) = (contents.size_bytes(), contents.clone());
        if from_offset > source_size {
            return Err(Errno::Invalid);
        }
        let length = if length == 0 { source_size - from_offset } else { length };
        if length == 0 {
            return Ok(());
        }
        let aligned = |value: u64| value % SECTOR_BYTES == 0;
        let from_end = end_of(from_offset, length)?;
        let to_end = end_of(to_offset, length)?;
        if !aligned(from_offset) || !aligned(to_offset) || from_end > source_size {
            return Err(Errno::Invalid);
        }
        // The last sector may be a partial one only where it is the last of both files.
        let target_size = self.at(target).size();
        if !aligned(length) && (from_end != source_size || to_end < target_size) {
            return Err(Errno::Invalid);
        }
        let overlaps = from_offset < to_end.next_multiple_of(SECTOR_BYTES)
            && to_offset < from_end.next_multiple_of(SECTOR_BYTES);
        if source == target && overlaps {
            return Err(Errno::Invalid);
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| Errno::FileTooLarge)?];
        contents.read(from_offset, &mut bytes);
        let contents = self.contents_mut(target);
        contents.set_size(contents.size_bytes().max(to_end));
        contents.write(to_offset, &bytes);
        Ok(())
    }

    /// Takes over what another filesystem made of a file, where the model can't know: after a write that ended for
    /// want of space.
    pub fn adopt(&mut self, path: &TreePath, bytes: &[u8]) -> Result<(), Errno> {
        let place = self.file(path)?;
        let contents = self.contents_mut(place);
        *contents = Image::new(bytes.len() as u64);
        contents.write(0, bytes);
        Ok(())
    }

    /// The file at a path, to be written.
    fn file(&self, path: &TreePath) -> Result<InodePlace, Errno> {
        let place = self.resolve(path)?;
        match &self.at(place).body {
            Body::File(_) => self.check_writable(place)?,
            Body::Directory(_) => return Err(Errno::IsDirectory),
            Body::Symlink(_) | Body::Node(_) => return Err(Errno::Invalid),
        }
        Ok(place)
    }

    fn contents_mut(&mut self, file: InodePlace) -> &mut Image {
        let inode = self.at_mut(file);
        inode.mtime = None;
        match &mut inode.body {
            Body::File(contents) => contents,
            _ => unreachable!("looked at before"),
        }
    }
}

/// The largest size of a file, in bytes.
const SIZE_MAX: u64 = i64::MAX as u64;

fn end_of(offset: u64, length: u64) -> Result<u64, Errno> {
    offset.checked_add(length).filter(|end| *end <= SIZE_MAX).ok_or(Errno::FileTooLarge)
}

/// End of a range like [`end_of`], for calls that refuse an empty range.
fn range_end(offset: u64, length: u64) -> Result<u64, Errno> {
    if length == 0 { Err(Errno::Invalid) } else { end_of(offset, length) }
}

fn zero_within(contents: &mut Image, offset: u64, end: u64) {
    let end = end.min(contents.size_bytes());
    if offset < end {
        contents.zero(offset, end - offset);
    }
}
