//! `brindle ls`: the names in a directory.

use crate::commands::path::{PathOption, name_json, shown_name};
use crate::commands::pool::PoolOptions;
use crate::commands::stat::attributes_json;
use crate::damage;
use crate::format::{long_listing_time, mode_text};
use crate::options::JsonOption;
use crate::output;
use anyhow::Result;
use brindle_fs::{Attributes, DirectoryEntry, FileType, Filesystem, InodeId};
use clap::Args;
use serde_json::json;
use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  What is in the root directory?
    brindle ls -l pool.img

  Everything below a directory of a snapshot:
    brindle ls -lR --subvol snapshots/monday a.img b.img --path home/me

EXIT STATUS
  0  success
  1  something can't be read; the rest is listed
  2  wrong usage";

/// List directories of a pool
///
/// Names are sorted, and written as they are, one a line. Owners are numbers, for the names of the pool's host
/// are not known; times are UTC. Subvolumes are listed as the directories that they are.
///
/// With --json there is one array, with an object for each name. Names, paths and targets that are no UTF-8 are
/// arrays of bytes in place of strings.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LsCommand {
    /// Mode, links, owner, group, size, time of last change
    #[arg(short)]
    long: bool,
    /// Also list the contents of subdirectories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Names that begin with a dot too
    #[arg(short, long)]
    all: bool,
    /// The inode number of each
    #[arg(short, long)]
    inode: bool,
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

/// Number of entries that are asked for at once.
const BATCH_ENTRIES: usize = 4096;

