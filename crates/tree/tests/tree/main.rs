//! What the crate does as a whole.

mod cursor;
mod readers;
mod stop;
mod writing;
