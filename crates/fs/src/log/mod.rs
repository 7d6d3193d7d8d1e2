//! Entry of an fsync into the log of a subvolume: the changes of the running transaction, and no more. The walk as a whole
//! is told in [`brindle_tree`]'s own module of that name.
//!
//! - *Inode item, names, attributes*: all there are, as they are; a replay takes away attributes that the log lacks
//!   (`items`).
//! - *Extents*: what there is now in the ranges that have changed since the last commit (`book` knows which), holes
//!   told; each range is as wide as the extents that reach into it, those that the log has already included, so that
//!   no two of a log ever overlap (`extents`).
//! - *Checksums* of extents that the last commit does not have.
//! - *Devices* with the data of these extents, which a sync flushes. What was written in place has no extents that tell of
//!   it: of a file that is not copied on write, all devices.
//! - *Names* (`names`). A file whose names, and those of the directories above it, are those that the last commit or the
//!   log has is logged alone. Otherwise the changes of these names are logged with it, while nothing else changes, and with
//!   them all that belongs to them: what had one of the names before, other names of the same inodes, the directories that
//!   they are in and those above, what has left a directory that has gone. Each inode of these is logged with all its names
//!   and its changed extents. So a replay finds a tree in which no inode has lost a name that it did not give up, none has
//!   an old one beside a new one, and nothing that stood for something else is taken from it. Changes of other
//!   names may be in the log or not: files that others make in the same directory cost an fsync nothing (`core::name_groups`).
//!   But what the log tells already is kept right, as the kernel's btrfs does: the new name of a file that was synced, or what has
//!   left a directory that was, goes along with the next fsync.
//!   The fsync of a directory logs all entries that it has got or lost, and those of new directories below.
//!
//! An operation notes what it is about to change before the trees change, and an fsync looks into the notes after it has
//! copied items: what it has copied is not newer than the notes.
//!
//! A commit is left for subvolumes that have got or lost a name, items that are unknown to a log, files of which too much
//! has changed, and whatever `tree` refuses ([`Unlogged`]).

pub(crate) mod durable;
mod extents;
mod items;
mod names;
mod series;

use crate::attributes::InodeId;
use crate::core::Core;
use crate::core::inodes::Inode;
use crate::data::FileData;
use crate::data::output::Cause;
use crate::error::FsError;
use crate::extent::Extents;
use brindle_ondisk::KeyType;
use brindle_sync::Mutex;
use brindle_tree::{LogChange, LogTicket, Logging, Tree, Unlogged};
use brindle_volume::DeviceSet;
use items::Items;
use names::Wanted;
use series::SyncSeries;
use std::sync::Arc;

/// Attempts to log a file whose names go on changing.
const ATTEMPTS: usize = 4;

/// Logged part of a file, or the reason for logging nothing.
type Logged<T> = Result<T, Unlogged>;

/// Outcome of an attempt to log an inode alone.
enum Alone {
    /// The log has it, and the names that were entered before; `None` if nothing has changed since what is durable.
    Entered(Option<LogTicket>),
    /// Its names have to be logged first.
    NewNames,
}

/// Files that are to go along with one that is synced.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// Number of the file that is synced among those with dirty data.
    number: u64,
    files: usize,
}

/// Makes changes durable: by the log if that can tell them, else by a commit.
#[derive(Debug)]
pub(crate) struct FsLog {
    core: Arc<Core>,
    extents: Arc<Extents>,
    data: Arc<FileData>,
    series: Mutex<SyncSeries>,
}

impl FsLog {
    pub(crate) fn new(core: Arc<Core>, extents: Arc<Extents>, data: Arc<FileData>) -> Self {
        Self { core, extents, data, series: Mutex::default() }
    }

    pub(crate) fn sync_directory(&self, directory: InodeId) -> Result<(), FsError> {
        let _stops = self.core.may_wait_for_commits();
        let _timing = self.core.pool().time_sync();
        if self.goes_with_subvolume(directory)? {
            return Ok(());
        }
        self.sync_logged(|| {
            let logging = self.core.pool().begin_logging()?;
            self.core.log_book.note_synced_directory(logging.generation(), directory);
            let has_new_entries = self.core.log_book.has_new_entries(logging.generation(), directory);
            drop(logging);
            if has_new_entries {
                if let Err(why) = self.log_names(directory, Wanted::Entries)? {
                    return Ok(Err(why));
                }
            }
            self.log_inode(&self.core.inode(directory))
        })
    }

