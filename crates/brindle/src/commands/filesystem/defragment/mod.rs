//! `filesystem defragment`.

mod contents;

use crate::commands::place::administer;
use crate::commands::quantity::parse_size;
use crate::commands::stop::Stop;
use crate::options::JsonOption;
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::Mounted;
use brindle_admin::pool::DefragmentProgress;
use brindle_care::job::Control;
use brindle_fs::{Compression, CompressionChoice, ContentsWish};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  The metadata of the subvolume of a directory:
    brindle filesystem defragment /mnt/home

  All metadata of a pool that is not mounted:
    brindle filesystem defragment disk1.img disk2.img

  A disk image that random writes have torn, and all files below a directory:
    brindle filesystem defragment /mnt/vm/disk.img
    brindle filesystem defragment -r -czstd /mnt/logs

  How much there is to gain is said by:
    brindle inspect tree-stats disk.img

EXIT STATUS
  0    success
  1    failure; what was moved stays moved, and the pool is whole
  2    wrong usage
  129, 130, 143  stopped by SIGHUP, SIGINT or SIGTERM; the same command goes on
                 where it is worth it";

/// Write contents of files, or metadata, anew where they lie scattered, so that disks read them without seeking
///
/// Of a file, and with -r of all files below a directory: extents that follow each other are laid side by side, unless they lie
/// in long runs already. Extents that a snapshot or another file shares stay, unless --unshare is given. Compressed extents
/// stay compressed. Files remain usable meanwhile, their contents and times stay. Mounts of the kernel do it in their own way.
///
/// Of a directory without -r, the metadata of the subvolume that it is in is meant, all of it, whichever directory it
/// is; with --all, and of a pool that is not mounted, every tree. Tree leaves that follow each other are laid side by side
/// again, a few hundred at a time, each time in one transaction. Leaves shared with a snapshot stay in their places, and so do
/// well placed ones, so that repeated calls do no harm. On flash it gains next to nothing. On a mount of the kernel, the kernel does
/// it for root, in its own way, and tells no numbers; there is no --all.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DefragmentCommand {
    /// All trees of the pool: subvolumes, extents, checksums, free space, roots
    #[arg(long, conflicts_with_all = ["recursive", "compress", "target", "unshare"])]
    all: bool,
    /// Contents of all files below directories, other mounts left out
    #[arg(short, long)]
    recursive: bool,
    /// Compress the contents: zlib (without a value), lzo or zstd, with a level as `zstd:9`, or none
    #[arg(short, long, value_name = "ALG[:LEVEL]", num_args = 0..=1, require_equals = false, default_missing_value = "zlib", value_parser = parse_compression)]
    compress: Option<CompressionChoice>,
    /// Length of a run on the devices from which on it is left alone, with an optional suffix (K, M, G)
    #[arg(short, long, value_name = "SIZE", default_value = "32M", value_parser = parse_size)]
    target: u64,
    /// Make it durable at the end
    #[arg(short, long)]
    flush: bool,
    /// Write extents anew that snapshots or other files share, which takes space
    #[arg(long)]
    unshare: bool,
    #[command(flatten)]
    json: JsonOption,
    /// Files or directories of a mount, or the devices of a pool that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &DefragmentCommand) -> Result<ExitCode> {
    if command.means_contents() {
        return run_on_contents(command);
    }
    let pool = administer(&command.paths)?;
    let stop = Stop::on_signals()?;
    let mut done = DefragmentProgress::default();
    let ended = pool.defragment(command.all, &mut |progress| {
        done = *progress;
        if stop.is_set() { Control::Cancel } else { Control::Continue }
    })?;
    let is_whole = ended == Control::Continue;
    pool.close()?;
    let DefragmentProgress { leaves, moved } = done;
    if command.is_of_kernel() {
        return tell_of_kernel(command);
    }
    if command.json.json {
        output::print_json(&json!({ "leaves": leaves, "moved": moved, "is_whole": is_whole }))?;
    } else {
        let mut out = output::stdout();
        let ended = if is_whole { "Done" } else { "Stopped" };
        writeln!(out, "{ended}: {moved} of {leaves} leaves written anew, side by side.")?;
        out.flush()?;
    }
    match stop.name_and_code().filter(|_| !is_whole) {
        Some((_, code)) => Ok(ExitCode::from(code)),
        None => Ok(ExitCode::SUCCESS),
    }
}

impl DefragmentCommand {
    /// Returns true if files are meant: with -r, or if one is named that lies on a mount.
    fn means_contents(&self) -> bool {
        let is_mounted = |path: &PathBuf| path.is_file() && Mounted::open(path).is_ok();
        self.recursive || self.paths.iter().any(is_mounted)
    }

    /// Returns true if the first path lies on a mount of the kernel.
    fn is_of_kernel(&self) -> bool {
        let first = self.paths.first().and_then(|path| Mounted::open(path).ok());
        first.is_some_and(|mounted| mounted.is_of_kernel())
    }

    fn wish(&self) -> ContentsWish {
        ContentsWish { run_bytes: self.target, compression: self.compress, unshares: self.unshare }
    }
}

/// Tells that the kernel has defragmented metadata.
fn tell_of_kernel(command: &DefragmentCommand) -> Result<ExitCode> {
    if command.json.json {
        output::print_json(&json!({ "leaves": null, "moved": null, "is_whole": true }))?;
    } else {
        let mut out = output::stdout();
        writeln!(out, "Done by the kernel, which tells no numbers.")?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Defragments contents of files.
fn run_on_contents(command: &DefragmentCommand) -> Result<ExitCode> {
    if command.all {
        bail!("--all is of metadata: give a directory");
    }
    if let Some(directory) = command.paths.iter().find(|path| path.is_dir() && !command.recursive) {
        bail!("{}: a directory beside files: give -r for the files below it", directory.display());
    }
    let stop = Stop::on_signals()?;
    let done = contents::run(&command.paths, command.recursive, &command.wish(), &stop)?;
    if command.flush {
        command.paths.iter().try_for_each(|path| Mounted::open(path)?.sync().map(drop))?;
    }
    if command.json.json {
        output::print_json(&done.to_json())?;
    } else {
        let mut out = output::stdout();
        writeln!(out, "{}", done.text())?;
        out.flush()?;
    }
    match stop.name_and_code() {
        Some((_, code)) => Ok(ExitCode::from(code)),
        None if done.is_whole() => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::FAILURE),
    }
}

fn parse_compression(word: &str) -> Result<CompressionChoice> {
    let none = CompressionChoice { algorithm: Compression::None, level: None, force: false };
    Ok(CompressionChoice::parse_exactly(word)?.unwrap_or(none))
}
