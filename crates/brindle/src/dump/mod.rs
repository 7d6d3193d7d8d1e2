//! The text forms of `inspect dump-super` and `inspect dump-tree`: what `btrfs inspect-internal` of
//! btrfs-progs 6.2 prints, byte for byte, from what lies on disk. Pure: bytes in, text out; reading the pool
//! is the commands' business.
//!
//! Where the text differs from btrfs-progs 6.2, on purpose:
//! - Times in brackets are UTC, not local time.
//! - Things that 6.2 has no words for are named: the key types `EXTENT_OWNER_REF` and `RAID_STRIPE`, the
//!   features `VERITY`, `EXTENT_TREE_V2`, `RAID_STRIPE_TREE`, `SIMPLE_QUOTA` and `REMAP_TREE`.
//! - Items of which 6.2 prints the key alone get a line or two: `DEV_REPLACE`, `VERITY_DESC_ITEM`,
//!   `VERITY_MERKLE_ITEM`, inline `EXTENT_OWNER_REF`s, the simple-quota part of `QGROUP_STATUS`.
//! - Key types that no pool has had since 2012 (`CSUM_ITEM`, `EXTENT_REF_V0`) are shown by number.
//! - A root item whose newer half is stale shows `generation_v2 0`.
//! - Missing device counters of an old pool are 0; 6.2 reads past the item.
//! - `--hide-names` hides the names of subvolumes too.

mod extent_items;
mod file_items;
mod item;
mod key;
mod node;
mod pool_items;
mod style;
mod superblock;
#[cfg(test)]
mod tests;

use key::object_name;
pub(crate) use key::{key_text, root_name};
pub(crate) use node::{NodeStyle, print_node, print_node_json};
pub(crate) use style::ItemStyle;
pub(crate) use superblock::{print_superblock, superblock_json};

use std::io::{self, Write};

/// Output of text: names need not be UTF-8, so text is bytes.
pub(crate) type Text<'a> = &'a mut dyn Write;

/// Names that stand for set bits, with `|` between.
fn joined_flags<F: bitflags::Flags>(flags: &F) -> String {
    let names: Vec<&str> = flags.iter_names().map(|(name, _)| name).collect();
    names.join("|")
}

/// Bytes up to the first zero byte, where C strings end.
fn write_c_string(out: Text<'_>, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
}
