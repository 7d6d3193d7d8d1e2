//! Contents that are written, against plain arrays of bytes.

mod bench;
mod random;
mod rules;
