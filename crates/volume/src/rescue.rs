//! Rescue of a damaged pool that is only read: the words of the kernel's `rescue=` option, and entering by an older commit.
//!
//! Each word gives up one assurance, and only where there is no other way: a copy that matches its checksum is always
//! preferred, and a tree block passes the gate in all but its checksum. Nothing is written.

use crate::Volume;
use brindle_ondisk::{Logical, RootBackup, Superblock};
use std::cmp::Reverse;

/// Assurances that are given up to read a damaged pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescue {
    /// Enter by a backup root if the last commit's trees can't be read (`usebackuproot`).
    pub backup_roots: bool,
    /// Go on without trees that files can be read without (`ibadroots`).
    pub bad_roots: bool,
    /// Data that matches no checksum in any copy is served as it is (`idatacsums`).
    pub data_checksums: bool,
    /// Tree blocks that match no checksum in any copy are used if they are sound otherwise (`imetacsums`).
    pub tree_checksums: bool,
}

impl Rescue {
    /// All but the backup roots, as the kernel has it (`all`).
    pub const ALL: Self =
        Self { backup_roots: false, bad_roots: true, data_checksums: true, tree_checksums: true };

    /// Returns true if something is given up.
    pub fn is_any(self) -> bool {
        self != Self::default()
    }
}

impl Volume {
    /// Assurances that are given up.
    pub fn rescue(&self) -> Rescue {
        self.rescue
    }

    /// Roots of the last commits that the superblock keeps, those of the last one left out; the newest first.
    pub fn backup_roots(&self) -> Vec<RootBackup> {
        let superblock = self.superblock();
        let is_older = |backup: &&RootBackup| {
            let generation = backup.tree_root_gen;
            generation.get() != 0 && generation < self.opened
        };
        let mut backups: Vec<RootBackup> = superblock.super_roots.iter().filter(is_older).copied().collect();
        backups.sort_by_key(|backup| Reverse(backup.tree_root_gen));
        backups
    }

    /// Makes an older commit the one that the pool is read by. A log is of the last commit, and is left out; so is the older
    /// chunk tree, if chunks are known already.
    ///
    /// # Panics
    /// If the pool was opened to be written.
    pub fn enter_by(&self, backup: &RootBackup, has_chunks: bool) {
        assert!(!self.is_writable(), "an older commit is only read: the blocks of later ones are in use");
        let mut superblock = Superblock::clone(&self.superblock());
        superblock.generation = backup.tree_root_gen;
        (superblock.root, superblock.root_level) = (backup.tree_root, backup.tree_root_level);
        if !has_chunks {
            (superblock.chunk_root, superblock.chunk_root_level) =
                (backup.chunk_root, backup.chunk_root_level);
            superblock.chunk_root_generation = backup.chunk_root_gen;
        }
        (superblock.log_root, superblock.log_root_level) = (Logical::new(0), 0);
        (superblock.total_bytes, superblock.bytes_used) = (backup.total_bytes, backup.bytes_used);
        self.replace_superblock(superblock);
    }

    /// Makes the last commit the one that the pool is read by again.
    pub fn enter_by_last(&self, superblock: &Superblock) {
        self.replace_superblock(superblock.clone());
    }
}
