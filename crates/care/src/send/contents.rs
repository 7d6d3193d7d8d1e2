//! Contents of files: what has changed is cloned, or written; what is gone becomes zeros.
//!
//! Two pieces are the same if they are the same part of the same extent: the parent keeps its extents, so none of their addresses has
//! been used again. Beyond the parent's size nothing is the same: bytes of an extent behind the end of a file count for nothing.

use crate::send::error::SendError;
use crate::send::sources::{self, Found, Wanted};
use crate::send::view::{ExtentPart, Inode, Piece, Source, View};
use crate::send::{ReadySender, changes::Change};
use brindle_fs::{InodeId, OpenFile, StoredExtent};
use brindle_ondisk::item::{Compression, InodeFlags};
use brindle_ondisk::{ObjectId, to_u64, to_usize};
use brindle_stream::{Command, EncodedWrite, Origin};
use std::ops::Range;

/// Longest data of a command, in bytes, by version: those of the kernel. Receivers of version 1 take commands of 64 KiB at most.
const WRITE_BYTES: [u64; 2] = [48 << 10, 128 << 10];
/// `FALLOC_FL_KEEP_SIZE`
const KEEP_SIZE: u32 = 1;
/// `FALLOC_FL_PUNCH_HOLE`, which wants the other.
const PUNCH_HOLE: u32 = 2;

/// A file whose names are done.
pub(super) struct Outgoing<'a> {
    pub(super) number: ObjectId,
    pub(super) path: &'a [u8],
    pub(super) inode: Inode,
    /// The inode in the parent, if it is kept.
    pub(super) before: Option<Inode>,
}

/// State while the contents of one file are sent.
struct State {
    file: Option<OpenFile>,
    /// Size of the receiver's file.
    size_there: u64,
    /// Offset from which on the receiver's file has nothing that is known.
    known_end: u64,
    /// Preallocated ranges.
    allocated: Vec<Range<u64>>,
    /// True once a command has changed contents.
    is_changed: bool,
}

impl ReadySender<'_, '_> {
    /// Sends what has changed in a regular file. Returns true if that is anything.
    pub(super) fn contents(&mut self, file: &Outgoing<'_>, change: &Change) -> Result<bool, SendError> {
        let size = file.inode.item.size.get();
        let size_before = file.before.map_or(0, |before| before.item.size.get());
        let sector = self.names.new.sector();
        let known_end = if size_before < size { size_before - size_before % sector } else { u64::MAX };
        let mut state = State {
            file: None,
            size_there: size_before,
            known_end,
            allocated: Vec::new(),
            is_changed: false,
        };
        if size_before > size {
            self.truncate(file, &mut state)?;
        }
        let mut ranges = change.ranges.clone();
        if file.before.is_none() {
            ranges.insert(0..u64::MAX);
        }
        ranges.insert(known_end.min(size)..size);
        let result = ranges.iter().try_for_each(|range| self.range(file, range.into(), &mut state));
        if let Some(open) = state.file.take() {
            self.filesystem.close_file(open)?;
        }
        result?;
        if state.size_there != size {
            self.truncate(file, &mut state)?;
        }
        for range in std::mem::take(&mut state.allocated) {
            let (path, offset, length) = (file.path, range.start, range.end - range.start);
            self.out.write(&Command::Allocate { path, mode: KEEP_SIZE, offset, length })?;
        }
        Ok(state.is_changed)
    }

    fn truncate(&mut self, file: &Outgoing<'_>, state: &mut State) -> Result<(), SendError> {
        let size = file.inode.item.size.get();
        (state.size_there, state.is_changed) = (size, true);
        self.out.write(&Command::Truncate { path: file.path, size })
    }

