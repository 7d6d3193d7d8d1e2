//! Items of the root, chunk, device, quota and UUID trees in text.

use super::file_items::{print_name, print_time};
use super::style::ItemStyle;
use super::{Text, joined_flags, key_text, object_name};
use brindle_ondisk::item::{
    BalanceArgs, BalanceItem, Chunk, ChunkHeader, DevExtent, DevItem, DevReplaceItem, DevStats, QgroupInfo,
    QgroupLimit, QgroupStatus, RootFlags, RootItem, RootRef, Stripe,
};
use brindle_ondisk::{Key, KeyType};
use std::io;

/// The root of a tree.
pub(super) fn print_root(out: Text<'_>, root: &RootItem) -> io::Result<()> {
    let RootItem { generation, root_dirid, bytenr, byte_limit, bytes_used, last_snapshot, .. } = root;
    write!(out, "\t\tgeneration {generation} root_dirid {root_dirid} bytenr {bytenr} ")?;
    writeln!(out, "byte_limit {byte_limit} bytes_used {bytes_used}")?;
    let names = joined_flags(&(RootFlags::RDONLY & root.root_flags()));
    let names = if names.is_empty() { "none" } else { &names };
    let flags = root.flags.get();
    writeln!(out, "\t\tlast_snapshot {last_snapshot} flags {flags:#x}({names}) refs {}", root.refs)?;
    let progress = key_text(&root.drop_progress);
    writeln!(out, "\t\tdrop_progress key ({progress}) drop_level {}", root.drop_level)?;
    writeln!(out, "\t\tlevel {} generation_v2 {}", root.level, root.generation_v2)?;
    if root.generation_v2 != root.generation {
        return Ok(());
    }
    let RootItem { uuid, parent_uuid, received_uuid, ctransid, otransid, stransid, rtransid, .. } = root;
    writeln!(out, "\t\tuuid {uuid}")?;
    writeln!(out, "\t\tparent_uuid {parent_uuid}")?;
    writeln!(out, "\t\treceived_uuid {received_uuid}")?;
    writeln!(out, "\t\tctransid {ctransid} otransid {otransid} stransid {stransid} rtransid {rtransid}")?;
    print_time(out, "ctime", root.ctime)?;
    print_time(out, "otime", root.otime)?;
    print_time(out, "stime", root.stime)?;
    print_time(out, "rtime", root.rtime)
}

/// A link between a subvolume and its parent.
pub(super) fn print_root_ref(
    out: Text<'_>,
    key: &Key,
    reference: &RootRef<'_>,
    style: &ItemStyle,
) -> io::Result<()> {
    let kind = if key.item_type == KeyType::ROOT_REF { "ref" } else { "backref" };
    let RootRef { dirid, sequence, name } = reference;
    write!(out, "\t\troot {kind} key dirid {dirid} sequence {sequence} name ")?;
    print_name(out, name, style)
}

/// A device.
pub(super) fn print_device(out: Text<'_>, device: &DevItem) -> io::Result<()> {
    let DevItem { devid, total_bytes, bytes_used, io_align, io_width, sector_size, .. } = device;
    let DevItem { device_type, generation, start_offset, dev_group, uuid, fsid, .. } = device;
    writeln!(out, "\t\tdevid {devid} total_bytes {total_bytes} bytes_used {bytes_used}")?;
    write!(out, "\t\tio_align {io_align} io_width {io_width} ")?;
    writeln!(out, "sector_size {sector_size} type {device_type}")?;
    writeln!(out, "\t\tgeneration {generation} start_offset {start_offset} dev_group {dev_group}")?;
    writeln!(out, "\t\tseek_speed {} bandwidth {}", device.seek_speed, device.bandwidth)?;
    writeln!(out, "\t\tuuid {uuid}")?;
    writeln!(out, "\t\tfsid {fsid}")
}

