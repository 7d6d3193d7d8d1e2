//! `brindle stat`: attributes of an inode.

use crate::commands::path::{PathOption, name_json, shown_name};
use crate::commands::pool::PoolOptions;
use crate::format::{Civil, kind_text, mode_text};
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_fs::{Attributes, FileType, Filesystem, Timestamp, Xattr};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle stat pool.img --path etc/fstab
    brindle stat --json --subvolid 257 a.img b.img -p home

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Show the attributes of a file or directory
///
/// Size, owner, mode, flags, times (in UTC), the transactions that made and last changed it, and the names of
/// its extended attributes. With --json their values too; names and values that are no UTF-8 are arrays of bytes.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatCommand {
    #[command(flatten)]
    path: PathOption,
    #[command(flatten)]
    json: JsonOption,
    #[command(flatten)]
    pool: PoolOptions,
    /// Image files or block devices: those of one pool, in any order
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// Facts shown of an inode.
struct Shown<'a> {
    path: &'a [u8],
    attributes: Attributes,
    target: Option<Vec<u8>>,
    xattrs: Vec<Xattr>,
}

/// Runs the command.
pub(crate) fn run(command: &StatCommand) -> Result<ExitCode> {
    command.path.refuse_as_device(&command.devices)?;
    let filesystem = command.pool.open(&command.devices)?;
    let shown = look(&filesystem, &command.path)?;
    if command.json.json {
        output::print_json(&to_json(&shown))?;
    } else {
        let mut out = output::stdout();
        print(&mut out, &shown)?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn look<'a>(filesystem: &Filesystem, path: &'a PathOption) -> Result<Shown<'a>> {
    let inode = path.resolve(filesystem)?;
    let attributes = filesystem.attributes(inode)?;
    let is_link = attributes.kind == FileType::Symlink;
    let target = is_link.then(|| filesystem.read_link(inode)).transpose()?;
    let xattrs = filesystem.xattrs(inode)?;
    Ok(Shown { path: path.as_bytes(), attributes, target, xattrs })
}

fn print(out: &mut dyn Write, shown: &Shown<'_>) -> io::Result<()> {
    let attributes = &shown.attributes;
    write!(out, "  File: ")?;
    out.write_all(&shown_name(shown.path))?;
    if let Some(target) = &shown.target {
        write!(out, " -> ")?;
        out.write_all(&shown_name(target))?;
    }
    writeln!(out)?;
    let Attributes { size, disk_bytes, mode, nlink, uid, gid, generation, transid, .. } = attributes;
    writeln!(out, "  Size: {size:<15}\tOn disk: {disk_bytes:<12}\t{}", kind_text(*mode))?;
    let id = attributes.id;
    write!(out, " Inode: {:<15}\tSubvolume: {:<10}\tLinks: {nlink}", id.number.get(), id.tree.get())?;
    if matches!(attributes.kind, FileType::CharDevice | FileType::BlockDevice) {
        let (major, minor) = attributes.device_numbers();
        write!(out, "\tDevice: {major},{minor}")?;
    }
    writeln!(out)?;
    writeln!(out, "Access: ({:04o}/{})\tUid: {uid}\tGid: {gid}", mode & 0o7777, mode_text(*mode))?;
    let flags: Vec<&str> = attributes.flags.iter_names().map(|(name, _)| name).collect();
    let flags = if flags.is_empty() { "none".to_owned() } else { flags.join("|") };
    writeln!(out, " Flags: {flags}")?;
    writeln!(out, "  Made: transaction {generation}\tChanged: transaction {transid}")?;
    for (name, time) in times(attributes) {
        writeln!(out, "{name:>6}: {}", time_text(time))?;
    }
    for xattr in &shown.xattrs {
        write!(out, " Xattr: ")?;
        out.write_all(&shown_name(&xattr.name))?;
        writeln!(out, " ({} bytes)", xattr.value.len())?;
    }
    Ok(())
}

fn times(attributes: &Attributes) -> [(&'static str, Timestamp); 4] {
    [
        ("Access", attributes.accessed),
        ("Modify", attributes.modified),
        ("Change", attributes.changed),
        ("Birth", attributes.created),
    ]
}

fn time_text(time: Timestamp) -> String {
    format!("{}.{:09} +0000", Civil::from_epoch(time.seconds), time.nanoseconds)
}

fn to_json(shown: &Shown<'_>) -> Value {
    let attributes = &shown.attributes;
    let xattr = |xattr: &Xattr| json!({ "name": name_json(&xattr.name), "value": name_json(&xattr.value) });
    let mut value = attributes_json(attributes);
    value["path"] = name_json(shown.path);
    value["target"] = shown.target.as_deref().map_or(Value::Null, name_json);
    value["xattrs"] = shown.xattrs.iter().map(xattr).collect();
    value
}

/// The attributes of an inode as JSON.
pub(crate) fn attributes_json(attributes: &Attributes) -> Value {
    let time = |time: Timestamp| json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds });
    let flags: Vec<&str> = attributes.flags.iter_names().map(|(name, _)| name).collect();
    let (major, minor) = attributes.device_numbers();
    json!({
        "inode": attributes.id.number.get(),
        "subvolume": attributes.id.tree.get(),
        "type": kind_text(attributes.mode),
        "mode": format!("{:04o}", attributes.mode & 0o7777),
        "uid": attributes.uid,
        "gid": attributes.gid,
        "links": attributes.nlink,
        "size": attributes.size,
        "disk_bytes": attributes.disk_bytes,
        "device": { "major": major, "minor": minor },
        "flags": flags,
        "generation": attributes.generation,
        "transid": attributes.transid,
        "accessed": time(attributes.accessed),
        "modified": time(attributes.modified),
        "changed": time(attributes.changed),
        "created": time(attributes.created),
    })
}