    pub(crate) fn sync_attributes(&self, inode: InodeId) -> Result<(), FsError> {
        let _stops = self.core.may_wait_for_commits();
        let _timing = self.core.pool().time_sync();
        let inode = self.core.inode(inode);
        let expected = self.expected_with(&inode);
        // Its error is one of the file, which handles report.
        self.data.write_back_inode(&inode, Cause::Sync)?;
        self.sync_inode(&inode, expected)
    }

    /// Makes durable what has been written back of a file, and what else has changed of it: by the log if that can say
    /// it, else by a commit. Files that are expected to be synced next go along in the log.
    fn sync_inode(&self, inode: &Arc<Inode>, expected: Expected) -> Result<(), FsError> {
        if self.goes_with_subvolume(inode.id())? {
            return Ok(());
        }
        self.data.settle_size(inode)?;
        let along = self.write_back_expected(inode, expected)?;
        self.sync_logged(|| {
            let logged = self.log_inode(inode)?;
            if matches!(logged, Ok(Some(_))) {
                self.log_along(&along);
            }
            Ok(logged)
        })
    }

    /// Files that are to go along with one that is synced.
    fn expected_with(&self, inode: &Inode) -> Expected {
        let number = inode.data.memory().queued;
        let next = self.data.context.next_number();
        let files = self.series.lock().begin(inode.id(), number, next);
        Expected { number: number.unwrap_or(0), files }
    }

    /// Writes back the files that go along with one, if there is a log.
    fn write_back_expected(
        &self,
        inode: &Arc<Inode>,
        expected: Expected,
    ) -> Result<Vec<Arc<Inode>>, FsError> {
        let options = &self.core.writing()?.options;
        if expected.files == 0 || !options.tree_log || options.flush_on_commit {
            return Ok(Vec::new());
        }
        let along = self.data.write_back_beside(inode, expected.number, expected.files);
        self.series.lock().went_along(along.iter().map(|inode| inode.id()));
        Ok(along)
    }

    /// Enters files into the log that nothing waits for: one that can't be entered is left to its own sync.
    fn log_along(&self, files: &[Arc<Inode>]) {
        for inode in files {
            match self.log_inode(inode) {
                Ok(Ok(_)) => {}
                Ok(Err(why)) => return tracing::debug!("{} did not go along: {why:?}", inode.id()),
                Err(error) => return tracing::warn!("{} did not go along: {error}", inode.id()),
            }
        }
    }

    /// Returns true if nothing of an inode is to outlive a crash, for its subvolume is deleted: no log tells of it. One that is
    /// deleted at this moment is passed over by the replay.
    fn goes_with_subvolume(&self, inode: InodeId) -> Result<bool, FsError> {
        Ok(self.core.subvolume_state(inode.tree)?.is_deleted())
    }

    /// Makes durable what `log` enters into the log, or everything if it can't.
    fn sync_logged(
        &self,
        log: impl FnOnce() -> Result<Logged<Option<LogTicket>>, FsError>,
    ) -> Result<(), FsError> {
        let writing = self.core.writing()?;
        let options = &writing.options;
        let logged = if options.tree_log && !options.flush_on_commit {
            match log()? {
                Ok(Some(ticket)) => self.core.pool().sync_log(ticket)?,
                Ok(None) => Ok(()),
                Err(why) => Err(why),
            }
        } else {
            Err(Unlogged::Off)
        };
        match logged {
            Ok(()) => Ok(()),
            Err(why) => {
                self.core.pool().count_unlogged(why);
                self.commit()
            }
        }
    }

