//! Strips as a picture: one SVG document.
//!
//! Lengths are in tenths of a pixel, as whole numbers. Strips are to scale, but for devices that would be hard to see beside
//! larger ones. Neighbours of the same kind that would be narrower than a line become one block with the fill of all.

use crate::format::UnitMode;
use brindle_policy::tier::strips::{Piece, PieceKind, Strip};
use std::fmt::Write;

/// A strip with its names.
pub(super) struct Labelled {
    /// The device and its pieces.
    pub(super) strip: Strip,
    /// Path of the device.
    pub(super) name: String,
    /// Class of the device.
    pub(super) class: String,
}

/// A picture of a pool.
pub(super) struct Picture {
    /// Its title.
    pub(super) title: String,
    /// Its devices.
    pub(super) strips: Vec<Labelled>,
}

/// Width of the picture, in pixels.
const WIDTH: u64 = 1200;
/// Margin on all sides, in pixels.
const MARGIN: u64 = 24;
/// Height of a strip, in pixels.
const BAR: u64 = 44;
/// Height of a strip with its label and the space below, in pixels.
const ROW: u64 = 86;
/// First line of strips, in pixels.
const TOP: u64 = 76;
/// Least width of a block that stands alone, in tenths of a pixel.
const LEAST: u64 = 25;
/// Least width of a strip, as a part of the longest.
const LEAST_PART: u64 = 12;