/// Runs the command.
pub(crate) fn run(command: &LsCommand) -> Result<ExitCode> {
    command.path.refuse_as_device(&command.devices)?;
    let filesystem = command.pool.open(&command.devices)?;
    let start = command.path.resolve(&filesystem)?;
    let attributes = filesystem.attributes(start)?;
    let mut listing = Listing {
        command,
        filesystem: &filesystem,
        out: output::stdout(),
        seen: HashSet::new(),
        has_json: false,
        failed: false,
    };
    if attributes.kind == FileType::Directory {
        listing.directories(start, command.path.as_bytes())?;
    } else {
        let name = command.path.as_bytes().to_vec();
        let entry = DirectoryEntry { name, inode: start, kind: attributes.kind, index: 0 };
        listing.entries(b"", &[entry])?;
    }
    if command.json.json {
        writeln!(listing.out, "{}", if listing.has_json { "\n]" } else { "[]" })?;
    }
    listing.out.flush()?;
    Ok(if listing.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A listing under way.
struct Listing<'a, W> {
    command: &'a LsCommand,
    filesystem: &'a Filesystem,
    out: W,
    /// Directories that were listed: a damaged pool may have one below itself.
    seen: HashSet<InodeId>,
    /// The JSON array has an entry.
    has_json: bool,
    failed: bool,
}

impl<W: Write> Listing<'_, W> {
    /// A directory and, if asked for, all below it.
    fn directories(&mut self, start: InodeId, path: &[u8]) -> Result<()> {
        let mut pending = vec![(start, path.to_vec())];
        while let Some((directory, path)) = pending.pop() {
            if !self.seen.insert(directory) {
                self.complain(&path, "is listed already: the directory has two names");
                continue;
            }
            let entries = self.read(directory, &path);
            if self.command.recursive && !self.command.json.json {
                if self.seen.len() > 1 {
                    writeln!(self.out)?;
                }
                self.out.write_all(&shown_name(&path))?;
                writeln!(self.out, ":")?;
            }
            self.entries(&path, &entries)?;
            if self.command.recursive {
                let below = entries.iter().filter(|entry| entry.kind == FileType::Directory).rev();
                pending.extend(below.map(|entry| (entry.inode, join(&path, &entry.name))));
            }
        }
        Ok(())
    }

    /// The entries of a directory that can be read; what can't be is complained of.
    fn read(&mut self, directory: InodeId, path: &[u8]) -> Vec<DirectoryEntry> {
        let mut entries = Vec::new();
        let mut after = Some(0);
        while let Some(index) = after {
            let (batch, gap) = self.filesystem.read_damaged_directory(directory, index, BATCH_ENTRIES);
            after = match gap {
                None => batch.last().map(|last| last.index),
                Some(gap) => {
                    damage::note(&gap.error);
                    self.complain(path, &gap.error.to_string());
                    gap.resume
                }
            };
            entries
                .extend(batch.into_iter().filter(|entry| self.command.all || !entry.name.starts_with(b".")));
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries
    }

    fn entries(&mut self, path: &[u8], entries: &[DirectoryEntry]) -> Result<()> {
        if !self.command.long && !self.command.json.json {
            return entries.iter().try_for_each(|entry| self.short_line(entry));
        }
        for entries in entries.chunks(BATCH_ENTRIES) {
            self.batch(path, entries)?;
        }
        Ok(())
    }

    fn batch(&mut self, path: &[u8], entries: &[DirectoryEntry]) -> Result<()> {
        let inodes: Vec<InodeId> = entries.iter().map(|entry| entry.inode).collect();
        for (entry, attributes) in entries.iter().zip(self.filesystem.attributes_of(&inodes)) {
            match attributes {
                Ok(attributes) if self.command.json.json => self.add_json(path, entry, &attributes)?,
                Ok(attributes) => self.long_line(entry, &attributes)?,
                Err(error) => {
                    damage::note(&error);
                    self.complain(&join(path, &entry.name), &error.to_string());
                }
            }
        }
        Ok(())
    }

    fn short_line(&mut self, entry: &DirectoryEntry) -> Result<()> {
        if self.command.inode {
            write!(self.out, "{:>8} ", entry.inode.number.get())?;
        }
        self.out.write_all(&shown_name(&entry.name))?;
        Ok(writeln!(self.out)?)
    }

    fn long_line(&mut self, entry: &DirectoryEntry, attributes: &Attributes) -> Result<()> {
        if self.command.inode {
            write!(self.out, "{:>8} ", entry.inode.number.get())?;
        }
        let Attributes { nlink, uid, gid, size, mode, .. } = attributes;
        let size = match attributes.kind {
            FileType::CharDevice | FileType::BlockDevice => {
                let (major, minor) = attributes.device_numbers();
                format!("{major}, {minor}")
            }
            _ => size.to_string(),
        };
        let (mode, time) = (mode_text(*mode), long_listing_time(attributes.modified.seconds));
        write!(self.out, "{mode} {nlink:>3} {uid:>5} {gid:>5} {size:>12} {time} ")?;
        self.out.write_all(&shown_name(&entry.name))?;
        if let Some(target) = self.target(entry)? {
            write!(self.out, " -> ")?;
            self.out.write_all(&shown_name(&target))?;
        }
        Ok(writeln!(self.out)?)
    }

    fn add_json(&mut self, path: &[u8], entry: &DirectoryEntry, attributes: &Attributes) -> Result<()> {
        let target = match self.target(entry) {
            Ok(target) => target,
            Err(error) => {
                self.complain(&join(path, &entry.name), &error.to_string());
                None
            }
        };
        let mut value = attributes_json(attributes);
        value["path"] = name_json(&join(path, &entry.name));
        value["name"] = name_json(&entry.name);
        value["target"] = target.as_deref().map_or(json!(null), name_json);
        write!(self.out, "{}", if self.has_json { ",\n" } else { "[\n" })?;
        self.has_json = true;
        Ok(serde_json::to_writer(&mut self.out, &value)?)
    }

    fn target(&self, entry: &DirectoryEntry) -> Result<Option<Vec<u8>>> {
        let is_link = entry.kind == FileType::Symlink;
        Ok(is_link.then(|| self.filesystem.read_link(entry.inode)).transpose()?)
    }

    fn complain(&mut self, path: &[u8], why: &str) {
        self.failed = true;
        output::complain_line(&format!("{}: {why}", String::from_utf8_lossy(path)));
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.is_empty() || path.ends_with(b"/") { b"" } else { b"/" };
    [path, slash, name].concat()
}
