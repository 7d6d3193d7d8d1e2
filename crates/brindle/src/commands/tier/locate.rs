//! `tier where`: the devices that the data of a file or a tree lies on, and why.

use super::facts::{ClassOptions, Facts, Source, UnmountedPool};
use crate::commands::path::{PathOption, name_json};
use crate::commands::pool::PoolOptions;
use crate::commands::refused::explain_admin;
use crate::format::{Align, UnitMode, UnitOptions, write_table};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::extents::{Extents, Inode, Piece, inline_bytes, pieces};
use brindle_admin::trees::Trees;
use brindle_admin::walk::{inode_item, limit_of_small_files, mark_of, walk};
use brindle_admin::{AdminError, ControlError, DevId, FileType, Mounted};
use brindle_policy::placement::{DataTier, PlacementClass};
use brindle_policy::tier::files::{no_tiers_reason, ranks_of_data};
use brindle_policy::tier::reason::{Location, LocationReason};
use brindle_policy::tier::{Content, TierChunk};
use clap::Args;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle tier where /mnt/photos
    brindle tier where --json /mnt/mail/inbox
    brindle tier where --path mail a.img b.img c.img

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Show on which devices the data of a file or a tree lies, and why
///
/// On a mount of brindle, on one of the kernel, or of a pool that is not mounted: then --path names the file within it. Bytes are
/// those on devices: each copy counts, parity counts, and what several files of the tree share counts once. The contents of very
/// small files lie within metadata, and are a sum of their own.
///
/// A mount of brindle places data by marks and by size, and the reasons are its own. The kernel knows neither; on its mounts the
/// reasons tell what a mount of brindle would think of the location.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct WhereCommand {
    #[command(flatten)]
    json: JsonOption,
    #[command(flatten)]
    path: PathOption,
    /// A file or directory of a mounted pool; or the devices of one that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
    #[command(flatten)]
    classes: ClassOptions,
    #[command(flatten)]
    units: UnitOptions,
}

/// Sums of a tree.
#[derive(Default)]
struct Found {
    files: u64,
    directories: u64,
    inline_bytes: u64,
    by_device: BTreeMap<DevId, u64>,
    by_reason: BTreeMap<(String, LocationReason), u64>,
    seen: BTreeSet<(u64, u64)>,
    /// Data of the pool has tiers.
    has_tiers: bool,
}

/// Runs it.
pub(super) fn run(command: &WhereCommand) -> Result<ExitCode> {
    let mounted = match command.places.as_slice() {
        [path] => match Mounted::open(path) {
            Err(error @ ControlError::NoPlace(_)) => return Err(error.into()),
            opened => opened.ok(),
        },
        _ => None,
    };
    let (facts, start) = match mounted {
        Some(mounted) => {
            // Files have their places when they are written.
            mounted.sync()?;
            let start = mounted.inode()?;
            (Facts::gather(&[directory_of(&command.places[0])], &command.classes)?, start)
        }
        None => {
            let filesystem = PoolOptions::default().open(&command.places)?;
            let id = command.path.resolve(&filesystem)?;
            let start = Inode { tree: id.tree, number: id.number };
            (Facts::of_open(UnmountedPool::Files(Box::new(filesystem)), &command.classes)?, start)
        }
    };
    let found = find(&facts, start)?;
    if command.json.json {
        output::print_json(&found.json(&facts, command))?;
        return Ok(ExitCode::SUCCESS);
    }
    found.print(&facts, command.units.mode())?;
    Ok(ExitCode::SUCCESS)
}

/// The directory by which a mount is reached.
fn directory_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.to_owned();
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// Goes through the tree.
fn find(facts: &Facts, start: Inode) -> Result<Found> {
    let trees: &dyn Trees = match &facts.source {
        Source::Mounted(mounted) => mounted,
        Source::Open(pool) => &**pool,
    };
    let mut extents = Extents::new(trees).map_err(explain_admin)?;
    let small = facts.small_file_bytes()?;
    let ranks = ranks_of_data(&facts.pool);
    let count = |class| facts.pool.count(class);
    let data = facts.pool.chunks.iter().filter(|chunk| chunk.content() == Content::Data);
    let (fast, bulk) = (count(PlacementClass::Fast), count(PlacementClass::Bulk));
    let no_tiers = no_tiers_reason(data.map(TierChunk::profile), fast, bulk);
    let mut found = Found { has_tiers: no_tiers.is_none(), ..Found::default() };
    let mut chunks: Vec<&TierChunk> = facts.pool.chunks.iter().collect();
    chunks.sort_by_key(|chunk| chunk.logical);
    walk(trees, start, &mut |met| -> Result<(), anyhow::Error> {
        match met.kind {
            FileType::Directory if met.is_after => return Ok(()),
            FileType::Directory => found.directories += 1,
            FileType::Regular => found.files += 1,
            _ => return Ok(()),
        }
        let own = pieces(trees, met.inode)?;
        found.inline_bytes += inline_bytes(trees, met.inode)?;
        if own.is_empty() {
            return Ok(());
        }
        let stored: u64 = own.iter().map(Piece::disk_bytes).sum();
        let size = inode_item(trees, met.inode)?.map_or(0, |item| item.size.get());
        let mark = mark_of(trees, met.inode)?.and_then(|mark| facts.pool.classes.named(&mark));
        // A class with too few devices counts as its side.
        let mark = mark
            .map(|DataTier { side, rank }| DataTier { side, rank: rank.filter(|rank| ranks.contains(rank)) });
        let small = limit_of_small_files(trees, met.inode)?.unwrap_or(small);
        for piece in &own {
            if !found.seen.insert((piece.start().get(), piece.disk_bytes())) {
                continue;
            }
            let Some(chunk) = chunk_of(&chunks, piece) else { bail!(no_chunk(piece)) };
            let location = Location {
                is_fast: facts.pool.lies_in_fast_tier(chunk),
                rank: facts.pool.chunk_rank(chunk),
                is_write_back: chunk.is_write_back,
                is_shared: extents.is_shared(met.inode, piece, &own)?,
                mark,
                is_small: small > 0 && size.min(stored) <= small && size > 0,
            };
            found.add(facts, chunk, piece.disk_bytes(), &location);
        }
        Ok(())
    })?;
    Ok(found)
}

