//! Entering a pool by its last commit or, if it can't be had and the caller allows it, by an older one that the superblock
//! still names (a backup root).
//!
//! 1. The chunk tree is read, after which every address can be found. It is the newest one that can be read. Then it is known
//!    which devices are missing, and whether anything is lost with them.
//! 2. With backup roots allowed, the commits are tried from the newest to the oldest: the first counts whose root tree
//!    begins, and the trees that every pool has; if there is none, the first whose root tree begins.
//! 3. Without, the last commit counts, and what is lost of it is an error where it is met. Where files are asked for, that
//!    is [`Store::check_root_tree`], which says what a rescue could do.
//!
//! Blocks of an older commit may have been overwritten since; each block names the transaction that wrote it, so that such
//! a one is an error by address, not wrong contents.

use crate::error::TreeError;
use crate::root::TreeRoot;
use crate::store::Store;
use crate::store::cursor::Readahead;
use crate::store::logs::used_by_logs;
use brindle_ondisk::{
    Item, Key, KeyType, Logical, Node, NodeExpectation, ObjectId, RootBackup, RootId, Superblock,
};
use brindle_volume::{ReadError, UnreadableChunk};

/// Trees that every pool has, and files can be read without.
const DISPENSABLE: [RootId; 3] = [RootId::EXTENT_TREE, RootId::DEV_TREE, RootId::CSUM_TREE];

/// Trees that are written with the files: a pool may be without the last three.
const KEPT: [RootId; 7] = [
    RootId::EXTENT_TREE,
    RootId::DEV_TREE,
    RootId::CSUM_TREE,
    RootId::FS_TREE,
    RootId::BLOCK_GROUP_TREE,
    RootId::FREE_SPACE_TREE,
    RootId::UUID_TREE,
];

/// The part of a commit that has to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The chunk tree.
    Chunks,
    /// The first block of the root tree.
    RootTree,
    /// Also those of the trees that every pool has.
    AllRoots,
}

