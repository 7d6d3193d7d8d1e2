//! Inode numbers of the mount. A mount has one device number, so that its inodes need numbers that are unique
//! over all subvolumes.
//!
//! The usual number is `slot << 48 | inode`: slot 0 is the top level, whose files keep their numbers; the slot of
//! a subvolume is its id. It needs no memory and is the same after the next mount. What does not fit (a subvolume
//! id from 65535 on, an inode number from 2^48 on) gets the next number of slot 65535, which it keeps while the
//! kernel remembers it, and which is never used again.
//!
//! The root of the mount has two: the kernel calls it 1, `stat` shows the usual number. So has a file of a subvolume that is being
//! received: the kernel never takes the size of a file that it has from a server, so it calls the file by a number of slot 65535
//! until the subvolume is whole, and then by another one. Descriptors of the former go on.

use brindle_fs::{InodeId, ObjectId, RootId};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of a mount's root in FUSE.
pub(crate) const ROOT_NODE: u64 = 1;

const SLOT_SHIFT: u32 = 48;
/// The slot of what has no usual number.
const OVERFLOW_SLOT: u64 = 0xffff;
const TOP_LEVEL: RootId = RootId::new(5);
const FIRST_SUBVOLUME: u64 = 256;
/// Less is the root of the mount, or nothing.
const FIRST_NUMBER: u64 = 2;

/// Translates between inodes and the numbers that the kernel knows them by.
#[derive(Debug)]
pub(crate) struct InodeNumbers {
    root: InodeId,
    overflow: Mutex<Overflow>,
}

/// Inodes without a usual number.
#[derive(Debug, Default)]
struct Overflow {
    /// Number of numbers given away.
    used: u64,
    by_inode: HashMap<InodeId, Remembered>,
    /// Files that the kernel knows from the time when their subvolume was being received.
    incoming: HashMap<InodeId, Remembered>,
    by_number: HashMap<u64, InodeId>,
}

/// The reason why an inode has no usual number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unusual {
    /// Id or number beyond those of usual numbers.
    Large,
    /// Its subvolume is being received.
    Incoming,
}

#[derive(Debug)]
struct Remembered {
    number: u64,
    /// Lookup count: times the kernel has been told of it, less those it has forgotten.
    lookups: u64,
}

impl InodeNumbers {
    /// The numbers of a mount whose root is this directory.
    pub(crate) fn new(root: InodeId) -> Self {
        Self { root, overflow: Mutex::default() }
    }

    /// The number of an inode that the kernel is being told of: it will ask for it by this number until it has
    /// forgotten it as often.
    pub(crate) fn remember(&self, id: InodeId) -> u64 {
        if id == self.root {
            return ROOT_NODE;
        }
        if let Some(number) = usual_number(id) {
            return number;
        }
        self.overflow().remember(id, Unusual::Large)
    }

    /// The same for a regular file of a subvolume that is being received: a number of its own.
    pub(crate) fn remember_incoming(&self, id: InodeId) -> u64 {
        self.overflow().remember(id, Unusual::Incoming)
    }

    /// Number of a file from the time when its subvolume was being received, while the kernel remembers it.
    pub(crate) fn incoming(&self, id: InodeId) -> Option<u64> {
        self.overflow().incoming.get(&id).map(|remembered| remembered.number)
    }

    /// Returns true for a number of a file from that time.
    pub(crate) fn is_incoming(&self, number: u64) -> bool {
        if number >> SLOT_SHIFT != OVERFLOW_SLOT {
            return false;
        }
        let overflow = self.overflow();
        let id = overflow.by_number.get(&number);
        id.is_some_and(|id| overflow.incoming.get(id).is_some_and(|incoming| incoming.number == number))
    }

