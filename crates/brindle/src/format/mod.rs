//! How numbers and times are written.

#[allow(dead_code)]mod time;
mod units;

pub(crate) use time::{Civil, long_listing_time};
pub(crate) use units::{UnitMode, UnitOptions};