/// A commit to enter by.
#[derive(Clone, Copy)]
enum Commit<'a> {
    Last(&'a Superblock),
    Older(&'a RootBackup),
}

impl Store {
    /// Reads what has to be known before any tree can be: see the top of this module.
    pub(crate) fn enter(&self) -> Result<(), TreeError> {
        let last = self.superblock();
        let backups = self.volume().backup_roots();
        let mut has_chunks = false;
        let uses_backups = self.volume().rescue().backup_roots;
        let wanted = if uses_backups { Wanted::AllRoots } else { Wanted::Chunks };
        let error = match self.enter_by(&mut has_chunks, wanted) {
            Ok(()) => return Ok(()),
            Err(error) if has_chunks || !matches!(error, TreeError::Volume(_)) => error,
            // It is not the trees that are damaged: devices are missing, or the chunks contradict each other.
            Err(error) => return Err(error),
        };
        if !uses_backups {
            if error.lacks_devices() {
                if let Some(lost) = self.volume().lost_metadata() {
                    return Err(lost.into());
                }
            }
            return Err(self.with_advice(error, has_chunks, &backups));
        }
        for wanted in [Wanted::AllRoots, Wanted::RootTree] {
            let commits = std::iter::once(Commit::Last(&last)).chain(backups.iter().map(Commit::Older));
            for commit in commits {
                self.choose(commit, has_chunks);
                match self.enter_by(&mut has_chunks, wanted) {
                    Ok(()) => {
                        self.tell_of(commit);
                        return Ok(());
                    }
                    Err(error) => tracing::info!("generation {}: {error}", self.superblock().generation),
                }
            }
        }
        self.choose(Commit::Last(&last), has_chunks);
        Err(TreeError::NoRoots { source: Box::new(error), readable: None })
    }

    /// Checks that the root tree begins, without which no file can be found.
    ///
    /// # Errors
    /// [`TreeError::NoRoots`], which says whether an older commit can be read.
    pub fn check_root_tree(&self) -> Result<(), TreeError> {
        let first = self.read_first_block(&self.tree(RootId::ROOT_TREE)?.root());
        first.map_err(|error| self.with_advice(error, true, &self.volume().backup_roots()))
    }

    fn choose(&self, commit: Commit<'_>, has_chunks: bool) {
        match commit {
            Commit::Last(superblock) => self.volume().enter_by_last(superblock),
            Commit::Older(backup) => self.volume().enter_by(backup, has_chunks),
        }
        self.forget_trees();
    }

    fn tell_of(&self, commit: Commit<'_>) {
        if let Commit::Older(backup) = commit {
            let (older, last) = (backup.tree_root_gen, self.volume().opened_generation());
            tracing::warn!(
                "the pool is shown as it was at generation {older}, by a backup root: the last commit is {last}"
            );
        }
    }

    /// Enters by the commit of the superblock in memory. The chunk tree is read once.
    fn enter_by(&self, has_chunks: &mut bool, wanted: Wanted) -> Result<(), TreeError> {
        if !*has_chunks {
            self.load_chunk_tree()?;
            self.check_complete()?;
            *has_chunks = true;
        }
        if wanted != Wanted::Chunks {
            self.read_first_block(&TreeRoot::root_tree(&self.superblock()))?;
        }
        if wanted == Wanted::AllRoots {
            self.check_root(RootId::FS_TREE)?;
            let is_dispensable = self.volume().rescue().bad_roots;
            for tree in DISPENSABLE.into_iter().filter(|_| !is_dispensable) {
                self.check_root(tree)?;
            }
        }
        Ok(())
    }

    /// Checks that there are the devices that the pool needs. With an empty chunk nothing is lost, and which ones are empty is
    /// told by trees, most of which can be read without the missing devices.
    pub(super) fn check_complete(&self) -> Result<(), TreeError> {
        let lost = self.volume().unreadable_chunks();
        // A log may use space that the last commit has as unused. One that can't be read may use any.
        if let Some(logged) = (!lost.is_empty()).then(|| used_by_logs(self).ok()).flatten() {
            let is_logged = |chunk: &UnreadableChunk| {
                let end = chunk.start.get().saturating_add(chunk.length);
                logged.iter().any(|at| (chunk.start.get()..end).contains(&at.get()))
            };
            let empty = lost.iter().filter(|chunk| !is_logged(chunk) && self.is_empty(chunk));
            self.volume().note_empty_chunks(&empty.map(|chunk| chunk.start).collect::<Vec<_>>());
        }
        Ok(self.volume().check_complete()?)
    }

    /// Returns true if a chunk is known to be empty: not if its block group can't be read.
    fn is_empty(&self, chunk: &UnreadableChunk) -> bool {
        let key = Key::new(ObjectId::new(chunk.start.get()), KeyType::BLOCK_GROUP_ITEM, chunk.length);
        let is_unused = |data: &[u8]| match Item::parse(&key, data) {
            Ok(Item::BlockGroup(item)) => item.used.get() == 0 && item.block_group_type() == chunk.kind,
            _ => false,
        };
        let tree = self.tree(self.block_group_tree());
        let found = tree.and_then(|tree| self.with_item(&tree, &key, is_unused));
        matches!(found, Ok(Some(true)))
    }

    /// Checks that a tree begins: its root item and its first block can be read.
    pub fn check_root(&self, tree: RootId) -> Result<(), TreeError> {
        self.read_first_block(&self.tree(tree)?.root())
    }

    /// Trees that the pool has, that are written with the files, and that don't begin: what is below can't be told by looking at
    /// the first block.
    pub fn damaged_trees(&self) -> Vec<(RootId, TreeError)> {
        let damage = |tree: RootId| match self.check_root(tree) {
            Ok(()) | Err(TreeError::NoTree(_)) => None,
            Err(error) => Some((tree, error)),
        };
        KEPT.into_iter().filter_map(damage).collect()
    }

    fn read_first_block(&self, root: &TreeRoot) -> Result<(), TreeError> {
        self.read_node(&root.expectation()).map(|_| ())
    }

    /// Adds what a rescue could do to the error of a last commit that can't be entered by.
    fn with_advice(&self, error: TreeError, has_chunks: bool, backups: &[RootBackup]) -> TreeError {
        let begins = |backup: &&RootBackup| {
            // Without the chunk tree, system chunks alone can be read.
            let root = if has_chunks {
                let (bytenr, generation) = (backup.tree_root, backup.tree_root_gen);
                TreeRoot { id: RootId::ROOT_TREE, bytenr, generation, level: backup.tree_root_level }
            } else {
                let (bytenr, generation) = (backup.chunk_root, backup.chunk_root_gen);
                TreeRoot { id: RootId::CHUNK_TREE, bytenr, generation, level: backup.chunk_root_level }
            };
            self.read_first_block(&root).is_ok()
        };
        let readable = backups.iter().find(begins).map(|backup| backup.tree_root_gen);
        TreeError::NoRoots { source: Box::new(error), readable }
    }

    /// A block that matches its checksum in no copy, if it is sound otherwise and the caller gave its checksum up.
    pub(crate) fn read_unsummed(
        &self,
        expected: &NodeExpectation,
        error: ReadError,
    ) -> Result<Node, TreeError> {
        if !self.volume().rescue().tree_checksums {
            return Err(error.into());
        }
        let context = self.volume().tree_context();
        let check = |bytes| Node::check_unsummed(bytes, context, expected);
        // The first error names what each copy's checksum is.
        let node = self.volume().read_block(expected.bytenr, context.nodesize, check).map_err(|_| error)?;
        let at: Logical = expected.bytenr;
        tracing::warn!("tree block at logical {at} matches its checksum in no copy, and is used as it is");
        Ok(node)
    }

    fn load_chunk_tree(&self) -> Result<(), TreeError> {
        let mut cursor = self.cursor(&self.tree(RootId::CHUNK_TREE)?, Readahead::Forward);
        cursor.seek(&Key::MIN)?;
        while let Some((key, data)) = cursor.item() {
            let item = Item::parse(&key, data);
            match item.map_err(|defect| TreeError::item(RootId::CHUNK_TREE, key, defect))? {
                Item::Chunk(chunk) if key.objectid == ObjectId::FIRST_CHUNK_TREE => {
                    self.volume().add_chunk(Logical::new(key.offset()), &chunk)?;
                }
                Item::Device(device) => self.volume().add_device(device)?,
                _ => {}
            }
            cursor.next()?;
        }
        Ok(())
    }
}
