//! Read-only subvolumes become a stream of btrfs send.
//!
//! The walk: [`send`] takes a view of the last commit, in which nothing changes any more ([`brindle_tree::Committed`]), and writes one
//! stream for each subvolume, or one for all. Of a subvolume without parent, all inodes have a turn; of one with a parent,
//! those in which the two trees differ, found by a walk that passes over all blocks that both share (`changes.rs`,
//! [`brindle_tree::Difference`]). At the turn of an inode, in the order of numbers:
//!
//! 1. **names.rs**: [`Names::turn`](names::Names::turn) gives it its names: makes it, moves it, links it, unlinks it. Directories that it needs
//!    are made or moved before their turn; what has a name that it needs is moved out of the way.
//! 2. **contents.rs**: `contents` compares the ranges with other extents piece by piece. A changed piece is cloned from where the receiver
//!    has it already (`sources.rs`), written as it lies if it is compressed and that was asked for, or written.
//! 3. **attributes.rs**: `attributes` sends owner, permissions, extended attributes and times that have changed.
//!
//! At the end, directories that are deleted go, deepest first; then each directory that was touched gets its times.
//!
//! **Promise.** The end command is written after everything else, and the target flushed. A stream without it is cut off, and no receiver
//! takes the subvolume for whole: so a failure of a device, of a check or of the target is an error, and no end command.
//!
//! **Memory** goes with the number of directories (16 bytes for each that changed) and of inodes that are evicted or moved before their turn.
//! Nothing is held for a file.
//!
//! Freed space waits until the end, which matters to a pool that is written meanwhile only.

mod attributes;
mod changes;
mod contents;
mod error;
mod names;
mod output;
mod sources;
mod view;

pub use error::SendError;

use crate::job::Control;
use attributes::Phase;
use brindle_fs::{FileType, Filesystem, RootId, Subvolume};
use brindle_stream::Command;
use brindle_tree::{Committed, DifferenceCounts};
use changes::{Change, Changes};
use contents::Outgoing;
use names::Names;
use output::Output;
use std::io::Write;
use view::View;

/// Subvolumes to be sent, and the form of the stream.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// The subvolumes, in this order.
    pub subvolumes: Vec<RootId>,
    /// Parent of the first: only the difference from it is sent.
    pub parent: Option<RootId>,
    /// Subvolumes that the receiver has, to clone from. The parent is one of them, and so is each subvolume that was sent before.
    pub sources: Vec<RootId>,
    /// Version of the format, 1 or 2.
    pub version: u32,
    /// Compressed extents are sent as they lie.
    pub compressed: bool,
    /// Ranges with other contents are named, and not sent. Such a stream can't be received.
    pub no_data: bool,
    /// All subvolumes are in one stream, with one end command.
    pub one_stream: bool,
}

impl SendOptions {
    /// Options of sending one subvolume, whole, by version 1.
    pub fn whole(subvolume: RootId) -> Self {
        Self {
            subvolumes: vec![subvolume],
            parent: None,
            sources: Vec::new(),
            version: 1,
            compressed: false,
            no_data: false,
            one_stream: false,
        }
    }
}

/// Subvolume that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its id.
    pub id: RootId,
    /// Its path from the top level.
    pub path: Vec<u8>,
    /// The parent, if only the difference was sent.
    pub parent: Option<RootId>,
    /// Number of inodes that had a turn.
    pub inodes: u64,
    /// Blocks read and passed over in the comparison with the parent.
    pub compared: DifferenceCounts,
}

/// Something that happened while sending.
#[derive(Debug)]
pub enum SendEvent<'e> {
    /// A subvolume is begun.
    Begun {
        /// The subvolume.
        subvolume: &'e Subvolume,
        /// Its parent.
        parent: Option<&'e Subvolume>,
    },
    /// A command was written.
    Command {
        /// The command.
        command: &'e Command<'e>,
        /// Length of the stream so far, in bytes.
        bytes: u64,
    },
    /// A subvolume was sent; in one stream with others, its end is that of the stream.
    Sent(&'e Sent),
}

