//! Contents that are written, against plain arrays of bytes.

mod autodefrag;
mod bench;
mod failing;
mod fetched;
mod fragmented;
mod logged;
pub(crate) mod patterns;
mod random;
mod rules;
mod times;
mod torn;
