//! A survey: what an extraction would do, and what would fail, without a byte written.
//!
//! Trees are read as an extraction reads them, so that damage of them is told. Contents are not read: of those only what lies in
//! chunks of missing devices is told.

use super::listing::{Listing, joined};
use super::standing::{Standing, compare, kind_name};
use super::{Context, ExtractError, ExtractObserver, ExtractOptions, Extracted, Failure, Note, count};
use brindle_fs::{Attributes, DirectoryEntry, FileType, Filesystem, FsError, InodeId};
use brindle_ondisk::item::FileExtent;
use brindle_ondisk::{Item, KeyType};
use brindle_tree::Readahead;
use brindle_volume::Warning;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Path of a directory that is looked at: nothing of it is opened for reading its names.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Tells what [`super::extract`] would extract, and the failures that can be foreseen. Nothing is written.
///
/// # Errors
/// Those of [`super::extract`] about the source and the destination.
pub fn survey(
    filesystem: &Filesystem,
    inode: InodeId,
    name: Option<&[u8]>,
    destination: &Path,
    options: ExtractOptions,
    observer: &dyn ExtractObserver,
) -> Result<Extracted, ExtractError> {
    let context = Context::new(filesystem, options, observer);
    let mut survey = Survey { context: &context, lost: lost_chunks(filesystem), seen: HashSet::new() };
    let attributes = filesystem.attributes(inode)?;
    if attributes.kind == FileType::Directory {
        survey.tree(inode, destination_directory(destination)?)?;
    } else {
        let (parent, name) = super::file_destination(name, destination)?;
        let parent = openat(CWD, &parent, DIRECTORY, Mode::empty())
            .map_err(|source| ExtractError::Open { path: parent, source })?;
        survey.leaf(Some(&parent), &name, &name, &Attributes { nlink: 1, ..attributes });
    }
    Ok(context.counts.sum())
}

/// The directory that a tree would go into; `None` if it would be made.
fn destination_directory(path: &Path) -> Result<Option<OwnedFd>, ExtractError> {
    match openat(CWD, path, DIRECTORY, Mode::empty()) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            let made = openat(CWD, parent, DIRECTORY, Mode::empty());
            let is_named = path.file_name().is_some_and(|name| !name.as_bytes().is_empty());
            match made {
                Ok(_) if is_named => Ok(None),
                Ok(_) => Err(ExtractError::Make { path: path.to_owned(), source: Errno::NOENT }),
                Err(source) => Err(ExtractError::Make { path: path.to_owned(), source }),
            }
        }
        Err(source) => Err(ExtractError::Open { path: path.to_owned(), source }),
    }
}

/// Chunks that can't be read, in order.
fn lost_chunks(filesystem: &Filesystem) -> Vec<Range<u64>> {
    let of_warning = |warning| match warning {
        Warning::LostChunks { unreadable, .. } => unreadable,
        _ => Vec::new(),
    };
    let chunks = filesystem.pool().volume().warnings().into_iter().flat_map(of_warning);
    let mut lost: Vec<_> =
        chunks.map(|chunk| chunk.start.get()..chunk.start.get().saturating_add(chunk.length)).collect();
    lost.sort_by_key(|range| range.start);
    lost
}

/// A survey under way.
struct Survey<'c> {
    context: &'c Context<'c>,
    lost: Vec<Range<u64>>,
    /// Directories that were entered, and files with more than one name.
    seen: HashSet<InodeId>,
}

/// A directory that is being surveyed.
struct Frame {
    listing: Listing,
    /// Its place in the destination, if it is there.
    place: Option<OwnedFd>,
    path: Vec<u8>,
}

