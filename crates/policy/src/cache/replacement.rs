//! Replacement: which slot of a set of the cache makes way for another block.
//!
//! FIFO and LRU are those of flashcache. S3-FIFO resists scans: a new block waits in a small queue, a tenth of the set, and
//! only if it is used again meanwhile it gets into the main one; a block that comes back soon after it had to leave
//! gets there at once. Blocks of the main queue that were used go round once more, up to three times.

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

/// Rule by which slots make way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReclaimPolicy {
    /// The oldest one.
    Fifo,
    /// The one that was not used for the longest time.
    Lru,
    /// The oldest one that was not used.
    #[default]
    S3Fifo,
}

impl ReclaimPolicy {
    /// All of them, by their numbers in settings; 0 and 1 are flashcache's.
    pub const ALL: [Self; 3] = [Self::Fifo, Self::Lru, Self::S3Fifo];

    /// Its name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Lru => "lru",
            Self::S3Fifo => "s3fifo",
        }
    }

    /// Its number in settings.
    pub const fn number(self) -> u8 {
        match self {
            Self::Fifo => 0,
            Self::Lru => 1,
            Self::S3Fifo => 2,
        }
    }
}

impl fmt::Display for ReclaimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownReclaimPolicy;

impl FromStr for ReclaimPolicy {
    type Err = UnknownReclaimPolicy;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let is_named = |policy: &Self| policy.name() == word || policy.number().to_string() == word;
        Self::ALL.into_iter().find(is_named).ok_or(UnknownReclaimPolicy)
    }
}

/// Most slots of a set: numbers of slots are kept in 16 bits.
pub const SLOTS_MAX: u16 = 1 << 15;

/// No slot.
const NONE: u16 = u16::MAX;
/// Share of the small queue: one in this number.
const SMALL_SHARE: u16 = 10;
/// Most uses that count.
const USES_MAX: u8 = 3;

/// Slots of one set that hold blocks, in the order in which they make way. Six bytes a slot, and four for a block that
/// has left.
#[derive(Clone, Debug)]
pub struct SetOrder {
    links: Box<[Link]>,
    small: Queue,
    main: Queue,
    /// Fingerprints of blocks that left the small queue unused; a ring.
    ghosts: Box<[u32]>,
    next_ghost: u16,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u16,
    older: u16,
    place: Place,
    uses: u8,
}

const NOWHERE: Link = Link { newer: NONE, older: NONE, place: Place::Nowhere, uses: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Small,
    Main,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    newest: u16,
    oldest: u16,
    length: u16,
}

const EMPTY: Queue = Queue { newest: NONE, oldest: NONE, length: 0 };

impl SetOrder {
    /// An empty set.
    ///
    /// # Panics
    /// If it has more than [`SLOTS_MAX`] slots.
    pub fn new(slots: u16) -> Self {
        assert!(slots <= SLOTS_MAX, "{slots} slots are too many for a set");
        Self {
            links: vec![NOWHERE; slots.into()].into(),
            small: EMPTY,
            main: EMPTY,
            ghosts: vec![0; slots.into()].into(),
            next_ghost: 0,
        }
    }

    /// Adds a slot that has got a block, told by a fingerprint that is not 0.
    pub fn insert(&mut self, rule: ReclaimPolicy, slot: u16, fingerprint: u32) {
        debug_assert!(self.link(slot).place == Place::Nowhere, "slot {slot} is in the order");
        let is_new = rule == ReclaimPolicy::S3Fifo && !self.was_seen(fingerprint);
        self.push(slot, if is_new { Place::Small } else { Place::Main });
    }

    /// Has another slot stand for one whose block was written to it: with its place by FIFO, as the newest by LRU, with its uses by S3-FIFO.
    pub fn replace(&mut self, rule: ReclaimPolicy, slot: u16, by: u16) {
        debug_assert!(self.link(by).place == Place::Nowhere, "slot {by} is in the order");
        let link = self.link(slot);
        if rule == ReclaimPolicy::Fifo {
            self.links[usize::from(by)] = link;
            self.links[usize::from(slot)] = NOWHERE;
            let queue = if link.place == Place::Small { &mut self.small } else { &mut self.main };
            let newer = if link.newer == NONE {
                &mut queue.newest
            } else {
                &mut self.links[usize::from(link.newer)].older
            };
            *newer = by;
            let older = if link.older == NONE {
                &mut queue.oldest
            } else {
                &mut self.links[usize::from(link.older)].newer
            };
            *older = by;
            return;
        }
        self.remove(slot);
        self.push(by, if rule == ReclaimPolicy::Lru { Place::Main } else { link.place });
        self.links[usize::from(by)].uses = link.uses;
    }

