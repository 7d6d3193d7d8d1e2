//! The walk over the tree: makes directories, links and special files, and hands out the rest.

use super::copy::{Batch, Filling, Job, SEGMENT_BYTES};
use super::count;
use super::listing::Listing;
use super::metadata;
use super::output_file::{Links, SharedLinks, lock};
use super::standing::{Standing, compare};
use super::target::Directory;
use super::{Context, Failure, Note};
use brindle_fs::{Attributes, DirectoryEntry, FileType, InodeId};
use rustix::fs::{Mode, Stat, makedev, mknodat, symlinkat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

/// Upper bounds on a batch of jobs, in jobs and bytes: waking a thread costs about as much as a small file.
const BATCH_JOBS: usize = 32;
const BATCH_BYTES: u64 = 1 << 20;
/// The longest path that the host takes; hard links beyond it become copies.
const PATH_BYTES_MAX: usize = 4095;

/// A walk under way.
pub(super) struct Walk<'c> {
    context: &'c Context<'c>,
    queue: SyncSender<Batch<'c>>,
    /// Jobs that have not been handed out, and how many bytes they are about.
    batch: Batch<'c>,
    batch_bytes: u64,
    /// Directories that were entered: a damaged pool may have one below itself.
    entered: HashSet<InodeId>,
    /// Files with more than one name: where the first one is, and how many are still to come.
    linked: HashMap<InodeId, Linked<'c>>,
}

struct Linked<'c> {
    root: Arc<Directory<'c>>,
    path: Vec<u8>,
    /// Names of a file that may not be there yet; `None` for other inodes, which are there at once.
    file: Option<SharedLinks<'c>>,
    names_left: u32,
}

/// A directory that is being walked.
struct Frame<'c> {
    listing: Listing,
    directory: Arc<Directory<'c>>,
}

impl<'c> Walk<'c> {
    /// A walk that hands files to `queue`.
    pub(super) fn new(context: &'c Context<'c>, queue: SyncSender<Batch<'c>>) -> Self {
        Self {
            context,
            queue,
            batch: Vec::new(),
            batch_bytes: 0,
            entered: HashSet::new(),
            linked: HashMap::new(),
        }
    }

    /// Restores what is below `start` into `target`.
    pub(super) fn tree(&mut self, start: InodeId, target: Arc<Directory<'c>>) {
        self.entered.insert(start);
        let root = Arc::clone(&target);
        let mut stack = vec![Frame::new(start, target)];
        while let Some(frame) = stack.last_mut() {
            if self.context.observer.is_stopped() {
                return;
            }
            match frame.next(self.context) {
                Some((entry, attributes)) => {
                    let directory = Arc::clone(&frame.directory);
                    let parent = frame.listing.inode;
                    if let Some(below) = self.entry(&root, parent, directory, &entry, attributes) {
                        stack.push(below);
                    }
                }
                None => drop(stack.pop()),
            }
        }
        self.hand_out();
    }

    /// Restores one thing that is no directory.
    pub(super) fn single(&mut self, directory: Arc<Directory<'c>>, name: &[u8], attributes: Attributes) {
        let attributes = Attributes { nlink: 1, ..attributes };
        let root = Arc::clone(&directory);
        self.leaf(&root, directory, name, attributes);
        self.hand_out();
    }

