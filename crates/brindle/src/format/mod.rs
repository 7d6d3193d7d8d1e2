//! How numbers, times and modes are written.

mod mode;
mod time;
mod units;

pub(crate) use mode::{kind_text, mode_text};
pub(crate) use time::{Civil, long_listing_time};
pub(crate) use units::{UnitMode, UnitOptions};