/// A piece of a device.
pub(super) fn print_dev_extent(out: Text<'_>, extent: &DevExtent) -> io::Result<()> {
    let DevExtent { chunk_tree, chunk_objectid, chunk_offset, length, chunk_tree_uuid } = extent;
    writeln!(out, "\t\tdev extent chunk_tree {chunk_tree}")?;
    writeln!(out, "\t\tchunk_objectid {chunk_objectid} chunk_offset {chunk_offset} length {length}")?;
    writeln!(out, "\t\tchunk_tree_uuid {chunk_tree_uuid}")
}

/// A chunk and its stripes.
pub(super) fn print_chunk(out: Text<'_>, chunk: &Chunk<'_>) -> io::Result<()> {
    let ChunkHeader { length, owner, stripe_len, .. } = chunk.header;
    let ChunkHeader { io_align, io_width, sector_size, num_stripes, sub_stripes, .. } = chunk.header;
    let kind = chunk.block_group_type();
    writeln!(out, "\t\tlength {length} owner {owner} stripe_len {stripe_len} type {kind}")?;
    writeln!(out, "\t\tio_align {io_align} io_width {io_width} sector_size {sector_size}")?;
    writeln!(out, "\t\tnum_stripes {num_stripes} sub_stripes {sub_stripes}")?;
    for (index, Stripe { devid, offset, dev_uuid }) in chunk.stripes.iter().enumerate() {
        writeln!(out, "\t\t\tstripe {index} devid {devid} offset {offset}")?;
        writeln!(out, "\t\t\tdev_uuid {dev_uuid}")?;
    }
    Ok(())
}

/// The state of the quota tree.
pub(super) fn print_qgroup_status(out: Text<'_>, status: &QgroupStatus) -> io::Result<()> {
    let QgroupStatus { version, generation, flags, rescan, enable_gen } = status;
    let mut names = vec![if flags & 1 != 0 { "ON" } else { "OFF" }];
    let more = [(2, "SCANNING"), (4, "INCONSISTENT"), (8, "SIMPLE_MODE")];
    names.extend(more.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name));
    let names = names.join("|");
    write!(out, "\t\tversion {version} generation {generation} flags {names} scan {rescan}")?;
    match enable_gen {
        Some(enable_gen) if flags & 8 != 0 => writeln!(out, " enable_gen {enable_gen}"),
        _ => writeln!(out),
    }
}

/// Prints the usage of a quota group.
pub(super) fn print_qgroup_info(out: Text<'_>, info: &QgroupInfo) -> io::Result<()> {
    let QgroupInfo { generation, rfer, rfer_cmpr, excl, excl_cmpr } = info;
    writeln!(out, "\t\tgeneration {generation}")?;
    writeln!(out, "\t\treferenced {rfer} referenced_compressed {rfer_cmpr}")?;
    writeln!(out, "\t\texclusive {excl} exclusive_compressed {excl_cmpr}")
}

/// Prints the limits of a quota group.
pub(super) fn print_qgroup_limit(out: Text<'_>, limit: &QgroupLimit) -> io::Result<()> {
    let QgroupLimit { flags, max_rfer, max_excl, rsv_rfer, rsv_excl } = limit;
    writeln!(out, "\t\tflags {:x}", flags.get())?;
    writeln!(out, "\t\tmax_referenced {max_rfer} max_exclusive {max_excl}")?;
    writeln!(out, "\t\trsv_referenced {rsv_rfer} rsv_exclusive {rsv_excl}")
}

/// A balance that is under way.
pub(super) fn print_balance(out: Text<'_>, key: &Key, balance: &BalanceItem) -> io::Result<()> {
    print_temporary(out, key)?;
    writeln!(out, "\t\tbalance status flags {}", balance.flags)?;
    for (name, arguments) in [("DATA", &balance.data), ("METADATA", &balance.meta), ("SYSTEM", &balance.sys)]
    {
        writeln!(out, "\t\t{name}")?;
        print_balance_args(out, arguments)?;
    }
    Ok(())
}