    /// Restores an entry; a directory is returned, to be walked.
    fn entry(
        &mut self,
        root: &Arc<Directory<'c>>,
        parent: InodeId,
        directory: Arc<Directory<'c>>,
        entry: &DirectoryEntry,
        attributes: Attributes,
    ) -> Option<Frame<'c>> {
        let name = &entry.name;
        if attributes.kind != FileType::Directory {
            self.leaf(root, directory, name, attributes);
            return None;
        }
        if self.context.options.one_subvolume && entry.inode.tree != parent.tree {
            return None;
        }
        // The place of a subvolume in a snapshot is always the same inode; it has nothing below it.
        let is_empty_place = entry.inode != InodeId::root_of(entry.inode.tree) && attributes.size == 0;
        if !self.entered.insert(entry.inode) && !is_empty_place {
            self.context.fail(&directory.path_of(name), Failure::TwoNames);
            return None;
        }
        match directory.make_directory(name, &attributes) {
            Ok(made) => {
                self.context.observer.entered(made.path());
                Some(Frame::new(entry.inode, Arc::new(made)))
            }
            Err(failure) => {
                self.context.fail(&directory.path_of(name), failure);
                None
            }
        }
    }

    fn leaf(
        &mut self,
        root: &Arc<Directory<'c>>,
        directory: Arc<Directory<'c>>,
        name: &[u8],
        attributes: Attributes,
    ) {
        let id = attributes.id;
        let path = directory.path_of(name);
        let standing = match self.standing(&directory, name, &attributes) {
            Ok(standing) => standing,
            Err(failure) => return self.context.fail(&path, failure),
        };
        if attributes.nlink > 1 && self.link(&directory, name, id) {
            return;
        }
        let nlink = attributes.nlink;
        let made = match standing {
            Standing::Whole(found) => {
                self.keep(&directory, name, &attributes, &found);
                Some(None)
            }
            _ => self.make(directory, name, attributes),
        };
        let Some(file) = made else {
            return;
        };
        // A tree without the other names must not fill the table, but that is unknown here.
        if nlink > 1 && path.len() <= PATH_BYTES_MAX {
            let linked = Linked { root: Arc::clone(root), path, file, names_left: nlink - 1 };
            self.linked.insert(id, linked);
        }
    }

    /// State of the name in the destination; looked at only to go on with an extraction.
    fn standing(
        &self,
        directory: &Directory<'c>,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<Standing, Failure> {
        let options = self.context.options;
        if !options.resume || directory.is_new() {
            return Ok(Standing::Absent);
        }
        let standing = compare(self.context.filesystem, directory, name, attributes)?;
        standing.obstacle(options).map_or(Ok(standing), Err)
    }

    /// Keeps something that is whole. Owner and mode can have changed since, which the times that were compared do not tell.
    fn keep(&self, directory: &Directory<'c>, name: &[u8], attributes: &Attributes, found: &Stat) {
        if attributes.kind == FileType::Regular {
            count(&self.context.counts.kept_files);
            self.context.counts.kept_bytes.fetch_add(attributes.size, Ordering::Relaxed);
        }
        if !metadata::is_owned_alike(self.context, attributes, found) {
            let path = directory.path_of(name);
            metadata::apply_by_name(self.context, directory, name, attributes, &path);
        }
    }

    /// Gives a file that is there another name. False if it is not there.
    fn link(&mut self, directory: &Arc<Directory<'c>>, name: &[u8], id: InodeId) -> bool {
        let Some(linked) = self.linked.get_mut(&id) else {
            return false;
        };
        let will_be_linked = match linked.file.as_ref().map(lock).as_deref_mut() {
            Some(Links::Waiting(names)) => {
                names.push((Arc::clone(directory), name.to_vec()));
                true
            }
            Some(Links::Lost) => return false,
            Some(Links::Published) | None => false,
        };
        let link = || directory.link(name, &*linked.root, &linked.path);
        match if will_be_linked { Ok(false) } else { link() } {
            Ok(false) => {}
            Ok(true) => count(&self.context.counts.links),
            Err(Errno::MLINK | Errno::XDEV) => return false,
            Err(error) => {
                self.context.fail(&directory.path_of(name), Failure::Link(error));
            }
        }
        linked.names_left -= 1;
        if linked.names_left == 0 {
            self.linked.remove(&id);
        }
        true
    }

    /// Makes anything but a directory, or has it made. None if there is nothing that could have another name.
    fn make(
        &mut self,
        directory: Arc<Directory<'c>>,
        name: &[u8],
        attributes: Attributes,
    ) -> Option<Option<SharedLinks<'c>>> {
        let made = match attributes.kind {
            FileType::Regular => return self.file(directory, name, attributes),
            FileType::Symlink => self.symlink(&directory, name, &attributes).map(|()| true),
            _ => self.special(&directory, name, &attributes),
        };
        match made {
            Ok(is_there) => is_there.then_some(None),
            Err(error) => {
                self.context.fail(&directory.path_of(name), error);
                None
            }
        }
    }

    fn file(
        &mut self,
        directory: Arc<Directory<'c>>,
        name: &[u8],
        attributes: Attributes,
    ) -> Option<Option<SharedLinks<'c>>> {
        if attributes.nlink == 1 && attributes.size <= SEGMENT_BYTES {
            let bytes = attributes.size;
            self.add(Job::File { directory, name: name.to_vec(), attributes }, bytes);
            return Some(None);
        }
        // What has other names is known to them at once, and what goes out in segments is shared by them.
        let parts = attributes.size.div_ceil(SEGMENT_BYTES);
        let path = directory.path_of(name);
        let file = match Filling::make(self.context, directory, name, attributes, parts) {
            Ok(file) => Arc::new(file),
            Err(error) => {
                self.context.fail(&path, Failure::Make(error));
                return None;
            }
        };
        let links = file.links();
        let mut start = 0;
        while start < file.attributes.size {
            let end = file.attributes.size.min(start + SEGMENT_BYTES);
            self.add(Job::Segment { file: Arc::clone(&file), start, end }, end - start);
            start = end;
        }
        Some(Some(links))
    }

    fn add(&mut self, job: Job<'c>, bytes: u64) {
        self.batch.push(job);
        self.batch_bytes += bytes;
        if self.batch.len() >= BATCH_JOBS || self.batch_bytes >= BATCH_BYTES {
            self.hand_out();
        }
    }

    fn hand_out(&mut self) {
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.queue.send(batch).expect("the workers outlive the walk");
    }

    fn symlink(
        &self,
        directory: &Directory<'c>,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        let target = self.context.filesystem.read_link(attributes.id)?;
        directory.replacing(name, || symlinkat(&*target, directory, name)).map_err(Failure::Symlink)?;
        count(&self.context.counts.symlinks);
        metadata::apply_by_name(self.context, directory, name, attributes, &directory.path_of(name));
        Ok(())
    }

    /// Returns true if it is there: an ordinary user can't make devices, which is no failure.
    fn special(
        &self,
        directory: &Directory<'c>,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<bool, Failure> {
        let kind = rustix::fs::FileType::from_raw_mode(attributes.mode);
        let (major, minor) = match attributes.kind {
            FileType::CharDevice | FileType::BlockDevice => attributes.device_numbers(),
            _ => (0, 0),
        };
        let make = || mknodat(directory, name, kind, Mode::RUSR | Mode::WUSR, makedev(major, minor));
        match directory.replacing(name, make) {
            Ok(()) => {}
            Err(Errno::PERM) if !self.context.options.is_root => {
                self.context.observer.noted(&Note::DeviceNodes);
                return Ok(false);
            }
            Err(error) => return Err(Failure::Special(error)),
        }
        count(&self.context.counts.specials);
        metadata::apply_by_name(self.context, directory, name, attributes, &directory.path_of(name));
        Ok(true)
    }
}

impl<'c> Frame<'c> {
    fn new(inode: InodeId, directory: Arc<Directory<'c>>) -> Self {
        Self { listing: Listing::new(inode), directory }
    }

    /// The next entry and what it is.
    fn next(&mut self, context: &Context<'_>) -> Option<(DirectoryEntry, Attributes)> {
        let directory = &self.directory;
        self.listing.next(context, &|name| directory.path_of(name))
    }
}