    /// The kernel has forgotten an inode this many times.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        if number >> SLOT_SHIFT != OVERFLOW_SLOT {
            return;
        }
        let mut overflow = self.overflow();
        let Some(id) = overflow.by_number.get(&number).copied() else {
            return;
        };
        for why in [Unusual::Large, Unusual::Incoming] {
            let numbers = overflow.numbers(why);
            let Some(remembered) = numbers.get_mut(&id).filter(|remembered| remembered.number == number)
            else {
                continue;
            };
            remembered.lookups = remembered.lookups.saturating_sub(lookups);
            if remembered.lookups == 0 {
                numbers.remove(&id);
                overflow.by_number.remove(&number);
                return;
            }
        }
    }

    /// The number to show for an inode; `None` if it has none without being remembered.
    pub(crate) fn shown(&self, id: InodeId) -> Option<u64> {
        if let Some(number) = usual_number(id) {
            return Some(number);
        }
        if id == self.root {
            return Some(OVERFLOW_SLOT << SLOT_SHIFT);
        }
        let overflow = self.overflow();
        let found = overflow.by_inode.get(&id).or_else(|| overflow.incoming.get(&id));
        found.map(|remembered| remembered.number)
    }

    /// Number of an inode in the kernel; `None` if the kernel can't know it.
    pub(crate) fn known(&self, id: InodeId) -> Option<u64> {
        if id == self.root { Some(ROOT_NODE) } else { self.shown(id) }
    }

    /// The inode of a number; `None` for one that was never given away, or is forgotten.
    pub(crate) fn inode(&self, number: u64) -> Option<InodeId> {
        if number == ROOT_NODE {
            return Some(self.root);
        }
        let (slot, inode) = (number >> SLOT_SHIFT, number & ((1 << SLOT_SHIFT) - 1));
        let tree = match slot {
            OVERFLOW_SLOT => return self.overflow().by_number.get(&number).copied(),
            0 if inode < FIRST_NUMBER => return None,
            0 => TOP_LEVEL,
            id if id < FIRST_SUBVOLUME => return None,
            id => RootId::new(id),
        };
        Some(InodeId { tree, number: ObjectId::new(inode) })
    }

    fn overflow(&self) -> MutexGuard<'_, Overflow> {
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Overflow {
    fn numbers(&mut self, why: Unusual) -> &mut HashMap<InodeId, Remembered> {
        match why {
            Unusual::Large => &mut self.by_inode,
            Unusual::Incoming => &mut self.incoming,
        }
    }

    fn remember(&mut self, id: InodeId, why: Unusual) -> u64 {
        if let Some(remembered) = self.numbers(why).get_mut(&id) {
            remembered.lookups += 1;
            return remembered.number;
        }
        self.used += 1;
        let number = OVERFLOW_SLOT << SLOT_SHIFT | self.used;
        self.numbers(why).insert(id, Remembered { number, lookups: 1 });
        self.by_number.insert(number, id);
        number
    }
}

