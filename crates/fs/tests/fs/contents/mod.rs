//! Contents that are written, against plain arrays of bytes.

mod bench;
mod logged;
mod patterns;
mod random;
mod rules;
mod times;
