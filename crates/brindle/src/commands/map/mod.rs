//! `brindle map`: the devices of a pool as a picture, or as data.
//!
//! # The walk
//!
//! The facts are those of `brindle tier`: devices with classes, and chunks with their places. `policy` makes a strip of each
//! device, and [`svg`] draws the strips.

mod svg;

use crate::commands::tier::facts::{ClassOptions, Facts};
use crate::output;
use anyhow::Result;
use brindle_admin::tier::ClassifiedDevice;
use brindle_policy::tier::Content;
use brindle_policy::tier::strips::{Piece, PieceKind, Strip, strips};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use svg::{Labelled, Picture};

const EXAMPLES: &str = "\
EXAMPLES
  Before and after metadata moves to the SSDs:
    brindle map --svg -o before.svg /mnt
    brindle tier apply /mnt
    brindle map --svg -o after.svg /mnt

EXIT STATUS
  0  success
  1  failure
  2  wrong usage";

/// Draw the places of block groups on the devices of a pool
///
/// The picture has a strip for each device, as long as its size, in physical order: a block for each block group, coloured by
/// its kind and filled as far as it is used, with a red frame if it is misplaced, and grey for unallocated space. It is one SVG
/// file without scripts, for light and dark pages; blocks tell their numbers under the pointer.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MapCommand {
    /// Draw a picture
    #[arg(long, required_unless_present = "json")]
    svg: bool,
    /// Report the same as JSON
    #[arg(long, conflicts_with = "svg")]
    json: bool,
    /// Write this file instead of standard output; it is replaced as a whole
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    classes: ClassOptions,
    /// A directory of a mounted pool, or the devices of one that is not mounted
    #[arg(required = true, value_name = "PATH|DEVICE")]
    paths: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn run(command: &MapCommand) -> Result<ExitCode> {
    let facts = Facts::gather(&command.paths, &command.classes)?;
    let strips = strips(&facts.pool, facts.has_both_classes());
    let label = |strip: &Strip| {
        let device = facts.devices.iter().find(|device| device.devid == strip.devid);
        (strip.clone(), device)
    };
    let strips: Vec<(Strip, Option<&ClassifiedDevice>)> = strips.iter().map(label).collect();
    let text = if command.svg {
        let labelled = |(strip, device): &(Strip, Option<&ClassifiedDevice>)| Labelled {
            strip: strip.clone(),
            name: device.map_or_else(String::new, name_of),
            class: device.map_or_else(String::new, |device| facts.shown_class(device)),
        };
        let title = match facts.label().as_str() {
            "" => format!("Pool {}", facts.fsid),
            label => format!("{label}, pool {}", facts.fsid),
        };
        Picture { title, strips: strips.iter().map(labelled).collect() }.draw()
    } else {
        let devices: Vec<Value> = strips.iter().map(|(strip, device)| strip_json(strip, *device)).collect();
        output::json_text(json!({ "uuid": facts.fsid.to_string(), "devices": devices }))?
    };
    output::print_or_replace(command.output.as_deref(), &text)?;
    Ok(ExitCode::SUCCESS)
}

fn name_of(device: &ClassifiedDevice) -> String {
    match device.path.as_os_str().is_empty() {
        true => "missing".to_owned(),
        false => device.path.display().to_string(),
    }
}

/// Content of block groups of a kind.
fn content_of(kind: PieceKind) -> Content {
    match kind {
        PieceKind::Metadata => Content::Metadata,
        PieceKind::System => Content::System,
        PieceKind::Data | PieceKind::FastData | PieceKind::WriteBack => Content::Data,
        PieceKind::Mixed => Content::Mixed,
    }
}

fn strip_json(strip: &Strip, device: Option<&ClassifiedDevice>) -> Value {
    let piece = |piece: &Piece| {
        json!({
            "physical": piece.start,
            "length_bytes": piece.length_bytes,
            "content": content_of(piece.kind).to_string(),
            "kind": piece.kind.name(),
            "profile": piece.profile.to_string(),
            "logical": piece.logical.get(),
            "group_bytes": piece.group_bytes,
            "used_bytes": piece.used_bytes,
            "is_misplaced": piece.is_misplaced,
        })
    };
    let path = device.map(|device| &device.path).filter(|path| !path.as_os_str().is_empty());
    json!({
        "devid": strip.devid.get(),
        "path": path.map(|path| path.display().to_string()),
        "class": device.map(|device| device.class.0.to_string()),
        "class_name": device.map(|device| &device.class_name),
        "rank": device.map(|device| device.rank),
        "total_bytes": strip.total_bytes,
        "extents": strip.pieces.iter().map(piece).collect::<Vec<_>>(),
    })
}