    fn range(&mut self, file: &Outgoing<'_>, range: Range<u64>, state: &mut State) -> Result<(), SendError> {
        let new = self.names.new;
        let mut pieces = new.pieces(file.number, range)?;
        while let Some(piece) = pieces.next()? {
            match &piece.source {
                Source::Hole => self.zeros(file, &piece, state)?,
                Source::Prealloc => {
                    self.zeros(file, &piece, state)?;
                    if self.out.version() >= 2 && !self.was_allocated(file, &piece)? {
                        state.allocated.push(piece.start..piece.end);
                    }
                }
                Source::Inline { .. } | Source::Extent(_) => {
                    for part in self.changed(file, &piece, state)? {
                        self.data(file, &part, state)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The subvolume's parent, if it has the file.
    fn parent_of(&self, file: &Outgoing<'_>) -> Option<&View<'_>> {
        self.names.old.filter(|_| file.before.is_some())
    }

    /// Returns true if the parent has all of a preallocated piece as space that reads as zeros.
    fn was_allocated(&self, file: &Outgoing<'_>, piece: &Piece) -> Result<bool, SendError> {
        let Some(old) = self.parent_of(file) else { return Ok(false) };
        let mut pieces = old.pieces(file.number, piece.start..piece.end)?;
        while let Some(before) = pieces.next()? {
            if before.source != Source::Prealloc {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The parts of a piece with data that the receiver lacks, up to the end of the file.
    fn changed(&self, file: &Outgoing<'_>, piece: &Piece, state: &State) -> Result<Vec<Piece>, SendError> {
        let end = piece.end.min(file.inode.item.size.get());
        if piece.start >= end {
            return Ok(Vec::new());
        }
        let whole = piece.part(piece.start, end);
        let Some(old) = self.parent_of(file) else { return Ok(vec![whole]) };
        let mut changed: Vec<Range<u64>> = Vec::new();
        let mut pieces = old.pieces(file.number, piece.start..piece.end)?;
        while let Some(before) = pieces.next()? {
            let is_same = piece.part(before.start, before.end).source == before.source
                && before.end.min(end) <= state.known_end;
            let (from, to) = (before.start, before.end.min(end));
            if is_same || from >= to {
                continue;
            }
            match changed.last_mut() {
                Some(last) if last.end == from => last.end = to,
                _ => changed.push(from..to),
            }
        }
        let is_divisible =
            matches!(&piece.source, Source::Extent(extent) if extent.compression == Compression::None);
        Ok(match changed.is_empty() || is_divisible {
            true => changed.into_iter().map(|range| piece.part(range.start, range.end)).collect(),
            false => vec![whole],
        })
    }

    /// Has a piece without data read as zeros where the receiver has data.
    fn zeros(&mut self, file: &Outgoing<'_>, piece: &Piece, state: &mut State) -> Result<(), SendError> {
        let Some((old, before)) = self.names.old.zip(file.before) else { return Ok(()) };
        let end = piece.end.min(file.inode.item.size.get()).min(before.item.size.get());
        let mut pieces = old.pieces(file.number, piece.start..end)?;
        while let Some(there) = pieces.next()? {
            if !matches!(there.source, Source::Inline { .. } | Source::Extent(_)) {
                continue;
            }
            let (path, offset, to) = (file.path, there.start, there.end.min(end));
            state.is_changed = true;
            match self.options {
                options if options.no_data => {
                    self.out.write(&Command::UpdateExtent { path, offset, length: to - offset })?;
                }
                _ if self.out.version() >= 2 => {
                    let mode = PUNCH_HOLE | KEEP_SIZE;
                    self.out.write(&Command::Allocate { path, mode, offset, length: to - offset })?;
                }
                _ => {
                    let zeros = vec![0; to_usize(WRITE_BYTES[0].min(to - offset))];
                    for (offset, length) in steps(offset..to, WRITE_BYTES[0]) {
                        let data = &zeros[..to_usize(length)];
                        self.out.write(&Command::Write { path, offset, data })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends a part with data.
    fn data(&mut self, file: &Outgoing<'_>, part: &Piece, state: &mut State) -> Result<(), SendError> {
        state.is_changed = true;
        state.size_there = state.size_there.max(part.end);
        if self.options.no_data {
            let (path, offset, length) = (file.path, part.start, part.end - part.start);
            return self.out.write(&Command::UpdateExtent { path, offset, length });
        }
        let Source::Extent(extent) = part.source else { return self.write(file, part, state) };
        if !sources::is_cloneable(&file.inode) {
            return self.write(file, part, state);
        }
        let places = sources::places(self.committed, extent.address)?;
        let (size, mut at) = (file.inode.item.size.get(), part.start);
        while at < part.end {
            let rest = part.part(at, part.end);
            let Source::Extent(extent) = rest.source else { break };
            let wanted = Wanted { start: at, end: part.end, extent, size };
            let Some((found, origin, path)) = self.source(file, &places, &wanted)? else { break };
            if found.start > at {
                self.write(file, &part.part(at, found.start), state)?;
            }
            self.out.write(&Command::Clone {
                path: file.path,
                offset: found.start,
                length: found.length,
                source: origin,
                source_path: &path,
                source_offset: found.source_offset,
            })?;
            at = found.start + found.length;
        }
        if at < part.end { self.write(file, &part.part(at, part.end), state) } else { Ok(()) }
    }

    /// The first part of a range that can be cloned, its source, and the source's path there.
    fn source(
        &mut self,
        file: &Outgoing<'_>,
        places: &[sources::ExtentPlace],
        wanted: &Wanted,
    ) -> Result<Option<(Found, Origin, Vec<u8>)>, SendError> {
        let mut best: Option<(Found, Option<&View<'_>>)> = None;
        let is_better = |found: &Found, best: &Option<(Found, Option<&View<'_>>)>| {
            best.as_ref().is_none_or(|(best, _)| found.start < best.start)
        };
        let new = self.names.new;
        for place in places {
            let own = if place.file <= file.number { sources::look(new, place, wanted)? } else { None };
            let is_there = |found: &Found| {
                let sector = new.sector();
                found.file < file.number
                    || (found.source_offset + found.length <= wanted.start && found.length % sector == 0)
            };
            if let Some(found) = own.filter(is_there).filter(|found| is_better(found, &best)) {
                best = Some((found, None));
            }
            for other in self.sources {
                if let Some(found) =
                    sources::look(other, place, wanted)?.filter(|found| is_better(found, &best))
                {
                    best = Some((found, Some(other)));
                }
            }
        }
        let Some((found, other)) = best else { return Ok(None) };
        let path = match other {
            Some(other) => other.path(found.file)?,
            None if found.file == file.number => Some(file.path.to_vec()),
            None => self.names.settled_path(found.file, self.out)?,
        };
        let origin = other.map_or(new.origin, |other| other.origin);
        Ok(path.map(|path| (found, origin, path)))
    }

    /// Writes a part, as it lies if that is asked for and not longer.
    fn write(&mut self, file: &Outgoing<'_>, part: &Piece, state: &mut State) -> Result<(), SendError> {
        if self.options.compressed && self.write_encoded(file, part)? {
            return Ok(());
        }
        let open = match state.file.take() {
            Some(open) => open,
            None => self.filesystem.open_file(self.id_of(file))?,
        };
        let done = self.write_plain(file, &open, part);
        state.file = Some(open);
        done
    }

    fn write_plain(&mut self, file: &Outgoing<'_>, open: &OpenFile, part: &Piece) -> Result<(), SendError> {
        let step = WRITE_BYTES[usize::from(self.out.version() >= 2)];
        let mut buffer = std::mem::take(&mut self.buffer);
        for (offset, length) in steps(part.start..part.end, step) {
            buffer.resize(to_usize(length), 0);
            let read = self.filesystem.read(open, offset, &mut buffer)?;
            if read < buffer.len() {
                let (file, size) = (self.id_of(file), file.inode.item.size.get());
                return Err(SendError::Short { file, offset: offset + to_u64(read), size });
            }
            self.out.write(&Command::Write { path: file.path, offset, data: &buffer })?;
        }
        self.buffer = buffer;
        Ok(())
    }

    fn id_of(&self, file: &Outgoing<'_>) -> InodeId {
        InodeId { tree: self.names.new.id(), number: file.number }
    }

    /// Writes a compressed part as it lies, unless it is plain, or that would be longer than to decompress it. Returns true if it
    /// did.
    fn write_encoded(&mut self, file: &Outgoing<'_>, part: &Piece) -> Result<bool, SendError> {
        let length = part.end - part.start;
        let (compression, decoded_length, decoded_offset, data) = match &part.source {
            Source::Inline { compression, ram_bytes, data } => (*compression, *ram_bytes, 0, data.clone()),
            Source::Extent(extent)
                if extent.compression != Compression::None && extent.disk_length <= length =>
            {
                (extent.compression, extent.ram_bytes, extent.offset, self.stored(file, part, extent)?)
            }
            _ => return Ok(false),
        };
        let Some(compression) = encoding(compression, self.names.new.sector()) else { return Ok(false) };
        let (path, offset, encryption) = (file.path, part.start, 0);
        self.out.write(&Command::EncodedWrite(EncodedWrite {
            path,
            offset,
            length,
            decoded_length,
            decoded_offset,
            compression,
            encryption,
            data: &data,
        }))?;
        Ok(true)
    }

    fn stored(&self, file: &Outgoing<'_>, part: &Piece, extent: &ExtentPart) -> Result<Vec<u8>, SendError> {
        let has_checksums = !file.inode.item.inode_flags().contains(InodeFlags::NODATASUM);
        Ok(self.filesystem.read_stored(
            self.committed,
            &StoredExtent {
                file: self.id_of(file),
                offset: part.start,
                address: extent.address,
                length: extent.disk_length,
                has_checksums,
            },
        )?)
    }
}

/// The number of a compression in streams (`BTRFS_ENCODED_IO_COMPRESSION_*`); `None` for plain contents.
fn encoding(compression: Compression, sector: u64) -> Option<u32> {
    match compression {
        Compression::None => None,
        Compression::Zlib => Some(1),
        Compression::Zstd => Some(2),
        // From 4 KiB on, one number for each size of a sector.
        Compression::Lzo => Some(3 + (sector / 4096).max(1).ilog2()),
    }
}

/// A range in steps: offsets and lengths.
fn steps(range: Range<u64>, step: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let length = step.min(range.end.saturating_sub(at));
        let offset = at;
        at += length;
        (length > 0).then_some((offset, length))
    })
}
