//! `inspect-internal list-chunks` and `min-dev-size`.

use crate::commands::pool::open_pool;
use crate::commands::refused::explain_admin;
use crate::format::{Align, UnitMode, UnitOptions, write_table};
use crate::options::JsonOption;
use crate::output;
use anyhow::{Result, bail};
use brindle_admin::tier::Inventory;
use brindle_admin::{DevId, PoolFacts, Reach};
use brindle_policy::tier::{Content, TierChunk};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
    brindle inspect-internal list-chunks --sort usage /mnt
    brindle inspect-internal min-dev-size --id 2 /mnt

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Order of the list.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// By device and place on it
    Pstart,
    /// By logical address
    Lstart,
    /// By used share
    Usage,
    /// By length
    Length,
}

/// List the chunks of a pool, a line for each piece on a device
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ListChunksCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Order of the list
    #[arg(long, value_enum, default_value = "pstart")]
    sort: Order,
    /// A directory of a mounted pool; or image files and block devices, those of one pool
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
    #[command(flatten)]
    units: UnitOptions,
}

/// Show the size down to which a device can be shrunk without moving anything
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MinDevSizeCommand {
    #[command(flatten)]
    json: JsonOption,
    /// Id of the device
    #[arg(long, value_name = "DEVID", default_value_t = 1)]
    id: u64,
    /// A directory of a mounted pool; or image files and block devices, those of one pool
    #[arg(required = true, value_name = "PATH|DEVICE")]
    places: Vec<PathBuf>,
}

/// A piece of a chunk on a device.
struct Piece<'c> {
    chunk: &'c TierChunk,
    devid: DevId,
    physical: u64,
}

fn inventory(places: &[PathBuf]) -> Result<Inventory> {
    let facts: Box<dyn PoolFacts> = Reach::of(places)?.ask(open_pool)?;
    facts.inventory().map_err(explain_admin)
}

/// Runs `list-chunks`.
pub(super) fn list(command: &ListChunksCommand) -> Result<ExitCode> {
    let inventory = inventory(&command.places)?;
    let mut pieces: Vec<Piece<'_>> = inventory
        .chunks
        .iter()
        .flat_map(|chunk| {
            let piece = |stripe: &brindle_policy::tier::TierStripe| Piece {
                chunk,
                devid: stripe.devid,
                physical: stripe.physical.get(),
            };
            chunk.stripes.iter().map(piece).collect::<Vec<_>>()
        })
        .collect();
    pieces.sort_by_key(|piece| {
        let key = match command.sort {
            Order::Pstart => 0,
            Order::Lstart => piece.chunk.logical.get(),
            Order::Usage => ten_thousandths(piece.chunk),
            Order::Length => piece.chunk.length_bytes,
        };
        (key, piece.devid, piece.physical)
    });
    if command.json.json {
        let pieces: Vec<Value> = pieces.iter().map(piece_json).collect();
        output::print_json(&json!({ "uuid": inventory.fsid.to_string(), "chunks": pieces }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["Devid", "Type/profile", "PStart", "Length", "PEnd", "LStart", "Usage%"].map(str::to_owned);
    let mode = command.units.mode();
    let rows: Vec<Vec<String>> =
        std::iter::once(head.to_vec()).chain(pieces.iter().map(|piece| row(piece, mode))).collect();
    let mut out = output::stdout();
    let columns =
        [Align::Right, Align::Left, Align::Right, Align::Right, Align::Right, Align::Right, Align::Right];
    write_table(&mut out, &columns, &rows)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn row(piece: &Piece<'_>, mode: UnitMode) -> Vec<String> {
    let stripe_bytes = piece.chunk.stripe_bytes();
    let usage = ten_thousandths(piece.chunk);
    let profile = piece.chunk.profile();
    vec![
        piece.devid.to_string(),
        format!("{}/{profile}", piece.chunk.kind.content_name()),
        mode.format(piece.physical),
        mode.format(stripe_bytes),
        mode.format(piece.physical.saturating_add(stripe_bytes)),
        mode.format(piece.chunk.logical.get()),
        format!("{}.{:02}", usage / 100, usage % 100),
    ]
}

fn piece_json(piece: &Piece<'_>) -> Value {
    json!({
        "devid": piece.devid.get(),
        "content": Content::of(piece.chunk.kind).to_string(),
        "profile": piece.chunk.profile().to_string(),
        "physical": piece.physical,
        "physical_bytes": piece.chunk.stripe_bytes(),
        "logical": piece.chunk.logical.get(),
        "total_bytes": piece.chunk.length_bytes,
        "used_bytes": piece.chunk.used_bytes,
    })
}

/// The used share of a chunk.
fn ten_thousandths(chunk: &TierChunk) -> u64 {
    let share = u128::from(chunk.used_bytes) * 10_000 / u128::from(chunk.length_bytes.max(1));
    u64::try_from(share).unwrap_or(10_000)
}

/// Runs `min-dev-size`.
pub(super) fn min_dev_size(command: &MinDevSizeCommand) -> Result<ExitCode> {
    /// Allocation keeps off the first MiB of each device.
    const RESERVED_BYTES: u64 = 1 << 20;
    let inventory = inventory(&command.places)?;
    let devid = DevId::new(command.id);
    if !inventory.devices.iter().any(|device| device.devid == devid) {
        bail!("the pool has no device with the id {devid}");
    }
    let end = |chunk: &TierChunk| {
        let on_device = chunk.stripes.iter().filter(|stripe| stripe.devid == devid);
        on_device.map(|stripe| stripe.physical.get().saturating_add(chunk.stripe_bytes())).max()
    };
    let bytes = inventory.chunks.iter().filter_map(end).max().unwrap_or(0).max(RESERVED_BYTES);
    if command.json.json {
        output::print_json(&json!({ "devid": command.id, "min_bytes": bytes }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    writeln!(out, "{bytes} bytes ({})", UnitMode::DEFAULT.format(bytes))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
