//! The superblock in text and as JSON.

use super::pool_items::print_chunk;
use super::{Text, key_text};
use brindle_ondisk::{ChecksumType, Superblock, Uuid};
use serde_json::{Value, json};
use std::io;

/// Names of the flags of a superblock.
const SUPER_FLAGS: [(u64, &str); 6] = [
    (1 << 0, "WRITTEN"),
    (1 << 1, "RELOC"),
    (1 << 35, "CHANGING_FSID"),
    (1 << 32, "SEEDING"),
    (1 << 33, "METADUMP"),
    (1 << 34, "METADUMP_V2"),
];

/// Prints a superblock, good or bad; `full` adds the system chunks and the backup roots.
pub(crate) fn print_superblock(out: Text<'_>, superblock: &Superblock, full: bool) -> io::Result<()> {
    print_identity(out, superblock)?;
    print_roots(out, superblock)?;
    print_features(out, superblock)?;
    print_dev_item(out, superblock)?;
    if full {
        print_system_chunks(out, superblock)?;
        print_backup_roots(out, superblock)?;
    }
    writeln!(out)
}

fn print_identity(out: Text<'_>, superblock: &Superblock) -> io::Result<()> {
    let number = superblock.csum_type.get();
    let (name, size) = match ChecksumType::from_disk(number) {
        Some(ChecksumType::Blake2b) => ("blake2", 32), // the name that btrfs-progs prints
        Some(known) => (known.name(), known.size()),
        None => ("INVALID", 32),
    };
    writeln!(out, "csum_type\t\t{number} ({name})")?;
    writeln!(out, "csum_size\t\t{size}")?;
    write!(out, "csum\t\t\t0x")?;
    superblock.csum.iter().take(size).try_for_each(|byte| write!(out, "{byte:02x}"))?;
    writeln!(out, " [{}]", checksum_verdict(superblock))?;
    writeln!(out, "bytenr\t\t\t{}", superblock.bytenr)?;
    let flags = superblock.flags.get();
    writeln!(out, "flags\t\t\t{flags:#x}")?;
    print_flag_names(out, flags, &SUPER_FLAGS)?;
    write!(out, "magic\t\t\t")?;
    write_printable(out, &superblock.magic)?;
    writeln!(out, " [{}]", verdict(superblock.has_magic()))?;
    writeln!(out, "fsid\t\t\t{}", superblock.fsid)?;
    writeln!(out, "metadata_uuid\t\t{}", superblock.tree_uuid())?;
    write!(out, "label\t\t\t")?;
    write_printable(out, superblock.label())?;
    writeln!(out)
}

fn print_roots(out: Text<'_>, superblock: &Superblock) -> io::Result<()> {
    writeln!(out, "generation\t\t{}", superblock.generation)?;
    writeln!(out, "root\t\t\t{}", superblock.root)?;
    writeln!(out, "sys_array_size\t\t{}", superblock.sys_chunk_array_size)?;
    writeln!(out, "chunk_root_generation\t{}", superblock.chunk_root_generation)?;
    writeln!(out, "root_level\t\t{}", superblock.root_level)?;
    writeln!(out, "chunk_root\t\t{}", superblock.chunk_root)?;
    writeln!(out, "chunk_root_level\t{}", superblock.chunk_root_level)?;
    writeln!(out, "log_root\t\t{}", superblock.log_root)?;
    writeln!(out, "log_root_transid (deprecated)\t{}", superblock.log_root_transid)?;
    writeln!(out, "log_root_level\t\t{}", superblock.log_root_level)?;
    writeln!(out, "total_bytes\t\t{}", superblock.total_bytes)?;
    writeln!(out, "bytes_used\t\t{}", superblock.bytes_used)?;
    writeln!(out, "sectorsize\t\t{}", superblock.sectorsize)?;
    writeln!(out, "nodesize\t\t{}", superblock.nodesize)?;
    writeln!(out, "leafsize (deprecated)\t{}", superblock.leafsize)?;
    writeln!(out, "stripesize\t\t{}", superblock.stripesize)?;
    writeln!(out, "root_dir\t\t{}", superblock.root_dir_objectid)?;
    writeln!(out, "num_devices\t\t{}", superblock.num_devices)
}

fn print_features(out: Text<'_>, superblock: &Superblock) -> io::Result<()> {
    let compat_ro = superblock.compat_ro();
    let incompat = superblock.incompat();
    writeln!(out, "compat_flags\t\t{:#x}", superblock.compat_flags.get())?;
    writeln!(out, "compat_ro_flags\t\t{:#x}", compat_ro.bits())?;
    print_flag_names(out, compat_ro.bits(), &flag_table(&compat_ro))?;
    writeln!(out, "incompat_flags\t\t{:#x}", incompat.bits())?;
    print_flag_names(out, incompat.bits(), &flag_table(&incompat))?;
    writeln!(out, "cache_generation\t{}", superblock.cache_generation)?;
    writeln!(out, "uuid_tree_generation\t{}", superblock.uuid_tree_generation)
}

