//! Quota groups: how much each subvolume, and each group of subvolumes, refers to, and how much of that no other does.
//!
//! The walk: while references are applied, the extents that they belong to are *touched* ([`state`]). A commit that has
//! settled the subvolumes looks at each touched extent twice (`accounting`): by the trees of the last commit, and by those
//! of now, and finds the subvolumes that reach it. Where the two differ, groups gain or lose its bytes ([`ledger`]), and the
//! quota tree gets the new numbers in the same commit. So numbers and trees are of one moment at any crash.
//!
//! A block that is shared, and gets or loses a way to it, says nothing of that to what lies below it. So where the subvolumes
//! that reach a block change while it stays, its children are looked at as well. A snapshot would make that the whole
//! subvolume; its group takes over its source's numbers instead, and what is touched in the same transaction is accounted
//! for as if the snapshot had been there before.
//!
//! A *rescan* counts everything from the start of the logical space on, a part at each commit; meanwhile only extents
//! before the part that is next are accounted for. The kernel goes on with a rescan that was begun here, and the other way
//! round. When an extent can't be judged, the numbers are marked as inconsistent, and stay as they are until a rescan; no
//! commit fails because of them.
//!
//! *Simple quotas* ([`simple`]) need none of that. An extent counts for the subvolume that wrote it first, its *owner*, and
//! for the groups that this one's is part of, from the transaction on that its item names, if that is not before quotas were
//! turned on (`enable_gen`). The owner of data is noted in its item (`EXTENT_OWNER_REF`), that of a tree block is in its header;
//! both stay with an extent that is moved. So when the extent tree gets an item the ledger gains its bytes, and loses them with
//! the item, whichever subvolume had the extent last. Each transaction applies all its references before the numbers are
//! written, in the same commit. A snapshot has its root, and nothing else; the group of a deleted subvolume stays while extents
//! of it are left. Linux ends all writing where it finds no group for an extent that comes or goes; so a subvolume that is gone gets
//! its group back when a block of it, from before simple quotas, moves and is young again, and data that moves loses the note of
//! a writer from before. What must hold: the numbers of a group are the sum of all extents with an owner in it that are as young as
//! `enable_gen`; both numbers of a group are the same; there is no rescan, and nothing is ever marked as inconsistent.
//!
//! Limits ([`charge`]) count what the last commit has, what has been given extents since, and what is still in memory.

mod charge;
pub(crate) mod ledger;
pub(crate) mod simple;
pub(crate) mod state;
pub(crate) mod summary;