/// Receiver of what happens. It may end the work.
pub type SendObserver<'o> = &'o mut dyn FnMut(&SendEvent<'_>) -> Control;

/// Sends subvolumes of a pool, as of its last commit, to `target`. Returns those that were sent.
///
/// # Errors
/// Subvolumes that are not there or can be written, before anything is written; later, what can't be read, and a target that
/// fails: the stream has no end command then.
pub fn send(
    filesystem: &Filesystem,
    options: &SendOptions,
    target: &mut dyn Write,
    observer: SendObserver<'_>,
) -> Result<Vec<Sent>, SendError> {
    if !(1..=2).contains(&options.version) {
        return Err(SendError::Version(options.version));
    }
    if options.compressed && options.version < 2 {
        return Err(SendError::NotCompressed);
    }
    // Contents are read of files, not of the commit: so what is read stays as it is.
    let named = options.subvolumes.iter().chain(&options.parent).chain(&options.sources);
    let holds: Vec<_> = named.map(|id| filesystem.hold_subvolume(*id)).collect();
    if filesystem.is_writable() {
        filesystem.sync()?;
    }
    let pool = filesystem.pool();
    let committed = pool.committed()?;
    let all = filesystem.subvolumes()?;
    let find = |id: RootId| all.iter().find(|one| one.id == id).ok_or(SendError::NoSubvolume(id));
    let mut known = Vec::new();
    for id in options.parent.iter().chain(&options.sources) {
        let source = find(*id)?;
        if !known.iter().any(|known: &&Subvolume| known.id == source.id) {
            known.push(source);
        }
    }
    let sent: Vec<&Subvolume> = options.subvolumes.iter().map(|id| find(*id)).collect::<Result<_, _>>()?;
    for subvolume in known.iter().chain(&sent) {
        if let (true, true) = (subvolume.id == RootId::FS_TREE, sent.iter().any(|one| one.id == subvolume.id))
        {
            return Err(SendError::TopLevel);
        }
        View::of(pool, &committed, subvolume)?;
    }
    let _holds: Vec<_> = holds.into_iter().collect::<Result<_, _>>()?;
    let mut done = Vec::new();
    let mut output: Option<Output<'_>> = None;
    for (at, subvolume) in sent.iter().enumerate() {
        let parent = match options.parent.filter(|_| at == 0) {
            Some(id) => Some(find(id)?),
            None if at == 0 => None,
            None => best_parent(&known, subvolume),
        };
        let mut out = match output.take() {
            Some(out) => out,
            None => Output::begin(&mut *target, options.version, &mut *observer)?,
        };
        let sources: Vec<View<'_>> =
            known.iter().map(|source| View::of(pool, &committed, source)).collect::<Result<_, _>>()?;
        let sending = Sending { filesystem, committed: &committed, options, sources: &sources };
        let one = sending.subvolume(subvolume, parent, &mut out)?;
        let is_last = at + 1 == sent.len();
        if is_last || !options.one_stream {
            out.write(&Command::End)?;
            out.flush()?;
        }
        out.tell(&SendEvent::Sent(&one))?;
        done.push(one);
        known.push(subvolume);
        output = Some(out).filter(|_| options.one_stream);
    }
    Ok(done)
}

/// The subvolume, among those that the receiver has, that another one likely differs from least: what it is a snapshot of, or another
/// snapshot of that.
fn best_parent<'v>(known: &[&'v Subvolume], of: &Subvolume) -> Option<&'v Subvolume> {
    if of.parent_uuid.is_nil() {
        return None;
    }
    let related = known.iter().filter(|one| one.id != of.id);
    let related = related.filter(|one| one.uuid == of.parent_uuid || one.parent_uuid == of.parent_uuid);
    related.min_by_key(|one| one.changed_generation.abs_diff(of.changed_generation)).copied()
}

/// Parts that all subvolumes of one call have in common.
struct Sending<'s> {
    filesystem: &'s Filesystem,
    committed: &'s Committed<'s>,
    options: &'s SendOptions,
    sources: &'s [View<'s>],
}

/// State of sending one subvolume.
struct ReadySender<'s, 'o> {
    filesystem: &'s Filesystem,
    committed: &'s Committed<'s>,
    options: &'s SendOptions,
    /// Other subvolumes that the receiver has.
    sources: &'s [View<'s>],
    names: Names<'s>,
    out: &'s mut Output<'o>,
    buffer: Vec<u8>,
}

impl Sending<'_> {
    /// Sends one subvolume, but for the end command.
    fn subvolume(
        &self,
        subvolume: &Subvolume,
        parent: Option<&Subvolume>,
        out: &mut Output<'_>,
    ) -> Result<Sent, SendError> {
        let pool = self.filesystem.pool();
        let new = View::of(pool, self.committed, subvolume)?;
        let old = parent.map(|parent| View::of(pool, self.committed, parent)).transpose()?;
        out.tell(&SendEvent::Begun { subvolume, parent })?;
        let name = subvolume.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        out.write(&match &old {
            Some(old) => Command::Snapshot { path: name, origin: new.origin, parent: old.origin },
            None => Command::Subvolume { path: name, origin: new.origin },
        })?;
        let mut changes = Changes::of(self.committed, &new, old.as_ref())?;
        let mut sender = ReadySender {
            filesystem: self.filesystem,
            committed: self.committed,
            options: self.options,
            sources: self.sources,
            names: Names::new(&new, old.as_ref()),
            out,
            buffer: Vec::new(),
        };
        let mut inodes = 0;
        while let Some(change) = changes.next()? {
            sender.turn(&change)?;
            inodes += 1;
        }
        sender.names.finish(sender.out)?;
        sender.finish_directories()?;
        let (id, path, parent) = (subvolume.id, subvolume.path.clone(), parent.map(|parent| parent.id));
        Ok(Sent { id, path, parent, inodes, compared: changes.counts() })
    }
}

impl ReadySender<'_, '_> {
    fn turn(&mut self, change: &Change) -> Result<(), SendError> {
        let number = change.number;
        let path = self.names.turn(number, self.out)?;
        let (Some(path), Some(inode)) = (&path, self.names.new.inode(number)?) else { return Ok(()) };
        let file = Outgoing { number, path, inode, before: self.before(number)? };
        let mut is_written = false;
        if change.has_xattrs {
            self.xattrs(&file, Phase::BeforeContents, false)?;
        }
        match inode.kind {
            FileType::Regular => {
                is_written = self.contents(&file, change)?;
            }
            FileType::Directory => {
                self.names.touched.insert(number);
            }
            _ => {}
        }
        self.attributes(&file, change, is_written)
    }
}