/// Rules for all colours, in a form that simple viewers know: no variables.
const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#1c2126}.h{font-size:18px;font-weight:600}.n{font-weight:600}.q{opacity:.72}
.t{opacity:.38}.bad{fill:none;stroke:#d8202f;stroke-width:2}.badmark{fill:#d8202f}
.page{fill:#fff}.free{fill:#e4e7ea}.metadata{fill:#e07b12}.system{fill:#8250c8}.fast_data{fill:#0e9384}.write_back{fill:#c2a500}
.data{fill:#3277c9}.mixed{fill:#6b7784}
@media(prefers-color-scheme:dark){text{fill:#e3e7eb}.bad{stroke:#ff5a66}.badmark{fill:#ff5a66}
.page{fill:#14181c}.free{fill:#2b3239}.metadata{fill:#f09a3e}.system{fill:#a983e6}.fast_data{fill:#2fbfae}.write_back{fill:#dcc540}
.data{fill:#5b9ce6}.mixed{fill:#94a1ae}}
";

impl Picture {
    /// The document.
    pub(super) fn draw(&self) -> String {
        let kinds: Vec<PieceKind> =
            PieceKind::ALL.into_iter().filter(|kind| self.bytes_of(*kind).0 > 0).collect();
        let rows = self.strips.len() as u64;
        let height = TOP + rows * ROW + 64;
        let mut out = String::new();
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             role=\"img\" aria-labelledby=\"title desc\">"
        );
        let _ = writeln!(out, "<title id=\"title\">{}</title>", escape(&self.title));
        let _ = writeln!(out, "<desc id=\"desc\">{}</desc>", escape(&self.description()));
        let _ = writeln!(out, "<style>{STYLE}</style>");
        let _ = writeln!(out, "<rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>");
        let _ = writeln!(out, "<text class=\"h\" x=\"{MARGIN}\" y=\"36\">{}</text>", escape(&self.title));
        let hint = "a strip a device, in physical order; each block group is filled as far as it is used";
        let _ = writeln!(out, "<text class=\"q\" x=\"{MARGIN}\" y=\"56\">{hint}</text>");
        for (row, labelled) in (0..).zip(&self.strips) {
            self.draw_strip(&mut out, TOP + row * ROW, labelled);
        }
        self.draw_legend(&mut out, TOP + rows * ROW + 16, &kinds);
        out.push_str("</svg>\n");
        out
    }

    /// Width of a strip, in tenths of a pixel.
    fn width_of(&self, strip: &Strip) -> u64 {
        let longest = self.strips.iter().map(|it| it.strip.total_bytes).max().unwrap_or(0).max(1);
        let whole = (WIDTH - 2 * MARGIN) * 10;
        scale(strip.total_bytes, longest, whole).max(whole / LEAST_PART)
    }

    fn draw_strip(&self, out: &mut String, y: u64, Labelled { strip, name, class }: &Labelled) {
        let size = |bytes| UnitMode::DEFAULT.format(bytes);
        let allocated: u64 = strip.pieces.iter().map(|piece| piece.length_bytes).sum();
        let _ = writeln!(
            out,
            "<g><text x=\"{MARGIN}\" y=\"{}\"><tspan class=\"n\">{} {}</tspan> <tspan class=\"q\">{}, {}, {} allocated</tspan></text>",
            y + 14,
            strip.devid,
            escape(name),
            escape(class),
            size(strip.total_bytes),
            size(allocated),
        );
        let (top, width) = (y + 22, self.width_of(strip));
        let _ = writeln!(
            out,
            "<rect class=\"free\" x=\"{MARGIN}\" y=\"{top}\" width=\"{}\" height=\"{BAR}\"><title>unallocated: {}</title></rect>",
            tenths(width),
            size(strip.total_bytes.saturating_sub(allocated)),
        );
        let blocks = blocks(strip, width);
        for block in &blocks {
            block.draw(out, top);
        }
        // Frames lie above their neighbours.
        for block in blocks.iter().filter(|block| block.is_misplaced) {
            block.frame(out, top);
        }
        out.push_str("</g>\n");
    }

    fn draw_legend(&self, out: &mut String, y: u64, kinds: &[PieceKind]) {
        let mut x = MARGIN;
        let mut entry = |class: &str, is_frame: bool, text: &str| {
            let (shape, inset) = if is_frame { ("bad", 1) } else { (class, 0) };
            let _ = writeln!(
                out,
                "<rect class=\"{shape}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>",
                x + inset,
                y + inset,
                14 - 2 * inset,
                14 - 2 * inset,
                x + 20,
                y + 12,
                escape(text),
            );
            x += 20 + text.chars().count() as u64 * 7 + 24;
        };
        for kind in kinds {
            let (bytes, _) = self.bytes_of(*kind);
            entry(kind.name(), false, &format!("{} {}", words(*kind), UnitMode::DEFAULT.format(bytes)));
        }
        let misplaced: u64 = PieceKind::ALL.iter().map(|kind| self.bytes_of(*kind).1).sum();
        if misplaced > 0 {
            entry("bad", true, &format!("misplaced {}", UnitMode::DEFAULT.format(misplaced)));
        }
        entry("free", false, "unallocated");
    }

    /// Bytes of a kind on all devices, and misplaced ones of these.
    fn bytes_of(&self, kind: PieceKind) -> (u64, u64) {
        let pieces = || self.strips.iter().flat_map(|it| &it.strip.pieces).filter(|piece| piece.kind == kind);
        let sum = |misplaced: bool| {
            pieces().filter(|piece| piece.is_misplaced || !misplaced).map(|piece| piece.length_bytes).sum()
        };
        (sum(false), sum(true))
    }

    /// The picture in words, for readers that do not see it.
    fn description(&self) -> String {
        let of_strip = |Labelled { strip, name, class }: &Labelled| {
            let mut kinds = Vec::new();
            for kind in PieceKind::ALL {
                let pieces = strip.pieces.iter().filter(|piece| piece.kind == kind);
                let bytes: u64 = pieces.map(|piece| piece.length_bytes).sum();
                if bytes > 0 {
                    kinds.push(format!("{} {}", words(kind), UnitMode::DEFAULT.format(bytes)));
                }
            }
            let total = UnitMode::DEFAULT.format(strip.total_bytes);
            format!("Device {} {name} ({class}, {total}): {}.", strip.devid, kinds.join(", "))
        };
        self.strips.iter().map(of_strip).collect::<Vec<_>>().join(" ")
    }
}

/// A block of the picture: a piece, or neighbours of the same kind. Lengths are in tenths of a pixel.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    x: u64,
    width: u64,
    kind: PieceKind,
    is_misplaced: bool,
    used_bytes: u64,
    group_bytes: u64,
    pieces: u64,
    /// The piece, if it is alone.
    text: String,
}

/// Blocks of a strip of this width.
fn blocks(strip: &Strip, width: u64) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let place = |bytes: u64| scale(bytes, strip.total_bytes.max(1), width);
    for piece in &strip.pieces {
        let start = place(piece.start).min(width);
        let end = place(piece.start.saturating_add(piece.length_bytes)).clamp(start, width);
        let next = Block {
            x: start,
            width: end - start,
            kind: piece.kind,
            is_misplaced: piece.is_misplaced,
            used_bytes: piece.used_bytes,
            group_bytes: piece.group_bytes,
            pieces: 1,
            text: tell(piece),
        };
        match blocks.last_mut().filter(|last| last.can_take(&next)) {
            Some(last) => last.take(&next),
            None => blocks.push(next),
        }
    }
    blocks
}

impl Block {
    fn can_take(&self, next: &Self) -> bool {
        let is_alike = self.kind == next.kind && self.is_misplaced == next.is_misplaced;
        is_alike && next.x <= self.x + self.width + 1 && self.width < LEAST
    }

    fn take(&mut self, next: &Self) {
        self.width = next.x + next.width - self.x;
        self.used_bytes = self.used_bytes.saturating_add(next.used_bytes);
        self.group_bytes = self.group_bytes.saturating_add(next.group_bytes);
        self.pieces += next.pieces;
        let (used, all) =
            (UnitMode::DEFAULT.format(self.used_bytes), UnitMode::DEFAULT.format(self.group_bytes));
        self.text = format!("{} block groups of {}: {used} of {all} used", self.pieces, words(self.kind));
    }

    fn draw(&self, out: &mut String, top: u64) {
        // A gap of half a pixel tells wide neighbours apart; a thin block is a line at least.
        let width = if self.width > 40 { self.width - 5 } else { self.width.max(5) };
        let full = scale(self.used_bytes.min(self.group_bytes), self.group_bytes.max(1), BAR * 10);
        let (x, class) = (tenths(MARGIN * 10 + self.x), self.kind.name());
        let _ = write!(
            out,
            "<g class=\"{class}\"><title>{}</title><rect class=\"t\" x=\"{x}\" y=\"{top}\" width=\"{1}\" height=\"{BAR}\"/>",
            escape(&self.text),
            tenths(width),
        );
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"{}\"/></g>",
            tenths((top + BAR) * 10 - full),
            tenths(width),
            tenths(full),
        );
    }

    /// The frame of a misplaced block, or marks above and below where there is no room for one.
    fn frame(&self, out: &mut String, top: u64) {
        let x = MARGIN * 10 + self.x;
        if self.width > 60 {
            let (x, width) = (tenths(x + 10), tenths(self.width - 25));
            let _ = writeln!(
                out,
                "<rect class=\"bad\" x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"{}\"/>",
                top + 1,
                BAR - 2
            );
            return;
        }
        for y in [top - 3, top + BAR] {
            let (x, width) = (tenths(x), tenths(self.width.max(10)));
            let _ =
                writeln!(out, "<rect class=\"badmark\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"3\"/>");
        }
    }
}

/// A piece in words.
fn tell(piece: &Piece) -> String {
    let size = |bytes| UnitMode::DEFAULT.format(bytes);
    format!(
        "{} {} at {}: {} of {} used, {} here{}",
        words(piece.kind),
        piece.profile,
        piece.logical,
        size(piece.used_bytes),
        size(piece.group_bytes),
        size(piece.length_bytes),
        if piece.is_misplaced { ", misplaced" } else { "" },
    )
}

fn words(kind: PieceKind) -> &'static str {
    match kind {
        PieceKind::Metadata => "metadata",
        PieceKind::System => "system",
        PieceKind::Data => "data",
        PieceKind::FastData => "data of small and marked files",
        PieceKind::WriteBack => "data that waits",
        PieceKind::Mixed => "data and metadata",
    }
}

/// A part of a whole, on another scale, rounded to the nearest.
fn scale(part: u64, whole: u64, to: u64) -> u64 {
    let scaled = (u128::from(part) * u128::from(to) + u128::from(whole) / 2) / u128::from(whole);
    u64::try_from(scaled).unwrap_or(to)
}

/// Tenths of a pixel as pixels.
fn tenths(value: u64) -> String {
    match value % 10 {
        0 => (value / 10).to_string(),
        rest => format!("{}.{rest}", value / 10),
    }
}

/// Text of an XML document. Characters that it can't hold become question marks.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
