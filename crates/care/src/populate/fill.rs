//! Filling the pool, in order.

use super::host::SeededHost;
use super::layout::{Layout, Seat};
use super::read::{ReadPart, Reading};
use super::scan::{Source, SourceEntry};
use super::{PopulateError, PopulateOptions};
use crate::job::{Control, Observer, Progress};
use crate::mkfs::Contents;
use brindle_device::WritableDevice;
use brindle_fs::{
    BulkEntry, BulkInode, BulkName, BulkTarget, BulkWriter, FileType, Filesystem, FsError, InodeFlags,
    InodeId, OpenOptions, RootId, Timestamp, WriteOptions,
};
use brindle_ondisk::{BlockGroupType, DevId, ObjectId};
use brindle_tree::TreeError;
use std::sync::Arc;
use std::thread;

/// Upper bound on the memory for trees, in bytes: half of it is metadata that is not committed yet.
const CACHE_BYTES: usize = 512 << 20;
/// Upper bound on reading threads.
const READERS_MAX: usize = 8;
/// Spare space of the trees, for a kernel to be able to write: this number of blocks, and this number of bytes at
/// least.
const METADATA_SPARE_BLOCKS: u64 = 768;
const METADATA_SPARE_BYTES: u64 = 5 << 20;
const MIXED_SPARE_BYTES_MAX: u64 = 64 << 20;
/// Spare space of data, in bytes, added to a share of the data.
const DATA_SPARE_BYTES: u64 = 1 << 20;
/// Gain that justifies making a pool anew: one part in `WORTH`, and `WORTH_BYTES` bytes.
const WORTH: u64 = 16;
const WORTH_BYTES: u64 = 8 << 20;
/// The most warnings that are kept.
const WARNINGS_MAX: usize = 20;

/// Report of the files taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PopulateReport {
    /// Regular files, each once however many names it has.
    pub files: u64,
    /// Directories, with those that became subvolumes, and the top level.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub specials: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Subvolumes, beside the top level.
    pub subvolumes: u64,
    /// Bytes of contents, as files have them.
    pub content_bytes: u64,
    /// Sizes to which devices have been shrunk, in bytes.
    pub device_sizes: Vec<(DevId, u64)>,
    /// Bytes of data and metadata in block groups, and the length of those groups.
    pub used: Contents,
    /// See `used`.
    pub group_bytes: u64,
    /// The size of a tree block, in bytes.
    pub nodesize: u32,
    /// Warnings to the owner.
    pub warnings: Vec<String>,
}

impl PopulateReport {
    /// Contents for which to make a pool anew if it is to be no larger than it has to, or `None` if the gain is too
    /// small.
    pub fn tighter(&self) -> Option<Contents> {
        // Each commit writes some blocks anew, before it frees the old ones.
        let spare = (METADATA_SPARE_BLOCKS * u64::from(self.nodesize)).max(METADATA_SPARE_BYTES);
        let metadata_bytes = match self.used.metadata_bytes {
            // Mixed block groups, of which as much is kept back for metadata as of others.
            0 => (self.used.data_bytes / 12).min(MIXED_SPARE_BYTES_MAX) + spare,
            used => used * 5 / 4 + spare,
        };
        // Where an extent does not fit what is left of a chunk, that stays empty.
        let data_bytes = match self.used.data_bytes {
            0 => 0,
            used => used + used / 64 + DATA_SPARE_BYTES,
        };
        let tight = Contents { data_bytes, metadata_bytes };
        let gain = self.group_bytes.saturating_sub(tight.data_bytes + tight.metadata_bytes);
        (gain > self.group_bytes / WORTH && gain > WORTH_BYTES).then_some(tight)
    }
}

