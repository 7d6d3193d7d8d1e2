//! The chunk map of a pool whose chunk tree can't be read, proved anew by everything else that knows of it (`chunk-recover`).
//!
//! The walk of a recovery:
//!
//! 1. [`members`](Members): the newest superblock whose checksum is right, whatever its system chunks are, and the item of each device.
//! 2. [`scan`]: all devices are read side by side. A block of this pool (UUID, checksum, a generation that was committed) is a
//!    [`Sighting`](scan::Sighting): an address and a generation at a place of a device. Blocks of the chunk tree, also old ones, give
//!    chunk and device items as well.
//! 3. [`blocks`]: a pointer of a tree names the address and the generation of a child, and a sighting its place. So the trees of the last
//!    commit are entered by the superblock and walked without a map: the device tree for device extents, the extent tree or the tree of
//!    block groups for block groups. Nothing of an older commit is taken for the state.
//! 4. [`prove`]: a chunk counts if its block group and its device extents agree: the profile of the one says how many of the other there
//!    are, and how long. The order of stripes is free where they are mirrors. Elsewhere it is proved by a chunk item of the same device
//!    extents, or by contents ([`order`]): tree blocks say where they belong, and so do sectors of data by their checksums, and P and Q
//!    of RAID6 by the row that is known. A stripe that nothing proves is the one that is left over, or one on which nothing lies.
//!    Otherwise the chunk is named, not guessed.
//! 5. [`image`]: a chunk tree of what was proved, over the blocks that the extent tree has for the old one, so that no other tree
//!    changes; then system chunks and the generation of the new root, in every superblock.
//!
//! All of that is made in overlays. `-o rescue=chunks` reads a pool through them, with what was proved of the map. `chunk-recover` writes
//! them as every repair is written: blocks first, superblocks last. If no block of the old tree is left, the new ones have
//! its generations: they are a tree when the last of them is written. Otherwise they have a generation that no block at their places has, and
//! pointers from and to old ones are refused by every reader: until the first superblock is written, there is the old tree as far as
//! it was whole. There is never a mixture. It is written only if the map is complete and every device is there, or a copy of
//! the old tree would come back with a device.

mod blocks;
mod candidates;
mod evidence;
mod gather;
mod image;
mod members;
mod order;
mod prove;
mod proved;
mod recovery;
mod scan;

pub use proved::{Proof, ProvedChunk};
pub use recovery::{ChunkRecovery, overlaid, search};
