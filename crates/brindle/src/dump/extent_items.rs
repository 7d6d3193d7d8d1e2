//! Items of the extent, checksum and free space trees in text.

use super::style::{ItemStyle, print_defect};
use super::{Text, key_text, root_name};
use brindle_ondisk::item::{
    BackRef, BlockGroupItem, ExtentDataRef, ExtentFlags, ExtentItem, FreeSpaceHeader, TreeBlockInfo,
};
use brindle_ondisk::{Checksum, Key, KeyType, to_u64};
use std::io;

/// An allocated extent and its inline references.
pub(super) fn print_extent(out: Text<'_>, key: &Key, extent: &ExtentItem<'_>) -> io::Result<()> {
    let header = extent.header;
    let flags = flags_text(extent.flags());
    writeln!(out, "\t\trefs {} gen {} flags {flags}", header.refs, header.generation)?;
    if let Some(TreeBlockInfo { key, level }) = extent.tree_block {
        writeln!(out, "\t\ttree block key ({}) level {level}", key_text(key))?;
    }
    if key.item_type == KeyType::METADATA_ITEM {
        writeln!(out, "\t\ttree block skinny level {}", key.offset())?;
    }
    for reference in extent.inline_refs {
        match reference {
            Ok(reference) => print_inline_ref(out, &reference)?,
            Err(defect) => print_defect(out, &defect)?,
        }
    }
    Ok(())
}

fn flags_text(flags: ExtentFlags) -> String {
    let mut text = super::joined_flags(&(flags & (ExtentFlags::DATA | ExtentFlags::TREE_BLOCK)));
    if flags.contains(ExtentFlags::FULL_BACKREF) {
        text.push_str("|FULL_BACKREF");
    }
    text
}

fn print_inline_ref(out: Text<'_>, reference: &BackRef) -> io::Result<()> {
    match reference {
        BackRef::Tree(root) => writeln!(out, "\t\ttree block backref root {}", root_name(*root)),
        BackRef::SharedTree(parent) => writeln!(out, "\t\tshared block backref parent {parent}"),
        BackRef::Data(reference) => print_data_ref(out, reference),
        BackRef::SharedData { parent, count } => {
            writeln!(out, "\t\tshared data backref parent {parent} count {count}")
        }
        BackRef::Owner(root) => writeln!(out, "\t\textent owner root {}", root_name(*root)),
    }
}

/// A reference that is an item of its own; the key has said the parent or root.
pub(super) fn print_keyed_ref(out: Text<'_>, reference: &BackRef) -> io::Result<()> {
    match reference {
        BackRef::Tree(_) => writeln!(out, "\t\ttree block backref"),
        BackRef::SharedTree(_) => writeln!(out, "\t\tshared block backref"),
        BackRef::Data(reference) => print_data_ref(out, reference),
        BackRef::SharedData { count, .. } => writeln!(out, "\t\tshared data backref count {count}"),
        BackRef::Owner(_) => Ok(()),
    }
}

fn print_data_ref(out: Text<'_>, reference: &ExtentDataRef) -> io::Result<()> {
    let ExtentDataRef { root, objectid, offset, count } = reference;
    let root = root_name(*root);
    writeln!(out, "\t\textent data backref root {root} objectid {objectid} offset {offset} count {count}")
}

/// The space accounting of a chunk.
pub(super) fn print_block_group(out: Text<'_>, group: &BlockGroupItem) -> io::Result<()> {
    let BlockGroupItem { used, chunk_objectid, .. } = group;
    let flags = group.block_group_type();
    writeln!(out, "\t\tblock group used {used} chunk_objectid {chunk_objectid} flags {flags}")
}

/// The header of a version 1 free space cache.
pub(super) fn print_free_space_header(out: Text<'_>, header: &FreeSpaceHeader) -> io::Result<()> {
    let FreeSpaceHeader { location, generation, num_entries, num_bitmaps } = header;
    writeln!(out, "\t\tlocation key ({})", key_text(location))?;
    writeln!(out, "\t\tcache generation {generation} entries {num_entries} bitmaps {num_bitmaps}")
}

/// Prints the range of a checksum item and, if asked for, each checksum with its address.
pub(super) fn print_csums(out: Text<'_>, key: &Key, sums: &[u8], style: &ItemStyle) -> io::Result<()> {
    let size = style.checksum_size;
    let sector = u64::from(style.sectorsize);
    let start = key.offset();
    let length = to_u64(sums.len() / size).saturating_mul(sector);
    let end = start.saturating_add(length);
    writeln!(out, "\t\trange start {start} end {end} length {length}")?;
    if !style.checksums {
        return Ok(());
    }
    let mut address = start;
    for line in sums.chunks(size * csums_per_line(size)) {
        write!(out, "\t\t")?;
        for (index, sum) in line.chunks_exact(size).enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(out, "{space}[{address}] {}", Checksum::from_slice(sum))?;
            address = address.saturating_add(sector);
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Number of checksums that keep a line short.
fn csums_per_line(size: usize) -> usize {
    match size {
        ..=4 => 4,
        5..=8 => 2,
        _ => 1,
    }
}
