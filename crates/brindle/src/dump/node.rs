//! Nodes and leaves in text.

use super::item::print_item;
use super::style::ItemStyle;
use super::{Text, key_text, root_name};
use brindle_ondisk::{Checksum, ChecksumType, ItemHeader, Key, KeyPtr, Node, NodeHeader, to_usize};
use serde_json::{Value, json};
use std::io;

/// Style of a printed node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeStyle {
    /// The pool's checksum algorithm.
    pub(crate) checksum_type: ChecksumType,
    /// Show each block's checksum.
    pub(crate) checksums: bool,
    /// Style of items.
    pub(crate) items: ItemStyle,
}

/// The backref revision is the top byte of the flags.
const REVISION_SHIFT: u32 = 56;

/// Prints a block: its header, then its children's keys or its items.
pub(crate) fn print_node(out: Text<'_>, node: &Node, style: &NodeStyle) -> io::Result<()> {
    print_header(out, node, style)?;
    for pointer in node.key_ptrs() {
        let KeyPtr { key, blockptr, generation } = pointer;
        writeln!(out, "\tkey ({}) block {blockptr} gen {generation}", key_text(key))?;
    }
    for (slot, item) in node.items().iter().enumerate() {
        let ItemHeader { key, offset, size } = item;
        writeln!(out, "\titem {slot} key ({}) itemoff {offset} itemsize {size}", key_text(key))?;
        let data = node.item(slot).map_or(&[][..], |(_, data)| data);
        print_item(out, key, data, &style.items)?;
    }
    Ok(())
}

fn print_header(out: Text<'_>, node: &Node, style: &NodeStyle) -> io::Result<()> {
    let header = node.header();
    let kind = if node.is_leaf() { "leaf" } else { "node" };
    let NodeHeader { bytenr, nritems, generation, .. } = header;
    write!(out, "{kind} {bytenr} ")?;
    if !node.is_leaf() {
        write!(out, "level {} ", header.level)?;
    }
    let owner = root_name(header.owner);
    let free = free_space(node);
    writeln!(out, "items {nritems} free space {free} generation {generation} owner {owner}")?;
    let flags = header.flags.get();
    let revision = flags >> REVISION_SHIFT;
    let flags = flags & ((1 << REVISION_SHIFT) - 1);
    let names = block_flag_names(flags);
    write!(out, "{kind} {bytenr} flags {flags:#x}({names}) backref revision {revision}")?;
    if style.checksums {
        let stored = header.csum.get(..style.checksum_type.size()).unwrap_or_default();
        write!(out, " csum {}", Checksum::from_slice(stored))?;
    }
    writeln!(out)?;
    writeln!(out, "fs uuid {}", header.fsid)?;
    writeln!(out, "chunk uuid {}", header.chunk_tree_uuid)
}

/// Bytes left in a leaf, slots left in a node.
fn free_space(node: &Node) -> usize {
    let body = node.as_bytes().len() - size_of::<NodeHeader>();
    if !node.is_leaf() {
        return (body / size_of::<KeyPtr>()).saturating_sub(node.len());
    }
    let data: usize = node.items().iter().map(|item| to_usize(item.size.get().into())).sum();
    body.saturating_sub(data + node.len() * size_of::<ItemHeader>())
}

fn block_flag_names(flags: u64) -> String {
    const NAMES: [(u64, &str); 2] = [(1 << 0, "WRITTEN"), (1 << 1, "RELOC")];
    let set = NAMES.iter().filter(|(bit, _)| flags & bit != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join("|")
}

/// Prints a block as one line of JSON, its items with the lines of the text form.
pub(crate) fn print_node_json(out: Text<'_>, node: &Node, style: &NodeStyle) -> io::Result<()> {
    let header = node.header();
    let pointers = node.key_ptrs().iter().map(|pointer| {
        json!({
            "key": key_json(&pointer.key),
            "block": pointer.blockptr.get(),
            "generation": pointer.generation.get(),
        })
    });
    let mut items = Vec::new();
    for (slot, item) in node.items().iter().enumerate() {
        let data = node.item(slot).map_or(&[][..], |(_, data)| data);
        let mut text = Vec::new();
        print_item(&mut text, &item.key, data, &style.items)?;
        let lines: Vec<Value> =
            String::from_utf8_lossy(&text).lines().map(|line| line.trim_start().into()).collect();
        items.push(json!({ "key": key_json(&item.key), "size": data.len(), "text": lines }));
    }
    let mut value = json!({
        "bytenr": header.bytenr.get(),
        "level": header.level,
        "generation": header.generation.get(),
        "owner": root_name(header.owner),
    });
    if node.is_leaf() {
        value["items"] = items.into();
    } else {
        value["children"] = pointers.collect();
    }
    writeln!(out, "{value}")
}

fn key_json(key: &Key) -> Value {
    json!({
        "objectid": key.objectid.get(),
        "type": key.item_type.0,
        "offset": key.offset(),
        "text": key_text(key),
    })
}
