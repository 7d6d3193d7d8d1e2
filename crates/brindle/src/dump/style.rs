//! Style of the text of items, and the line of one that is corrupt.

use super::Text;
use std::fmt::Display;
use std::io;

/// Style of printed items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemStyle {
    /// Length of a checksum, in bytes.
    pub(crate) checksum_size: usize,
    /// The least unit of data, in bytes.
    pub(crate) sectorsize: u32,
    /// Show `HIDDEN` in place of names and values.
    pub(crate) hide_names: bool,
    /// List every checksum of a checksum item.
    pub(crate) checksums: bool,
}

/// Says why an item, or what is left of it, can't be shown.
pub(super) fn print_defect(out: Text<'_>, defect: &dyn Display) -> io::Result<()> {
    writeln!(out, "\t\tcorrupt item: {defect}")
}