fn no_chunk(piece: &Piece) -> AdminError {
    AdminError::NoChunk(piece.start())
}

fn chunk_of<'c>(chunks: &[&'c TierChunk], piece: &Piece) -> Option<&'c TierChunk> {
    let at = piece.start();
    let behind = chunks.partition_point(|chunk| chunk.logical <= at);
    let chunk = chunks.get(behind.checked_sub(1)?)?;
    (at.get() - chunk.logical.get() < chunk.length_bytes).then_some(*chunk)
}

impl Found {
    fn add(&mut self, facts: &Facts, chunk: &TierChunk, bytes: u64, location: &Location) {
        // A stripe has its share of what the chunk's devices hold of the bytes.
        let share =
            u128::from(chunk.stripe_bytes()) * u128::from(bytes) / u128::from(chunk.length_bytes.max(1));
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        for stripe in &chunk.stripes {
            *self.by_device.entry(stripe.devid).or_default() += share;
            let (side, rank) = facts.pool.known_class(stripe.devid);
            let reason =
                if self.has_tiers { location.reason_of_copy(side, rank) } else { LocationReason::NoTiers };
            let class = facts.pool.class_name(stripe.devid);
            *self.by_reason.entry((class, reason)).or_default() += share;
        }
    }

    fn total(&self) -> u64 {
        self.by_device.values().sum()
    }

    fn print(&self, facts: &Facts, mode: UnitMode) -> Result<()> {
        let mut out = output::stdout();
        let s =
            |count: u64, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
        let (files, directories) =
            (s(self.files, "file", "files"), s(self.directories, "directory", "directories"));
        writeln!(
            out,
            "{files}, {directories}: {} on devices, {} within metadata",
            mode.format(self.total()),
            mode.format(self.inline_bytes)
        )?;
        let head = ["DEVID", "PATH", "CLASS", "BYTES"].map(str::to_owned).to_vec();
        let device = |device: &brindle_admin::tier::ClassifiedDevice| {
            let bytes = self.by_device.get(&device.devid).copied().unwrap_or(0);
            let path = match device.path.as_os_str().is_empty() {
                true => "missing".to_owned(),
                false => device.path.display().to_string(),
            };
            vec![device.devid.to_string(), path, facts.shown_class(device), mode.format(bytes)]
        };
        let rows: Vec<_> = std::iter::once(head).chain(facts.devices.iter().map(device)).collect();
        write_table(&mut out, &[Align::Right, Align::Left, Align::Left, Align::Right], &rows)?;
        if !self.by_reason.is_empty() {
            writeln!(out)?;
        }
        let head = ["CLASS", "BYTES", "WHY"].map(str::to_owned).to_vec();
        let reason = |((class, reason), bytes): (&(String, LocationReason), &u64)| {
            vec![class.clone(), mode.format(*bytes), reason.to_string()]
        };
        let rows: Vec<_> = std::iter::once(head).chain(self.by_reason.iter().map(reason)).collect();
        if rows.len() > 1 {
            write_table(&mut out, &[Align::Left, Align::Right, Align::Left], &rows)?;
        }
        if let Some(note) = facts.absence() {
            writeln!(out, "\nNote: {note}")?;
        }
        Ok(out.flush()?)
    }

    fn json(&self, facts: &Facts, command: &WhereCommand) -> Value {
        let device = |device: &brindle_admin::tier::ClassifiedDevice| {
            let path = &device.path;
            json!({
                "devid": device.devid.get(),
                "path": (!path.as_os_str().is_empty()).then(|| path.display().to_string()),
                "class": device.class.0.to_string(),
                "class_name": device.class_name,
                "rank": device.rank,
                "used_bytes": self.by_device.get(&device.devid).copied().unwrap_or(0),
            })
        };
        let reason = |((class, reason), bytes): (&(String, LocationReason), &u64)| {
            let side = facts.pool.classes.named(class.as_bytes()).map(|tier| tier.side.to_string());
            json!({ "class": side, "class_name": class, "reason": reason.name(), "used_bytes": bytes })
        };
        let path = match command.places.as_slice() {
            [path] if matches!(facts.source, Source::Mounted(_)) => {
                use std::os::unix::ffi::OsStrExt;
                name_json(path.as_os_str().as_bytes())
            }
            _ => name_json(command.path.as_bytes()),
        };
        json!({
            "uuid": facts.fsid.to_string(),
            "path": path,
            "files": self.files,
            "directories": self.directories,
            "total_bytes": self.total(),
            "inline_bytes": self.inline_bytes,
            "devices": facts.devices.iter().map(device).collect::<Vec<_>>(),
            "reasons": self.by_reason.iter().map(reason).collect::<Vec<_>>(),
            "missing_devids": facts.missing_devids(),
        })
    }
}