    /// Enters an inode into the log; `None` if nothing of it has changed since what is durable.
    fn log_inode(&self, inode: &Arc<Inode>) -> Result<Logged<Option<LogTicket>>, FsError> {
        for attempt in 0..ATTEMPTS {
            // Those that others change meanwhile are for the next one.
            let takes_due = attempt == 0;
            match self.log_alone(inode, takes_due)? {
                Ok(Alone::Entered(ticket)) => return Ok(Ok(ticket)),
                Ok(Alone::NewNames) => {
                    if let Err(why) = self.log_names(inode.id(), Wanted::Names)? {
                        return Ok(Err(why));
                    }
                }
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Err(Unlogged::Names))
    }

    /// Enters an inode into the log whose names are those that the last commit or the log has. If names that are due have
    /// to go along, the inode waits.
    fn log_alone(&self, inode: &Arc<Inode>, takes_due: bool) -> Result<Logged<Alone>, FsError> {
        let id = inode.id();
        let _entry = inode.data.shared();
        let _turn = inode.data.writeback_turn();
        let logging = self.core.pool().begin_logging()?;
        let generation = logging.generation();
        let tree = self.core.tree(id.tree)?;
        let items = match self.items_to_log(&tree, id)? {
            Ok(items) => items,
            Err(why) => return Ok(Err(why)),
        };
        // After a crash there is no inode without a name.
        let Some(items) = items else { return Ok(Ok(Alone::Entered(None))) };
        // Looked at after the items were copied: names that change meanwhile are noted before the trees change.
        let mut with_names = vec![id];
        if self.core.log_book.has_moved_directories(generation) {
            with_names.extend(self.directories_above(id)?);
        }
        let has_due = takes_due && self.core.log_book.has_due_names(generation);
        if has_due || self.core.log_book.has_new_names(generation, &with_names) {
            return Ok(Ok(Alone::NewNames));
        }
        // An entry of names, if there is one, may tell where it is.
        let names = self.core.log_book.names_ticket(generation);
        let ticket = self.core.log_book.ticket_of(generation, id);
        let log = logging.log_tree(id.tree);
        if items.inode.transid < generation || ticket.is_some() {
            let Some(ranges) = self.core.log_book.changes(generation, id) else {
                return Ok(Err(Unlogged::Extents));
            };
            // What has gone behind the end is told when there is something behind it.
            let end = items.inode.size.get().next_multiple_of(self.core.sector());
            let has_changed = ranges.iter().any(|range| range.start < end);
            match (&log, ticket) {
                (Some(log), Some(ticket)) if !has_changed && self.has_logged(log, &items)? => {
                    return Ok(Ok(Alone::Entered(names.max(Some(ticket)))));
                }
                (_, None) if ranges.is_empty() => return Ok(Ok(Alone::Entered(names))),
                _ => {}
            }
        }
        let change = match self.inode_change(&logging, &tree, &items)? {
            Ok(change) => change,
            Err(why) => return Ok(Err(why)),
        };
        Ok(self.enter_log(&logging, &[change], &[items])?.map(|ticket| Alone::Entered(Some(ticket))))
    }

    /// Change that logs an inode with its names, attributes and changed extents.
    fn inode_change(
        &self,
        logging: &Logging<'_>,
        tree: &Arc<Tree>,
        items: &Items,
    ) -> Result<Logged<LogChange>, FsError> {
        let (id, generation) = (items.id, logging.generation());
        let (ranges, checksums, data_on) = (vec![items.range()], Vec::new(), DeviceSet::default());
        let mut change = LogChange { subvolume: id.tree, ranges, checksums, data_on };
        if logging.committed_tree(id.tree)?.is_none() {
            return Ok(Err(Unlogged::Names));
        }
        if !items.has_extents() {
            return Ok(Ok(change));
        }
        let is_new = items.inode.generation == generation;
        let ranges = if is_new && self.core.log_book.ticket_of(generation, id).is_none() {
            std::iter::once(0..u64::MAX).collect()
        } else {
            match self.core.log_book.changes(generation, id) {
                Some(ranges) => ranges,
                None => return Ok(Err(Unlogged::Extents)),
            }
        };
        let log = logging.log_tree(id.tree);
        let found = self.extents_to_log(tree, log.as_ref(), items, (generation, ranges))?;
        let Some(found) = found else { return Ok(Err(Unlogged::Extents)) };
        change.ranges.extend(found.ranges);
        (change.checksums, change.data_on) = (found.checksums, found.data_on);
        Ok(Ok(change))
    }

    /// Enters changes, those of these inodes among them.
    fn enter_log(
        &self,
        logging: &Logging<'_>,
        changes: &[LogChange],
        inodes: &[Items],
    ) -> Result<Logged<LogTicket>, FsError> {
        let entered = logging.enter(changes)?;
        if let Ok(ticket) = entered {
            let generation = logging.generation();
            for items in inodes {
                let end = items.inode.size.get().next_multiple_of(self.core.sector());
                self.core.log_book.forget_before(generation, items.id, end);
                self.core.log_book.is_logged(generation, items.id, ticket);
            }
        }
        Ok(entered)
    }

    /// Returns true if the log has just these items of an inode before its extents.
    fn has_logged(&self, log: &Arc<Tree>, items: &Items) -> Result<bool, FsError> {
        let range = items.range();
        let mut cursor = self.core.pool().cursor(log, brindle_tree::Readahead::None);
        cursor.seek(&range.first)?;
        for (key, data) in &range.items {
            if cursor.item() != Some((*key, data.as_slice())) {
                return Ok(false);
            }
            cursor.next()?;
        }
        Ok(cursor
            .key()
            .is_none_or(|key| key.objectid != range.first.objectid || key.item_type > KeyType::XATTR_ITEM))
    }
}