/// Fills an empty pool, which lies on `devices`, with a directory. The observer is told the bytes that have been taken in, an
/// inode as one more; a pause ends the work as a cancellation does. An error leaves parts of the directory in the pool, which is not sound then: [`Veiled`](super::Veiled)
/// devices hold no filesystem until it is.
pub fn populate(
    devices: Vec<Arc<dyn WritableDevice>>,
    source: &Source,
    options: &PopulateOptions,
    observer: Observer<'_>,
) -> Result<PopulateReport, PopulateError> {
    let layout = Layout::new(source, options)?;
    let mut open = OpenOptions::default();
    open.pool.cache_bytes = CACHE_BYTES;
    let write = WriteOptions {
        compression: options.compression,
        host: Arc::new(SeededHost::new(options.seed, options.time_sec)),
        ..WriteOptions::default()
    };
    devices.iter().for_each(|device| device.bypass_cache());
    let filesystem = Filesystem::open_writable(devices, &open, &write)?;
    if let Some(bytes) = options.small_file_bytes {
        filesystem.set_small_file_bytes(bytes)?;
    }
    let reading = Reading::new(source, &layout, filesystem.bulk_format());
    let processors = || thread::available_parallelism().map_or(2, usize::from).clamp(2, READERS_MAX);
    let readers = options.threads.unwrap_or_else(processors).max(1);
    let (mut report, roots) = thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| reading.work());
        }
        // However this ends, readers do not wait for it any longer.
        let _stop = Stop(&reading);
        filesystem.fill(options.data_bytes.unwrap_or(source.data_bytes()), |writer| {
            let mut filler = Filler {
                source,
                layout: &layout,
                options,
                writer,
                roots: Vec::new(),
                report: PopulateReport::default(),
                content_left: source.data_bytes(),
            };
            filler.run(&reading, observer)?;
            Ok::<_, PopulateError>((filler.report, filler.roots))
        })
    })?;
    for (planned, id) in layout.subvolumes.iter().zip(roots) {
        if planned.kind.is_read_only {
            filesystem.set_subvolume_read_only(id, true)?;
        }
        if planned.kind.is_default {
            filesystem.set_default_subvolume(id)?;
        }
    }
    filesystem.pool().commit().map_err(FsError::from)?;
    report.nodesize = filesystem.pool().volume().tree_context().nodesize;
    for group in filesystem.pool().block_groups().map_err(FsError::from)? {
        match (group.kind.contains(BlockGroupType::DATA), group.kind.contains(BlockGroupType::METADATA)) {
            (true, _) => report.used.data_bytes += group.used_bytes,
            (false, true) => report.used.metadata_bytes += group.used_bytes,
            (false, false) => continue,
        }
        report.group_bytes += group.length;
    }
    if options.shrink {
        report.device_sizes = filesystem.pool().shrink_devices().map_err(FsError::from)?;
        filesystem.pool().commit().map_err(FsError::from)?;
    }
    Ok(report)
}

struct Stop<'a>(&'a Reading<'a>);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

struct Filler<'a, 'w, 'f> {
    source: &'a Source,
    layout: &'a Layout,
    options: &'a PopulateOptions,
    writer: &'w mut BulkWriter<'f>,
    /// The ids of the planned subvolumes.
    roots: Vec<RootId>,
    report: PopulateReport,
    content_left: u64,
}

