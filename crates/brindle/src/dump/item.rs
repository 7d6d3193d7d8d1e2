//! One item in text.

use super::style::{ItemStyle, print_defect};
use super::{Text, extent_items, file_items, pool_items};
use brindle_ondisk::{Item, Key};
use std::io;

/// Prints the contents of an item, below the line that has its key.
pub(super) fn print_item(out: Text<'_>, key: &Key, data: &[u8], style: &ItemStyle) -> io::Result<()> {
    let item = match Item::parse(key, data) {
        Ok(item) => item,
        Err(defect) => return print_defect(out, &defect),
    };
    match item {
        Item::Inode(inode) => file_items::print_inode(out, inode),
        Item::InodeRef(names) => file_items::print_inode_refs(out, names, style),
        Item::InodeExtref(names) => file_items::print_inode_extrefs(out, names, style),
        Item::DirItem(entries) | Item::DirIndex(entries) | Item::Xattr(entries) => {
            file_items::print_dir_entries(out, entries, style)
        }
        Item::DirLog(log) => writeln!(out, "\t\tdir log end {}", log.end),
        Item::Orphan => writeln!(out, "\t\torphan item"),
        Item::FileExtent(extent) => file_items::print_file_extent(out, &extent),
        Item::VerityDescSize(descriptor) => {
            writeln!(
                out,
                "\t\tverity descriptor size {} encryption {}",
                descriptor.size, descriptor.encryption
            )
        }
        Item::VerityDesc(data) => writeln!(out, "\t\tverity descriptor data size {}", data.len()),
        Item::VerityMerkle(data) => writeln!(out, "\t\tverity merkle data size {}", data.len()),
        Item::Csums(sums) => extent_items::print_csums(out, key, sums, style),
        Item::Root(root) => pool_items::print_root(out, &root),
        Item::RootRef(reference) => pool_items::print_root_ref(out, key, &reference, style),
        Item::Extent(extent) => extent_items::print_extent(out, key, &extent),
        Item::ExtentRef(reference) => extent_items::print_keyed_ref(out, &reference),
        Item::BlockGroup(group) => extent_items::print_block_group(out, group),
        Item::FreeSpaceInfo(info) => {
            writeln!(out, "\t\tfree space info extent count {} flags {}", info.extent_count, info.flags)
        }
        Item::FreeSpaceExtent => writeln!(out, "\t\tfree space extent"),
        Item::FreeSpaceBitmap(_) => writeln!(out, "\t\tfree space bitmap"),
        Item::FreeSpaceHeader(header) => extent_items::print_free_space_header(out, header),
        Item::DevExtent(extent) => pool_items::print_dev_extent(out, extent),
        Item::Device(device) => pool_items::print_device(out, device),
        Item::Chunk(chunk) => pool_items::print_chunk(out, &chunk),
        Item::QgroupStatus(status) => pool_items::print_qgroup_status(out, &status),
        Item::QgroupInfo(info) => pool_items::print_qgroup_info(out, info),
        Item::QgroupLimit(limit) => pool_items::print_qgroup_limit(out, limit),
        Item::QgroupRelation
        | Item::PoolSettings(_)
        | Item::WriteBack(_)
        | Item::LogSettings(_)
        | Item::SuperblockAges(_)
        | Item::DeviceClasses(_)
        | Item::Unknown(_) => pool_items::print_unknown(out, key),
        Item::Balance(balance) => pool_items::print_balance(out, key, balance),
        Item::DevStats(stats) => pool_items::print_dev_stats(out, key, &stats),
        Item::DevReplace(replace) => pool_items::print_dev_replace(out, replace),
        Item::UuidSubvolumes(ids) => ids.iter().try_for_each(|id| writeln!(out, "\t\tsubvol_id {id}")),
        Item::String(data) => {
            write!(out, "\t\titem data ")?;
            out.write_all(data)?;
            writeln!(out)
        }
    }
}