    /// Takes note of a use of a slot's block.
    pub fn hit(&mut self, rule: ReclaimPolicy, slot: u16) {
        match rule {
            ReclaimPolicy::Fifo => {}
            ReclaimPolicy::Lru => {
                self.remove(slot);
                self.push(slot, Place::Main);
            }
            ReclaimPolicy::S3Fifo => {
                let uses = &mut self.links[usize::from(slot)].uses;
                *uses = (*uses + 1).min(USES_MAX);
            }
        }
    }

    /// Takes a slot out that lost its block.
    pub fn remove(&mut self, slot: u16) {
        let Link { newer, older, place, .. } = self.link(slot);
        let queue = match place {
            Place::Nowhere => return,
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
        };
        queue.length -= 1;
        match newer {
            NONE => queue.newest = older,
            newer => self.links[usize::from(newer)].older = older,
        }
        match older {
            NONE => queue.oldest = newer,
            older => self.links[usize::from(older)].newer = newer,
        }
        self.links[usize::from(slot)] = NOWHERE;
    }

    /// Takes the slot out that makes way, one of those that `can_go` allows; `fingerprint` tells its block.
    pub fn victim(
        &mut self,
        rule: ReclaimPolicy,
        mut can_go: impl FnMut(u16) -> bool,
        fingerprint: impl Fn(u16) -> u32,
    ) -> Option<u16> {
        if rule != ReclaimPolicy::S3Fifo {
            let found = self.oldest_of(Place::Main, &mut can_go);
            let found = found.or_else(|| self.oldest_of(Place::Small, &mut can_go))?;
            self.remove(found);
            return Some(found);
        }
        let slots = self.links.len();
        let small = (u16::try_from(slots).expect("at most SLOTS_MAX") / SMALL_SHARE).max(1);
        // Each step takes a use from a slot, moves it from the small queue, or finds that it can't go.
        for _ in 0..slots * (usize::from(USES_MAX) + 2) {
            let is_small = self.small.length >= small || self.main.length == 0;
            let slot = if is_small { self.small.oldest } else { self.main.oldest };
            if slot == NONE {
                return None;
            }
            let uses = self.link(slot).uses;
            let goes = uses == 0 && can_go(slot);
            self.remove(slot);
            if goes {
                if is_small {
                    self.remember(fingerprint(slot));
                }
                return Some(slot);
            }
            self.push(slot, Place::Main);
            self.links[usize::from(slot)].uses = if is_small { 0 } else { uses.saturating_sub(1) };
        }
        None
    }

    /// Slots from the one on that is to make way first; uses are not looked at.
    pub fn oldest_first(&self) -> impl Iterator<Item = u16> + '_ {
        self.walk(self.small.oldest).chain(self.walk(self.main.oldest))
    }

    fn oldest_of(&self, place: Place, can_go: &mut impl FnMut(u16) -> bool) -> Option<u16> {
        let queue = if place == Place::Small { &self.small } else { &self.main };
        self.walk(queue.oldest).find(|slot| can_go(*slot))
    }

    fn walk(&self, oldest: u16) -> impl Iterator<Item = u16> + '_ {
        let is_slot = |slot: u16| (slot != NONE).then_some(slot);
        std::iter::successors(is_slot(oldest), move |slot| is_slot(self.link(*slot).newer))
    }

    fn push(&mut self, slot: u16, place: Place) {
        let queue = if place == Place::Small { &mut self.small } else { &mut self.main };
        let before = std::mem::replace(&mut queue.newest, slot);
        queue.length += 1;
        if before == NONE {
            queue.oldest = slot;
        } else {
            self.links[usize::from(before)].newer = slot;
        }
        self.links[usize::from(slot)] = Link { newer: NONE, older: before, place, uses: 0 };
    }

    fn was_seen(&mut self, fingerprint: u32) -> bool {
        let found = self.ghosts.iter_mut().find(|ghost| **ghost == fingerprint);
        found.is_some_and(|ghost| std::mem::take(ghost) != 0)
    }

    fn remember(&mut self, fingerprint: u32) {
        let next = usize::from(self.next_ghost);
        self.ghosts[next] = fingerprint;
        self.next_ghost = u16::try_from((next + 1) % self.ghosts.len()).expect("at most SLOTS_MAX");
    }

    fn link(&self, slot: u16) -> Link {
        self.links[usize::from(slot)]
    }
}