impl Survey<'_> {
    fn tree(&mut self, start: InodeId, place: Option<OwnedFd>) -> Result<(), ExtractError> {
        self.seen.insert(start);
        let mut stack = vec![Frame { listing: Listing::new(start), place, path: Vec::new() }];
        while let Some(frame) = stack.last_mut() {
            if self.context.observer.is_stopped() {
                return Ok(());
            }
            let path = &frame.path;
            let Some((entry, attributes)) = frame.listing.next(self.context, &|name| joined(path, name))
            else {
                stack.pop();
                continue;
            };
            let path = joined(&frame.path, &entry.name);
            if attributes.kind != FileType::Directory {
                self.leaf(frame.place.as_ref(), &entry.name, &path, &attributes);
                continue;
            }
            if self.context.options.one_subvolume && entry.inode.tree != frame.listing.inode.tree {
                continue;
            }
            let below = self.directory(frame.place.as_ref(), &entry, path, &attributes);
            stack.extend(below);
        }
        Ok(())
    }

    /// Looks at a directory; to be surveyed in its turn.
    fn directory(
        &mut self,
        place: Option<&OwnedFd>,
        entry: &DirectoryEntry,
        path: Vec<u8>,
        attributes: &Attributes,
    ) -> Option<Frame> {
        let is_empty_place = entry.inode != InodeId::root_of(entry.inode.tree) && attributes.size == 0;
        if !self.seen.insert(entry.inode) && !is_empty_place {
            self.context.fail(&path, Failure::TwoNames);
            return None;
        }
        let opened =
            place.map(|place| openat(place, &*entry.name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()));
        let place = match opened {
            None | Some(Err(Errno::NOENT)) => None,
            Some(Ok(place)) => Some(place),
            Some(Err(_)) if self.context.options.overwrite => None,
            Some(Err(error)) => {
                let found =
                    place.and_then(|place| statat(place, &*entry.name, AtFlags::SYMLINK_NOFOLLOW).ok());
                self.context.fail(
                    &path,
                    match found {
                        Some(found) => Failure::InTheWay {
                            found: kind_name(rustix::fs::FileType::from_raw_mode(found.st_mode)),
                            advice: "; --overwrite replaces it",
                        },
                        None => Failure::Make(error),
                    },
                );
                return None;
            }
        };
        count(&self.context.counts.directories);
        self.context.observer.entered(&path);
        Some(Frame { listing: Listing::new(entry.inode), place, path })
    }

    fn leaf(&mut self, place: Option<&OwnedFd>, name: &[u8], path: &[u8], attributes: &Attributes) {
        match self.look(place, name, path, attributes) {
            Ok(()) => {}
            Err(failure) => self.context.fail(path, failure),
        }
    }

    fn look(
        &mut self,
        place: Option<&OwnedFd>,
        name: &[u8],
        path: &[u8],
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        let (context, options) = (self.context, self.context.options);
        let counts = &context.counts;
        let standing = match place {
            Some(place) => compare(context.filesystem, place, name, attributes)?,
            None => Standing::Absent,
        };
        if let Some(failure) = standing.obstacle(options) {
            return Err(failure);
        }
        if !options.replaces() && !matches!(standing, Standing::Absent) {
            return Err(Failure::Make(Errno::EXIST));
        }
        let is_kept = options.resume && matches!(standing, Standing::Whole(_));
        if attributes.nlink > 1 && !self.seen.insert(attributes.id) {
            if !is_kept {
                count(&counts.links);
            }
            return Ok(());
        }
        match attributes.kind {
            FileType::Regular if is_kept => {
                count(&counts.kept_files);
                counts.kept_bytes.fetch_add(attributes.size, Ordering::Relaxed);
            }
            _ if is_kept => {}
            FileType::Regular => {
                count(&counts.files);
                let bytes = attributes.disk_bytes.min(attributes.size);
                counts.bytes.fetch_add(bytes, Ordering::Relaxed);
                context.observer.wrote(bytes);
                let lost = self.lost_bytes(attributes.id)?;
                if lost > 0 {
                    context.fail(path, Failure::LostChunks { bytes: lost });
                }
            }
            FileType::Symlink => {
                context.filesystem.read_link(attributes.id)?;
                count(&counts.symlinks);
            }
            FileType::CharDevice | FileType::BlockDevice if !options.is_root => {
                context.observer.noted(&Note::DeviceNodes);
            }
            _ => count(&counts.specials),
        }
        Ok(())
    }

    /// Bytes of extents of a file that lie in lost chunks.
    fn lost_bytes(&self, file: InodeId) -> Result<u64, FsError> {
        if self.lost.is_empty() {
            return Ok(0);
        }
        let pool = self.context.filesystem.pool();
        let tree = pool.tree(file.tree)?;
        let mut cursor = pool.cursor(&tree, Readahead::None);
        cursor.seek(&brindle_ondisk::Key::new(file.number, KeyType::EXTENT_DATA, 0))?;
        let mut bytes = 0;
        while let Some((key, data)) = cursor.item() {
            if (key.objectid, key.item_type) != (file.number, KeyType::EXTENT_DATA) {
                break;
            }
            if let Ok(Item::FileExtent(FileExtent::OnDisk { is_prealloc: false, extent, .. })) =
                Item::parse(&key, data)
            {
                let start = extent.disk_bytenr.get();
                let behind = self.lost.partition_point(|lost| lost.start <= start);
                if behind.checked_sub(1).is_some_and(|at| self.lost[at].contains(&start)) {
                    bytes += extent.num_bytes.get();
                }
            }
            cursor.next()?;
        }
        Ok(bytes)
    }
}
