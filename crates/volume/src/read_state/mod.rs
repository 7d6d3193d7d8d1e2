//! The state of reading, which stays from one read to the next. A pool has the settings of the choice of mirrors and the ranges that were
//! fetched in advance ([`choosing`], [`prefetched`]), each of its devices has a load ([`load`]), and [`fetch`] is a request to a device
//! that is under way. The reads themselves are in `read`, which knows pools and devices; nothing here does.

mod choosing;
mod fetch;
mod load;
mod prefetched;

pub(crate) use choosing::Choosing;
pub use fetch::FetchedBytes;
pub(crate) use fetch::{FetchPlan, Part, slices};
pub(crate) use load::{Answered, Clock, Load};
#[cfg(test)]
pub(crate) use prefetched::BYTES_MAX;
pub(crate) use prefetched::{Found, NewRange, Slice};