fn print_dev_item(out: Text<'_>, superblock: &Superblock) -> io::Result<()> {
    let device = &superblock.dev_item;
    let belongs = device.fsid == superblock.tree_uuid();
    writeln!(out, "dev_item.uuid\t\t{}", device.uuid)?;
    writeln!(out, "dev_item.fsid\t\t{} [{}]", device.fsid, verdict(belongs))?;
    writeln!(out, "dev_item.type\t\t{}", device.device_type)?;
    writeln!(out, "dev_item.total_bytes\t{}", device.total_bytes)?;
    writeln!(out, "dev_item.bytes_used\t{}", device.bytes_used)?;
    writeln!(out, "dev_item.io_align\t{}", device.io_align)?;
    writeln!(out, "dev_item.io_width\t{}", device.io_width)?;
    writeln!(out, "dev_item.sector_size\t{}", device.sector_size)?;
    writeln!(out, "dev_item.devid\t\t{}", device.devid)?;
    writeln!(out, "dev_item.dev_group\t{}", device.dev_group)?;
    writeln!(out, "dev_item.seek_speed\t{}", device.seek_speed)?;
    writeln!(out, "dev_item.bandwidth\t{}", device.bandwidth)?;
    writeln!(out, "dev_item.generation\t{}", device.generation)
}

fn print_system_chunks(out: Text<'_>, superblock: &Superblock) -> io::Result<()> {
    writeln!(out, "sys_chunk_array[{}]:", superblock.sys_chunk_array.len())?;
    for (index, entry) in superblock.system_chunks().enumerate() {
        match entry {
            Ok((key, chunk)) => {
                writeln!(out, "\titem {index} key ({})", key_text(&key))?;
                print_chunk(out, &chunk)?;
            }
            Err(defect) => writeln!(out, "\titem {index} corrupt: {defect}")?,
        }
    }
    Ok(())
}

fn print_backup_roots(out: Text<'_>, superblock: &Superblock) -> io::Result<()> {
    writeln!(out, "backup_roots[{}]:", superblock.super_roots.len())?;
    for (index, backup) in superblock.super_roots.iter().enumerate() {
        writeln!(out, "\tbackup {index}:")?;
        #[rustfmt::skip]
        let roots = [
            ("backup_tree_root:\t", backup.tree_root, backup.tree_root_gen, backup.tree_root_level),
            ("backup_chunk_root:\t", backup.chunk_root, backup.chunk_root_gen, backup.chunk_root_level),
            ("backup_extent_root:\t", backup.extent_root, backup.extent_root_gen, backup.extent_root_level),
            ("backup_fs_root:\t\t", backup.fs_root, backup.fs_root_gen, backup.fs_root_level),
            ("backup_dev_root:\t", backup.dev_root, backup.dev_root_gen, backup.dev_root_level),
            ("csum_root:\t", backup.csum_root, backup.csum_root_gen, backup.csum_root_level),
        ];
        for (name, root, generation, level) in roots {
            writeln!(out, "\t\t{name}{root}\tgen: {generation}\tlevel: {level}")?;
        }
        writeln!(out, "\t\tbackup_total_bytes:\t{}", backup.total_bytes)?;
        writeln!(out, "\t\tbackup_bytes_used:\t{}", backup.bytes_used)?;
        writeln!(out, "\t\tbackup_num_devices:\t{}", backup.num_devices)?;
        writeln!(out)?;
    }
    Ok(())
}

/// The named bits of a set of flags.
fn flag_table<F: bitflags::Flags<Bits = u64>>(_: &F) -> Vec<(u64, &'static str)> {
    F::FLAGS.iter().map(|flag| (flag.value().bits(), flag.name())).collect()
}

/// Names in brackets, one a line; what has no name is put together at the end.
fn print_flag_names(out: Text<'_>, flags: u64, table: &[(u64, &str)]) -> io::Result<()> {
    if flags == 0 {
        return Ok(());
    }
    let mut rest = flags;
    let mut names = Vec::new();
    for (bit, name) in table {
        if flags & bit != 0 {
            names.push((*name).to_owned());
            rest &= !bit;
        }
    }
    if rest != 0 {
        names.push(format!("unknown flag: {rest:#x}"));
    }
    writeln!(out, "\t\t\t( {} )", names.join(" |\n\t\t\t  "))
}

fn verdict(good: bool) -> &'static str {
    if good { "match" } else { "DON'T MATCH" }
}

fn checksum_verdict(superblock: &Superblock) -> &'static str {
    match ChecksumType::from_disk(superblock.csum_type.get()) {
        Some(algorithm) => verdict(checksum_matches(superblock, algorithm)),
        None => "UNKNOWN CSUM TYPE OR SIZE",
    }
}