fn usual_number(id: InodeId) -> Option<u64> {
    let inode = id.number.get();
    let slot = if id.tree == TOP_LEVEL { 0 } else { id.tree.get() };
    let has_slot = slot == 0 || (FIRST_SUBVOLUME..OVERFLOW_SLOT).contains(&slot);
    let fits = inode >> SLOT_SHIFT == 0 && (slot > 0 || inode >= FIRST_NUMBER);
    (has_slot && fits).then_some(slot << SLOT_SHIFT | inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn inode(tree: u64, number: u64) -> InodeId {
        InodeId { tree: RootId::new(tree), number: ObjectId::new(number) }
    }

    /// Inodes near every border, few enough to meet again.
    fn any_inode() -> impl Strategy<Value = InodeId> {
        let tree = prop_oneof![
            Just(5u64),
            256u64..260,
            0xfffdu64..0x1_0002,
            Just(1 << 48),
            Just(u64::MAX - 255),
            any::<u64>(),
        ];
        let number = prop_oneof![
            0u64..4,
            256u64..260,
            (1u64 << 48) - 2..(1 << 48) + 2,
            Just(u64::MAX - 255),
            any::<u64>(),
        ];
        (tree, number).prop_map(|(tree, number)| inode(tree, number))
    }

    proptest! {
        #[test]
        fn numbers_are_never_shared(root in any_inode(), ids in prop::collection::vec(any_inode(), 1..200)) {
            let numbers = InodeNumbers::new(root);
            let mut known: HashMap<u64, InodeId> = HashMap::from([(ROOT_NODE, root)]);
            for id in ids {
                let number = numbers.remember(id);
                prop_assert!(number != 0);
                prop_assert_eq!(*known.entry(number).or_insert(id), id);
                prop_assert_eq!(numbers.inode(number), Some(id));
                prop_assert_eq!(numbers.remember(id), number);
                if id != root {
                    prop_assert_eq!(numbers.shown(id), Some(number));
                    prop_assert_ne!(numbers.shown(root), Some(number));
                }
            }
        }

        #[test]
        fn forgetting_frees_and_never_reuses(steps in prop::collection::vec((any_inode(), 0u64..3), 1..200)) {
            let numbers = InodeNumbers::new(inode(5, 256));
            let mut lookups: HashMap<InodeId, u64> = HashMap::new();
            let mut owners: HashMap<u64, InodeId> = HashMap::new();
            for (id, forgotten) in steps {
                let number = numbers.remember(id);
                prop_assert_eq!(*owners.entry(number).or_insert(id), id);
                let count = lookups.entry(id).or_default();
                *count += 1;
                numbers.forget(number, forgotten.min(*count));
                *count -= forgotten.min(*count);
                if *count > 0 {
                    prop_assert_eq!(numbers.inode(number), Some(id));
                }
            }
            let remembered = numbers.overflow().by_inode.len();
            let held = lookups.iter().filter(|(id, count)| **count > 0 && usual_number(**id).is_none()).count();
            prop_assert_eq!(remembered, held);
            prop_assert_eq!(numbers.overflow().by_number.len(), held);
        }
    }

    #[test]
    fn the_top_level_keeps_its_numbers() {
        let numbers = InodeNumbers::new(inode(5, 256));
        assert_eq!(numbers.remember(inode(5, 257)), 257);
        assert_eq!(numbers.remember(inode(256, 257)), 256 << 48 | 257);
        assert_eq!(numbers.remember(inode(5, 256)), ROOT_NODE);
        assert_eq!(numbers.shown(inode(5, 256)), Some(256));
    }

    #[test]
    fn a_file_that_is_received_has_a_number_of_its_own_until_the_kernel_forgets_it() {
        let numbers = InodeNumbers::new(inode(5, 256));
        for id in [inode(300, 257), inode(0x1_0000, 257)] {
            let first = numbers.remember_incoming(id);
            assert_eq!(numbers.remember_incoming(id), first);
            let whole = numbers.remember(id);
            assert_ne!(whole, first);
            assert_eq!((numbers.inode(first), numbers.inode(whole)), (Some(id), Some(id)));
            assert_eq!((numbers.is_incoming(first), numbers.is_incoming(whole)), (true, false));
            assert_eq!(numbers.shown(id), Some(whole));
            numbers.forget(first, 1);
            assert_eq!(numbers.incoming(id), Some(first));
            numbers.forget(first, 1);
            assert_eq!((numbers.incoming(id), numbers.inode(first)), (None, None));
            assert_eq!((numbers.inode(whole), numbers.is_incoming(first)), (Some(id), false));
        }
    }

    #[test]
    fn unknown_numbers_are_nothing() {
        let numbers = InodeNumbers::new(inode(5, 256));
        assert_eq!(numbers.inode(0), None);
        assert_eq!(numbers.inode(7 << 48 | 257), None);
        assert_eq!(numbers.inode(0xffff << 48 | 1), None);
    }
}
