//! The choice among the SSDs of a cache that are there when it is loaded: the one that is the pattern, and the one that follows.

use crate::CacheError;
use crate::flash::Member;
use crate::format::{Role, Superblock};
use crate::mirror::{Follower, NoPair, Pairing, member, pair};
use crate::settings::Mode;
use crate::superblock::{check_size, read_superblock};
use crate::table::{LoadedTable, read_table};
use brindle_device::WritableDevice;
use std::sync::Arc;

/// The SSDs of a cache.
pub(crate) struct Ssds {
    /// The superblock that counts.
    pub(crate) superblock: Superblock,
    pub(crate) leader: Member,
    pub(crate) follower: Option<Follower>,
    /// Table of the leader.
    pub(crate) table: LoadedTable,
    /// True if clean blocks count after a clean end.
    pub(crate) keeps_clean: bool,
}

/// An SSD and its superblock.
struct Found<'f> {
    device: &'f Arc<dyn WritableDevice>,
    superblock: Superblock,
}

impl Found<'_> {
    fn member(&self) -> Member {
        member(Arc::clone(self.device), &self.superblock)
    }

    fn table(&self, is_forced: bool) -> Result<LoadedTable, CacheError> {
        // Without dirty blocks there is nothing to lose.
        let has_no_dirty = self.superblock.mode != Mode::Back.number();
        read_table(&**self.device, &self.superblock, is_forced || has_no_dirty)
    }

    /// The SSD without the other one.
    fn alone(self, is_forced: bool) -> Result<Ssds, CacheError> {
        if self.superblock.role() == Some(Role::Behind) {
            return Err(CacheError::Behind { flash: self.device.name().to_owned() });
        }
        let (table, leader) = (self.table(is_forced)?, self.member());
        let keeps_clean = !self.superblock.is_mirrored();
        Ok(Ssds { superblock: self.superblock, leader, follower: None, table, keeps_clean })
    }
}

/// Chooses among one SSD, or two.
///
/// # Errors
/// Those of an SSD that holds no cache, or another one; of two that were each used alone; of a damaged table unless forced.
pub(crate) fn choose(flash: &[&Arc<dyn WritableDevice>], is_forced: bool) -> Result<Ssds, CacheError> {
    let mut found = Vec::new();
    let mut failure = None;
    for device in flash {
        match read_superblock(device.as_device()) {
            Ok(superblock) => {
                let expected = superblock.flash_bytes.get();
                check_size(device.as_device(), device.size_bytes() >= expected, expected)?;
                found.push(Found { device, superblock });
            }
            Err(error @ (CacheError::Device(_) | CacheError::Corrupt { .. })) => {
                if flash.len() > 1 {
                    tracing::error!("{} is left out: {error}", device.name());
                }
                failure = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    let second = if found.len() > 1 { found.pop() } else { None };
    match (found.pop(), second) {
        (Some(first), Some(second)) => both(first, second, is_forced),
        (Some(one), None) => one.alone(is_forced),
        (None, _) => Err(failure.expect("one SSD at least, and none is whole")),
    }
}

fn both(first: Found<'_>, second: Found<'_>, is_forced: bool) -> Result<Ssds, CacheError> {
    let names = || (first.device.name().to_owned(), second.device.name().to_owned());
    match pair(&first.superblock, &second.superblock) {
        Ok(Pairing::InSync) => in_sync(&first, &second, is_forced),
        Ok(Pairing::Behind(0)) => one_behind(second, &first, is_forced),
        Ok(Pairing::Behind(_)) => one_behind(first, &second, is_forced),
        Err(NoPair::Strangers) => {
            let (first, second) = names();
            Err(CacheError::NoMirror { first, second })
        }
        Err(NoPair::Diverged) => {
            let (first, second) = names();
            Err(CacheError::Diverged { first, second })
        }
    }
}

fn one_behind(leader: Found<'_>, behind: &Found<'_>, is_forced: bool) -> Result<Ssds, CacheError> {
    let ssds = leader.alone(is_forced)?;
    let follower = Follower { member: behind.member(), table: None, is_same: false };
    Ok(Ssds { follower: Some(follower), ..ssds })
}

/// Two SSDs that differ by the last transaction at most. The one that has it leads; one with a damaged table follows.
fn in_sync(first: &Found<'_>, second: &Found<'_>, is_forced: bool) -> Result<Ssds, CacheError> {
    let later =
        if second.superblock.sequence.get() > first.superblock.sequence.get() { second } else { first };
    let superblock = later.superblock.clone();
    let is_same = first.superblock.sequence == second.superblock.sequence && superblock.closed_at.get() != 0;
    let (leader, follower, table, known) = match (first.table(false), second.table(false)) {
        (Ok(one), Ok(two)) if two.committed > one.committed => (second, first, two, Some(one)),
        (Ok(one), Ok(two)) => (first, second, one, Some(two)),
        (Ok(one), Err(error)) => {
            tracing::error!("{error}; its mirror is used");
            (first, second, one, None)
        }
        (Err(error), Ok(two)) => {
            tracing::error!("{error}; its mirror is used");
            (second, first, two, None)
        }
        (Err(error), Err(_)) if !is_forced => return Err(error),
        (Err(_), Err(_)) => (first, second, first.table(true)?, None),
    };
    let Member { uuid, number, .. } = leader.member();
    let is_same = is_same
        && known.as_ref().is_some_and(|known| known.committed == table.committed && known.lost.is_empty());
    Ok(Ssds {
        superblock: superblock.of_member(number, uuid, Some(follower.superblock.flash)),
        leader: leader.member(),
        follower: Some(Follower {
            member: follower.member(),
            table: known.map(|known| known.blocks),
            is_same,
        }),
        table,
        keeps_clean: true,
    })
}