fn checksum_matches(superblock: &Superblock, algorithm: ChecksumType) -> bool {
    let computed = superblock.compute_checksum(algorithm);
    superblock.csum.get(..algorithm.size()) == Some(computed.as_bytes())
}

/// Bytes with a dot for what a terminal could not show.
fn write_printable(out: Text<'_>, bytes: &[u8]) -> io::Result<()> {
    let shown = |byte: &u8| if (0x20..0x7f).contains(byte) { *byte } else { b'.' };
    out.write_all(&bytes.iter().map(shown).collect::<Vec<u8>>())
}

/// A superblock as JSON, with the names of the text form.
pub(crate) fn superblock_json(superblock: &Superblock, device: &str, offset: u64, full: bool) -> Value {
    let algorithm = ChecksumType::from_disk(superblock.csum_type.get());
    let checksum = superblock.csum.get(..algorithm.map_or(32, ChecksumType::size)).unwrap_or_default();
    let checksum: String = checksum.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut value = json!({
        "device": device,
        "offset": offset,
        "csum_type": algorithm.map(ChecksumType::name),
        "csum": checksum,
        "csum_match": algorithm.map(|algorithm| checksum_matches(superblock, algorithm)),
        "bytenr": superblock.bytenr.get(),
        "flags": superblock.flags.get(),
        "magic_match": superblock.has_magic(),
        "fsid": superblock.fsid.to_string(),
        "metadata_uuid": superblock.tree_uuid().to_string(),
        "label": String::from_utf8_lossy(superblock.label()),
        "generation": superblock.generation.get(),
        "root": superblock.root.get(),
        "root_level": superblock.root_level,
        "chunk_root": superblock.chunk_root.get(),
        "chunk_root_generation": superblock.chunk_root_generation.get(),
        "chunk_root_level": superblock.chunk_root_level,
        "log_root": superblock.log_root.get(),
        "log_root_level": superblock.log_root_level,
        "total_bytes": superblock.total_bytes.get(),
        "bytes_used": superblock.bytes_used.get(),
        "sectorsize": superblock.sectorsize.get(),
        "nodesize": superblock.nodesize.get(),
        "num_devices": superblock.num_devices.get(),
        "compat_flags": superblock.compat_flags.get(),
        "compat_ro_flags": superblock.compat_ro().names(),
        "incompat_flags": superblock.incompat().names(),
        "cache_generation": superblock.cache_generation.get(),
        "uuid_tree_generation": superblock.uuid_tree_generation.get(),
        "dev_item": dev_item_json(superblock),
    });
    if full {
        value["sys_chunk_array"] = system_chunks_json(superblock);
        value["backup_roots"] = backup_roots_json(superblock);
    }
    value
}

fn dev_item_json(superblock: &Superblock) -> Value {
    let device = &superblock.dev_item;
    json!({
        "devid": device.devid.get(),
        "uuid": device.uuid.to_string(),
        "fsid": device.fsid.to_string(),
        "type": device.device_type.get(),
        "total_bytes": device.total_bytes.get(),
        "bytes_used": device.bytes_used.get(),
    })
}

fn system_chunks_json(superblock: &Superblock) -> Value {
    let chunks = superblock.system_chunks().map(|entry| match entry {
        Ok((key, chunk)) => {
            let stripe = |stripe: &brindle_ondisk::item::Stripe| {
                let uuid: Uuid = stripe.dev_uuid;
                json!({
                    "devid": stripe.devid.get(),
                    "offset": stripe.offset.get(),
                    "dev_uuid": uuid.to_string(),
                })
            };
            json!({
                "logical": key.offset(),
                "length": chunk.header.length.get(),
                "type": chunk.block_group_type().to_string(),
                "stripes": chunk.stripes.iter().map(stripe).collect::<Vec<_>>(),
            })
        }
        Err(defect) => json!({ "corrupt": defect.to_string() }),
    });
    chunks.collect()
}

fn backup_roots_json(superblock: &Superblock) -> Value {
    let root = |bytenr: brindle_ondisk::Logical, generation: brindle_ondisk::Generation, level: u8| json!({ "bytenr": bytenr.get(), "generation": generation.get(), "level": level });
    let backups = superblock.super_roots.iter().map(|backup| {
        json!({
            "tree_root": root(backup.tree_root, backup.tree_root_gen, backup.tree_root_level),
            "chunk_root": root(backup.chunk_root, backup.chunk_root_gen, backup.chunk_root_level),
            "extent_root": root(backup.extent_root, backup.extent_root_gen, backup.extent_root_level),
            "fs_root": root(backup.fs_root, backup.fs_root_gen, backup.fs_root_level),
            "dev_root": root(backup.dev_root, backup.dev_root_gen, backup.dev_root_level),
            "csum_root": root(backup.csum_root, backup.csum_root_gen, backup.csum_root_level),
            "total_bytes": backup.total_bytes.get(),
            "bytes_used": backup.bytes_used.get(),
            "num_devices": backup.num_devices.get(),
        })
    });
    backups.collect()
}
