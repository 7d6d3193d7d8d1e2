//! Items of files in text: inodes, names, xattrs, file extents.

use super::style::{ItemStyle, print_defect};
use super::{Text, joined_flags, key_text, write_c_string};
use crate::format::Civil;
use brindle_ondisk::item::{
    DirEntries, DirEntry, FileExtent, FileExtentHeader, FileExtentRef, FileExtentType, InodeExtrefs,
    InodeFlags, InodeItem, InodeName, InodeRefs, Timespec,
};
use std::io;

/// Bytes of an xattr's value that are shown, as in btrfs-progs.
const SHOWN_VALUE_BYTES: usize = 255;

/// An inode; its line of flags has no names beyond `COMPRESS`, as in btrfs-progs.
pub(super) fn print_inode(out: Text<'_>, inode: &InodeItem) -> io::Result<()> {
    let InodeItem { generation, transid, size, nbytes, block_group, nlink, uid, gid, rdev, .. } = inode;
    writeln!(out, "\t\tgeneration {generation} transid {transid} size {size} nbytes {nbytes}")?;
    writeln!(
        out,
        "\t\tblock group {block_group} mode {:o} links {nlink} uid {uid} gid {gid} rdev {rdev}",
        inode.mode.get()
    )?;
    let shown = InodeFlags::from_bits_truncate(inode.flags.get() & 0xfff);
    let names = if shown.is_empty() { "none".to_owned() } else { joined_flags(&shown) };
    writeln!(out, "\t\tsequence {} flags {:#x}({names})", inode.sequence, inode.flags.get())?;
    print_time(out, "atime", inode.atime)?;
    print_time(out, "ctime", inode.ctime)?;
    print_time(out, "mtime", inode.mtime)?;
    print_time(out, "otime", inode.otime)
}

/// A time, as it is stored and as people write it.
pub(super) fn print_time(out: Text<'_>, name: &str, time: Timespec) -> io::Result<()> {
    let seconds = time.sec.get();
    let civil = Civil::from_epoch(seconds);
    writeln!(out, "\t\t{name} {}.{} ({civil})", seconds as u64, time.nsec)
}

/// The names that an inode has in one directory.
pub(super) fn print_inode_refs(out: Text<'_>, names: InodeRefs<'_>, style: &ItemStyle) -> io::Result<()> {
    for name in names {
        match name {
            Ok(InodeName { index, name, .. }) => {
                write!(out, "\t\tindex {index} namelen {} name: ", name.len())?;
                print_name(out, name, style)?;
            }
            Err(defect) => print_defect(out, &defect)?,
        }
    }
    Ok(())
}

/// The names that an inode has under one hash.
pub(super) fn print_inode_extrefs(
    out: Text<'_>,
    names: InodeExtrefs<'_>,
    style: &ItemStyle,
) -> io::Result<()> {
    for name in names {
        match name {
            Ok(InodeName { parent, index, name }) => {
                write!(out, "\t\tindex {index} parent {parent} namelen {} name: ", name.len())?;
                print_name(out, name, style)?;
            }
            Err(defect) => print_defect(out, &defect)?,
        }
    }
    Ok(())
}

/// Directory entries or xattrs of one item.
pub(super) fn print_dir_entries(out: Text<'_>, entries: DirEntries<'_>, style: &ItemStyle) -> io::Result<()> {
    for entry in entries {
        match entry {
            Ok(entry) => print_dir_entry(out, &entry, style)?,
            Err(defect) => print_defect(out, &defect)?,
        }
    }
    Ok(())
}

fn print_dir_entry(out: Text<'_>, entry: &DirEntry<'_>, style: &ItemStyle) -> io::Result<()> {
    let header = entry.header;
    let number = header.file_type;
    // An encrypted name sets the top bit; such entries are shown by number, as unknown ones are.
    let kind = match entry.file_type() {
        Some(kind) if number < 0x80 => kind.to_string(),
        _ => format!("DIR_ITEM.{number}"),
    };
    writeln!(out, "\t\tlocation key ({}) type {kind}", key_text(&header.location))?;
    let (data_len, name_len) = (header.data_len, header.name_len);
    writeln!(out, "\t\ttransid {} data_len {data_len} name_len {name_len}", header.transid)?;
    write!(out, "\t\tname: ")?;
    print_name(out, entry.name, style)?;
    if !entry.value.is_empty() {
        write!(out, "\t\tdata ")?;
        print_name(out, &entry.value[..entry.value.len().min(SHOWN_VALUE_BYTES)], style)?;
    }
    Ok(())
}

/// A name or value up to its first zero byte, and the end of the line.
pub(super) fn print_name(out: Text<'_>, name: &[u8], style: &ItemStyle) -> io::Result<()> {
    if style.hide_names {
        return writeln!(out, "HIDDEN");
    }
    write_c_string(out, name)?;
    writeln!(out)
}

/// One extent of a file.
pub(super) fn print_file_extent(out: Text<'_>, extent: &FileExtent<'_>) -> io::Result<()> {
    let FileExtentHeader { generation, ram_bytes, extent_type, .. } = extent.header();
    let kind = FileExtentType::from_disk(*extent_type).map_or("unknown".to_owned(), |kind| kind.to_string());
    writeln!(out, "\t\tgeneration {generation} type {extent_type} ({kind})")?;
    match extent {
        FileExtent::Inline { compression, data, .. } => writeln!(
            out,
            "\t\tinline extent data size {} ram_bytes {ram_bytes} compression {} ({compression})",
            data.len(),
            *compression as u8
        ),
        FileExtent::OnDisk { is_prealloc: true, extent, .. } => {
            let FileExtentRef { disk_bytenr, disk_num_bytes, offset, num_bytes } = extent;
            writeln!(out, "\t\tprealloc data disk byte {disk_bytenr} nr {disk_num_bytes}")?;
            writeln!(out, "\t\tprealloc data offset {offset} nr {num_bytes}")
        }
        FileExtent::OnDisk { compression, extent, .. } => {
            let FileExtentRef { disk_bytenr, disk_num_bytes, offset, num_bytes } = extent;
            writeln!(out, "\t\textent data disk byte {disk_bytenr} nr {disk_num_bytes}")?;
            writeln!(out, "\t\textent data offset {offset} nr {num_bytes} ram {ram_bytes}")?;
            writeln!(out, "\t\textent compression {} ({compression})", *compression as u8)
        }
    }
}
