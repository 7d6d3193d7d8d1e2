//! Commands that change the contents of files.

use super::encoded::decode;
use super::error::ReceiveProblem;
use super::known::Known;
use super::path;
use super::subvolume::{Incoming, Opened};
use brindle_fs::{AllocateMode, AttributeChange, FileType, InodeId, OpenFile, RangePair};
use brindle_ondisk::to_u64;
use brindle_stream::{Command, EncodedWrite, Origin};

/// Modes of fallocate(2), and what they are here.
const ALLOCATE_MODES: [(u32, AllocateMode); 5] = [
    (0, AllocateMode::Allocate),
    (0x1, AllocateMode::AllocateKeepSize),
    (0x1 | 0x2, AllocateMode::PunchHole),
    (0x10, AllocateMode::ZeroRange),
    (0x1 | 0x10, AllocateMode::ZeroRangeKeepSize),
];

/// A source of a clone.
struct Source<'c> {
    origin: Origin,
    path: &'c [u8],
    offset: u64,
}

impl Incoming<'_> {
    /// Carries out a command about contents; `None` if it is another one.
    pub(super) fn change_contents(
        &mut self,
        command: &Command<'_>,
        known: &mut Known,
    ) -> Option<Result<(), ReceiveProblem>> {
        Some(match *command {
            Command::Write { path, offset, data } => self.write(path, offset, data),
            Command::EncodedWrite(ref write) => self.write_encoded(write),
            Command::Clone { path, offset, length, source, source_path, source_offset } => {
                let source = Source { origin: source, path: source_path, offset: source_offset };
                self.source_root(source.origin, known)
                    .and_then(|root| self.clone_range(path, offset, length, root, &source))
            }
            Command::Truncate { path, size } => self.truncate(path, size),
            Command::Allocate { path, mode, offset, length } => self.allocate(path, mode, offset, length),
            Command::UpdateExtent { .. } => Err(ReceiveProblem::NoData),
            _ => return None,
        })
    }

    fn write(&mut self, path: &[u8], offset: u64, data: &[u8]) -> Result<(), ReceiveProblem> {
        let filesystem = self.filesystem;
        let file = self.open(path)?;
        let mut done = 0;
        while done < data.len() {
            let at = offset.saturating_add(to_u64(done));
            done += filesystem.write(file, at, &data[done..])?;
        }
        Ok(())
    }

    fn write_encoded(&mut self, write: &EncodedWrite<'_>) -> Result<(), ReceiveProblem> {
        self.write(write.path, write.offset, &decode(write)?)
    }

    /// Root of the subvolume that is cloned from: an earlier one, or the one that is being received.
    fn source_root(&self, origin: Origin, known: &mut Known) -> Result<InodeId, ReceiveProblem> {
        if origin.uuid == self.origin.uuid {
            return Ok(self.root);
        }
        known.find(self.filesystem, origin).map(InodeId::root_of)
    }

    fn clone_range(
        &mut self,
        path: &[u8],
        offset: u64,
        length: u64,
        root: InodeId,
        source: &Source<'_>,
    ) -> Result<(), ReceiveProblem> {
        let filesystem = self.filesystem;
        let found = path::find(filesystem, root, source.path)?;
        if found.kind != FileType::Regular {
            return Err(ReceiveProblem::NotAFile);
        }
        let from = filesystem.open_file(found.id)?;
        let target = self.open(path)?;
        let pair =
            RangePair { source: &from, source_offset: source.offset, target, target_offset: offset, length };
        let copied = filesystem.copy_range(&pair);
        filesystem.close_file(from)?;
        match copied? {
            copied if copied == length => Ok(()),
            found => Err(ReceiveProblem::ShortSource { found, expected: length }),
        }
    }

    fn truncate(&mut self, path: &[u8], size: u64) -> Result<(), ReceiveProblem> {
        let id = self.open(path)?.id();
        let change = AttributeChange { size: Some(size), ..Default::default() };
        self.filesystem.set_attributes(id, &change)?;
        Ok(())
    }

    fn allocate(&mut self, path: &[u8], mode: u32, offset: u64, length: u64) -> Result<(), ReceiveProblem> {
        let known = ALLOCATE_MODES.iter().find(|(number, _)| *number == mode);
        let (_, mode) = known.ok_or(ReceiveProblem::AllocateMode(mode))?;
        let filesystem = self.filesystem;
        Ok(filesystem.allocate(self.open(path)?, *mode, offset, length)?)
    }

    /// The open file of a path.
    fn open(&mut self, path: &[u8]) -> Result<&OpenFile, ReceiveProblem> {
        if self.opened.as_ref().is_none_or(|opened| opened.path != path) {
            self.close()?;
            let found = self.find(path)?;
            if found.kind != FileType::Regular {
                return Err(ReceiveProblem::NotAFile);
            }
            let file = self.filesystem.open_file(found.id)?;
            self.opened = Some(Opened { path: path.to_vec(), file });
        }
        Ok(&self.opened.as_ref().expect("it was just opened").file)
    }

    /// Closes the file that the last command wrote.
    pub(super) fn close(&mut self) -> Result<(), ReceiveProblem> {
        match self.opened.take() {
            Some(opened) => Ok(self.filesystem.close_file(opened.file)?),
            None => Ok(()),
        }
    }
}
