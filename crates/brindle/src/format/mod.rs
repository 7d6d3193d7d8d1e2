//! Formats of numbers, times and modes.

mod mode;
mod table;
mod time;
mod units;

pub(crate) use mode::{kind_text, mode_text};
pub(crate) use table::{Align, write_ruled, write_table};
pub(crate) use time::{Civil, long_listing_time};
pub(crate) use units::{ShortUnits, UnitMode, UnitOptions};
