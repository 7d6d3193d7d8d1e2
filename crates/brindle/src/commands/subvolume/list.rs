//! Showing subvolumes: of a mounted pool, or of one that lies on devices.

use crate::cli::JsonOption;
use crate::commands::path::{name_json, shown_name};
use crate::commands::pool::PoolOptions;
use crate::format::Civil;
use crate::output;
use anyhow::Result;
use brindle_admin::{Mounted, SubvolumeRecord};
use brindle_fs::{RootId, Subvolume, Timestamp};
use brindle_ondisk::Uuid;
use brindle_ondisk::item::RootFlags;
use brindle_uapi::message::{SubvolumeInfo, text};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle subvolume list /mnt
    brindle subvolume list --snapshots --json a.img b.img
    brindle subvolume show /mnt/home
    brindle subvolume get-default /mnt

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// List the subvolumes of a pool
///
/// Of one that brindle has mounted, named by any directory of it, or of an unmounted one, named by its devices. The
/// top level is not listed.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ListCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Only read-only ones
    #[arg(short, long)]
    read_only: bool,
    /// Only snapshots
    #[arg(short, long)]
    snapshots: bool,
    /// A directory of a mounted pool; or image files and block devices, those of one pool, in any order
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
    #[command(flatten)]
    pool: PoolOptions,
}

/// Show the subvolume that a path lies in
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ShowCommand {
    #[command(flatten)]
    json: JsonOption,
    /// A path of a mounted pool
    path: PathBuf,
}

/// Show the subvolume that is mounted unless another is asked for
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct GetDefaultCommand {
    #[command(flatten)]
    json: JsonOption,
    /// A directory of a mounted pool; or image files and block devices, those of one pool, in any order
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
    #[command(flatten)]
    pool: PoolOptions,
}

/// Shown facts of a subvolume.
#[derive(Debug)]
struct Row {
    id: u64,
    parent: u64,
    generation: u64,
    created_generation: u64,
    created: Timestamp,
    uuid: Uuid,
    parent_uuid: Uuid,
    received_uuid: Uuid,
    is_read_only: bool,
    path: Vec<u8>,
}

const TOP_LEVEL: u64 = 5;

/// Runs `subvolume list`.
pub(crate) fn list(command: &ListCommand) -> Result<ExitCode> {
    let (mut rows, _) = rows(&command.places, &command.pool)?;
    let has = |uuid: &Uuid| *uuid != Uuid([0; 16]);
    rows.retain(|row| row.id != TOP_LEVEL);
    rows.retain(|row| !command.read_only || row.is_read_only);
    rows.retain(|row| !command.snapshots || has(&row.parent_uuid));
    if command.json.json {
        output::print_json(&Value::Array(rows.iter().map(Row::to_json).collect()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    for row in rows {
        row.print_line(&mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `subvolume show`.
pub(crate) fn show(command: &ShowCommand) -> Result<ExitCode> {
    let info = Mounted::open(&command.path)?.subvolume()?;
    let row = Row::of_mounted(&info, text(&info.name).to_vec());
    if command.json.json {
        output::print_json(&row.to_json())?;
    } else {
        let mut out = output::stdout();
        row.print(&mut out)?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `subvolume get-default`.
pub(crate) fn get_default(command: &GetDefaultCommand) -> Result<ExitCode> {
    let (rows, default) = rows(&command.places, &command.pool)?;
    let row = rows.iter().find(|row| row.id == default);
    if command.json.json {
        output::print_json(&row.map_or_else(|| json!({ "id": default }), Row::to_json))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    match row.filter(|row| row.id != TOP_LEVEL) {
        Some(row) => row.print_line(&mut out)?,
        None if default == TOP_LEVEL => writeln!(out, "ID {TOP_LEVEL} (the top level)")?,
        None => writeln!(out, "ID {default} (deleted)")?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Rows of all subvolumes, and the id of the default one.
fn rows(places: &[PathBuf], pool: &PoolOptions) -> Result<(Vec<Row>, u64)> {
    if let [place] = places
        && place.is_dir()
    {
        let (records, default) = Mounted::open(place)?.subvolumes()?;
        let row = |record: SubvolumeRecord| Row::of_mounted(&record.info, record.path);
        return Ok((records.into_iter().map(row).collect(), default));
    }
    let filesystem = pool.open(places)?;
    let rows = filesystem.subvolumes()?.into_iter().map(Row::of_pool).collect();
    Ok((rows, filesystem.default_subvolume()?.get()))
}

impl Row {
    fn of_mounted(info: &SubvolumeInfo, path: Vec<u8>) -> Self {
        let created = info.times[1];
        Self {
            id: info.id,
            parent: info.parent,
            generation: info.generation,
            created_generation: info.transactions[1],
            created: Timestamp { seconds: created.seconds.cast_signed(), nanoseconds: created.nanoseconds },
            uuid: Uuid(info.uuid),
            parent_uuid: Uuid(info.parent_uuid),
            received_uuid: Uuid(info.received_uuid),
            is_read_only: RootFlags::from_bits_retain(info.flags).contains(RootFlags::RDONLY),
            path,
        }
    }

    fn of_pool(subvolume: Subvolume) -> Self {
        Self {
            id: subvolume.id.get(),
            parent: subvolume.parent.map_or(0, RootId::get),
            generation: subvolume.generation,
            created_generation: subvolume.created_generation,
            created: subvolume.created,
            uuid: subvolume.uuid,
            parent_uuid: subvolume.parent_uuid,
            received_uuid: subvolume.received_uuid,
            is_read_only: subvolume.flags.contains(RootFlags::RDONLY),
            path: subvolume.path,
        }
    }

    fn to_json(&self) -> Value {
        let uuid = |uuid: &Uuid| (*uuid != Uuid([0; 16])).then(|| uuid.to_string());
        json!({
            "id": self.id,
            "path": name_json(&self.path),
            "parent": self.parent,
            "generation": self.generation,
            "created_generation": self.created_generation,
            "created": Civil::from_epoch(self.created.seconds).to_string(),
            "uuid": uuid(&self.uuid),
            "parent_uuid": uuid(&self.parent_uuid),
            "received_uuid": uuid(&self.received_uuid),
            "read_only": self.is_read_only,
        })
    }

    fn print_line(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { id, generation, parent, path, .. } = self;
        write!(out, "ID {id} gen {generation} top level {parent} path ")?;
        out.write_all(&shown_name(path))?;
        writeln!(out)
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let uuid = |uuid: &Uuid| match uuid {
            Uuid(bytes) if *bytes == [0; 16] => "-".to_owned(),
            uuid => uuid.to_string(),
        };
        let name = if self.path.is_empty() { &b"<top level>"[..] } else { &shown_name(&self.path) };
        write!(out, "{:<20}", "Name:")?;
        out.write_all(name)?;
        writeln!(out)?;
        let lines = [
            ("UUID", uuid(&self.uuid)),
            ("Parent UUID", uuid(&self.parent_uuid)),
            ("Received UUID", uuid(&self.received_uuid)),
            ("Creation time", format!("{} UTC", Civil::from_epoch(self.created.seconds))),
            ("Subvolume ID", self.id.to_string()),
            ("Generation", self.generation.to_string()),
            ("Gen at creation", self.created_generation.to_string()),
            ("Parent ID", self.parent.to_string()),
            ("Flags", if self.is_read_only { "readonly" } else { "-" }.to_owned()),
        ];
        for (label, value) in lines {
            writeln!(out, "{:<20}{value}", format!("{label}:"))?;
        }
        Ok(())
    }
}