impl Filler<'_, '_, '_> {
    fn run(&mut self, reading: &Reading<'_>, observer: Observer<'_>) -> Result<(), PopulateError> {
        self.create_subvolumes()?;
        let mut progress = Progress { expected_bytes: self.source.units(), ..Progress::default() };
        let mut entered = None;
        while let Some(parts) = reading.next() {
            for read in parts? {
                let seat = self.layout.seats[read.part.entry];
                if entered != Some(seat.subvolume) {
                    self.writer.enter(self.roots[seat.subvolume])?;
                    entered = Some(seat.subvolume);
                }
                let (entry, bytes) = (read.part.entry, read.part.to - read.part.from);
                self.take(read, seat).map_err(|error| self.at(entry, error))?;
                self.content_left = self.content_left.saturating_sub(bytes);
                progress.moved_bytes += bytes + 1;
                if observer(&progress) != Control::Continue {
                    return Err(PopulateError::Stopped);
                }
            }
        }
        Ok(())
    }

    fn create_subvolumes(&mut self) -> Result<(), PopulateError> {
        self.roots.push(RootId::FS_TREE);
        for planned in &self.layout.subvolumes[1..] {
            let entry = &self.source.entries[planned.root];
            let above = self.layout.seats[entry.parent];
            let directory = InodeId { tree: self.roots[above.subvolume], number: above.number };
            let index = Layout::index(self.source, planned.root);
            let made = self.writer.create_subvolume(directory, index, &entry.name);
            self.roots.push(made.map_err(|error| self.at(planned.root, error))?);
            self.report.subvolumes += 1;
        }
        Ok(())
    }

    /// An error, and what it happened to.
    fn at(&self, entry: usize, source: FsError) -> PopulateError {
        let path = self.source.path(entry);
        let source = Box::new(source);
        match *source {
            FsError::Tree(TreeError::NoSpace(_)) => {
                PopulateError::NoSpace { path, missing_bytes: self.content_left, source }
            }
            _ => PopulateError::Entry { path, source },
        }
    }

    fn take(&mut self, read: ReadPart, seat: Seat) -> Result<(), FsError> {
        let at = read.part.entry;
        let entry = &self.source.entries[at];
        if read.is_cut && self.report.warnings.len() < WARNINGS_MAX {
            let path = self.source.path(at);
            self.report.warnings.push(format!("{}: it became shorter while it was read", path.display()));
        }
        match entry.kind {
            FileType::Directory => self.directory(at, entry, seat, &read),
            FileType::Regular => self.file(at, entry, seat, read),
            FileType::Symlink => {
                self.report.symlinks += 1;
                let inode = self.inode(at, seat);
                self.writer.symlink(&inode, &read.xattrs, &read.target)
            }
            _ => {
                self.report.specials += 1;
                let inode = self.inode(at, seat);
                self.writer.special(&inode, &read.xattrs)
            }
        }
    }

    fn file(&mut self, at: usize, entry: &SourceEntry, seat: Seat, read: ReadPart) -> Result<(), FsError> {
        if read.is_first() {
            let inode = self.inode(at, seat);
            self.report.files += 1;
            self.report.content_bytes += entry.size;
            self.writer.begin_file(&inode, &read.xattrs)?;
        }
        for piece in read.pieces {
            self.writer.piece(&piece)?;
        }
        if read.part.to == entry.size { self.writer.end_file() } else { Ok(()) }
    }

    fn directory(
        &mut self,
        at: usize,
        entry: &SourceEntry,
        seat: Seat,
        read: &ReadPart,
    ) -> Result<(), FsError> {
        self.report.directories += 1;
        let child = |child: usize| {
            let (to, entry) = (self.layout.seats[child], &self.source.entries[child]);
            let target = match to.subvolume == seat.subvolume {
                true => BulkTarget::Inode(to.number),
                false => BulkTarget::Subvolume(self.roots[to.subvolume]),
            };
            BulkEntry {
                name: &entry.name,
                index: Layout::index(self.source, child),
                target,
                kind: entry.kind,
            }
        };
        let entries: Vec<BulkEntry<'_>> = entry.children.clone().map(child).collect();
        let inode = self.inode(at, seat);
        self.writer.directory(&inode, &read.xattrs, &entries)
    }

    fn inode(&mut self, at: usize, seat: Seat) -> BulkInode {
        let entry = &self.source.entries[at];
        let is_root = seat.number == ObjectId::FIRST_FREE;
        let links = self.layout.links.get(&at).map(Vec::as_slice).unwrap_or_default();
        self.report.hard_links += brindle_ondisk::to_u64(links.len());
        let name = |at: usize| BulkName {
            parent: self.layout.seats[self.source.entries[at].parent].number,
            index: Layout::index(self.source, at),
            name: self.source.entries[at].name.to_vec(),
        };
        let names = match is_root {
            true => vec![BulkName { parent: seat.number, index: 0, name: b"..".to_vec() }],
            false => std::iter::once(at).chain(links.iter().copied()).map(name).collect(),
        };
        let can_have_data = matches!(entry.kind, FileType::Regular | FileType::Directory);
        let now = Timestamp { seconds: self.options.time_sec, nanoseconds: 0 };
        let fixed = |time| if self.options.is_reproducible { entry.mtime } else { time };
        BulkInode {
            number: seat.number,
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            rdev: match entry.kind {
                FileType::CharDevice | FileType::BlockDevice => entry.rdev,
                _ => 0,
            },
            size: entry.size,
            flags: if can_have_data { seat.flags } else { InodeFlags::empty() },
            atime: fixed(entry.atime),
            mtime: entry.mtime,
            ctime: fixed(entry.ctime),
            otime: now,
            names,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_made_anew_only_where_that_is_worth_it() {
        const MIB: u64 = 1 << 20;
        let of = |data_bytes, metadata_bytes, group_bytes| PopulateReport {
            used: Contents { data_bytes, metadata_bytes },
            group_bytes,
            nodesize: 16384,
            ..PopulateReport::default()
        };
        assert_eq!(of(640 * MIB, 4 * MIB, 700 * MIB).tighter(), None, "a few MiB of many");
        assert_eq!(of(0, MIB, 20 * MIB).tighter(), None, "a few MiB");
        let tight = of(64 * MIB, 4 * MIB, 700 * MIB).tighter().expect("most of it is empty");
        assert_eq!(tight, Contents { data_bytes: 66 * MIB, metadata_bytes: 17 * MIB });
        let mixed = of(120 * MIB, 0, 700 * MIB).tighter().expect("most of it is empty");
        assert!(mixed.metadata_bytes > 20 * MIB, "{mixed:?}");
    }
}
