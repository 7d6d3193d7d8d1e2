//! `inspect-internal inode-resolve`, `logical-resolve`, `subvolid-resolve` and `rootid`: names of numbers, and numbers of names.

use crate::commands::path::{name_json, shown_name};
use crate::commands::reached::Reached;
use crate::commands::refused::explain_admin;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Context, Result, bail};
use brindle_admin::extents::{Extents, Reference};
use brindle_admin::subvolumes::SubvolumeFacts;
use brindle_admin::{Logical, ObjectId, RootId};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle inspect-internal inode-resolve 257 /mnt
    brindle inspect-internal logical-resolve 298844160 /mnt
    brindle inspect-internal subvolid-resolve 256 a.img b.img
    brindle inspect-internal rootid /mnt/home

EXIT STATUS
  0  success
  1  failure: also if there is nothing of that number
  2  wrong usage";

/// Show the paths of an inode
///
/// In the subvolume of the path; of devices in the top level. Each name of a file is a path.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct InodeResolveCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Number of the inode
    inode: u64,
    /// Subvolume to look in, if it is not that of the path
    #[arg(long, value_name = "ID")]
    rootid: Option<u64>,
    /// A path of a mounted pool; or image files and block devices, those of one pool
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
}

/// Show the files that a logical address belongs to
///
/// In all subvolumes: clones, and the same file in snapshots. An address of metadata belongs to no file.
#[derive(Args, Debug)]
#[command(
    override_usage = "brindle inspect-internal logical-resolve [OPTIONS] <LOGICAL> <PLACE>...",
    after_long_help = EXAMPLES
)]
pub(crate) struct LogicalResolveCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Print inodes, offsets and subvolumes, not paths
    #[arg(short = 'P')]
    plain: bool,
    /// Also the files that use another part of the extent
    #[arg(short = 'o')]
    ignore_offset: bool,
    /// Taken as btrfs takes it, without effect
    #[arg(short = 's', value_name = "BYTES", hide = true)]
    _buffer: Option<u64>,
    /// The address, in bytes
    logical: u64,
    /// A path of a mounted pool; or image files and block devices, those of one pool
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
}

/// Show the path of a subvolume by its id
#[derive(Args, Debug)]
#[command(
    override_usage = "brindle inspect-internal subvolid-resolve [OPTIONS] <SUBVOLID> <PLACE>...",
    after_long_help = EXAMPLES
)]
pub(crate) struct SubvolidResolveCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Id of the subvolume
    subvolid: u64,
    /// A path of a mounted pool; or image files and block devices, those of one pool
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
}

/// Show the id of the subvolume that a path lies in
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RootidCommand {
    #[command(flatten)]
    json: JsonOption,
    /// A path of a mounted pool
    path: PathBuf,
}

/// Runs `inode-resolve`.
pub(super) fn inode(command: &InodeResolveCommand) -> Result<ExitCode> {
    let reached = Reached::of(&command.places)?;
    let tree = RootId::new(command.rootid.map_or_else(|| reached.subvolume(), Ok)?);
    let inode = ObjectId::new(command.inode);
    let paths = reached.trees().paths_of_inode(tree, inode).map_err(explain_admin)?;
    let is_root = inode == ObjectId::FIRST_FREE;
    if paths.is_empty() && !is_root {
        bail!("subvolume {tree} has no inode {inode} with a name");
    }
    if command.json.json {
        let paths: Vec<Value> = paths.iter().map(|path| name_json(path)).collect();
        output::print_json(&json!({ "subvolume": tree.get(), "inode": command.inode, "paths": paths }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let paths = if is_root { vec![Vec::new()] } else { paths };
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| below(&command.places, &reached, path)).collect();
    print_lines(&paths)
}

/// Runs `logical-resolve`.
pub(super) fn logical(command: &LogicalResolveCommand) -> Result<ExitCode> {
    let reached = Reached::of(&command.places)?;
    let extents = Extents::new(reached.trees()).map_err(explain_admin)?;
    let found =
        extents.files_at(Logical::new(command.logical), !command.ignore_offset).map_err(explain_admin)?;
    let found = found.with_context(|| format!("logical {}: in no extent of data", command.logical))?;
    if found.is_empty() {
        bail!("logical {}: no file uses it", command.logical);
    }
    let mut named = Vec::new();
    for reference in found {
        let subvolume = extents.subvolumes().iter().find(|one| one.id == reference.inode.tree.get());
        let paths = reached.trees().paths_of_inode(reference.inode.tree, reference.inode.number)?;
        named.push((reference, subvolume, paths));
    }
    let full = |subvolume: Option<&SubvolumeFacts>, path: &[u8]| {
        let above = subvolume.map_or(&b""[..], |one| &one.path);
        let slash: &[u8] = if above.is_empty() { b"" } else { b"/" };
        [above, slash, path].concat()
    };
    if command.json.json {
        let file = |(reference, subvolume, paths): &(Reference, Option<&SubvolumeFacts>, Vec<Vec<u8>>)| {
            let paths: Vec<Value> = paths.iter().map(|path| name_json(&full(*subvolume, path))).collect();
            json!({
                "subvolume": reference.inode.tree.get(),
                "inode": reference.inode.number.get(),
                "offset": reference.offset,
                "paths": paths,
            })
        };
        let files: Vec<Value> = named.iter().map(file).collect();
        output::print_json(&json!({ "logical": command.logical, "files": files }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = Vec::new();
    for (reference, subvolume, paths) in &named {
        let Reference { inode, offset } = reference;
        if command.plain {
            lines.push(format!("inode {} offset {offset} root {}", inode.number, inode.tree).into_bytes());
            continue;
        }
        lines.extend(paths.iter().map(|path| {
            // Seen from the path where its subvolume is the one, else from the top level.
            if reached.subvolume().is_ok_and(|here| here == inode.tree.get()) {
                below(&command.places, &reached, path)
            } else {
                full(*subvolume, path)
            }
        }));
    }
    print_lines(&lines)
}

/// Runs `subvolid-resolve`.
pub(super) fn subvolid(command: &SubvolidResolveCommand) -> Result<ExitCode> {
    let (all, _) = Reached::of(&command.places)?.subvolumes()?;
    let facts = all.iter().find(|one| one.id == command.subvolid && !one.is_deleted);
    let facts = facts.with_context(|| format!("the pool has no subvolume of id {}", command.subvolid))?;
    if command.json.json {
        output::print_json(&json!({ "id": facts.id, "path": name_json(&facts.path) }))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_lines(std::slice::from_ref(&facts.path))
}

/// Runs `rootid`.
pub(super) fn rootid(command: &RootidCommand) -> Result<ExitCode> {
    let id = brindle_admin::Mounted::open(&command.path)?.subvolume()?.id;
    if command.json.json {
        output::print_json(&json!({ "id": id }))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_lines(&[id.to_string().into_bytes()])
}

/// A path of a subvolume as it is seen from the operand, if that is the root of it.
fn below(places: &[PathBuf], reached: &Reached, path: &[u8]) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    match (places, reached.mounted()) {
        ([place], Some(mounted)) if mounted.is_subvolume_root() => {
            Path::new(place).join(std::ffi::OsStr::from_bytes(path)).as_os_str().as_bytes().to_vec()
        }
        _ => path.to_vec(),
    }
}

fn print_lines(lines: &[Vec<u8>]) -> Result<ExitCode> {
    let mut out = output::stdout();
    for line in lines {
        out.write_all(&shown_name(line))?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
