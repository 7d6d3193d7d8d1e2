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
//! Limits ([`charge`]) count what the last commit has, what has been given extents since, and what is still in memory.

mod charge;
pub(crate) mod ledger;
pub(crate) mod state;
pub(crate) mod summary;
