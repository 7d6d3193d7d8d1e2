//! Make a pool and keep it healthy. So far: [`mkfs`](mod@mkfs), [`populate`],
//! [`balance`], [`scrub`], [`device`] and the keeper of [`tier`]; [`receive`] makes subvolumes of streams, [`send`]
//! streams of subvolumes; [`inspect`] looks into trees;
//! [`extract`] copies files out; [`job`] is the protocol of what takes long.
//! Must not know: FUSE, the command line; where options come from, the clock, randomness (all arguments).
//!
//! The walk of [`mkfs()`](mkfs::mkfs), what data goes where:
//!
//! 1. **`mkfs/plan.rs`**: which devid and UUID each device gets (fast devices the lowest), then the first
//!    chunks, system, metadata and data: `policy` says on which devices, the plan where on them. Nothing is
//!    temporary: each chunk lies where it is to stay.
//! 2. **`mkfs/trees.rs`**: the content of every tree as a sorted list of items. What trees say of blocks
//!    depends on how many blocks there are, and the other way round, so this is repeated until it no longer
//!    changes.
//! 3. **`bulk.rs`**: lists of items become tree blocks, bottom-up: leaves full, parents above them.
//! 4. **`spread.rs`**: the beginning of each chunk becomes the beginning of each of its stripes, mirrored,
//!    striped, parity computed.
//! 5. **`mkfs/write.rs`**: what a device held before is made unrecognisable, stripes are written, and only when
//!    all of it is durable, superblocks are.
//!
//! The same devices and the same options give the same bytes.

pub mod balance;
mod bulk;
pub mod device;
pub mod extract;
pub mod inspect;
pub mod job;
pub mod mkfs;
pub mod populate;
pub mod receive;
pub mod scrub;
pub mod send;
mod spread;
pub mod tier;