fn print_balance_args(out: Text<'_>, arguments: &BalanceArgs) -> io::Result<()> {
    let BalanceArgs { profiles, usage, devid, pstart, pend, vstart, vend, target, .. } = arguments;
    let BalanceArgs { flags, limit, stripes_min, stripes_max, .. } = arguments;
    let halves = |range: u64| (range & u64::from(u32::MAX), range >> 32);
    let (usage_min, usage_max) = halves(usage.get());
    let (limit_min, limit_max) = halves(limit.get());
    writeln!(out, "\t\tprofiles {profiles} devid {devid} target {target} flags {flags}")?;
    writeln!(out, "\t\tusage_min {usage_min} usage_max {usage_max} pstart {pstart} pend {pend}")?;
    writeln!(out, "\t\tvstart {vstart} vend {vend} limit_min {limit_min} limit_max {limit_max}")?;
    writeln!(out, "\t\tstripes_min {stripes_min} stripes_max {stripes_max}")
}

/// The error counters of a device.
pub(super) fn print_dev_stats(out: Text<'_>, key: &Key, stats: &DevStats) -> io::Result<()> {
    print_persistent(out, key)?;
    let DevStats { write_errs, read_errs, flush_errs, corruption_errs, generation_errs } = stats;
    writeln!(out, "\t\tdevice stats")?;
    write!(out, "\t\twrite_errs {write_errs} read_errs {read_errs} flush_errs {flush_errs} ")?;
    writeln!(out, "corruption_errs {corruption_errs} generation {generation_errs}")
}

/// A device replacement.
pub(super) fn print_dev_replace(out: Text<'_>, replace: &DevReplaceItem) -> io::Result<()> {
    const STATES: [&str; 5] = ["NEVER_STARTED", "STARTED", "FINISHED", "CANCELED", "SUSPENDED"];
    let DevReplaceItem { src_devid, cursor_left, cursor_right, time_started, time_stopped, .. } = replace;
    let DevReplaceItem { num_write_errors, num_uncorrectable_read_errors, .. } = replace;
    let state = replace.replace_state.get();
    let name = usize::try_from(state).ok().and_then(|state| STATES.get(state)).unwrap_or(&"UNKNOWN");
    let mode = replace.cont_reading_from_srcdev_mode;
    writeln!(out, "\t\tsrc_devid {src_devid} cursor_left {cursor_left} cursor_right {cursor_right}")?;
    writeln!(out, "\t\tmode {mode} state {state}({name})")?;
    writeln!(out, "\t\ttime_started {time_started} time_stopped {time_stopped}")?;
    write!(out, "\t\tnum_write_errors {num_write_errors} ")?;
    writeln!(out, "num_uncorrectable_read_errors {num_uncorrectable_read_errors}")
}

/// Prints an item that holds nothing, or nothing known.
pub(super) fn print_unknown(out: Text<'_>, key: &Key) -> io::Result<()> {
    match key.item_type {
        KeyType::TEMPORARY_ITEM => {
            print_temporary(out, key)?;
            writeln!(out, "\t\tunknown temporary item objectid {}", object_name(key.objectid))
        }
        KeyType::PERSISTENT_ITEM => {
            print_persistent(out, key)?;
            writeln!(out, "\t\tunknown persistent item objectid {}", key.objectid)
        }
        _ => Ok(()),
    }
}

fn print_temporary(out: Text<'_>, key: &Key) -> io::Result<()> {
    writeln!(out, "\t\ttemporary item objectid {} offset {}", object_name(key.objectid), key.offset())
}

fn print_persistent(out: Text<'_>, key: &Key) -> io::Result<()> {
    let name = match key.objectid.get() {
        0 => "DEV_STATS".to_owned(),
        number => number.to_string(),
    };
    writeln!(out, "\t\tpersistent item objectid {name} offset {}", key.offset())
}
